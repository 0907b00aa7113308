"""Host memory of a run: limits and kills of its control group, resident memory over time."""

from __future__ import annotations

import contextlib
import os
import re
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import psutil  # for people; at run time it costs 10 ms and is imported where it is needed

    from torchmedic.observed import HostMemory

UNLIMITED = 1 << 60
LINUX = sys.platform == "linux"


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

    def sample(self, elapsed: float) -> list[int]:
        """One measurement; returns the processes that are alive."""
        alive = living(self.root)
        total = 0
        for pid in alive:
            used = resident(pid)
            total += used
            self.peaks[pid] = max(used, self.peaks.get(pid, 0))
        self.peak = max(self.peak, total)
        free = available()
        self.available_low = min(free, self.available_low or free)
        self.trend.append((round(elapsed, 2), total))
        if len(self.trend) > 2000:
            del self.trend[1:-1:2]
        return alive

    def summary(self) -> HostMemory:
        from torchmedic.observed import HostMemory  # not before the program has started

        limit, source = self.group.limit, "memory limit of the control group"
        if limit is None:
            limit, source = _meminfo("MemTotal"), "memory of the machine"
        after = self.group.oom_kills
        kills = None
        if after is not None and self.kills_before is not None:
            kills = max(0, after - self.kills_before)
        largest = max(self.peaks, key=lambda pid: self.peaks[pid], default=None)
        return HostMemory(limit, source, self.peak, self.available_low, kills,
                          kernel_kills(tuple(self.peaks), self.started), tuple(self.trend), largest)


def family(root: int) -> list[psutil.Process]:
    """A process and all its descendants that are alive."""
    import psutil

    try:
        first = psutil.Process(root)
        return [first, *first.children(recursive=True)]
    except (psutil.Error, OSError):
        return []


def living(root: int) -> list[int]:
    """The pids of `family`, at the cost of the family and not of the whole machine.

    One that is born or dies at this very moment may be missed: fit for samples only.
    """
    if not _HAS_CHILDREN:
        return [process.pid for process in family(root)]
    found = []
    waiting = [root]
    while waiting:
        pid = waiting.pop()
        try:
            threads = [thread.path for thread in os.scandir(f"/proc/{pid}/task")]
        except OSError:
            continue
        found.append(pid)
        for thread in threads:
            waiting += map(int, _text(f"{thread}/children").split())
    return found


def resident(pid: int) -> int:
    """Bytes of a process in memory; 0 when it is gone."""
    if LINUX:
        fields = _text(f"/proc/{pid}/statm").split()
        return int(fields[1]) * _PAGE if len(fields) > 1 else 0
    import psutil

    with contextlib.suppress(psutil.Error, OSError):
        return int(psutil.Process(pid).memory_info().rss)
    return 0


def cpu_seconds(pid: int) -> float:
    """CPU time a process has used; 0 when it is gone."""
    if LINUX:
        # The name, in brackets, may hold anything; user and system time are fields 14 and 15.
        fields = _text(f"/proc/{pid}/stat").rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / _TICKS if len(fields) > 12 else 0.0
    import psutil

    with contextlib.suppress(psutil.Error, OSError):
        times = psutil.Process(pid).cpu_times()
        return float(times.user + times.system)
    return 0.0


def available() -> int:
    """Bytes the machine can still give."""
    return _meminfo("MemAvailable")


def _meminfo(name: str) -> int:
    found = re.search(rf"^{name}:\s+(\d+) kB", _text("/proc/meminfo"), re.MULTILINE)
    if found:
        return int(found.group(1)) << 10
    import psutil

    memory = psutil.virtual_memory()
    return int(memory.total if name == "MemTotal" else memory.available)


def _text(path: str) -> str:
    """A file of the kernel's; empty when it is gone."""
    try:
        with open(path, "rb", buffering=0) as file:
            return file.read().decode("utf-8", "replace")
    except OSError:
        return ""


_HAS_CHILDREN = Path(f"/proc/self/task/{os.getpid()}/children").exists()
_PAGE = os.sysconf("SC_PAGE_SIZE") if LINUX else 0
_TICKS = os.sysconf("SC_CLK_TCK") if LINUX else 0


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
            except BrokenPipeError:
                continue  # the record was overwritten while we read
            except OSError:
                break
            if not record:
                break  # not the kernel's: some containers put /dev/null in its place
            killed = re.search(rb"Killed process (\d+)", record)
            when = re.match(rb"\d+,\d+,(\d+)", record)
            if killed and when and int(when.group(1)) / 1e6 >= since - 5:
                found.add(int(killed.group(1)))
    finally:
        os.close(fd)
    return tuple(sorted(found & set(pids)))
