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

from collections.abc import Iterator
from dataclasses import replace

from torchmedic.cudamemory import Full, read
from torchmedic.model import Evidence, Fix, Place, Problem, Rule, fires, quiet
from torchmedic.observed import Failure, Log
from torchmedic.wording import size

SMALLER = ("a smaller batch, or smaller inputs: the forward pass must save less; mixed precision "
           "and checkpointing save more of it")


def in_failure(failure: Failure) -> Iterator[Problem]:
    full = read(failure.message)
    if full is not None:
        where = f"log:{failure.line_number}" if failure.line_number else "exception"
        yield _problem(full, failure.place, where)


def in_log(log: Log) -> Iterator[Problem]:
    """Programs that print the message alone."""
    if any(read(failure.message) for failure in log.failures):
        return
    for number, line in enumerate(log.lines, 1):
        full = read(" ".join(log.lines[number - 1:number + 2])) if "out of memory" in line else None
        if full is not None:
            yield replace(_problem(full, Place(), f"log:{number}"), confidence="likely")
            return


def _problem(full: Full, where: Place, source: str) -> Problem:
    message, fix = _judged(full)
    return Problem(message, where=where, evidence=(Evidence(_numbers(full), source),), fix=fix)


def _judged(full: Full) -> tuple[str, Fix]:
    capacity, live, unused = full.capacity or 0, full.allocated or 0, full.unused or 0
    if capacity and full.asked > capacity:
        return (f"one request of {size(full.asked)} is larger than the whole GPU of "
                f"{size(capacity)}",
                Fix("make that tensor smaller or work on it in chunks; look at the sizes on this "
                    "line", "no allocator setting and no free memory could hold it"))
    if capacity and full.others > capacity / 2 and full.others > live:
        return (f"other processes hold {size(full.others)} of the GPU's {size(capacity)}",
                Fix("end them (`nvidia-smi` shows them) or use another GPU", SMALLER))
    spilled = capacity and (full.reserved or 0) > capacity
    if not spilled and unused >= full.asked and unused > capacity / 10:
        return (f"{size(unused)} of the GPU is reserved but lies in pieces, none as large as the "
                f"{size(full.asked)} asked for",
                Fix("`PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True`, and a somewhat smaller "
                    "batch", "older torch: `max_split_size_mb:128`"))
    of = f" of {size(capacity)}" if capacity else ""
    held = f"live tensors hold {size(live)}{of}" if live else f"the memory{of} is in use"
    return (f"the GPU is full: {held}, and {size(full.asked)} more is asked for",
            Fix(SMALLER, f"an allocator setting would win back {size(unused)} at most; "
                         "`num_workers` changes nothing here"))


def _numbers(full: Full) -> str:
    names = {"asked": "asked for", "capacity": "capacity", "free": "free",
             "allocated": "in live tensors", "own": "this process", "others": "other processes"}
    told = [f"{word} {size(value)}" for name, word in names.items()
            if (value := getattr(full, name))]
    if full.unused is not None:
        told.append(f"reserved and not in use {size(full.unused)}")
    return ", ".join(told)


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
    name="cuda-out-of-memory", doc=__doc__, category="memory", in_failure=in_failure,
    in_log=in_log,
    examples=(
        fires(_log(_OLD.format("114.00 MiB", "5.40 GiB", "5.56 GiB")),
              "the GPU is full: live tensors hold 5.4 GiB of 7.62 GiB, and 114 MiB more",
              "reserved and not in use 164 MiB", "a smaller batch", kind="log", title="full"),
        fires(_log(_OLD.format("900.00 MiB", "4.40 GiB", "7.10 GiB")),
              "2.7 GiB of the GPU is reserved but lies in pieces", "expandable_segments",
              kind="log", title="pieces"),
        fires(_log(_OLD.format("55.57 GiB", "984.52 MiB", "1.10 GiB")),
              "one request of 55.57 GiB is larger than the whole GPU", kind="log", title="one"),
        fires(_log(_NEW.format("20.10 GiB", "3.40 GiB", "3.00 GiB")),
              "other processes hold 20.1 GiB of the GPU's 23.64 GiB", kind="log", title="others"),
        fires(_log(_NEW.format("384.00 MiB", "22.14 GiB", "21.35 GiB")),
              "live tensors hold 21.35 GiB of 23.64 GiB", kind="log", title="small others"),
        quiet(_log("RuntimeError: CUDA error: no kernel image is available"), kind="log"),
    ),
)
