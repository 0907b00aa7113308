"""A backward pass as rules see it: the loss, and the graph it went through."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from torchmedic.observed.failure import user_place

if TYPE_CHECKING:
    from torchmedic.model import Phase, Place
    from torchmedic.observed.failure import Frame, Value


@dataclass(frozen=True, slots=True)
class Node:
    """One operation of autograd's graph.

    name: as torch spells it, such as `SoftmaxBackward0`. shape: of its result; inputs: of those
    of its inputs that are differentiable. Shapes are None where torch does not tell (before 2.1).
    dim: the axis it worked along, as written (-1 is the last).
    """

    name: str
    shape: tuple[int, ...] | None = None
    inputs: tuple[tuple[int, ...] | None, ...] = ()
    dim: int | None = None
    target: Value | None = None
    """What a loss was compared with: its shape and, where that was cheap, its range."""

    @property
    def operation(self) -> str:
        """`Softmax` of `SoftmaxBackward0`."""
        return self.name.rpartition("::")[2].partition("Backward")[0]


@dataclass(frozen=True, slots=True)
class Backward:
    """A backward pass that was looked at. Only a few steps of a run are.

    value: the loss, where it is one number and was cheap to read; None also when not finite.
    way: operations from what `backward` was called on towards the model; losses: the same from
    each loss function in the graph. older: the oldest operation, where it was made before optimizer
    step `older_than` ended (the earliest such step among those looked at).
    """

    frames: tuple[Frame, ...]
    value: float | None
    finite: bool | None
    """None where the value was not read."""
    shape: tuple[int, ...]
    way: tuple[Node, ...]
    losses: tuple[tuple[Node, ...], ...] = ()
    older: Node | None = None
    older_than: int | None = None
    nodes: int = 0
    whole: bool = True
    """All of the graph was seen."""
    leaves: int = 0
    retain: bool = False
    create: bool = False
    phase: Phase | None = None
    epoch: int | None = None
    batch: int | None = None
    step: int = 0
    """Optimizer steps finished before it."""

    @property
    def place(self) -> Place:
        """The user's line that called `backward`."""
        return user_place(self.frames, "backward", self.epoch, self.batch, self.step)
