"""Reads the ring and the spool of one observed process, also while it is alive."""

from __future__ import annotations

import json
import os
import struct
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from torchmedic.probes import layout

if TYPE_CHECKING:
    from torchmedic.observed import Frame

SETTLED = 2_000_000_000  # nanoseconds after which a folder's time tells of every file in it
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


def read_ring(path: Path, whole: bool = True) -> Ring | None:
    """None when the file is not a ring (yet). Not whole: the slots alone, the rest empty."""
    size = layout.SIZE if whole else layout.AREA_START
    try:
        with open(path, "rb", buffering=0) as file:
            data = file.read(size)
    except OSError:
        return None
    if len(data) < size:
        return None
    slots = _SLOTS.unpack_from(data)
    if slots[layout.MAGIC_SLOT] != layout.MAGIC:
        return None
    if not whole:
        return Ring(slots, ())
    used = min(slots[layout.RESERVE_USED], layout.RESERVE_SIZE)
    reserve = data[layout.RESERVE_START : layout.RESERVE_START + used]
    return Ring(slots, _stack(data, slots[layout.STACK_SEQUENCE]), reserve)


def ring_of(event: dict[str, Any]) -> Ring | None:
    """A ring that was folded into an event; None when the event is damaged."""
    try:
        slots = tuple(int(number) for number in event["slots"])
        stack = tuple((str(f), int(n), str(w)) for f, n, w in event.get("stack", ()))
    except (KeyError, TypeError, ValueError):
        return None
    return Ring((*slots, *(0,) * (layout.SLOTS - len(slots))), stack)


def fold_rings(spool: Path) -> None:
    """Turn each ring into an event: 80 KB a process are too much to keep. Raises OSError."""
    for path in spool.glob("*.ring"):
        ring = read_ring(path)
        if ring is None:
            continue
        event = {"kind": "ring", "slots": ring.slots[: layout.IN_USE], "stack": ring.stack}
        with open(path.with_suffix(".events"), "ab") as events:
            events.write(ring.reserve + json.dumps(event).encode() + b"\n")
        path.unlink()
    for path in spool.glob("*.fault"):
        if not path.stat().st_size:
            path.unlink()


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


class LiveRings:
    """The slots of every process that still lives, at a cost that does not grow with the dead.

    A run of many epochs starts thousands of workers, one after the other.
    """

    def __init__(self, spool: Path) -> None:
        self._spool = spool
        self._stamp = 0
        self._paths: tuple[Path, ...] = ()
        self._alive: set[Path] = set()
        self._over: set[Path] = set()

    def look(self) -> dict[Path, Ring]:
        """What the living tell now; one that has ended is told once more."""
        found = {}
        for path in self._listed():
            ring = read_ring(path, whole=False) if path not in self._over else None
            if ring is not None:
                found[path] = ring
                if ring.slots[layout.ENDED] or self._is_gone(path, ring.slots[layout.PID]):
                    self._over.add(path)
        return found

    def _listed(self) -> tuple[Path, ...]:
        try:
            stamp = self._spool.stat().st_mtime_ns
            # A file that is made right after a look may leave the folder's time as it was.
            if stamp != self._stamp or time.time_ns() - stamp < SETTLED:
                self._paths = tuple(p for p in self._spool.iterdir() if p.suffix == ".ring")
                self._stamp = stamp
        except OSError:
            return ()
        return self._paths

    def _is_gone(self, path: Path, pid: int) -> bool:
        """It was there and is no more; in a namespace of its own its number means nothing here."""
        try:
            os.kill(pid, 0)
        except ProcessLookupError:
            return path in self._alive
        except (OSError, OverflowError):
            return False
        self._alive.add(path)
        return False


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
    if "site-packages" in file or "dist-packages" in file or lacks_source(file):
        return False
    return not any(file.startswith(folder + "/") for folder in library)


def lacks_source(file: str) -> bool:
    """Cython gives its frames a path below the source tree it was built from."""
    return not file.startswith("<") and not Path(file).is_absolute() and not Path(file).exists()


def frame(entry: tuple[str, int, str], library: tuple[str, ...] = ()) -> Frame:
    from torchmedic.observed import Frame  # not before the program has started

    file, line, function = entry
    return Frame(file, line, function, user=is_user_file(file, library))
