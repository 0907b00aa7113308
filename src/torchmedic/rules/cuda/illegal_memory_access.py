"""A GPU kernel read or wrote outside its memory.

## What you see
`CUDA error: an illegal memory access was encountered`, `misaligned address`, or `unspecified
launch failure`, at a line that changes from run to run.
## Why
A kernel that does not check its indices was given sizes or indices it was not written for:
mostly a custom or compiled extension, an operation on tensors with more than 2**31 elements, or
two processes that share a tensor that is gone. The message comes at a later call than the fault.
## Fix
Set `CUDA_LAUNCH_BLOCKING=1`: then the traceback names the operation. Rebuild extensions for the
installed torch; `compute-sanitizer python train.py` names the kernel.
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

WORDS = ("illegal", "misaligned", "unspecified launch", "invalid program counter")
PATTERN = re.compile(r"illegal memory access|misaligned address|unspecified launch failure"
                     r"|illegal instruction was encountered|invalid program counter")
MESSAGE = ("a GPU kernel touched memory that is not its own; the line shown may be a later one "
           "than the fault's")
FIX = Fix("set CUDA_LAUNCH_BLOCKING=1: the traceback then names the operation",
          "a custom extension on the stack: rebuild it for this torch; otherwise check indices and "
          "sizes that go into that operation", command="CUDA_LAUNCH_BLOCKING=1 python …")


def in_failure(failure: Failure) -> Iterator[Problem]:
    if PATTERN.search(failure.message):
        yield _problem(failure.place, raised(failure), ())


def in_log(log: Log) -> Iterator[Problem]:
    if (hit := logtext.beside(log, PATTERN)) is not None:
        yield _problem(None, hit.evidence, logtext.about(*logtext.lasting(log)[-1:]))


def _problem(where: Place | None, evidence: Evidence, about: tuple[str, ...]) -> Problem:
    return Problem(MESSAGE, where=where, evidence=(evidence,), fix=FIX, about=about,
                   confidence="likely")


_LOG = """Traceback (most recent call last):
  File "fit.py", line 12, in <module>
    loss = step(batch)
RuntimeError: CUDA error: an illegal memory access was encountered
"""

RULE = Rule(
    name="illegal-memory-access", doc=__doc__, category="code", in_failure=in_failure,
    in_log=in_log,
    examples=(
        fires(_LOG, "CUDA_LAUNCH_BLOCKING=1", kind="log", title="traceback"),
        fires("[E ProcessGroupNCCL.cpp:821] CUDA error: an illegal memory access was encountered\n"
              "terminate called after throwing an instance of 'c10::CUDAError'\n",
              "touched memory that is not its own", kind="log", title="line"),
        quiet(_LOG.replace("an illegal memory access was encountered", "out of memory"),
              kind="log"),
    ),
)
