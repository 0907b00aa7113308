"""What rules look at: a supervised run, its failures, a script. Plain data, read-only.

Built by `supervise/reading.py` (a run), `logs/` (a log) and `source/` (a script). Nothing here
knows a failure kind.
"""

from __future__ import annotations

import math
import signal
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

from torchmedic.model import Phase, Place

if TYPE_CHECKING:
    from torchmedic.source.script import Script

__all__ = [
    "Ending", "ExitCall", "Failure", "Frame", "HostMemory", "Iteration", "Loader",
    "Log", "Output", "Process", "Run", "Script", "SignalSent", "Stall", "Value",
]


@dataclass(frozen=True, slots=True)
class Value:
    """Short summary of one local variable or attribute at the time of a failure.

    kind `tensor`: shape, dtype, device are set; minimum … nan only where reading was cheap.
    kind `module`: `text` is torch's own `extra_repr`; `attributes` holds plain numbers of it.
    kind `number`, `text`, `sequence`, `object`: `text` is a short, masked `repr`.
    """

    kind: str
    type: str = ""
    text: str = ""
    number: float | int | bool | None = None
    shape: tuple[int, ...] | None = None
    dtype: str | None = None
    device: str | None = None
    requires_grad: bool | None = None
    minimum: float | None = None
    maximum: float | None = None
    nans: int | None = None
    attributes: Mapping[str, object] = field(default_factory=dict)

    @property
    def size(self) -> int | None:
        """Number of elements of a tensor."""
        return None if self.shape is None else math.prod(self.shape)


@dataclass(frozen=True, slots=True)
class Frame:
    """One call on a stack. `user` is false for the standard library and installed packages."""

    file: str
    line: int
    function: str
    user: bool = True
    module: str | None = None
    """Path of the nn.Module whose method this is; "" for the root; None when it is not one."""
    module_class: str | None = None
    values: Mapping[str, Value] = field(default_factory=dict)
    text: str | None = None
    """The source line, where the log or the file shows it."""


@dataclass(frozen=True, slots=True)
class Output:
    """What one module call gave back, most recent calls before a failure."""

    module: str
    module_class: str
    shape: tuple[int, ...]


# Modules/faulthandler.c, Python 3.8 to 3.14.
FATAL = {
    "Segmentation fault": "SIGSEGV", "Aborted": "SIGABRT", "Bus error": "SIGBUS",
    "Floating-point exception": "SIGFPE", "Floating point exception": "SIGFPE",
    "Illegal instruction": "SIGILL",
}
FailureKind = Literal["uncaught", "seen", "thread", "child", "worker", "logged"]


@dataclass(frozen=True, slots=True)
class Failure:
    """An exception that really happened.

    how: `uncaught` ended the process; `seen` passed through a watched call and was caught
    above; `thread`, `child` and `worker` ended a thread, a multiprocessing child, a loader's
    worker; `logged` comes from text.
    frames: outermost first, down to where it was raised; `context` first where it is chained.
    """

    key: str
    type: str
    """Qualified name without `builtins.`, such as `RuntimeError` or `torch.OutOfMemoryError`."""
    message: str
    how: FailureKind
    frames: tuple[Frame, ...] = ()
    phase: Phase | None = None
    epoch: int | None = None
    batch: int | None = None
    step: int | None = None
    pid: int | None = None
    rank: int | None = None
    time: float = 0.0
    outputs: tuple[Output, ...] = ()
    """The last module outputs before the failure, oldest first."""
    indices: tuple[int, ...] = ()
    """Dataset indices of the batch that was being fetched."""
    during: Failure | None = None
    """The earlier exception this one was raised from or while handling."""
    swallowed: bool = False
    """It was caught, and the run went on or ended without it."""
    steps_after: int | None = None
    """Optimizer steps between this failure and the next batch or the end: 0 = batch was lost."""
    count: int = 1
    """How often the same exception came from the same line."""
    bases: tuple[str, ...] = ()
    """Names of the classes its type derives from, nearest first."""
    thread: str | None = None
    line_number: int | None = None
    """Line of the log where its text begins."""

    @property
    def short_type(self) -> str:
        return self.type.rpartition(".")[2]

    @property
    def user_frame(self) -> Frame | None:
        """Innermost frame of the user's own code."""
        return next((frame for frame in reversed(self.frames) if frame.user), None)

    @property
    def module_frame(self) -> Frame | None:
        """Innermost frame that is a method of an nn.Module."""
        return next((f for f in reversed(self.frames) if f.module_class is not None), None)

    def innermost(self, function: str) -> Frame | None:
        """Innermost frame of that function's name."""
        return next((f for f in reversed(self.frames) if f.function == function), None)

    @property
    def place(self) -> Place:
        """The user's line, with everything known about the moment."""
        frame = self.user_frame or (self.frames[-1] if self.frames else None)
        module = self.module_frame
        return Place(
            file=frame.file if frame else None,
            line=frame.line if frame else None,
            function=frame.function if frame else None,
            module=module.module if module else None,
            phase=self.phase, epoch=self.epoch, step=self.step, batch=self.batch,
            rank=self.rank, pid=self.pid,
        )


