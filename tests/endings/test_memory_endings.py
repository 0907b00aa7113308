"""Memory that runs out, for real where the machine allows it, else as recorded."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import uuid
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from torchmedic import diagnosis, registry
from torchmedic.observed import (
    Ending,
    Failure,
    Frame,
    HostMemory,
    Iteration,
    Loader,
    Process,
    Run,
    SignalSent,
)
from torchmedic.supervise.memory import ControlGroup

LIMIT = 500 << 20
GROWS = """\
import torch
torch.set_num_threads(1)
class Samples(torch.utils.data.Dataset):
    kept = []
    def __len__(self):
        return 200
    def __getitem__(self, index):
        if index >= 4 and {grow_in_worker}:
            self.kept.append(torch.ones(8 << 20))
        return torch.zeros(3)
if __name__ == "__main__":
    kept = []
    for batch in torch.utils.data.DataLoader(Samples(), batch_size=4, num_workers={workers}):
        if not {grow_in_worker}:
            kept.append(torch.ones(8 << 20))  # here
"""


@pytest.fixture
def group() -> Iterator[Path]:
    """A real control group with a memory limit; skipped where none can be made."""
    name = f"torchmedic-{uuid.uuid4().hex[:8]}"
    for base, limit in ((Path("/sys/fs/cgroup/memory"), "memory.limit_in_bytes"),
                        (Path("/sys/fs/cgroup"), "memory.max")):
        folder = base / name
        try:
            folder.mkdir()
            (folder / limit).write_text(str(LIMIT))
        except OSError:
            if folder.is_dir():
                folder.rmdir()
            continue
        yield folder
        folder.rmdir()
        return
    pytest.skip("no control group with a memory limit can be made here")


def run_in(group: Path, folder: Path, text: str) -> tuple[int, Any]:
    (folder / "train.py").write_text(text)
    start = f'echo $$ > "{group}/cgroup.procs" && exec "$@"'
    command = ["bash", "-c", start, "bash", sys.executable, "-m", "torchmedic", "run",
               "--output-format", "json", "-o", "report.json", "--", sys.executable, "train.py"]
    done = subprocess.run(command, cwd=folder, capture_output=True, timeout=120)
    return done.returncode, json.loads((folder / "report.json").read_text())


def test_the_kernel_kills_the_training_process(group: Path, tmp_path: Path) -> None:
    code, report = run_in(group, tmp_path, GROWS.format(grow_in_worker=False, workers=0))
    main = report["findings"][0]
    assert code == 137
    assert (main["rule"], main["category"], main["confidence"]) == (
        "host-out-of-memory", "memory", "certain")  # it was the largest of the run
    assert "oom_kill" in main["evidence"][0]["text"] or "kernel log" in main["evidence"][0]["text"]
    assert main["where"]["batch"] > 1
    symptom = report["findings"][main["explains"][0]]
    assert symptom["rule"] == "killed-by-signal"


def test_the_kernel_kills_a_worker(group: Path, tmp_path: Path) -> None:
    code, report = run_in(group, tmp_path, GROWS.format(grow_in_worker=True, workers=1))
    main = report["findings"][0]
    assert code == 1
    assert main["rule"] == "host-out-of-memory"
    # The counter names nobody, and a worker that grows faster than it is measured was not seen to
    # be the largest.
    assert main["confidence"] in ("certain", "likely")
    assert "DataLoader worker 0" in main["message"]
    assert [report["findings"][i]["rule"] for i in main["explains"]] == ["worker-killed"]


def write(root: Path, files: dict[str, str]) -> None:
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)


RECORDED = {
    "version 2": {
        "proc/7/cgroup": "0::/kubepods/pod1/train\n",
        "sys/fs/cgroup/kubepods/pod1/train/memory.max": "8589934592\n",
        "sys/fs/cgroup/kubepods/pod1/train/memory.peak": "8589934592\n",
        "sys/fs/cgroup/kubepods/pod1/train/memory.events":
            "low 0\nhigh 0\nmax 4119\noom 1\noom_kill 1\noom_group_kill 0\n",
    },
    "version 2, seen from inside a container": {
        "proc/7/cgroup": "0::/../../host/path\n",
        "sys/fs/cgroup/memory.max": "8589934592\n",
        "sys/fs/cgroup/memory.events": "low 0\nhigh 0\nmax 4119\noom 1\noom_kill 1\n",
    },
    "version 1": {
        "proc/7/cgroup": "9:name=systemd:/\n4:memory:/docker/abc\n0::/\n",
        "sys/fs/cgroup/memory/docker/abc/memory.limit_in_bytes": "8589934592\n",
        "sys/fs/cgroup/memory/docker/abc/memory.oom_control":
            "oom_kill_disable 0\nunder_oom 0\noom_kill 1\n",
    },
}


@pytest.mark.parametrize("files", RECORDED.values(), ids=RECORDED)
def test_recorded_control_groups_are_read(files: dict[str, str], tmp_path: Path) -> None:
    write(tmp_path, files)
    group = ControlGroup.of(7, root=tmp_path)
    assert group.limit == 8 << 30
    assert group.oom_kills == 1


def test_no_limit_and_no_group_are_none(tmp_path: Path) -> None:
    write(tmp_path, {"proc/7/cgroup": "0::/user\n", "sys/fs/cgroup/user/memory.max": "max\n",
                     "sys/fs/cgroup/user/memory.events": "oom_kill 0\n"})
    assert ControlGroup.of(7, root=tmp_path).limit is None
    assert ControlGroup.of(8, root=tmp_path).oom_kills is None


def test_the_fix_names_a_worker_count_that_fits() -> None:
    loader = Loader(1, 40, 4, 160, False, 8, "Clips")
    passes = (Iteration(loader, 1, 3, None),)
    main = Process(pid=7, parent=1, argv=(), role="main", exit_code=1, iterations=passes,
                   peak_rss=1 << 30)
    worker = Process(pid=8, parent=7, argv=(), role="worker", exit_code=-9, worker_index=0,
                     batch=4, peak_rss=1 << 30)
    gone = Failure("7:1", "RuntimeError", "DataLoader worker (pid(s) 8) exited unexpectedly",
                   "uncaught")
    run = Run(("python",), Ending(1, None), (replace(main, failures=(gone,)), worker),
              memory=HostMemory(8 << 30, "limit", 8 << 30, killed=(8,)))
    fix = diagnosis.diagnose_run(run, registry.rules())[0].fix
    assert fix is not None
    assert "num_workers=5" in fix.title  # (0.85 * 8 - 1) GiB for workers of 1 GiB


def killed(memory: HostMemory) -> Run:
    frame = Frame("/home/user/train.py", 12, "main")
    process = Process(pid=7, parent=1, argv=("python", "train.py"), role="main", exit_code=-9,
                      batch=2, phase="forward", stack=(frame,), peak_rss=7 << 30)
    return Run(("python", "train.py"), Ending(None, "SIGKILL"), (process,), memory=memory)


@pytest.mark.parametrize(("memory", "rule", "confidence"), [
    # The counter names nobody: that it was this process is likely, and sure where none was larger.
    (HostMemory(8 << 30, "limit", 8 << 30, oom_kills=1, largest_pid=7), "host-out-of-memory",
     "certain"),
    (HostMemory(8 << 30, "limit", 8 << 30, oom_kills=1, largest_pid=8), "host-out-of-memory",
     "likely"),
    (HostMemory(8 << 30, "limit", 8 << 30, oom_kills=1), "host-out-of-memory", "likely"),
    (HostMemory(8 << 30, "limit", 2 << 30, killed=(7,)), "host-out-of-memory", "certain"),
    (HostMemory(8 << 30, "limit", 79 << 27, oom_kills=None), "host-out-of-memory", "likely"),
    (HostMemory(8 << 30, "limit", 2 << 30, oom_kills=0), "killed-by-signal", "certain"),
])
def test_a_kill_is_memory_only_with_evidence(memory: HostMemory, rule: str,
                                             confidence: str) -> None:
    findings = diagnosis.diagnose_run(killed(memory), registry.rules())
    assert (findings[0].rule, findings[0].confidence) == (rule, confidence)


def test_a_kill_that_the_run_sent_is_not_the_kernel_s() -> None:
    memory = HostMemory(8 << 30, "limit", 2 << 30, oom_kills=1, largest_pid=7)
    own = replace(killed(memory), signals=(SignalSent(7, 0, "SIGKILL", ()),))
    assert diagnosis.diagnose_run(own, registry.rules())[0].rule == "killed-by-signal"
    other = replace(killed(memory), signals=(SignalSent(7, 9, "SIGKILL", ()),))
    found = diagnosis.diagnose_run(other, registry.rules())[0]
    assert (found.rule, found.confidence) == ("host-out-of-memory", "likely")


@pytest.mark.skipif(os.geteuid() != 0, reason="mounting a small tmpfs needs root")
@pytest.mark.parametrize("where", ["elsewhere", "below us too"])
def test_a_full_disk_is_named_and_does_not_hurt_us(where: str, tmp_path: Path) -> None:
    small = tmp_path / "small"
    small.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(small)]
    if subprocess.run(mount, capture_output=True).returncode != 0:
        pytest.skip("no tmpfs can be mounted here")
    try:
        program = tmp_path / "train.py"
        program.write_text(
            "import torch\nnet = torch.nn.Linear(1024, 1024)\n"
            f"torch.save(net.state_dict(), {str(small / 'last.pt')!r})\n")
        command = [sys.executable, "-m", "torchmedic", "run", "--output-format", "json", "-o",
                   str(tmp_path / "report.json"), "--", sys.executable, str(program)]
        here = tmp_path if where == "elsewhere" else small
        done = subprocess.run(command, cwd=here, capture_output=True, timeout=120)
    finally:
        subprocess.run(["umount", str(small)], check=True)
    report = json.loads((tmp_path / "report.json").read_text())
    assert done.returncode == 1
    assert report["verdict"]["rule"] == "disk-full"
    assert report["findings"][0]["where"]["line"] == 3
