"""Every example of every rule: run for real, read as source, or read as a log."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from torchmedic import registry
from torchmedic.diagnosis import diagnose_log, diagnose_source
from torchmedic.logs.tracebacks import read_log
from torchmedic.model import Example, Rule
from torchmedic.source.script import Script

CASES = list(registry.cases())
SOURCE = Path(registry.__file__).resolve().parents[1]
Findings = list[dict[str, Any]]


@pytest.mark.parametrize(("rule", "example"), [case[1:] for case in CASES],
                         ids=[case[0] for case in CASES])
def test_example(rule: Rule, example: Example, tmp_path: Path) -> None:
    findings, right = seen(example, tmp_path)
    if example.fires:
        check_finding(rule, example, findings)
    else:
        assert rule.name not in [finding["rule"] for finding in findings]
        if right:  # it ended well, so no other fault is in it
            assert [f for f in findings if f["severity"] != "info"] == []


def seen(example: Example, folder: Path) -> tuple[Findings, bool]:
    """What is found, and whether the example is a program that ended well."""
    if example.kind == "program":
        return run(example, folder)
    if example.kind == "checkpoint":
        return read_checkpoint(example, folder)
    notes: list[str] = []
    if example.kind == "log":
        found = diagnose_log(read_log(example.text), registry.rules(), notes)
    else:
        script = Script.parse(example.text, "train.py")
        assert script is not None, "the example is no Python"
        # As `check` chooses them: by the words in the text.
        rules = tuple(registry.for_source(example.text))
        found = diagnose_source(script, rules, notes)
    assert notes == []
    return [asdict(finding) for finding in found], False


def run(example: Example, folder: Path) -> tuple[Findings, bool]:
    (folder / "train.py").write_text(example.text, encoding="utf-8")
    report = folder / "report.json"
    command = [
        sys.executable, "-m", "torchmedic", "run", *example.options, "--output-format", "json",
        "-o", str(report), "--", sys.executable, "train.py", *example.args,
    ]
    done = subprocess.run(command, cwd=folder, env=environment(folder), timeout=150, text=True,
                          stdin=subprocess.DEVNULL, capture_output=True)
    assert report.exists(), done.stderr
    diagnosis = json.loads(report.read_text(encoding="utf-8"))
    assert not [note for note in diagnosis.get("notes", ()) if note.startswith("rule ")]
    assert example.exit_code in (None, done.returncode), done.stderr
    return diagnosis["findings"], done.returncode == 0


def read_checkpoint(example: Example, folder: Path) -> tuple[Findings, bool]:
    """What `torchmedic weights` says of the file that the example's program writes."""
    (folder / "train.py").write_text(example.text, encoding="utf-8")
    subprocess.run([sys.executable, "train.py"], cwd=folder, env=environment(folder), timeout=150,
                   check=True)
    model = ["--model", "train:build"] if "def build(" in example.text else []
    command = [sys.executable, "-m", "torchmedic", "weights", "checkpoint.pt", *model,
               *example.options, "--output-format", "json"]
    done = subprocess.run(command, cwd=folder, env=environment(folder), timeout=150, text=True,
                          capture_output=True)
    assert done.returncode in (0, 1), done.stderr
    diagnosis = json.loads(done.stdout)
    assert not [note for note in diagnosis.get("notes", ()) if note.startswith("rule ")]
    return diagnosis["findings"], done.returncode == 0


def environment(folder: Path) -> dict[str, str]:
    """One thread, no cache of others' runs, and the package as it is here."""
    path = os.pathsep.join(filter(None, (str(SOURCE), os.environ.get("PYTHONPATH"))))
    return dict(os.environ, PYTHONPATH=path, OMP_NUM_THREADS="1", NO_COLOR="1",
                XDG_STATE_HOME=str(folder / "state"), TORCHMEDIC_DEBUG="1")


def check_finding(rule: Rule, example: Example, findings: Findings) -> None:
    assert findings, "nothing was found"
    main = findings[0]
    assert main["rule"] == rule.name, [finding["message"] for finding in findings]
    text = told(main)
    assert [say for say in example.says if say not in text] == [], text
    if example.line is not None:
        number = (main.get("where") or {}).get("line")
        lines = example.text.split("\n")
        assert number is not None, text
        if example.kind != "log":
            assert example.line in lines[number - 1]


def told(finding: dict[str, Any]) -> str:
    """Message, evidence and fix as one text."""
    fix = finding.get("fix") or {}
    parts = [finding["message"], *(fact["text"] for fact in finding.get("evidence", ()))]
    return "\n".join([*parts, *(fix.get(key) or "" for key in ("title", "detail", "command"))])
