"""Reads the ring and the spool of one observed process, also while it is alive."""

from __future__ import annotations

import json
import struct
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torchmedic.observed import Frame
from torchmedic.probes import layout

_SLOTS = struct.Struct(f"<{layout.SLOTS}Q")


@dataclass(frozen=True, slots=True)
class Ring:
    """A ring's slots at one moment, and the last sampled stack."""

    slots: tuple[int, ...]
    stack: tuple[tuple[str, int, str], ...]
    """(file, line, function), outermost first."""
    reserve: bytes = b""
    """Events that the disk had no room for."""

    @property
    def progress(self) -> tuple[int, ...]:
        return tuple(self.slots[slot] for slot in layout.PROGRESS)

    @property
    def phase(self) -> str:
        number = self.slots[layout.PHASE]
        return layout.PHASES[number] if number < len(layout.PHASES) else "other"


def read_ring(path: Path) -> Ring | None:
    """None when the file is not a ring (yet)."""
    try:
        data = path.read_bytes()
    except OSError:
        return None
    if len(data) < layout.SIZE:
        return None
    slots = _SLOTS.unpack_from(data)
    if slots[layout.MAGIC_SLOT] != layout.MAGIC:
        return None
    used = min(slots[layout.RESERVE_USED], layout.RESERVE_SIZE)
    reserve = data[layout.RESERVE_START : layout.RESERVE_START + used]
    return Ring(slots, _stack(data, slots[layout.STACK_SEQUENCE]), reserve)


def _stack(data: bytes, sequence: int) -> tuple[tuple[str, int, str], ...]:
    if not sequence:
        return ()
    start = layout.AREA_START + (sequence & 1) * layout.AREA_SIZE
    text = data[start : start + layout.AREA_SIZE].split(b"\0", 1)[0].decode("utf-8", "replace")
    entries = []
    for line in text.split("\n"):
        parts = line.split("\x1f")
        if len(parts) == 3 and parts[1].isdigit():
            entries.append((parts[0], int(parts[1]), parts[2]))
    entries.reverse()
    return tuple(entries)


def read_events(path: Path, reserve: bytes = b"") -> Iterator[dict[str, Any]]:
    """Events in order, then those of the reserve; a line that was cut short is skipped."""
    try:
        with open(path, "rb") as spool:
            yield from _events(spool)
    except OSError:
        pass
    yield from _events(reserve.splitlines())


def _events(lines: Iterable[bytes]) -> Iterator[dict[str, Any]]:
    for line in lines:
        try:
            event = json.loads(line)
        except (ValueError, RecursionError):
            continue
        if isinstance(event, dict) and isinstance(event.get("kind"), str):
            yield event


def is_user_file(file: str, library: tuple[str, ...] = ()) -> bool:
    """False for installed packages, the standard library, frozen modules and the observer."""
    if file.startswith("<frozen") or "/torchmedic/probes/" in file:
        return False
    if "site-packages" in file or "dist-packages" in file or is_compiled(file):
        return False
    return not any(file.startswith(folder + "/") for folder in library)


def is_compiled(file: str) -> bool:
    """Cython gives its frames a path below the source tree it was built from."""
    return not file.startswith("<") and not Path(file).is_absolute() and not Path(file).exists()


def frame(entry: tuple[str, int, str], library: tuple[str, ...] = ()) -> Frame:
    file, line, function = entry
    return Frame(file, line, function, user=is_user_file(file, library))
