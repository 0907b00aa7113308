"""Rules exist because their files do, and each file keeps the form of a page."""

import subprocess
import sys
from pathlib import Path

import pytest

from torchmedic import registry
from torchmedic.diagnosis import diagnose_source
from torchmedic.rulepages import page, page_faults
from torchmedic.source.script import Script

RULE = '''\
"""A call to `exit` sits in the training loop.

## What you see
It stops.
## Why
`exit` was called.
## Fix
Take it out.
## When this is fine
Never.
"""
from torchmedic.model import Problem, Rule, fires


def in_source(script):
    if "exit()" in script.lines:
        yield Problem("`exit()` is called")


RULE = Rule(name="exit-in-loop", doc=__doc__, category="code", in_source=in_source,
            examples=(fires("exit()", kind="source", title="plain call"),))
'''


@pytest.fixture
def extra(tmp_path: Path):
    """A package of rules outside of ours."""
    family = tmp_path / "process"
    family.mkdir()
    (family / "__init__.py").write_text("")
    (family / "exit_in_loop.py").write_text(RULE)
    (family / "_shared.py").write_text("RULE = 1")
    (family / "broken.py").write_text("import nothing_of_this_name")
    return str(tmp_path)


def test_a_file_is_all_a_rule_needs(extra):
    entry = registry.find("exit-in-loop", extra)
    assert entry is not None and entry.rule in registry.rules(extra)
    assert registry.family(entry.rule, extra) == "process"
    assert page_faults(entry) == []
    assert "## Fix\n\nTake it out." in page(entry)
    script = Script.parse("exit()\n")
    assert script is not None
    assert "exit-in-loop" in [f.rule for f in diagnose_source(script, registry.rules(extra))]
    identities = [identity for identity, rule, _ in registry.cases(extra) if rule is entry.rule]
    assert identities == ["exit-in-loop-fires-plain-call"]


def test_a_file_that_does_not_import_is_told_and_harms_no_other(extra):
    catalogue = registry.catalogue(extra)
    assert len(catalogue.broken) == 1 and "nothing_of_this_name" in catalogue.broken[0]
    assert registry.catalogue(extra) is catalogue


def test_a_package_can_be_named(extra, monkeypatch):
    package = Path(extra) / "more_rules"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (Path(extra) / "process").rename(package / "process")
    monkeypatch.syspath_prepend(extra)
    assert registry.find("exit-in-loop", "more_rules") is not None
    assert registry.find("exit-in-loop") is None
    with pytest.raises(LookupError):
        registry.family(registry.find("exit-in-loop", "more_rules").rule)


@pytest.mark.parametrize("change, fault", [
    (("## Why", "## Because"), "heading"), (("exit-in-loop", "exit-elsewhere"), "file"),
    (("loop.\n\n##", "loop\nof two lines.\n\n##"), "first line"),
    (("in_source=in_source,", ""), "observes nothing"),
    (("It stops.\n", ""), "empty"),
])
def test_faults_of_a_page_are_found(tmp_path, change, fault):
    family = tmp_path / "process"
    family.mkdir()
    (family / "__init__.py").write_text("")
    (family / "exit_in_loop.py").write_text(RULE.replace(*change))
    entry, = (e for e in registry.catalogue(str(tmp_path)).entries
              if "torchmedic_rules_" in e.module.__name__)
    assert any(fault in said for said in page_faults(entry)), page_faults(entry)


def test_our_rules_import_and_are_sorted():
    catalogue = registry.catalogue()
    assert catalogue.broken == ()
    order = [(entry.family, entry.rule.name) for entry in catalogue.entries]
    assert order == sorted(order) and len(set(order)) == len(order)


@pytest.mark.parametrize("entry", registry.catalogue().entries, ids=lambda e: e.rule.name)
def test_our_pages_have_no_fault(entry):
    assert page_faults(entry) == []
    assert any(example.fires for example in entry.rule.examples)


def test_our_pages_in_docs_are_current():
    docs = Path(__file__).parent.parent / "docs" / "rules"
    run = subprocess.run([sys.executable, "-m", "torchmedic.rulepages", "--check", str(docs)],
                         capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr


def test_pages_are_written_and_checked(tmp_path):
    command = [sys.executable, "-m", "torchmedic.rulepages", str(tmp_path)]
    (tmp_path / "gone.md").write_text("an old page\n")
    assert subprocess.run([*command, "--check"], check=False).returncode == 1
    assert subprocess.run(command, check=False).returncode == 0
    assert not (tmp_path / "gone.md").exists()
    assert "# Rules" in (tmp_path / "README.md").read_text()
    assert subprocess.run([*command, "--check"], check=False).returncode == 0
