"""The numbers of a GPU's out-of-memory message, in bytes."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from torchmedic.logs.completion import completed
from torchmedic.wording import size

if TYPE_CHECKING:
    from torchmedic.observed import Log

# Apple's allocator writes MB for MiB.
UNITS = {"bytes": 1, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30, "TiB": 2**40,
         "KB": 2**10, "MB": 2**20, "GB": 2**30}
AMOUNT = r"([\d.]+) (bytes|KiB|MiB|GiB|TiB|KB|MB|GB)"
FULL = re.compile(r"(CUDA|HIP|XPU|NPU|MUSA|MLU|MPS backend) out of memory")
BARE = re.compile(
    r"(?:CUDA|HIP)[ _]?error ?: ?out of memory|^(?:CUDA|HIP|XPU|NPU) out of memory"
    r"|cuda runtime error \(2\)|error=2 : out of memory|[Cc]uda failure .?out of memory"
    r"|CUDA_ERROR_OUT_OF_MEMORY|cudaErrorMemoryAllocation"
    r"|^Out of memory allocating [\d,]+ bytes \(allocated so far", re.IGNORECASE)
"""A GPU's refusal without numbers: torch 0.3 to 2.14, NCCL, CuPy."""
FACTS = {
    "asked": rf"Tried to allocate {AMOUNT}",
    # torch 0.4 to 2.0 | 2.1 and newer ("capacty" in 2.1)
    "capacity": rf"{AMOUNT} total capacity|total capac\w+ of {AMOUNT}|max allowed: {AMOUNT}",
    "free": rf"{AMOUNT} free[;)]|of which {AMOUNT} is free",
    "allocated": rf"{AMOUNT} already allocated|memory {AMOUNT} is allocated by PyTorch"
                 rf"|MPS allocated: {AMOUNT}",
    "reserved": rf"{AMOUNT} reserved in total by PyTorch",  # 1.4 to 2.0
    "slack": rf"{AMOUNT} cached\)|{AMOUNT} is reserved by PyTorch but unallocated",
    "own": rf"this process has {AMOUNT} memory in use",
}
OTHERS = re.compile(rf"(?<!this )[Pp]rocess \d+ has {AMOUNT} memory in use")


CONTEXT = 2**30
"""Bytes that CUDA, its libraries and a desktop may hold beside the allocator."""
Kind = Literal["oversized", "elsewhere", "pieces", "not full", "full"]


@dataclass(frozen=True, slots=True)
class Full:
    """What the message tells; None where it tells nothing. slack: reserved but not in use."""

    asked: int
    capacity: int | None = None
    free: int | None = None
    allocated: int | None = None
    reserved: int | None = None
    slack: int | None = None
    own: int | None = None
    others: int = 0
    listed: bool = False
    """Processes are named with what they hold."""
    backend: str = "CUDA"

    @property
    def unused(self) -> int | None:
        """Bytes that the allocator holds and no tensor uses."""
        if self.slack is not None or self.reserved is None or self.allocated is None:
            return self.slack
        return self.reserved - self.allocated

    @property
    def spilled(self) -> bool:
        """Windows let it reserve more than the card has: the rest lies in host memory."""
        return bool(self.capacity and (self.reserved or 0) > self.capacity)

    @property
    def elsewhere(self) -> int:
        """Bytes that others hold, as far as the message tells."""
        held = (self.allocated or 0) + (self.unused or 0)
        if self.listed:
            return self.others
        if self.own is not None or None in (self.capacity, self.free, self.allocated):
            return 0
        if self.unused is None or self.spilled:
            return 0
        return max(0, (self.capacity or 0) - (self.free or 0) - held - CONTEXT)

    @property
    def kind(self) -> Kind:
        """Which of the reasons the numbers tell."""
        capacity, unused = self.capacity or 0, self.unused or 0
        if capacity and self.asked > 0.9 * capacity:
            return "oversized"
        if capacity and self.elsewhere > max(capacity / 4, (self.allocated or 0) / 2):
            return "elsewhere"
        if not self.spilled and unused >= self.asked and unused > capacity / 10:
            return "pieces"
        if (self.free or 0) > 2 * self.asked and (self.free or 0) > CONTEXT / 2:
            return "not full"
        return "full"


def read(message: str) -> Full | None:
    """None when it is another message."""
    text = " ".join(message.split())
    full = FULL.search(text)
    if full is None:
        return None
    found = {name: _first(pattern, text) for name, pattern in FACTS.items()}
    asked = found.pop("asked")
    if asked is None:
        return None
    each = [_bytes(*amount) for amount in OTHERS.findall(text)]
    others = _without_itself(each, found) if found["own"] is None else sum(each)
    return Full(asked=asked, others=others, listed=bool(each),
                backend=full[1].partition(" ")[0], **found)


def _without_itself(each: list[int], found: dict[str, int | None]) -> int:
    """In a container this process itself is listed, under a number of the host."""
    held = (found["allocated"] or 0) + (found["slack"] or 0)
    itself = next((size for size in each if held <= size < held + 2 * CONTEXT), 0)
    return sum(each) - itself


def _first(pattern: str, text: str) -> int | None:
    match = re.search(pattern, text)
    if match is None:
        return None
    number, unit = [group for group in match.groups() if group is not None][:2]
    return _bytes(number, unit)


def _bytes(number: str, unit: str) -> int:
    return round(float(number) * UNITS[unit])


def told_alone(log: Log) -> tuple[int, Full] | None:
    """The line and the numbers of a message that no exception of the log holds."""
    if any(read(failure.message) for failure in log.failures) or completed(log.lines):
        return None
    for number, line in enumerate(log.lines, 1):
        if "out of memory" in line and (full := read(" ".join(log.lines[number - 1:number + 2]))):
            return number, full
    return None


def numbers(full: Full) -> str:
    names = {"asked": "asked for", "capacity": "capacity", "free": "free",
             "allocated": "in live tensors", "own": "this process", "others": "other processes"}
    told = [f"{word} {size(value)}" for name, word in names.items()
            if (value := getattr(full, name))]
    if full.unused is not None:
        told.append(f"reserved and not in use {size(full.unused)}")
    return ", ".join(told)
