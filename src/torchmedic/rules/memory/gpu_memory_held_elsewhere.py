"""Other processes hold the GPU's memory.

## What you see
`CUDA out of memory` although this process uses little: `Process 4711 has 20.10 GiB memory in use`,
or capacity, free and reserved memory that do not add up.
## Why
Another run on the same GPU, a notebook whose kernel still lives, or a run that was killed and left
a process behind. In a container a process may be listed under a number of the host.
## Fix
End them (`nvidia-smi`, or `fuser -v /dev/nvidia*` where it lists none), or use another GPU.
## When this is fine
When the GPU is shared on purpose; then this run must fit into the rest.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

from torchmedic import cudamemory
from torchmedic.model import Evidence, Fix, Place, Problem, Rule, fires, quiet
from torchmedic.wording import size

if TYPE_CHECKING:
    from torchmedic.cudamemory import Full
    from torchmedic.observed import Failure, Log

WORDS = ("out of memory",)
KIND = "elsewhere"
FIRST = re.compile(r"GPU 0\b")


def in_failure(failure: Failure) -> Iterator[Problem]:
    full = cudamemory.read(failure.message)
    if full is not None and full.kind == KIND:
        source = f"log:{failure.line_number}" if failure.line_number else "exception"
        problem = _problem(full, failure.place, source)
        yield _of_ranks(problem, failure.rank) if failure.rank and FIRST.search(
            failure.message) and len(cudamemory.OTHERS.findall(failure.message)) > 1 else problem


def in_log(log: Log) -> Iterator[Problem]:
    found = cudamemory.told_alone(log)
    if found is not None and found[1].kind == KIND:
        yield _problem(found[1], None, f"log:{found[0]}")


def _of_ranks(problem: Problem, rank: int) -> Problem:
    return replace(
        problem, message=f"{problem.message}; rank {rank} is on GPU 0, where other ranks are, too",
        category="code", confidence="likely", fix=Fix(
            "`torch.cuda.set_device(local_rank)` before the first use of the GPU, and "
            "`map_location=f\"cuda:{local_rank}\"` or `\"cpu\"` where files are loaded",
            "a tensor made with `\"cuda\"` or a checkpoint of GPU 0 puts every rank there",
            command="nvidia-smi"))


def _problem(full: Full, where: Place | None, source: str) -> Problem:
    held = f"{size(full.elsewhere)} of the GPU's {size(full.capacity or 0)}"
    message = f"other processes hold {held}" if full.others else \
        f"about {held} is held by something else than this process's tensors"
    return Problem(
        message, where=where, evidence=(Evidence(cudamemory.numbers(full), source),),
        confidence="certain" if full.others else "likely",
        fix=Fix("end what holds it (`nvidia-smi` shows it) or use another GPU",
                "a smaller batch is no cure: this process holds little of it",
                command="nvidia-smi; CUDA_VISIBLE_DEVICES=1 python …"))


_OLD = ("RuntimeError: CUDA out of memory. Tried to allocate 90.00 MiB (GPU 0; 23.70 GiB total "
        "capacity; {} already allocated; 40.44 MiB free; {} reserved in total by PyTorch)\n")
_NEW = ("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 388.00 MiB. GPU 0 has a "
        "total capacity of 23.64 GiB of which 62.06 MiB is free. Process 11 has {} memory in use. "
        "{}Of the allocated memory {} is allocated by PyTorch, and 36.09 MiB is reserved by "
        "PyTorch but unallocated.\n")
_OWN = "Including non-PyTorch memory, this process has {} memory in use. "

_TWO = _NEW.replace("Process 11 has {}",
                    "Process 11 has 17.10 GiB memory in use. Process 12 has {}")

RULE = Rule(
    name="gpu-memory-held-elsewhere", doc=__doc__, category="environment", in_failure=in_failure,
    in_log=in_log,
    examples=(
        fires("[rank3]: " + _TWO.format("5.10 GiB", "", "0.20 GiB"), "rank 3 is on GPU 0",
              "set_device(local_rank)", kind="log", title="all ranks on one"),
        fires(_TWO.format("5.10 GiB", "", "4.20 GiB"), "other processes hold 17.1 GiB", kind="log",
              title="itself is listed"),
        fires(_NEW.format("20.10 GiB", _OWN.format("3.40 GiB"), "3.00 GiB"),
              "other processes hold 20.1 GiB of the GPU's 23.64 GiB", kind="log", title="named"),
        fires(_OLD.format("2.10 GiB", "2.30 GiB"), "held by something else", kind="log",
              title="from the sums"),
        quiet(_NEW.format("384.00 MiB", _OWN.format("22.14 GiB"), "21.35 GiB"), kind="log",
              title="small others"),
        quiet(_NEW.format("23.40 GiB", "", "22.90 GiB"), kind="log",
              title="itself, under a number of the host"),
    ),
)
