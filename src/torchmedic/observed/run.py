"""A run as rules see it: its processes, its memory, its end."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from torchmedic.observed.failure import Failure, Frame, Log
from torchmedic.signals import HARMLESS, fatal_signal, signal_name

if TYPE_CHECKING:
    from torchmedic.observed.process import Process, SignalSent
    from torchmedic.source.script import Script

AT_THE_END = 1.0  # seconds between a signal and the last that was seen of the process it ended


@dataclass(frozen=True, slots=True)
class Ending:
    """How the started command ended. Exactly one of code and signal is set."""

    code: int | None
    signal: str | None
    forwarded: str | None = None
    """A signal that torchmedic itself received and passed on."""


@dataclass(frozen=True, slots=True)
class HostMemory:
    """Memory of the machine or the container while the run lasted; bytes.

    oom_kills: how often the kernel killed in this control group during the run; None when it
    can't be read. killed: pids named by the kernel log.
    """

    limit: int | None = None
    limit_source: str = ""
    peak: int = 0
    """Highest sum of resident memory over all processes of the run."""
    available_low: int | None = None
    oom_kills: int | None = None
    killed: tuple[int, ...] = ()
    trend: tuple[tuple[float, int], ...] = ()
    """(seconds since start, resident bytes)."""
    largest_pid: int | None = None


@dataclass(frozen=True, slots=True)
class Stall:
    """No progress for longer than the run's own pace explains.

    stacks: per pid, per thread (name → frames, outermost first); `main` is the main thread.
    """

    after_s: float
    usual_step_s: float | None
    cpu_share: float
    """CPU used by all processes while nothing moved, in cores."""
    stacks: Mapping[int, Mapping[str, tuple[Frame, ...]]] = field(default_factory=dict)
    stopped: bool = False
    resumed: bool = False
    """It moved again later."""


def _no_script(file: str) -> Script | None:
    return None


@dataclass(frozen=True, slots=True)
class Run:
    """A supervised run from its start to its end."""

    command: tuple[str, ...]
    ending: Ending
    processes: tuple[Process, ...] = ()
    duration_s: float = 0.0
    memory: HostMemory = field(default_factory=HostMemory)
    stall: Stall | None = None
    output: Log = field(default_factory=lambda: Log(()))
    """Tail of the standard error stream, where it did not go to a terminal."""
    signals: tuple[SignalSent, ...] = ()
    script: Callable[[str], Script | None] = _no_script
    """The user's source file by name, read on demand; None when it can't be read."""
    witnesses: list[Any] = field(default_factory=list, init=False, repr=False, compare=False)
    """What `failures.of_run` made of this run, for every rule that asks."""

    @property
    def main(self) -> Process | None:
        """The process that trains: of several ranks the first that failed, or rank 0."""
        return self.processes[0] if self.processes else None

    @property
    def failures(self) -> Iterator[Failure]:
        for process in self.processes:
            yield from process.failures

    @property
    def main_signal(self) -> str | None:
        """The signal that ended the main process, also where a shell or launcher stood above."""
        main = self.main
        if main is None:
            return self.ending.signal
        if main.exit_code is not None:
            return signal_name(-main.exit_code) if main.exit_code < 0 else None
        if main.ended or main.alive:
            return None
        shell = self.ending.code or 0
        sent = self._sent_last(main)
        return (fatal_signal(main.fatal) or sent or self.ending.signal
                or (signal_name(shell - 128) if shell > 128 else None))

    def _sent_last(self, main: Process) -> str | None:
        """A signal after which nothing more was seen of the process: a handled one ends nothing."""
        return next((s.signal for s in reversed(self.signals) if s.reaches(main.pid)
                     and s.signal not in HARMLESS and s.time >= main.last_seen - AT_THE_END), None)

    @property
    def hang(self) -> Stall | None:
        """The stall the run ended in; None when it moved again or went on to an end of its own.

        After its last batch a program may compute for long where nobody counts: its exit code 0,
        without a signal's help, says that it was not stuck.
        """
        if self.stall is None or self.stall.resumed:
            return None
        helped = self.stall.stopped or self.ending.forwarded or any(
            call.handler_of for process in self.processes for call in process.exits)
        return self.stall if helped or self.ending.code != 0 else None

    def process(self, pid: int | None) -> Process | None:
        return next((p for p in self.processes if p.pid == pid), None)

    @property
    def workers(self) -> tuple[Process, ...]:
        return tuple(p for p in self.processes if p.role == "worker")
