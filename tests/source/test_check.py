"""`torchmedic check`: what it reads, what it says, how it ends."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import torchmedic
from torchmedic.checking import pipeline
from torchmedic.config import Settings
from torchmedic.trainings import STEP, training

SOURCE = Path(torchmedic.__file__).parents[1]
CASES = SOURCE.parents[1] / "shared" / "cases" / "scripts"
BAD = training(STEP.replace("optimizer.zero_grad()\n", ""))
REACHED = 0.65
"""Of the programs there whose fault can be read from their text."""


def check(path: str) -> list[Any]:
    settings = Settings(root=Path(path).parent)
    return pipeline.check(pipeline.found([path], settings), settings, jobs=1, cached=False).findings


def run(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    environment = dict(os.environ, PYTHONPATH=str(SOURCE), NO_COLOR="1")
    return subprocess.run([sys.executable, "-m", "torchmedic", "check", *words], cwd=folder,
                          env=environment, capture_output=True, text=True, timeout=60)


def test_a_fault_ends_with_one_and_a_clean_folder_with_nought(tmp_path):
    (tmp_path / "right.py").write_text(training())
    assert run(tmp_path).returncode == 0
    (tmp_path / "bad.py").write_text(BAD)
    done = run(tmp_path)
    assert done.returncode == 1
    assert "gradients-never-cleared" in done.stdout
    assert run(tmp_path, "missing.py").returncode == 2


def test_json_and_concise_name_the_line(tmp_path):
    (tmp_path / "bad.py").write_text(BAD)
    line = BAD[:BAD.index("loss.backward()")].count("\n") + 1
    report = json.loads(run(tmp_path, "--output-format", "json").stdout)
    where = report["findings"][0]["where"]
    assert where == {"file": "bad.py", "line": line, "column": 8}
    assert report["verdict"]["rule"] == "gradients-never-cleared"
    assert run(tmp_path, "bad.py", "--output-format", "concise").stdout.startswith(
        f"bad.py:{line}:9: gradients-never-cleared ")


def test_all_findings_count_by_file_and_line(tmp_path):
    for name in ("b.py", "a.py"):
        (tmp_path / name).write_text(BAD + BAD)
    report = json.loads(run(tmp_path, "--output-format", "json").stdout)
    places = [(f["where"]["file"], f["where"]["line"]) for f in report["findings"]]
    assert len(places) == 4
    assert places == sorted(places)


UNREADABLE = {
    "broken.py": b"def f(:\n", "old.py": b"print 'python 2'\n", "null.py": b"x = 1\0\n",
    "odd.py": b"# coding: no-such\n", "bytes.py": b"x = '\xff'\n", "note.ipynb": b"[1, 2",
}


def test_what_cant_be_read_is_one_line_and_the_others_go_on(tmp_path):
    for name, data in UNREADABLE.items():
        (tmp_path / name).write_bytes(data)
    (tmp_path / "bad.py").write_text(BAD)
    done = run(tmp_path, "--output-format", "concise")
    told = done.stderr.splitlines()
    assert sorted(line.split()[2] for line in told) == sorted(UNREADABLE)
    assert "bad.py:" in done.stdout


def test_ignored_folders_are_left_out(tmp_path):
    for place in (".venv", "lib/site-packages", "build", "made"):
        (tmp_path / place).mkdir(parents=True)
        (tmp_path / place / "bad.py").write_text(BAD)
    (tmp_path / ".git").mkdir()
    (tmp_path / ".gitignore").write_text("build/\n/made\n")
    assert run(tmp_path).returncode == 0


def test_a_notebook_is_its_cells_in_order(tmp_path):
    cells = [{"cell_type": "markdown", "source": ["text"]},
             {"cell_type": "code", "source": ["%matplotlib inline\n", "!pip list"]},
             {"cell_type": "code", "source": BAD.splitlines(keepends=True)}]
    (tmp_path / "train.ipynb").write_text(json.dumps({"cells": cells}))
    report = json.loads(run(tmp_path, "--output-format", "json").stdout)
    told = [fact["text"] for fact in report["findings"][0]["evidence"]]
    assert told[0].startswith("cell 3, line ") and told[1].startswith("cell 3 line ")
    assert "line" not in told[1].replace("cell 3 line ", "")


def test_a_class_of_another_file_is_looked_into(tmp_path):
    (tmp_path / "net.py").write_text(
        "from torch import nn\nimport torch.nn.functional as F\n\n\nclass Net(nn.Module):\n"
        "    def __init__(self):\n        super().__init__()\n        self.fc = nn.Linear(8, 3)\n\n"
        "    def forward(self, x):\n        return F.softmax(self.fc(x), dim=1)\n")
    (tmp_path / "train.py").write_text("from net import Net\n" + training(more="model = Net()\n"))
    found = check(str(tmp_path / "train.py"))
    assert [(f.rule, Path(f.where.file).name) for f in found if f.where and f.where.file] == [
        ("parameters-not-in-optimizer", "net.py"), ("softmax-before-cross-entropy", "net.py")]


def test_neither_torch_nor_rich_is_imported(tmp_path):
    (tmp_path / "bad.py").write_text(BAD)
    code = ("import sys; from torchmedic.main import main; main(['check', 'bad.py', "
            "'--output-format', 'json']); sys.exit(bool({'torch', 'rich'} & set(sys.modules)))")
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True,
                          env=dict(os.environ, PYTHONPATH=str(SOURCE)), timeout=60)
    assert done.returncode == 0


@pytest.mark.skipif(not CASES.is_dir(), reason="the cases lie beside the repository only")
def test_cases_no_right_program_is_accused_and_most_faults_are_found():
    false, hits, all_of_them = [], 0, 0
    for folder in sorted(f.parent for f in CASES.glob("*/truth.json")):
        truth = json.loads((folder / "truth.json").read_text())
        entry = truth.get("entry") or {}
        right = folder / entry.get("good", "good.py").partition("/")[0]
        false += [(folder.name, f.rule) for f in check(str(right))
                  if f.severity != "info"]
        if truth.get("static_detectable"):
            wrong = folder / entry.get("bad", "bad.py").partition("/")[0]
            hits += near(check(str(wrong)), truth["line"])
            all_of_them += 1
    assert false == []
    assert hits >= REACHED * all_of_them


def near(findings: list[Any], line: int) -> bool:
    return any(abs(f.where.line - line) <= 3 for f in findings if f.where and f.where.line)
