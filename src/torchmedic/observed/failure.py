"""An exception as rules see it: its stack, the values on it, and a text that tells of several."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from torchmedic.model import Phase, Place


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


def user_place(frames: Sequence[Frame], phase: Phase | None = None, epoch: int | None = None,
               batch: int | None = None, step: int | None = None) -> Place:
    """The user's innermost line of a stack, at this moment of the training."""
    frame = next((f for f in reversed(frames) if f.user), None)
    return Place(file=frame.file if frame else None, line=frame.line if frame else None,
                 function=frame.function if frame else None, phase=phase, epoch=epoch,
                 batch=batch, step=step)


@dataclass(frozen=True, slots=True)
class Output:
    """What one module call gave back, most recent calls before a failure."""

    module: str
    module_class: str
    shape: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Told:
    """What a log says of the run it tells of. epochs: how many it had finished."""

    batch_size: int | None = None
    epochs: int = 0


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
    loader: int | None = None
    """Key of the loader whose batch it was."""
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
    told: Told | None = None
    """What the log's other lines say of the run; only where that matters."""

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
class Log:
    """A log as text with what was read from it: the failures its tracebacks tell."""

    lines: tuple[str, ...]
    failures: tuple[Failure, ...] = ()
    source: str = "log"
