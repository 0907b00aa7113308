"""Host memory of a run: limits and kills of its control group, resident memory over time."""

from __future__ import annotations

import contextlib
import os
import re
import time
from dataclasses import dataclass, field
from pathlib import Path

import psutil

from torchmedic.observed import HostMemory

UNLIMITED = 1 << 60


@dataclass(frozen=True, slots=True)
class ControlGroup:
    """The memory controller a process belongs to, version 1 or 2. Absent files are None."""

    folder: Path | None
    version: int = 0

    @classmethod
    def of(cls, pid: int | str = "self", root: Path = Path("/")) -> ControlGroup:
        """Find it from /proc/PID/cgroup. `root` lets a recorded tree stand in for the machine."""
        try:
            lines = (root / f"proc/{pid}/cgroup").read_text().splitlines()
        except OSError:
            return cls(None)
        for line in lines:
            number, controllers, path = [*line.split(":", 2), "", ""][:3]
            if "memory" in controllers.split(","):
                return cls(_existing(root / "sys/fs/cgroup/memory", path), 1)
            if number == "0" and not controllers and _has_memory(root, path):
                return cls(_existing(root / "sys/fs/cgroup", path), 2)
        return cls(None)

    def _read(self, name: str) -> str | None:
        if self.folder is None:
            return None
        try:
            return (self.folder / name).read_text()
        except OSError:
            return None

    def _number(self, name: str) -> int | None:
        text = (self._read(name) or "").strip()
        return int(text) if text.isdigit() and int(text) < UNLIMITED else None

    @property
    def limit(self) -> int | None:
        """Bytes; None when unlimited or unreadable."""
        return self._number("memory.max" if self.version == 2 else "memory.limit_in_bytes")

    @property
    def peak(self) -> int | None:
        return self._number("memory.peak" if self.version == 2 else "memory.max_usage_in_bytes")

    @property
    def oom_kills(self) -> int | None:
        """Processes the kernel has killed in this group for memory, since it was made."""
        text = self._read("memory.events" if self.version == 2 else "memory.oom_control")
        found = re.search(r"^oom_kill (\d+)", text or "", re.MULTILINE)
        return int(found.group(1)) if found else None


def _existing(base: Path, path: str) -> Path | None:
    # Inside a container the path is the host's, and the group is mounted at the base.
    for folder in (base / path.lstrip("/"), base):
        if folder.is_dir():
            return folder
    return None


def _has_memory(root: Path, path: str) -> bool:
    folder = _existing(root / "sys/fs/cgroup", path)
    return folder is not None and (folder / "memory.events").exists()


@dataclass(slots=True)
class MemoryWatch:
    """Samples the resident memory of the run's processes."""

    root: int
    group: ControlGroup = field(default_factory=ControlGroup.of)
    trend: list[tuple[float, int]] = field(default_factory=list)
    peaks: dict[int, int] = field(default_factory=dict)
    peak: int = 0
    available_low: int | None = None
    kills_before: int | None = None
    started: float = field(default_factory=time.monotonic)

    def __post_init__(self) -> None:
        self.kills_before = self.group.oom_kills

    def follow(self, pid: int) -> None:
        """The child may be moved to a group of its own: read that one."""
        group = ControlGroup.of(pid)
        if group.folder is not None and group.folder != self.group.folder:
            self.group = group
            self.kills_before = group.oom_kills

    def sample(self, elapsed: float) -> list[psutil.Process]:
        """One measurement; returns the processes that are alive."""
        alive = family(self.root)
        total = 0
        for process in alive:
            with contextlib.suppress(psutil.Error, OSError):
                resident = process.memory_info().rss
                total += resident
                self.peaks[process.pid] = max(resident, self.peaks.get(process.pid, 0))
        self.peak = max(self.peak, total)
        available = psutil.virtual_memory().available
        self.available_low = min(available, self.available_low or available)
        self.trend.append((round(elapsed, 2), total))
        if len(self.trend) > 2000:
            del self.trend[1:-1:2]
        return alive

    def summary(self) -> HostMemory:
        limit, source = self.group.limit, "memory limit of the control group"
        if limit is None:
            limit, source = psutil.virtual_memory().total, "memory of the machine"
        after = self.group.oom_kills
        kills = None
        if after is not None and self.kills_before is not None:
            kills = max(0, after - self.kills_before)
        largest = max(self.peaks, key=lambda pid: self.peaks[pid], default=None)
        return HostMemory(limit, source, self.peak, self.available_low, kills,
                          kernel_kills(tuple(self.peaks), self.started), tuple(self.trend), largest)


def family(root: int) -> list[psutil.Process]:
    """A process and all its descendants that are alive."""
    try:
        first = psutil.Process(root)
        return [first, *first.children(recursive=True)]
    except (psutil.Error, OSError):
        return []


def kernel_kills(pids: tuple[int, ...], since: float) -> tuple[int, ...]:
    """Which of `pids` the kernel log says were killed for memory; empty when it can't be read.

    since: `time.monotonic()` at the start of the run; records carry microseconds of that clock.
    """
    try:
        fd = os.open("/dev/kmsg", os.O_RDONLY | os.O_NONBLOCK)
    except OSError:
        return ()
    found = set()
    try:
        while True:
            try:
                record = os.read(fd, 8192)
            except BlockingIOError:
                break
            except OSError:
                continue  # EPIPE: the record was overwritten while we read.
            killed = re.search(rb"Killed process (\d+)", record)
            when = re.match(rb"\d+,\d+,(\d+)", record)
            if killed and when and int(when.group(1)) / 1e6 >= since - 5:
                found.add(int(killed.group(1)))
    finally:
        os.close(fd)
    return tuple(sorted(found & set(pids)))
