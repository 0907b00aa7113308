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
from typing import TYPE_CHECKING

from torchmedic import logtext, memorycures
from torchmedic.cudamemory import BARE, Full, numbers, read, told_alone
from torchmedic.logs.told import told
from torchmedic.model import Evidence, Fix, Problem, Rule, Severity, fires, quiet
from torchmedic.observed import Failure, Log
from torchmedic.remedies import raised
from torchmedic.wording import size

if TYPE_CHECKING:
    from torchmedic.memorycures import Moment

WORDS = ("out of memory", "out_of_memory", "memoryallocation")
ELSEWHERE = ("elsewhere", "pieces")  # these have rules of their own
MPS = ("PYTORCH_MPS_HIGH_WATERMARK_RATIO=0.0 makes no room: it lifts the limit that keeps the "
       "machine alive")
LOADER = ("pin_memory.py", "_utils/worker.py")
GOT_OVER = re.compile(r"skipp|retry|recover|ignor|WARN", re.IGNORECASE)


def in_failure(failure: Failure) -> Iterator[Problem]:
    full = read(failure.message)
    if full is not None and full.kind not in ELSEWHERE:
        where = f"log:{failure.line_number}" if failure.line_number else "exception"
        yield _problem(full, failure, where)
    elif full is None and BARE.search(failure.message):
        yield _without_numbers(failure)


def _without_numbers(failure: Failure) -> Problem:
    message = "the GPU is out of memory; the message has no numbers"
    if any(part in frame.file.replace("\\", "/") for frame in failure.frames for part in LOADER):
        return Problem(message, failure.place, (raised(failure),), Fix(
            "look at what else is on the GPU; keep CUDA out of the dataset, and try "
            "`pin_memory=False`", "pinned memory is the host's, and needs a CUDA context of its "
            "own", command="nvidia-smi"), confidence="likely")
    if "nccl" in failure.message.lower():
        return Problem("the GPU has no room for NCCL's own buffers", failure.place,
                       (raised(failure),), Fix(
                           "`torch.cuda.set_device(local_rank)` before the first collective call, "
                           "and leave some of the GPU free",
                           "ranks that all use GPU 0 fill it", command="nvidia-smi"),
                       confidence="likely")
    when = memorycures.moment(failure)
    cure = memorycures.cure(failure, when, "")
    return Problem(message, failure.place, (raised(failure),), Fix(
        "look at what else is on the GPU; if it is empty: " + cure.title, cure.detail,
        command="nvidia-smi"), confidence="likely")


def in_log(log: Log) -> Iterator[Problem]:
    """Programs that print the message alone."""
    found = told_alone(log)
    if found is not None and found[1].kind not in ELSEWHERE:
        number, full = found
        alone = Failure(key="", type="", message="", how="logged", line_number=number,
                        told=told(log.lines, number))
        yield _problem(full, alone, f"log:{number}", alone=True,
                       severity="info" if _got_over(log, number) else None)
    elif found is None and (hit := logtext.beside(log, BARE)) is not None:
        alone = Failure(key="", type="", message="", how="logged", line_number=hit.number)
        yield Problem("the GPU is out of memory; the message has no numbers",
                      evidence=(hit.evidence,), confidence="likely", about=logtext.about(),
                      fix=Fix("look at what else is on the GPU; if it is empty: "
                              + memorycures.SMALLER, command="nvidia-smi"))


def _got_over(log: Log, number: int) -> bool:
    """A program that skips such a batch says so, and goes on."""
    return bool(GOT_OVER.search(log.lines[number - 1])) and any(
        line.strip() for line in log.lines[number:])


def _problem(full: Full, failure: Failure, source: str, alone: bool = False,
             severity: Severity | None = None) -> Problem:
    message, fix = _judged(full, failure)
    return Problem(
        message, where=None if alone else failure.place, fix=fix, severity=severity,
        evidence=(Evidence(numbers(full), source),),
        about=logtext.about() if alone else (), confidence="likely" if alone else "certain")


def _judged(full: Full, failure: Failure) -> tuple[str, Fix]:
    capacity = full.capacity or 0
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
    return _of_full(full, failure, memorycures.moment(failure), of)


def _of_full(full: Full, failure: Failure, when: Moment, of: str) -> tuple[str, Fix]:
    held = f"live tensors hold {size(full.allocated)}{of}" if full.allocated else \
        f"the memory{of} is in use"
    spill = "; Windows lets it reserve more than the card has" if full.spilled else ""
    detail = "`num_workers` changes nothing here"
    if full.backend == "MPS":
        detail = MPS
    elif not full.spilled and full.unused is not None:
        detail = (f"an allocator setting would win back {size(full.unused)} at most; `num_workers` "
                  "changes nothing here")
    return (f"the GPU is full{memorycures.WORDS[when]}: {held}, and {size(full.asked)} more is "
            f"asked for{spill}", memorycures.cure(failure, when, detail))


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
        fires(_log(_OLD.format("114.00 MiB", "7.20 GiB", "7.30 GiB")).replace(
            "    loss = net(x)", "    net.load_state_dict(torch.load(path))\n  File \"/env/lib/"
            "python3.10/site-packages/torch/serialization.py\", line 1101, in persistent_load"),
            "while a checkpoint was loaded", "map_location", kind="log", title="checkpoint"),
        fires(_log(_OLD.format("114.00 MiB", "7.20 GiB", "7.30 GiB")).replace(
            "loss = net(x)", "net.cuda()"), "while the model was put on it",
            "no batch has been made", kind="log", title="model"),
        fires("$ python train.py --batch-size 1\n" + _log(_OLD.format(
            "114.00 MiB", "7.20 GiB", "7.30 GiB")), "the batch is one sample already", kind="log",
              title="batch of one"),
        fires("epoch 1\nepoch 2\nepoch 3\n" + _log(_OLD.format(
            "114.00 MiB", "7.20 GiB", "7.30 GiB")), "it fitted for 2 epochs before", "what grows",
              kind="log",
              title="after epochs"),
        fires(_log(_OLD.format("114.00 MiB", "7.20 GiB", "7.30 GiB")).replace(
            "in step", "in validate"), "in validation", "torch.no_grad()", kind="log",
              title="validation"),
        fires(_log("RuntimeError: MPS backend out of memory (MPS allocated: 11.14 GB, other "
                   "allocations: 6.65 GB, max allowed: 18.13 GB). Tried to allocate 375.40 MB on "
                   "private pool."), "live tensors hold 11.14 GiB of 18.13 GiB", kind="log",
              title="Apple"),
        fires("THCudaCheck FAIL file=THCStorage.cu line=58 error=2 : out of memory\n",
              "has no numbers", kind="log", title="old torch"),
        fires(_log("RuntimeError: CUDA error: out of memory"), "has no numbers", "nvidia-smi",
              kind="log", title="no numbers"),
        quiet(_log("RuntimeError: CUDA error: no kernel image is available"), kind="log"),
    ),
)
