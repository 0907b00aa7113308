"""The numbers of a CUDA out-of-memory message, in bytes."""

from __future__ import annotations

import re
from dataclasses import dataclass

UNITS = {"bytes": 1, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30, "TiB": 2**40}
AMOUNT = r"([\d.]+) (bytes|KiB|MiB|GiB|TiB)"
FACTS = {
    "asked": rf"Tried to allocate {AMOUNT}",
    # torch 0.4 to 2.0 | 2.1 and newer ("capacty" in 2.1)
    "capacity": rf"{AMOUNT} total capacity|total capac\w+ of {AMOUNT}",
    "free": rf"{AMOUNT} free[;)]|of which {AMOUNT} is free",
    "allocated": rf"{AMOUNT} already allocated|memory {AMOUNT} is allocated by PyTorch",
    "reserved": rf"{AMOUNT} reserved in total by PyTorch",  # 1.4 to 2.0
    "slack": rf"{AMOUNT} cached\)|{AMOUNT} is reserved by PyTorch but unallocated",
    "own": rf"this process has {AMOUNT} memory in use",
}
OTHERS = re.compile(rf"(?<!this )[Pp]rocess \d+ has {AMOUNT} memory in use")


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

    @property
    def unused(self) -> int | None:
        """Bytes that the allocator holds and no tensor uses."""
        if self.slack is not None or self.reserved is None or self.allocated is None:
            return self.slack
        return self.reserved - self.allocated


def read(message: str) -> Full | None:
    """None when it is another message."""
    text = " ".join(message.split())
    if "CUDA out of memory" not in text and "HIP out of memory" not in text:
        return None
    found = {name: _first(pattern, text) for name, pattern in FACTS.items()}
    asked = found.pop("asked")
    if asked is None:
        return None
    others = sum(_bytes(*amount) for amount in OTHERS.findall(text))
    return Full(asked=asked, others=others, **found)


def _first(pattern: str, text: str) -> int | None:
    match = re.search(pattern, text)
    if match is None:
        return None
    number, unit = [group for group in match.groups() if group is not None][:2]
    return _bytes(number, unit)


def _bytes(number: str, unit: str) -> int:
    return round(float(number) * UNITS[unit])
