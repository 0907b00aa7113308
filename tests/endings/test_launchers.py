"""A death below a shell or a launcher, which keep the status of what they started to themselves."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from torchmedic.logs.statuses import told_exit_codes

PROGRAM = """\
import ctypes, os, signal, sys, time
import torch
torch.set_num_threads(1)
if "RANK" in os.environ:
    torch.distributed.init_process_group("gloo")
net = torch.nn.Linear(4, 2)
for number, x in enumerate(torch.utils.data.DataLoader(torch.randn(12, 4), batch_size=4)):
    net(x)
    if number == 1 and os.environ.get("RANK", "1") == "1":
        time.sleep(0.2)
        {death}
    if "RANK" in os.environ:
        torch.distributed.barrier()
"""
KILL = "os.kill(os.getpid(), signal.SIGKILL)"
CRASH = "ctypes.string_at(0)"
RAISE = "{}['lr']"


def run(folder: Path, death: str, *command: str) -> tuple[int, Any]:
    (folder / "train.py").write_text(PROGRAM.replace("{death}", death))
    start = [sys.executable, "-m", "torchmedic", "run", "--output-format", "json", "-o",
             "report.json", "--", *command]
    done = subprocess.run(start, cwd=folder, capture_output=True, timeout=120)
    return done.returncode, json.loads((folder / "report.json").read_text())


@pytest.mark.parametrize(("death", "rule", "signal"), [
    (KILL, "killed-by-signal", "SIGKILL"), (CRASH, "native-crash", "SIGSEGV")])
@pytest.mark.parametrize("after", ["", "; echo the shell goes on"])
def test_below_a_shell(death: str, rule: str, signal: str, after: str, tmp_path: Path) -> None:
    script = f'"{sys.executable}" train.py{after}'
    code, report = run(tmp_path, death, "bash", "-c", script)
    main = report["findings"][0]
    assert (main["rule"], main["where"]["batch"]) == (rule, 2)
    assert signal in main["message"]
    assert main["where"]["line"] == 11
    assert (code == 0) == bool(after)


@pytest.mark.parametrize(("death", "rules", "text"), [
    (KILL, {"rank-failed", "killed-by-signal"}, "SIGKILL"),
    (CRASH, {"rank-failed", "native-crash"}, "SIGSEGV"),
    (RAISE, {"rank-failed"}, "KeyError"),
])
def test_of_two_ranks_the_one_that_died_is_named(death: str, rules: set[str], text: str,
                                                 tmp_path: Path) -> None:
    code, report = run(tmp_path, death, sys.executable, "-m", "torch.distributed.run",
                       "--standalone", "--nproc-per-node", "2", "train.py")
    assert code == 1
    assert {finding["rule"] for finding in report["findings"]} >= rules
    failed = next(f for f in report["findings"] if f["rule"] == "rank-failed")
    assert failed["message"].startswith("rank 1 of 2 failed first")
    assert text in report["findings"][0]["message"]
    assert report["findings"][0]["where"]["rank"] == 1


BECOMES = """\
import os, sys
if len(sys.argv) == 1:
    os.execv(sys.executable, [sys.executable, __file__, "again"])
"""


@pytest.mark.parametrize(("then", "rule"), [
    ("", None), ("import ctypes\nctypes.string_at(0)\n", "native-crash")])
def test_a_program_that_becomes_another(then: str, rule: str | None, tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(BECOMES + then)
    command = [sys.executable, "-m", "torchmedic", "run", "--output-format", "json",
               "-o", "report.json", "--", sys.executable, "train.py"]
    subprocess.run(command, cwd=tmp_path, capture_output=True, timeout=120)
    report = json.loads((tmp_path / "report.json").read_text())
    assert report["verdict"].get("rule") == rule
    assert [finding["where"].get("line") for finding in report["findings"]] == ([5] if rule else [])


def test_what_shells_and_launchers_print() -> None:
    text = ("train.sh: line 3: 4711 Killed                  python train.py\n"
            "train.sh: line 4:  4712 Segmentation fault      (core dumped) python eval.py\n"
            "  exitcode  : -9 (pid: 4713)\nnot a status: 99 bottles\n")
    assert told_exit_codes(text) == {4711: -9, 4712: -11, 4713: -9}
