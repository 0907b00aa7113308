"""One supervised run from its start to what is known at its end."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torchmedic import redact
from torchmedic.supervise.child import Child
from torchmedic.supervise.environment import child_environment
from torchmedic.supervise.follow import Follower, StallSeen
from torchmedic.supervise.memory import living
from torchmedic.supervise.outcome import Outcome

GRACE = 5.0  # seconds between SIGINT, SIGTERM and SIGKILL when a hung run is to be stopped


@dataclass(frozen=True, slots=True)
class Options:
    """hang_after: seconds, or None to adapt to the run's own pace."""

    hang_after: float | None = None
    hang_stop: bool = False


def supervise(command: Sequence[str], folder: Path, options: Options,
              say: Callable[[str], None],
              started: Callable[[], None] = lambda: None) -> Outcome:
    """Run the command; its processes leave what they know in the folder's `spool`.

    started: called once the program runs.

    Raises NotStarted when the command can't be run.
    """
    spool = folder / "spool"
    spool.mkdir(parents=True, exist_ok=True)
    began, began_at = time.monotonic(), time.time()
    child = Child(command, child_environment(os.environ, spool))
    stopper = _Stopper(child, options, say)
    follower = Follower(child.pid, spool, options.hang_after, stopper.on_hang)

    started()
    notes: list[str] = []

    def tick() -> None:
        if notes:
            return
        try:
            follower.tick()
            stopper.tick()
        except Exception as error:  # ours: the program goes on, and no hang is told any more
            notes.append(f"the run was not watched to its end: {type(error).__name__}: {error}")

    try:
        status = child.wait(tick, 0.25)
    finally:
        child.close()
    return Outcome({
        "command": redact.argument_list(command), "pid": child.pid, "status": status,
        "started": began_at,
        "duration_s": time.monotonic() - began, "forwarded": child.forwarded,
        "statuses": {str(pid): code for pid, code in child.statuses.items()},
        "memory": _memory(follower), "stall": _stall(follower.stall),
        "terminal": child.terminal_output,
        "left_behind": living(os.getpid())[1:], "notes": notes,
    }, redact.text(child.tail.text))


class _Stopper:
    """Says that the run hangs and, if asked to, ends it: politely first."""

    def __init__(self, child: Child, options: Options, say: Callable[[str], None]) -> None:
        self._child = child
        self._options = options
        self._say = say
        self._plan: list[tuple[float, int]] = []

    def on_hang(self, stall: StallSeen) -> None:
        usual = f" (a step usually takes {stall.usual_step:.2g} s)" if stall.usual_step else ""
        self._say(f"no progress for {stall.after:.0f} s{usual}; the stacks are saved"
                  + ("; stopping the run" if self._options.hang_stop else
                     "; the run goes on, Ctrl-C ends it and shows the report"))
        if self._options.hang_stop:
            stall.stopped = True
            now = time.monotonic()
            self._plan = [(now, signal.SIGINT), (now + GRACE, signal.SIGTERM),
                          (now + 2 * GRACE, signal.SIGKILL)]

    def tick(self) -> None:
        while self._plan and time.monotonic() >= self._plan[0][0]:
            self._child.signal(self._plan.pop(0)[1])


def _memory(follower: Follower) -> dict[str, Any]:
    summary = follower.memory.summary()
    return {
        "limit": summary.limit, "limit_source": summary.limit_source, "peak": summary.peak,
        "available_low": summary.available_low, "oom_kills": summary.oom_kills,
        "killed": list(summary.killed), "trend": [list(point) for point in summary.trend],
        "largest_pid": summary.largest_pid,
        "peaks": {str(pid): peak for pid, peak in follower.memory.peaks.items()},
    }


def _stall(stall: StallSeen | None) -> dict[str, Any] | None:
    if stall is None:
        return None
    return {
        "after_s": stall.after, "usual_step_s": stall.usual_step, "cpu_share": stall.cpu,
        "stopped": stall.stopped, "resumed": stall.resumed, "pids": list(stall.pids),
        "dump_marks": stall.dump_marks,
    }
