"""What one process wrote: its spool of events, and its ring."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, TypeVar

from torchmedic.supervise.rings import Ring, read_events, read_ring, ring_of

Role = Literal["main", "worker", "rank", "child", "launcher"]
Event = Mapping[str, Any]
IDENTITY = ("pid", "parent", "argv", "time")
T = TypeVar("T")
HELPERS = ("multiprocessing.resource_tracker", "multiprocessing.forkserver")


@dataclass(slots=True)
class Spool:
    """What one process wrote."""

    name: str
    events: list[Event]
    ring: Ring | None
    fault: Path
    by_kind: dict[str, list[Event]] = field(default_factory=dict)

    @classmethod
    def read(cls, path: Path) -> Spool | None:
        """None when the process never told who it was."""
        ring = read_ring(path.with_suffix(".ring"))
        events: list[Event] = list(read_events(path, ring.reserve if ring else b""))
        spool = cls(path.stem, events, ring, path.with_suffix(".fault"))
        for event in events:
            spool.by_kind.setdefault(event["kind"], []).append(event)
        if ring is None and spool.all("ring"):
            spool.ring = ring_of(dict(spool.all("ring")[-1]))
        whole = all(name in (spool.first("process") or {}) for name in IDENTITY)
        return spool if whole else None

    def all(self, kind: str) -> list[Event]:
        return self.by_kind.get(kind, [])

    def first(self, kind: str) -> Event | None:
        return next(iter(self.all(kind)), None)

    @property
    def facts(self) -> Event:
        return self.all("process")[0]

    @property
    def pid(self) -> int:
        return int(self.facts["pid"])

    @property
    def library(self) -> tuple[str, ...]:
        return tuple(self.facts.get("library") or ())

    @property
    def is_helper(self) -> bool:
        """A process that multiprocessing keeps for itself."""
        if self.first("child") or self.first("worker"):
            return False  # What a fork server forks has its arguments.
        return any(name in argument for argument in self.facts["argv"] for name in HELPERS)

    @property
    def trains(self) -> bool:
        return bool(self.ring and any(self.ring.progress)) and not self.first("worker")

    def slot(self, number: int) -> int:
        return self.ring.slots[number] if self.ring else 0

    @property
    def modules(self) -> dict[int, tuple[str, str]]:
        named = built(self.all("modules"), lambda e: [(int(n), (p, c)) for n, p, c in e["modules"]])
        return dict(item for items in named for item in items)


def built(events: Iterable[Event], make: Callable[[Event], T]) -> Iterator[T]:
    """What each event becomes; a damaged one costs nothing but itself."""
    for event in events:
        try:
            yield make(event)
        except (KeyError, TypeError, ValueError, IndexError, AttributeError):
            continue


def read_spools(folder: Path) -> list[Spool]:
    """All processes that told something, in the order in which they started."""
    found = (Spool.read(path) for path in sorted(folder.glob("*.events")))
    return sorted((s for s in found if s is not None), key=lambda s: float(s.facts["time"]))
