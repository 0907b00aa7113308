"""Hundreds of passes: the last ones are still told, and the record stays small."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from torchmedic.supervise.outcome import Outcome
from torchmedic.supervise.reading import run_of

PROGRAM = """\
import os, signal
import torch
from torch import nn
torch.set_num_threads(1)
net = nn.Linear(4, 2)
optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
data = torch.utils.data.TensorDataset(torch.randn(8, 4), torch.randn(8, 2))
loader = torch.utils.data.DataLoader(data, batch_size=4)
def train():
    for epoch in range(300):
        {fresh}
        for number, (x, y) in enumerate(loader):
            try:
                if epoch == 240 and number == 1:
                    {what}
                loss = nn.MSELoss()(net(x), y)
            except Exception:
                return  # here
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
train()
"""
FRESH = "loader = torch.utils.data.DataLoader(data, batch_size=4)"


def run(folder: Path, what: str, fresh: str) -> tuple[int, Any, Path]:
    text = PROGRAM.replace("{what}", what).replace("{fresh}", fresh)
    (folder / "train.py").write_text(text)
    command = [sys.executable, "-m", "torchmedic", "run", "--output-format", "json", "-o",
               "report.json", "--", sys.executable, "train.py"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=120)
    assert "Traceback" not in done.stderr
    report = json.loads((folder / "report.json").read_text())
    return done.returncode, report, Path(folder / report["run_folder"])


@pytest.mark.parametrize("fresh", ["global loader; pass", FRESH], ids=["one loader", "one each"])
def test_a_swallowed_exception_in_a_late_epoch(fresh: str, tmp_path: Path) -> None:
    fresh = "pass" if fresh.startswith("global") else fresh
    code, report, folder = run(tmp_path, "{}['lr']", fresh)
    main = report["findings"][0]
    assert (code, main["rule"]) == (0, "exception-swallowed")
    assert (main["where"]["epoch"], main["where"]["batch"]) == (
        (241 if fresh == "pass" else 1), 2)
    kept = sum(p.stat().st_size for p in folder.rglob("*") if p.is_file())
    assert kept < 600_000
    assert not list(folder.rglob("*.ring"))


def test_a_kill_in_a_late_epoch_names_it(tmp_path: Path) -> None:
    code, report, _ = run(tmp_path, "os.kill(os.getpid(), signal.SIGKILL)", "pass")
    main = report["findings"][0]
    assert (code, main["rule"]) == (137, "killed-by-signal")
    assert (main["where"]["epoch"], main["where"]["batch"]) == (241, 2)
    assert "in batch 2 of epoch 241" in main["message"]


def test_a_folded_record_reads_as_before(tmp_path: Path) -> None:
    _, _, folder = run(tmp_path, "pass", "pass")
    read = run_of(Outcome.read(folder), folder / "spool")
    assert read.main is not None
    assert (read.main.step, read.main.ended) == (600, True)
    assert len(read.main.iterations) < 200
    named = [event for path in (folder / "spool").glob("*.events")
             for event in map(json.loads, path.read_bytes().splitlines())
             if event["kind"] == "modules"]
    assert sum(len(event["modules"]) for event in named) == 2  # the layer, and the loss once
