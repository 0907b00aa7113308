"""Follows the recorder of a running command: progress, memory, and a hang when nothing moves."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from torchmedic.probes import layout
from torchmedic.supervise.memory import MemoryWatch, cpu_seconds
from torchmedic.supervise.rings import LiveRings, Ring

PERIOD = 0.25  # seconds between looks
SHARE = 0.003  # of one core, for measuring memory: looked at less often where that costs more
LONGEST = 5.0  # seconds between looks at memory, whatever they cost
BEFORE_FIRST = 300.0  # seconds without progress before the first batch; data sets take long
SETUP_TIMES = 10  # before anything moved, --hang-after counts this many times
AFTER_FIRST = 60.0  # never less than this once it trains
STEPS_LOST = 30  # a hang lasts at least as long as this many usual steps …
GAPS_LOST = 5  # … and this many times the longest pause the run has made so far
BUSY = 0.5  # cores: a process that computes this much gets BUSY_TIMES the patience
BUSY_TIMES = 5
QUIET = 0.1  # of the patience: from then on what it computes is watched
AWAY = 5.0  # seconds: after a longer gap between looks, we were stopped ourselves (Ctrl-Z)
DUMP_WAIT = 2.0  # seconds for the processes to write their stacks


@dataclass(slots=True)
class Pace:
    """How fast the run moves, and since when it does not."""

    since: float
    counters: dict[Path, tuple[int, ...]] = field(default_factory=dict)
    steps: int = 0
    step_time: list[float] = field(default_factory=list)
    longest_gap: float = 0.0
    started: bool = False
    last_step: float = 0.0

    def look(self, now: float, rings: dict[Path, Ring]) -> bool:
        """Take in the counters; True when anything moved."""
        moved = False
        for path, ring in rings.items():
            if self.counters.get(path) != ring.progress:
                # A process that has just appeared is no progress of the training.
                moved |= path in self.counters or any(ring.progress)
                self.counters[path] = ring.progress
        if moved:
            if self.started:
                self.longest_gap = max(self.longest_gap, now - self.since)
            self.started = True
            self.since = now
            self._time_steps(now, rings)
        return moved

    def _time_steps(self, now: float, rings: dict[Path, Ring]) -> None:
        steps = max((ring.slots[layout.STEPS] for ring in rings.values()), default=0)
        if steps > self.steps:
            if self.steps:
                self.step_time.append((now - self.last_step) / (steps - self.steps))
                del self.step_time[:-200]
            self.steps, self.last_step = steps, now

    def pause(self, seconds: float) -> None:
        """Time in which nobody looked, and maybe nothing ran, says nothing of the run."""
        self.since += seconds
        self.last_step += seconds

    @property
    def usual_step(self) -> float | None:
        """Median. (The statistics module would take 4 ms to import.)"""
        ordered = sorted(self.step_time)
        return ordered[len(ordered) // 2] if ordered else None

    def patience(self, fixed: float | None) -> float:
        """Seconds without progress that this run's own pace explains."""
        if not self.started:  # imports, downloads, compiling: nobody knows how long
            return BEFORE_FIRST if fixed is None else min(BEFORE_FIRST, fixed * SETUP_TIMES)
        if fixed is not None:
            return fixed
        step = self.usual_step or 0.0
        return max(AFTER_FIRST, STEPS_LOST * step, GAPS_LOST * self.longest_gap)


@dataclass(slots=True)
class StallSeen:
    """What was found when nothing moved."""

    after: float
    usual_step: float | None
    cpu: float
    stopped: bool = False
    resumed: bool = False
    pids: tuple[int, ...] = ()
    dump_marks: dict[str, int] = field(default_factory=dict)
    """Size of each fault file before the dump: what follows is the dump."""


class Follower:
    """Looks at the rings and at memory in turns; names a hang once."""

    def __init__(self, root: int, spool: Path, hang_after: float | None,
                 on_hang: Callable[[StallSeen], None]) -> None:
        self.memory = MemoryWatch(root)
        self.stall: StallSeen | None = None
        self._root = root
        self._live = LiveRings(spool)
        self._hang_after = hang_after
        self._on_hang = on_hang
        self._began = self._next_look = self._last_look = time.monotonic()
        self._next_memory = self._began
        self._pace = Pace(self._began)
        self._rings: dict[Path, Ring] = {}
        self._cpu_then: tuple[float, float] | None = None

    def tick(self) -> None:
        """Called often; does something only when a look is due."""
        now = time.monotonic()
        if now < self._next_look:
            return
        self._next_look = now + PERIOD
        if now - self._last_look > AWAY:
            self._pace.pause(now - self._last_look)
            self._cpu_then = None
        self._last_look = now
        self._rings = self._live.look()
        if self._pace.look(now, self._rings):
            self._cpu_then = None
            if self.stall is not None:
                self.stall.resumed = True
        else:
            self._look_for_hang(now)
        if now >= self._next_memory:
            self._look_at_memory(now)

    def _look_at_memory(self, now: float) -> None:
        began = time.thread_time()
        self.memory.follow(self._root)
        self.memory.sample(now - self._began)
        cost = time.thread_time() - began
        self._next_memory = now + min(max(2 * PERIOD, cost / SHARE), LONGEST)

    def _look_for_hang(self, now: float) -> None:
        idle = now - self._pace.since
        patience = self._pace.patience(self._hang_after)
        if idle < patience * QUIET:
            return
        if self._cpu_then is None:
            self._cpu_then = (now, self._cpu())
        if idle < patience or (self.stall is not None and not self.stall.resumed):
            return
        then, cpu_then = self._cpu_then
        cpu = (self._cpu() - cpu_then) / max(now - then, 1e-3)
        if cpu > BUSY and self._hang_after is None and idle < patience * BUSY_TIMES:
            return
        self.stall = StallSeen(idle, self._pace.usual_step, cpu)
        self._ask_for_stacks(self.stall)
        self._on_hang(self.stall)

    def _cpu(self) -> float:
        """CPU seconds used so far by the run's living processes."""
        alive = self.memory.sample(time.monotonic() - self._began)
        return sum(map(cpu_seconds, alive))

    def _ask_for_stacks(self, stall: StallSeen) -> None:
        """Every observed process writes the stacks of all its threads; nothing is stopped."""
        asked = []
        for path, ring in self._rings.items():
            fault = path.with_suffix(".fault")
            pid, number = ring.slots[layout.PID], ring.slots[layout.DUMP_SIGNAL]
            if not number or ring.slots[layout.ENDED] or not _catches(pid, number):
                continue
            stall.dump_marks[fault.name] = fault.stat().st_size if fault.exists() else 0
            with contextlib.suppress(OSError):
                os.kill(pid, number)
                asked.append((pid, fault))
        stall.pids = tuple(pid for pid, _ in asked)
        until = time.monotonic() + DUMP_WAIT
        while time.monotonic() < until and not all(
            fault.exists() and fault.stat().st_size > stall.dump_marks[fault.name]
            for _, fault in asked
        ):
            time.sleep(0.05)
        time.sleep(0.1)  # A dump is written line by line.


def _catches(pid: int, number: int) -> bool:
    """The process handles that signal now. One that has since become another program does not,
    and would be killed by it."""
    try:
        with open(f"/proc/{pid}/status") as status:
            caught = next(line for line in status if line.startswith("SigCgt:"))
    except (OSError, StopIteration):
        return False
    return bool(int(caught.split()[1], 16) >> (number - 1) & 1)
