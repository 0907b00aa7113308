"""One process as rules see it: where it was, its passes over loaders, how it ended."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from torchmedic.model import Phase, Place
from torchmedic.observed.failure import user_place

if TYPE_CHECKING:
    from torchmedic.observed.failure import Failure, Frame
    from torchmedic.observed.graphs import Backward
    from torchmedic.observed.kept import Kept
    from torchmedic.observed.nonfinite import NonFinite
    from torchmedic.observed.updates import Parameters, Update


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
class Mode:
    """A way in which a model was called from outside any module, as it was the first time.

    grad: autograd was on. norms, drops: layers below it that normalize over the batch, or drop
    at random; …_training: those of them that were in training mode. parameters: how many
    parameters it has that require gradients.
    """

    module: str
    type: str
    training: bool
    grad: bool
    frames: tuple[Frame, ...] = ()
    norms: int = 0
    norms_training: int = 0
    drops: int = 0
    drops_training: int = 0
    parameters: int = 0
    epoch: int | None = None
    batch: int | None = None
    step: int = 0

    @property
    def place(self) -> Place:
        """The user's line that called the model."""
        return user_place(self.frames, "forward", self.epoch, self.batch, self.step)


@dataclass(frozen=True, slots=True)
class Calls:
    """How often a model was called in one way during a pass."""

    mode: Mode
    count: int


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
    backwards: int = 0
    calls: tuple[Calls, ...] = ()
    """Models that were called while it lasted, and how."""
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
    time: float = 0.0

    def reaches(self, pid: int) -> bool:
        """It was sent to this process, to its group (0 is the sender's own) or to everybody."""
        return self.target in (pid, -pid, 0, -1)


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
    backwards: tuple[Backward, ...] = ()
    """The backward passes that were looked at, in their order."""
    updates: tuple[Update, ...] = ()
    """The optimizers' steps that were looked at, in their order."""
    parameters: Parameters | None = None
    kept: tuple[Kept, ...] = ()
    non_finite: NonFinite | None = None
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