@dataclass(frozen=True, slots=True)
class Loader:
    """A DataLoader as it was when first iterated. Counts are None when it has no length."""

    key: int
    batches: int | None
    batch_size: int | None
    samples: int | None
    drop_last: bool
    workers: int
    dataset: str
    sampler: str = ""
    start_method: str | None = None
    timeout: float = 0.0


@dataclass(frozen=True, slots=True)
class Iteration:
    """One pass over a loader.

    started, left: the user's frames (outermost first) when the first batch was asked for and
    when the iterator ended or was dropped. by: `for` or `next`, who asked for batches.
    exhausted: None while it was still in progress at the end of the process.
    """

    loader: Loader
    epoch: int
    batches: int
    exhausted: bool | None
    started: tuple[Frame, ...] = ()
    left: tuple[Frame, ...] = ()
    by: str = "for"
    steps: int = 0
    """Optimizer steps while it lasted."""
    time: float = 0.0
    ended: float | None = None
    """When it was used up or dropped; None while in progress."""


@dataclass(frozen=True, slots=True)
class ExitCall:
    """A call that ends the process on purpose: `sys.exit`, `exit`, `os._exit`, `os.abort`."""

    how: str
    code: int | str | None
    frames: tuple[Frame, ...]
    handler_of: str | None = None
    """Name of the signal whose Python handler made the call."""
    phase: Phase | None = None
    epoch: int | None = None
    batch: int | None = None
    step: int | None = None
    module: str | None = None
    time: float = 0.0


@dataclass(frozen=True, slots=True)
class SignalSent:
    """`os.kill` and its relatives, called inside the run."""

    sender: int
    target: int
    signal: str
    frames: tuple[Frame, ...]


@dataclass(frozen=True, slots=True)
class Process:
    """One Python process of the run that reported to us.

    ended: it reached the end of its interpreter (atexit ran). exit_code is negative for a
    signal, as in `subprocess`; None when nobody could read it.
    stack: the main thread's last known frames, outermost first; `stack_age` seconds before
    the end. fatal: the fatal error faulthandler wrote, with its frames, and the thread.
    """

    pid: int
    parent: int
    argv: tuple[str, ...]
    role: Literal["main", "worker", "rank", "child", "launcher"]
    executable: str = ""
    started: float = 0.0
    ended: bool = False
    exit_code: int | None = None
    rank: int | None = None
    torch: str | None = None
    python: str | None = None
    start_method: str | None = None
    worker_index: int | None = None
    phase: Phase = "setup"
    epoch: int | None = None
    batch: int | None = None
    step: int = 0
    module: str | None = None
    module_class: str | None = None
    indices: tuple[int, ...] = ()
    stack: tuple[Frame, ...] = ()
    fatal: str | None = None
    fatal_frames: tuple[Frame, ...] = ()
    fatal_thread: str | None = None
    """`main`, or a thread's name where the crash was in another thread."""
    failures: tuple[Failure, ...] = ()
    loaders: tuple[Loader, ...] = ()
    iterations: tuple[Iteration, ...] = ()
    exits: tuple[ExitCall, ...] = ()
    probe_errors: tuple[str, ...] = ()
    peak_rss: int | None = None
    overhead_s: float = 0.0
    last_seen: float = 0.0
    """When it last wrote anything."""
    alive: bool = False
    """It was still there when the command had ended."""

    @property
    def abrupt(self) -> bool:
        """It trained, did not reach its end, and nobody read its exit code."""
        worked = bool(self.step or self.iterations)
        return worked and not self.ended and not self.alive and self.exit_code is None

    @property
    def place(self) -> Place:
        """Where this process was last: the user's innermost line on its stack."""
        frames = self.fatal_frames if self.fatal and self.fatal_frames else self.stack
        if not any(f.user for f in frames) and self.iterations:
            frames = self.iterations[-1].started  # it died before the first sample
        return self.place_at(frames)

    def place_at(self, frames: tuple[Frame, ...]) -> Place:
        """The user's innermost line of a stack, with everything known about the last moment."""
        frame = next((f for f in reversed(frames) if f.user), frames[-1] if frames else None)
        return Place(
            file=frame.file if frame else None,
            line=frame.line if frame else None,
            function=frame.function if frame else None,
            module=self.module, phase=self.phase, epoch=self.epoch, step=self.step,
            batch=self.batch, rank=self.rank, pid=self.pid,
        )


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


@dataclass(frozen=True, slots=True)
class Log:
    """A log as text with what was read from it: the failures its tracebacks tell."""

    lines: tuple[str, ...]
    failures: tuple[Failure, ...] = ()
    source: str = "log"


def fatal_signal(error: str | None) -> str | None:
    """The signal behind what faulthandler calls a fatal error."""
    return next((name for text, name in FATAL.items() if text in (error or "")), None)


def signal_name(number: int) -> str | None:
    """`SIGKILL` for 9; None when there is no such signal."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return None


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
        sent = next((s.signal for s in reversed(self.signals) if s.target == main.pid), None)
        return (fatal_signal(main.fatal) or sent or self.ending.signal
                or (signal_name(shell - 128) if shell > 128 else None))

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
