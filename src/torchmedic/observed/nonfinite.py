"""The first loss of a process that was not finite, and what its graph tells about the reason."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from torchmedic.observed.failure import user_place

if TYPE_CHECKING:
    from torchmedic.model import Place
    from torchmedic.observed.failure import Frame


@dataclass(frozen=True, slots=True)
class Cause:
    """An operation that made a result that is not finite from inputs that are.

    what: which of its tensors tells it (`input`, `divisor`, `result`); low, high: that tensor's
    smallest and largest finite element. exponent: of a power.
    """

    operation: str
    what: str
    low: float | None
    high: float | None
    shape: tuple[int, ...] | None = None
    exponent: float | None = None


@dataclass(frozen=True, slots=True)
class NonFinite:
    """value: `nan`, `inf` or `-inf`. before: the losses before it, oldest first, where known.

    parameters: names of those that were not finite by then. causes: earliest operation first.
    data: elements that are not finite in tensors that come from outside the graph, and how many
    these tensors have.
    """

    value: str
    frames: tuple[Frame, ...]
    before: tuple[float | None, ...] = ()
    parameters: tuple[str, ...] = ()
    causes: tuple[Cause, ...] = ()
    data: tuple[tuple[int, int], ...] = ()
    epoch: int | None = None
    batch: int | None = None
    step: int = 0

    @property
    def place(self) -> Place:
        return user_place(self.frames, "backward", self.epoch, self.batch, self.step)
