"""Much of the GPU's memory is reserved and free, but in pieces that are all too small.

## What you see
`CUDA out of memory. Tried to allocate 900.00 MiB … 2.70 GiB is reserved by PyTorch but
unallocated`: what lies unused is more than what was asked for.
## Why
The caching allocator keeps blocks of the sizes that were used. Inputs whose size changes from batch
to batch leave blocks that fit nothing else.
## Fix
`PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True` (torch 2.1 or newer; older: `max_split_size_mb`),
and inputs of few different sizes.
## When this is fine
Never.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from torchmedic import cudamemory
from torchmedic.model import Evidence, Fix, Place, Problem, Rule, fires, quiet
from torchmedic.wording import size

if TYPE_CHECKING:
    from torchmedic.cudamemory import Full
    from torchmedic.observed import Failure, Log

WORDS = ("out of memory",)
KIND = "pieces"


def in_failure(failure: Failure) -> Iterator[Problem]:
    full = cudamemory.read(failure.message)
    if full is not None and full.kind == KIND:
        source = f"log:{failure.line_number}" if failure.line_number else "exception"
        yield _problem(full, failure.place, source)


def in_log(log: Log) -> Iterator[Problem]:
    found = cudamemory.told_alone(log)
    if found is not None and found[1].kind == KIND:
        yield _problem(found[1], None, f"log:{found[0]}")


def _problem(full: Full, where: Place | None, source: str) -> Problem:
    backend = full.backend if full.backend in ("HIP", "NPU") else "CUDA"
    return Problem(
        f"{size(full.unused or 0)} of the GPU is reserved but lies in pieces, none as large as "
        f"the {size(full.asked)} asked for", where=where, confidence="likely",
        evidence=(Evidence(cudamemory.numbers(full), source),),
        fix=Fix(f"`PYTORCH_{backend}_ALLOC_CONF=expandable_segments:True`, and inputs of few "
                "different sizes", "torch before 2.1: `max_split_size_mb:128`. What is reserved "
                "would be enough for this batch"))


_LOG = ("RuntimeError: CUDA out of memory. Tried to allocate {} (GPU 0; 7.62 GiB total capacity; "
        "4.40 GiB already allocated; 70.44 MiB free; {} reserved in total by PyTorch)\n")

RULE = Rule(
    name="cuda-memory-fragmentation", doc=__doc__, category="memory", in_failure=in_failure,
    in_log=in_log,
    examples=(
        fires(_LOG.format("900.00 MiB", "7.10 GiB"), "2.7 GiB of the GPU is reserved but lies in "
              "pieces", "expandable_segments", kind="log"),
        fires("OOM | " + _LOG.format("900.00 MiB", "7.10 GiB"), "lies in pieces", kind="log",
              title="the message alone"),
        quiet(_LOG.format("900.00 MiB", "4.60 GiB"), kind="log", title="little is unused"),
    ),
)
