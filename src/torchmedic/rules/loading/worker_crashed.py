"""A DataLoader worker crashed or ended itself.

## What you see
`RuntimeError: DataLoader worker (pid(s) 4711) exited unexpectedly` in the parent, the same for a
segmentation fault, `os._exit` and `sys.exit` in the dataset. The worker's own traceback is
nowhere.
## Why
Native code below `__getitem__` crashed (a decoder, OpenCV, HDF5 opened before the fork), or the
dataset's code ended the process.
## Fix
The worker's own stack is shown: look at the line where it ended. `num_workers=0` runs the same
code in the parent, where a debugger reaches it.
## When this is fine
Never.
"""

from __future__ import annotations

from collections.abc import Iterator

from torchmedic import wording, workers
from torchmedic.model import Fix, Problem, Rule, fires, quiet
from torchmedic.observed import ExitCall, Process, Run
from torchmedic.signals import CRASHES


def in_run(run: Run) -> Iterator[Problem]:
    for worker in workers.ended(run):
        name = workers.ended_by(worker)
        call = worker.exits[-1] if worker.exits else None
        if not workers.about(run, worker):
            continue  # stopped with the run, not the cause of its end
        if worker.fatal is not None or name in CRASHES:
            yield _crashed(run, worker, name)
            return
        if call is not None:
            yield _left(run, worker, call)
            return


def _crashed(run: Run, worker: Process, name: str | None) -> Problem:
    what = name or worker.fatal or "a fatal error"
    return Problem(
        f"{workers.name(worker)} crashed with {what} {workers.doing(worker)}",
        workers.place(run, worker),
        (*wording.stack_evidence(worker.fatal_frames or worker.stack, "worker's own stack"),
         *workers.evidence(run, worker)),
        Fix("look at the native call at that line with that sample",
            detail="num_workers=0 runs the same code in the main process"),
        about=workers.about(run, worker),
    )


def _left(run: Run, worker: Process, call: ExitCall) -> Problem:
    shown = f"{call.how}({'' if call.code is None else repr(call.code)})"
    return Problem(
        f"{workers.name(worker)} ended itself with `{shown}` {workers.doing(worker)}",
        worker.place_at(call.frames),
        (*wording.stack_evidence(call.frames, "worker's own stack", 4),
         *workers.evidence(run, worker)),
        Fix("raise an exception there: it reaches the parent with its traceback"),
        about=workers.about(run, worker),
    )


RULE = Rule(
    name="worker-crashed", doc=__doc__, category="code", in_run=in_run,
    examples=(
        fires(workers.EXAMPLE.format("ctypes.string_at(0)"), "crashed with SIGSEGV", "batch 2",
              "in string_at", "exit code -11", line="ctypes.string_at(0)"),
        fires(workers.EXAMPLE.format("os._exit(0)"), "ended itself with `os._exit(0)`", "batch 2",
              line="os._exit(0)"),
        fires(workers.EXAMPLE.format("sys.exit(5)"), "ended itself with `sys.exit(5)`",
              "exit code 5", line="sys.exit(5)"),
        quiet(workers.EXAMPLE.format("pass")),
    ),
)
