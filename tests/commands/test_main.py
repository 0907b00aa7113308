"""The command line as a user meets it: real processes."""

import ast
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from torchmedic import __version__, main, registry, store
from torchmedic.diagnosis import diagnose_source
from torchmedic.model import Diagnosis, Finding, Verdict
from torchmedic.rulepages import fixable
from torchmedic.source.script import Script

SOURCE = Path(main.__file__).parent
FOUND = Diagnosis(
    "run", Verdict("data", "ragged-batch", "sizes differ"),
    (Finding("ragged-batch", "data", "error", "certain", "sizes differ"),),
    {"exit_code": 1, "duration_s": 2.5})


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("PYTHONPATH", str(SOURCE.parent))
    for name in ("FORCE_COLOR", "NO_COLOR", "COLUMNS", "TORCHMEDIC_DEBUG"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.chdir(tmp_path)


def call(*words, **more):
    return subprocess.run([sys.executable, "-m", "torchmedic", *words], capture_output=True,
                          text=True, check=False, **more)


def test_help_lists_every_command_with_its_summary():
    run = call("--help")
    assert run.returncode == 0
    for file in (SOURCE / "commands").glob("[a-z]*.py"):
        tree = ast.parse(file.read_text())
        summary = next(node.value.value for node in tree.body if isinstance(node, ast.Assign)
                       and node.targets[0].id == "SUMMARY")
        assert f"{file.stem.replace('_', '-')} " in run.stdout and summary in run.stdout
    bare = call()
    assert (bare.returncode, bare.stdout) == (2, "") and "commands:" in bare.stderr
    assert call("--version").stdout == f"torchmedic {__version__}\n"


@pytest.mark.parametrize("words, said", [
    (["ruls"], "there is no command 'ruls'; did you mean `rules`?"),
    (["zzzzzz"], "there is no command 'zzzzzz'; torchmedic --help lists them"),
    (["train.py", "--lr", "1"], "torchmedic run -- python train.py --lr 1"),
    (["python", "my train.py"], "torchmedic run -- python 'my train.py'"),
    (["--verbose"], "unknown option --verbose"),
    (["rules", "--no-such"], "unrecognized arguments: --no-such"),
    (["rules", "--output-format", "xml"], "invalid choice: 'xml'"),
    (["rule"], "the following arguments are required: name"),
    (["runs", "--limit", "many"], "invalid int value: 'many'"),
    (["report"], "there are no runs here yet"),
    (["run", "--", ""], "which command? Its first word is empty"),
    (["run", "-o", "/nonexistent/x.txt", "--", "touch", "started"], "there is no folder"),
    (["run", "-o", ".", "--", "touch", "started"], "can't write .: it is a folder"),
    (["rules", "-o", "absent/file"], "can't write absent/file: No such file"),
    (["", ], "there is no command ''"),
])
def test_wrong_input(words, said):
    run = call(*words)
    assert run.returncode == 2
    assert said in run.stderr
    assert "Traceback" not in run.stderr and run.stdout == ""


def test_a_failure_of_ours_is_said_in_a_line(monkeypatch, capsys):
    from torchmedic.commands import runs

    monkeypatch.setattr(runs, "execute", lambda args: 1 / 0)
    assert main.main(["runs"]) == 125
    said = capsys.readouterr().err
    assert said.startswith("torchmedic runs: our own failure: ZeroDivisionError")
    assert said.count("\n") == 1
    monkeypatch.setenv("TORCHMEDIC_DEBUG", "1")
    with pytest.raises(ZeroDivisionError):
        main.main(["runs"])


def test_an_interrupt_is_quiet(monkeypatch, capsys):
    from torchmedic.commands import runs

    def interrupted(args):
        raise KeyboardInterrupt

    monkeypatch.setattr(runs, "execute", interrupted)
    assert main.main(["runs"]) == 130
    assert capsys.readouterr().err == ""


def test_rules():
    listed = json.loads(call("rules", "--output-format", "json").stdout)
    assert [rule["name"] for rule in listed["rules"]] == [r.name for r in registry.rules()]
    one = json.loads(call("rule", "softmax-before-cross-entropy", "--output-format", "json").stdout)
    assert one.pop("schema") == 1 and one.pop("page").startswith("# softmax-before-cross-entropy\n")
    assert one in listed["rules"] and one["fixable"] is True and "source" in one["observes"]
    assert set(one) == {"name", "family", "category", "severity", "level", "observes", "fixable",
                        "summary"}


def test_a_rule_whose_findings_carry_edits_says_that_it_is_fixable():
    for entry in registry.catalogue().entries:
        for example in entry.rule.examples if entry.rule.in_source else ():
            script = Script.parse(example.text, "x.py") if example.kind != "log" else None
            found = diagnose_source(script, (entry.rule,)) if script else ()
            if any(finding.fix and finding.fix.edits for finding in found):
                assert fixable(entry), entry.rule.name


def test_rules_for_people():
    wide = call("rules", env={**os.environ, "COLUMNS": "150"}).stdout.splitlines()
    assert wide[0].split() == ["RULE", "CATEGORY", "FOUND", "IN", "SUMMARY"]
    narrow = call("rules", env={**os.environ, "COLUMNS": "60"}).stdout
    for rule in registry.rules():
        assert any(line.startswith(f"{rule.name} ") for line in wide)
        assert rule.summary in " ".join(narrow.split())


def test_a_rules_page_and_near_names():
    for rule in registry.rules()[:2]:
        run = call("rule", rule.name)
        assert run.returncode == 0 and run.stdout.startswith(f"# {rule.name}\n")
        assert call("rule", rule.name.replace("-", "_")).stdout == run.stdout
        near = call("rule", rule.name[:-1])
        assert near.returncode == 2 and f"did you mean {rule.name}" in near.stderr
    assert "torchmedic rules lists them" in call("rule", "\x1b[31m").stderr


def test_the_history_and_its_reports(tmp_path):
    assert "no runs here yet" in call("runs").stdout
    run = store.new_run(["python", "train.py", "--token", "abc"])
    unfinished = store.new_run(["python", "other.py"])
    store.finish(run, FOUND)
    lines = call("runs", env={**os.environ, "COLUMNS": "160"}).stdout.splitlines()
    assert len(lines) == 3
    line = next(line for line in lines if run.id in line)
    assert " ".join(line.split()[3:]) == "exit 1 data: ragged-batch python train.py --token ***"
    assert "unfinished" in next(line for line in lines if unfinished.id in line)
    data = json.loads(call("runs", "--output-format", "json", "--limit", "1").stdout)
    assert len(data["runs"]) == 1
    assert call("report", run.id).stdout.startswith("DATA  ragged-batch: sizes differ\n")
    concise = call("report", run.id, "--output-format", "concise").stdout
    assert concise == "-: ragged-batch sizes differ\n"
    written = call("report", run.id, "--output-format", "json", "-o", "out.json")
    assert (written.returncode, written.stdout) == (0, "")
    assert json.loads((tmp_path / "out.json").read_text())["verdict"]["rule"] == "ragged-batch"
    assert call("report", unfinished.id).returncode == 2


def test_a_full_standard_output_is_no_failure_of_ours():
    with open("/dev/full", "w") as full:
        done = subprocess.run([sys.executable, "-m", "torchmedic", "runs"], stdout=full,
                              stderr=subprocess.PIPE, text=True, check=False)
    assert (done.returncode, done.stderr) == (
        125, "torchmedic: can't write: No space left on device\n")


def test_a_report_that_can_not_be_written_is_shown_instead(tmp_path):
    (tmp_path / "there").mkdir()
    done = call("run", "-o", "there/x.txt", "--", "rmdir", "there")
    assert done.returncode == 0 and "no failure found" in done.stderr
    assert "can't write there/x.txt: No such file or directory; the report follows" in done.stderr
    assert str(tmp_path / ".torchmedic" / "runs") in done.stderr


def test_a_closed_pipe_is_quiet():
    run = subprocess.run(
        ["bash", "-c", f"{sys.executable} -m torchmedic rules | true; echo ${{PIPESTATUS[0]}}"],
        capture_output=True, text=True, check=False)
    assert run.stderr == "" and run.stdout.strip() in ("0", "141")
    closed = subprocess.run(["bash", "-c", f"{sys.executable} -m torchmedic --help >&-"],
                            capture_output=True, text=True, check=False)
    assert closed.stderr == ""
    full = subprocess.run(["bash", "-c", f"{sys.executable} -m torchmedic --help >/dev/full"],
                          capture_output=True, text=True, check=False)
    assert full.stderr == "torchmedic: can't write: No space left on device\n"


@pytest.mark.parametrize("words", [["rules"], ["runs"], ["--help"], ["rule", "x"]])
def test_nothing_heavy_is_imported(words):
    run = subprocess.run(
        [sys.executable, "-X", "importtime", "-m", "torchmedic", *words],
        capture_output=True, text=True, check=False)
    imported = {line.rpartition("|")[2].strip() for line in run.stderr.splitlines()}
    assert "torchmedic.main" in imported
    for heavy in ("torch", "rich", "numpy", "psutil", "asyncio"):
        assert heavy not in imported, heavy
    if words != ["--help"]:
        others = {"torchmedic.commands.run", "torchmedic.commands.report"}
        assert not others & imported
