"""Shared memory (`/dev/shm`) is full, so workers cannot hand over their batches.

## What you see
`Bus error`, `DataLoader worker (pid 4711) is killed by signal: Bus error. It is possible that
dataloader's workers are out of shared memory`, `unable to write to file </torch_…>`, or
`unable to open shared memory object`.
## Why
Workers put tensors into `/dev/shm`. In a container it holds 64 MiB unless told otherwise.
## Fix
Start the container with `--shm-size=8g` or `--ipc=host`; in Kubernetes mount an `emptyDir` with
`medium: Memory` on `/dev/shm`. Fewer workers or a smaller `prefetch_factor` need less.
## When this is fine
Never.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

from torchmedic import logtext, wording, workers
from torchmedic.model import Fix, Problem, Rule, fires, quiet
from torchmedic.remedies import raised

if TYPE_CHECKING:
    from torchmedic.observed import Failure, Log, Process, Run

WORDS = ("shared memory", "bus error", "shm", "torch_", "resize file")
PATTERN = re.compile(
    r"out of shared memory|insufficient shared memory|unable to write to file </torch_"
    r"|unable to (?:open|mmap|resize) shared memory object|No space left on device.*(?:shm|torch_)"
    r"|(?:shm|/torch_\d+).*No space left on device|unable to allocate shared memory"
    r"|unable to resize file <\S.*> to the right size", re.I)
MAPPED = re.compile(r"unable to mmap \d+ bytes from file <.*Cannot allocate memory")
GUESS = re.compile(r"killed by signal: Bus error|bus error encountered in worker", re.I)
RAISED = re.compile(r"shm[-_ ]size|--ipc|共享内存|shared memory|/dev/shm", re.I)
FIX = Fix("give /dev/shm more room: docker run --shm-size=8g (or --ipc=host)",
          detail="or use fewer workers, or a smaller prefetch_factor",
          command="df -h /dev/shm")


def in_failure(failure: Failure) -> Iterator[Problem]:
    if "killed by signal" in failure.message:
        return  # torch only guesses; in a run the worker's own stack is known
    if MAPPED.search(failure.message):
        yield Problem("a tensor in shared memory can't be mapped: the process has as many mapped "
                      "areas as it may, or memory is short", failure.place, (raised(failure),),
                      Fix("share fewer, larger tensors between processes, or raise "
                          "vm.max_map_count", command="sysctl vm.max_map_count; df -h /dev/shm"),
                      confidence="likely")
    elif PATTERN.search(failure.message) and "Too many open files" not in failure.message:
        yield Problem("shared memory (`/dev/shm`) is full: workers can't hand over their batches",
                      failure.place, (raised(failure),), FIX)


def in_log(log: Log) -> Iterator[Problem]:
    """torch's guess after a bus error: right as a rule, unless somebody looked into it."""
    told = logtext.said_by(log, GUESS)
    hit = logtext.first(log, GUESS)
    if hit is None:
        return
    where = told.place if told else None
    excluded = next((h for h in logtext.hits(log, RAISED) if not GUESS.search(h.text)), None)
    if excluded is None:
        yield Problem("a worker died of a bus error: shared memory (`/dev/shm`) is full",
                      where, (hit.evidence,), FIX, about=logtext.about(told), confidence="likely")
        return
    yield Problem(
        "a worker died of a bus error, and shared memory is said to be large enough", where,
        (hit.evidence, excluded.evidence), Fix(
            "look at memory-mapped files (LMDB, .npy, HDF5) that the dataset reads: one that was "
            "cut short gives a bus error too", "`df -h /dev/shm` while it trains shows whether "
            "shared memory is really free", command="watch df -h /dev/shm"),
        about=logtext.about(told), confidence="possible", category="unknown")


def in_run(run: Run) -> Iterator[Problem]:
    """A bus error of a worker while it wrote a tensor to shared memory."""
    for worker in workers.ended(run):
        about = workers.about(run, worker)
        if about and workers.ended_by(worker) == "SIGBUS" and _handing_over(worker):
            yield Problem(
                f"shared memory (`/dev/shm`) is full: {workers.name(worker)} died of SIGBUS while "
                "it handed over a batch", workers.place(run, worker),
                (*wording.stack_evidence(worker.fatal_frames, "worker's own stack"),
                 *workers.evidence(run, worker)),
                FIX, about=about)
            return


def _handing_over(worker: Process) -> bool:
    """Its innermost frames copy or share a tensor."""
    return any(f.file.endswith(("collate.py", "reductions.py", "storage.py", "queues.py"))
               for f in worker.fatal_frames[-4:])


_LOG = """Traceback (most recent call last):
  File "train.py", line 31, in <module>
    for images, labels in loader:
  File "/opt/conda/lib/python3.11/site-packages/torch/utils/data/dataloader.py", line 708, in __next__
    data = self._next_data()
RuntimeError: DataLoader worker (pid 4711) is killed by signal: Bus error. It is possible that dataloader's workers are out of shared memory. Please try to raise your shared memory limit.
"""  # noqa: E501

RULE = Rule(
    name="shared-memory-exhausted", doc=__doc__, category="environment", in_failure=in_failure,
    in_run=in_run, in_log=in_log,
    examples=(
        fires(_LOG, "shared memory", "--shm-size", kind="log"),
        quiet(_LOG.partition("Bus error")[0] + "Segmentation fault. \n", kind="log",
              title="another signal"),
        quiet(_LOG.partition("DataLoader worker")[0] + "unable to open shared memory object "
              "</torch_1_2_3> in read-write mode: Too many open files (24)\n", kind="log",
              title="descriptors are used up"),
    ),
)
