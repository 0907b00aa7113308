"""The GPU's memory is full: a request for more was refused.

## What you see
`torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 388.00 MiB. GPU 0 has a total
capacity of 23.64 GiB …`.
## Why
Weights, gradients, optimizer states and what the forward pass saves for backward together are
larger than the card; or another process holds a part of it; or what is free lies in pieces that
are all too small. The numbers in the message tell which.
## Fix
Where live tensors fill the card: a smaller batch, smaller or fewer inputs, mixed precision,
checkpointing. Allocator settings help only where much is reserved and not in use. `num_workers`
and `pin_memory` use host memory: they change nothing here.
## When this is fine
When the program tries a smaller batch after it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace

from torchmedic import logtext
from torchmedic.cudamemory import Full, numbers, read, told_alone
from torchmedic.model import Evidence, Fix, Place, Problem, Rule, fires, quiet
from torchmedic.observed import Failure, Log
from torchmedic.remedies import raised
from torchmedic.wording import size

WORDS = ("out of memory",)
ELSEWHERE = ("elsewhere", "pieces")  # these have rules of their own
BARE = re.compile(r"(?:CUDA|HIP) error: out of memory|^(?:CUDA|HIP) out of memory")
SMALLER = ("a smaller batch, or smaller inputs: the forward pass must save less; mixed precision "
           "and checkpointing save more of it")


def in_failure(failure: Failure) -> Iterator[Problem]:
    full = read(failure.message)
    if full is not None and full.kind not in ELSEWHERE:
        where = f"log:{failure.line_number}" if failure.line_number else "exception"
        yield _problem(full, failure.place, where)
    elif full is None and BARE.search(failure.message):
        yield Problem("the GPU is out of memory; the message has no numbers", failure.place,
                      (raised(failure),), Fix(
                          "look at what else is on the GPU; if it is empty, " + SMALLER,
                          command="nvidia-smi"), confidence="likely")


def in_log(log: Log) -> Iterator[Problem]:
    """Programs that print the message alone."""
    found = told_alone(log)
    if found is not None and found[1].kind not in ELSEWHERE:
        number, full = found
        yield replace(_problem(full, Place(), f"log:{number}"), confidence="likely",
                      about=logtext.about())


def _problem(full: Full, where: Place, source: str) -> Problem:
    message, fix = _judged(full)
    return Problem(message, where=where, evidence=(Evidence(numbers(full), source),), fix=fix)


def _judged(full: Full) -> tuple[str, Fix]:
    capacity, live, unused = full.capacity or 0, full.allocated or 0, full.unused or 0
    of = f" of {size(capacity)}" if capacity else ""
    if full.kind == "oversized":
        what = "is larger than" if full.asked > capacity else "takes nearly all of"
        return (f"one request of {size(full.asked)} {what} the whole GPU{of}",
                Fix("make that tensor smaller or work on it in chunks; look at the sizes on this "
                    "line", "one sample that is much larger than the others asks for this, too; no "
                    "allocator setting could hold it"))
    if full.kind == "not full":
        return (f"{size(full.asked)} was refused although {size(full.free or 0)}{of} is free: the "
                "GPU is not full", Fix(
                    "look for a limit: the host's memory or paging file, a share set with "
                    "`set_per_process_memory_fraction`, a virtual GPU",
                    "a smaller batch is no cure where the GPU is not full", command="nvidia-smi"))
    held = f"live tensors hold {size(live)}{of}" if live else f"the memory{of} is in use"
    spill = "; Windows lets it reserve more than the card has" if full.spilled else ""
    return (f"the GPU is full: {held}, and {size(full.asked)} more is asked for{spill}",
            Fix(SMALLER, "`num_workers` changes nothing here" if full.spilled else
                f"an allocator setting would win back {size(unused)} at most; "
                "`num_workers` changes nothing here"))


def _log(message: str) -> str:
    return ('Traceback (most recent call last):\n  File "train.py", line 9, in step\n'
            f"    loss = net(x)\n{message}\n")


_OLD = ("RuntimeError: CUDA out of memory. Tried to allocate {} (GPU 0; 7.62 GiB total capacity; "
        "{} already allocated; 70.44 MiB free; {} reserved in total by PyTorch)")
_NEW = ("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 388.00 MiB. GPU 0 has a "
        "total capacity of 23.64 GiB of which 62.06 MiB is free. Process 11 has {} memory in use. "
        "Including non-PyTorch memory, this process has {} memory in use. Of the allocated memory "
        "{} is allocated by PyTorch, and 36.09 MiB is reserved by PyTorch but unallocated.")

RULE = Rule(
    name="cuda-out-of-memory", doc=__doc__, category="memory", level="symptom",
    in_failure=in_failure, in_log=in_log,
    examples=(
        fires(_log(_OLD.format("114.00 MiB", "5.40 GiB", "5.56 GiB")),
              "the GPU is full: live tensors hold 5.4 GiB of 7.62 GiB, and 114 MiB more",
              "reserved and not in use 164 MiB", "a smaller batch", kind="log", title="full"),
        fires(_log(_OLD.format("55.57 GiB", "984.52 MiB", "1.10 GiB")),
              "one request of 55.57 GiB is larger than the whole GPU", kind="log", title="one"),
        fires(_log(_NEW.format("384.00 MiB", "22.14 GiB", "21.35 GiB")),
              "live tensors hold 21.35 GiB of 23.64 GiB", kind="log", title="small others"),
        fires(_log(_OLD.format("2.00 MiB", "1.40 GiB", "1.56 GiB").replace(
            "70.44 MiB", "5.10 GiB")),
              "the GPU is not full", "no cure", kind="log", title="not full"),
        fires(_log("RuntimeError: CUDA error: out of memory"), "has no numbers", "nvidia-smi",
              kind="log", title="no numbers"),
        quiet(_log("RuntimeError: CUDA error: no kernel image is available"), kind="log"),
    ),
)
