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

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

from torchmedic import hostkills, logtext, toldends, wording, workers
from torchmedic.model import Fix, Problem, Rule, fires, quiet
from torchmedic.remedies import raised
from torchmedic.signals import CRASHES

if TYPE_CHECKING:
    from torchmedic.observed import ExitCall, Log, Process, Run

WORDS = ("worker",)
BACKGROUND = re.compile(r"background workers are no longer alive")  # batchgenerators, nnU-Net


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


def in_log(log: Log) -> Iterator[Problem]:
    """A log says that a worker is gone, not what it did."""
    told = logtext.said_by(log, workers.EXITED) or logtext.said_by(log, BACKGROUND)
    crash = next((end for end in toldends.ends(log) if end.worker and end.signal in CRASHES), None)
    if (told is None and crash is None) or hostkills.own_cause(log):
        return
    if crash is None and any(end.signal == "SIGKILL" for end in toldends.ends(log)):
        return
    if crash is not None and crash.signal == "SIGBUS":
        return  # `shared-memory-exhausted`
    if crash is None and told and "killed by" in told.message:
        return  # `worker-killed`
    how = f"crashed in native code with {crash.signal}" if crash else "ended without an exception"
    who = "a background worker" if told and BACKGROUND.search(told.message) else \
        "a DataLoader worker"
    yield Problem(
        f"{who} {how}; the log does not say at which sample",
        where=told.place if told else None, confidence="likely", category="unknown",
        evidence=(crash.hit.evidence,) if crash else (raised(told),) if told else (),
        fix=Fix("run once with `num_workers=0` under faulthandler: it shows the line, and the "
                "sample is the one at hand", command="python -X faulthandler …"),
        about=logtext.about(*(f for f in logtext.lasting(log) if workers.EXITED.search(f.message)
                              or BACKGROUND.search(f.message))),
    )


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
    name="worker-crashed", doc=__doc__, category="code", in_run=in_run, in_log=in_log,
    examples=(
        fires(workers.EXAMPLE.format("ctypes.string_at(0)"), "crashed with SIGSEGV", "batch 2",
              "in string_at", "exit code -11", line="ctypes.string_at(0)"),
        fires(workers.EXAMPLE.format("os._exit(0)"), "ended itself with `os._exit(0)`", "batch 2",
              line="os._exit(0)"),
        fires(workers.EXAMPLE.format("sys.exit(5)"), "ended itself with `sys.exit(5)`",
              "exit code 5", line="sys.exit(5)"),
        fires("RuntimeError: DataLoader worker (pid 88) is killed by signal: Segmentation "
              "fault. \n", "crashed in native code with SIGSEGV", "num_workers=0",
              kind="log", title="log"),
        fires("RuntimeError: One or more background workers are no longer alive. Exiting. Please "
              "check the print statements above for the actual error message\n",
              "a background worker ended", kind="log", title="background workers"),
        quiet(workers.EXAMPLE.format("pass")),
    ),
)
