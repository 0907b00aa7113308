"""No more threads or processes may be started.

## What you see
`RuntimeError: can't start new thread`, `BlockingIOError: [Errno 11] Resource temporarily
unavailable`, `OpenBLAS blas_thread_init: pthread_create failed`, `libgomp: Thread creation failed`.
## Why
A user or a container may have only so many (`ulimit -u`, the pids limit of a container). Every
loader worker starts as many threads as there are cores, unless told otherwise.
## Fix
Fewer workers, `OMP_NUM_THREADS=1`, `torch.set_num_threads(1)` in workers; or a higher limit.
## When this is fine
Never.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

from torchmedic import logtext
from torchmedic.model import Evidence, Fix, Place, Problem, Rule, fires, quiet
from torchmedic.remedies import raised

if TYPE_CHECKING:
    from torchmedic.observed import Failure, Log

WORDS = ("new thread", "temporarily unavailable", "pthread_create", "thread creation failed")
PATTERN = re.compile(r"can't start new thread|\[Errno 11\]|Resource temporarily unavailable"
                     r"|Thread creation failed|pthread_create failed")
PRINTED = re.compile(r"pthread_create failed|libgomp: Thread creation failed|OMP: Error.*thread")
FIX = Fix("start fewer: fewer workers, `OMP_NUM_THREADS=1` in the environment; or raise the limit",
          "every worker starts as many threads as the machine has cores, unless told otherwise",
          command="ulimit -u; cat /sys/fs/cgroup/pids.max; ps -eLf | wc -l")


def in_failure(failure: Failure) -> Iterator[Problem]:
    if PATTERN.search(failure.message) and "shared memory" not in failure.message:
        yield _problem(raised(failure), failure.place, ())


def in_log(log: Log) -> Iterator[Problem]:
    hit = logtext.first(log, PRINTED)
    if hit is not None and not any(PATTERN.search(f.message) for f in log.failures):
        yield _problem(hit.evidence, None, logtext.about(*logtext.lasting(log)[-1:]))


def _problem(evidence: Evidence, where: Place | None, about: tuple[str, ...]) -> Problem:
    return Problem("no more threads or processes may be started: a limit is reached", where=where,
                   evidence=(evidence,), fix=FIX, about=about)


RULE = Rule(
    name="too-many-processes", doc=__doc__, category="environment", in_failure=in_failure,
    in_log=in_log,
    examples=(
        fires("RuntimeError: can't start new thread\n", "a limit is reached", "OMP_NUM_THREADS=1",
              kind="log", title="thread"),
        fires("OpenBLAS blas_thread_init: pthread_create failed for thread 31 of 64: Resource "
              "temporarily unavailable\n", "a limit is reached", kind="log", title="library"),
        quiet("OSError: [Errno 24] Too many open files\n", kind="log", title="files"),
    ),
)
