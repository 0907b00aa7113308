"""The training waits for a DataLoader worker that waits for a lock.

## What you see
The first batch, or a later one, never comes. No error; the processes are there and use no CPU.
## Why
A worker made by `fork` is a copy of the parent with only one thread. A lock that another thread
of the parent held at that moment stays locked in the copy for ever. Libraries with threads of
their own (OpenCV, HDF5, loggers, gRPC, OpenMP) hold such locks.
## Fix
Start workers with `multiprocessing_context="spawn"` (or `"forkserver"`), create such objects in
the worker and not before the fork, or use `cv2.setNumThreads(0)` and the like.
## When this is fine
Never.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

from torchmedic import wording, workers
from torchmedic.model import Evidence, Fix, Problem, Rule, fires, quiet
from torchmedic.remedies import raised

if TYPE_CHECKING:
    from torchmedic.observed import Failure, Frame, Process, Run, Stall

LOCKS = ("lock", "rlock", "filelock", "mutex", "semaphore", "condition")
IDLE = 0.2  # cores; a worker that computes is slow, not deadlocked

WORDS = ("dataloader timed out",)
TIMED_OUT = re.compile(r"DataLoader timed out after (?P<seconds>\d+) seconds")


def in_failure(failure: Failure) -> Iterator[Problem]:
    """The loader's own `timeout=` passed; a log does not show the worker's stack."""
    told = TIMED_OUT.search(failure.message)
    if told is not None and failure.how == "logged":
        yield Problem(
            f"no worker gave a batch within {told['seconds']} s; the log does not say where they "
            "were", where=failure.place, evidence=(raised(failure),), category="unknown",
            confidence="likely", fix=Fix(
                "look at the stack of a worker while it waits; with `num_workers=0` the same line "
                "is slow or stands still", "slow storage and a lock taken before the fork do this; "
                "a larger `timeout` only helps the first", command="py-spy dump --pid WORKER_PID"))


def in_run(run: Run) -> Iterator[Problem]:
    stall, main = run.hang, run.main
    if stall is None or main is None or stall.cpu_share > IDLE:
        return
    for worker, frames in workers.waited_for(run, stall):
        if _at_lock(run, frames):
            yield _problem(run, stall, worker, frames)
            return


def _problem(run: Run, stall: Stall, worker: Process, frames: tuple[Frame, ...]) -> Problem:
    loader = workers.loader_of(run)
    place = worker.place_at(frames)
    method = loader.start_method if loader and loader.start_method else "fork"
    parent = stall.stacks.get(run.main.pid, {}).get("main", run.main.stack) if run.main else ()
    return Problem(
        f"{workers.name(worker)} waits in `{frames[-1].function}` {workers.doing(worker)}, and the "
        "training waits for it", replace(place, phase="data"),
        (Evidence(f"workers were started by {method}", "loader"),
         *wording.stack_evidence(frames, "worker's own stack"),
         Evidence(f"the main thread waits at {wording.at(wording.innermost_user(parent))}",
                  "main thread"),
         Evidence(f"no progress for {stall.after_s:.0f} s with "
                  f"{stall.cpu_share:.2f} cores in use", "supervisor")),
        _fix(method, frames), about=("stall", "ending"),
    )


def _at_lock(run: Run, frames: tuple[Frame, ...]) -> bool:
    """The worker's innermost line takes a lock: Python's own code for them, or by its name."""
    inner = frames[-1]
    if inner.file.replace("\\", "/").endswith(("/threading.py", "multiprocessing/synchronize.py")):
        return True
    script = run.script(inner.file)
    return script is not None and any(_is_lock(taken) for node in ast.walk(script.tree)
                                      for taken in _taken(node, inner.line))


def _taken(node: ast.AST, line: int) -> Iterator[ast.expr]:
    """What a `with`, or a call of `acquire`, takes on that line."""
    if isinstance(node, (ast.With, ast.AsyncWith)):
        yield from (item.context_expr for item in node.items
                    if item.context_expr.lineno <= line <= (item.context_expr.end_lineno or line))
    elif (isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)
          and node.func.attr == "acquire" and node.lineno <= line <= (node.end_lineno or line)):
        yield node.func.value


def _is_lock(node: ast.expr) -> bool:
    """Its last name ends in a word for a lock: `self._lock`, `FileLock(path)`, not `clock`."""
    while isinstance(node, (ast.Call, ast.Subscript)):
        node = node.func if isinstance(node, ast.Call) else node.value
    name = getattr(node, "attr", getattr(node, "id", ""))
    words = re.findall(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])", name)
    return bool(words) and words[-1].lower().removesuffix("s") in LOCKS


def _fix(method: str, frames: tuple[Frame, ...]) -> Fix:
    line = wording.at(wording.innermost_user(frames))
    if method == "fork":
        return Fix('start the workers with `multiprocessing_context="spawn"`',
                   detail=f"or create what {line} locks inside the worker (in `worker_init_fn` or "
                          "on first use), not before the fork")
    return Fix(f"look at who else takes the lock at {line}")


_PROGRAM = """
import threading, time, torch
torch.set_num_threads(1)
lock = threading.Lock()
class Samples(torch.utils.data.Dataset):
    def __len__(self):
        return 8
    def __getitem__(self, index):
        with lock:
            return torch.zeros(3)
def hold():
    with lock:
        time.sleep({seconds})
if __name__ == "__main__":
    threading.Thread(target=hold, daemon=True).start()
    time.sleep(0.1)
    for batch in torch.utils.data.DataLoader(Samples(), batch_size=4, num_workers={workers}):
        pass
"""

RULE = Rule(
    name="worker-deadlock", doc=__doc__, category="code", in_failure=in_failure, in_run=in_run,
    examples=(
        fires("RuntimeError: DataLoader timed out after 30 seconds\n", "within 30 s", "py-spy",
              kind="log", title="timeout"),
        fires(_PROGRAM.format(seconds=2, workers=1), "waits in `__getitem__`", "started by fork",
              'multiprocessing_context="spawn"', line="with lock:",
              options=("--hang-after", "4", "--hang-stop")),
        quiet(_PROGRAM.format(seconds=2, workers=0), options=("--hang-after", "8")),
    ),
)
