"""Each way to end, with a real process: the report names the cause, the place and the moment."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from programs import CASES, Case


def run(folder: Path, text: str, *options: str) -> tuple[subprocess.CompletedProcess[str], Any]:
    """Runs a program as a person would; returns what was printed, and the report as data."""
    (folder / "train.py").write_text(text)
    command = [sys.executable, "-m", "torchmedic", "run", *options, "--output-format", "json",
               "-o", "report.json", "--", sys.executable, "train.py"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=120)
    return done, json.loads((folder / "report.json").read_text())


def words(findings: list[dict[str, Any]]) -> str:
    """Everything the main finding and its symptoms say."""
    said = []
    for finding in findings:
        said.append(finding["message"])
        said += [evidence["text"] for evidence in finding.get("evidence") or ()]
        said += [str(part) for part in (finding.get("fix") or {}).values()]
    return "\n".join(said)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_ending(case: Case, tmp_path: Path) -> None:
    done, report = run(tmp_path, case.text, *case.options)
    findings = report["findings"]
    assert done.returncode == case.exit_code, done.stderr
    if case.rule is None:
        assert findings == [] and report["verdict"]["category"] == "none"
        return
    main = findings[0]
    assert main["rule"] in case.rule.split("|"), words(findings)
    assert report["verdict"]["rule"] == main["rule"]
    assert main["severity"] == case.severity
    for text in case.says:
        assert text in words(findings)
    where = main.get("where") or {}
    assert case.batch is None or where.get("batch") == case.batch
    assert case.phase is None or where.get("phase") == case.phase
    assert case.module is None or where.get("module") == case.module
    if case.marked_line is not None:
        assert where.get("line") == case.marked_line, main
    assert Path(where.get("file", "train.py")).name == "train.py"


def test_a_clean_run_prints_one_line(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(CASES[0].text)
    command = [sys.executable, "-m", "torchmedic", "run", "--", sys.executable, "train.py"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=120)
    assert done.stdout == "end of main\n"
    assert done.stderr.count("\n") == 1
    assert done.stderr.startswith("torchmedic: no failure found (")
