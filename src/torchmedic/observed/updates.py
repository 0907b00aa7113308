"""What optimizers' steps were given, and which of the model's parameters are trained."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from torchmedic.observed.failure import user_place

if TYPE_CHECKING:
    from torchmedic.model import Place
    from torchmedic.observed.failure import Frame


@dataclass(frozen=True, slots=True)
class Optimizer:
    """An optimizer as it was at its first step that was looked at. groups: its plain settings."""

    key: int
    type: str
    groups: tuple[Mapping[str, object], ...] = ()


@dataclass(frozen=True, slots=True)
class Update:
    """An optimizer's step that was looked at. Only a few steps of a run are.

    cleared: whether the gradients were seen cleared since its step before; None when that step
    was not looked at, or no backward was seen in between. norm, weights: 2-norms of all gradients
    and of the parameters that have one. zero: gradients that are zero throughout. Numbers that
    could not be read, or are not finite, are None.
    """

    optimizer: Optimizer
    step: int
    """Number of the step, counted over all optimizers."""
    frames: tuple[Frame, ...]
    parameters: int
    graded: int
    """Parameters that have a gradient."""
    cleared: bool | None = None
    finite: bool | None = None
    zero: int | None = None
    norm: float | None = None
    weights: float | None = None
    rates: tuple[float | None, ...] = ()
    epoch: int | None = None
    batch: int | None = None

    @property
    def place(self) -> Place:
        """The user's line that made the step."""
        return user_place(self.frames, "step", self.epoch, self.batch, self.step - 1)


@dataclass(frozen=True, slots=True)
class Unregistered:
    """Something to train that its module does not know: a tensor, or modules in a container.

    kind: `tensor`, `list`, `tuple` or `dict`. name: path from the model's root. held: an
    optimizer steps with it all the same. called: how many of the modules were called.
    """

    name: str
    attribute: str
    owner: str
    kind: str
    held: bool
    shape: tuple[int, ...] | None = None
    graded: bool = False
    modules: int = 0
    called: int = 0


@dataclass(frozen=True, slots=True)
class Parameters:
    """The parameters of all models that were called, as the steps looked at show them.

    outside: they get gradients, and no optimizer that stepped holds them. idle: neither.
    unreached: an optimizer holds them and no backward reached them. Each tuple holds the first
    names only; counts hold all, also of those `trained`. stale: tensors that an optimizer holds
    although no model that was called has them and nothing gives them a gradient.
    """

    step: int
    looked: int
    """Steps that were looked at."""
    counts: Mapping[str, int] = field(default_factory=dict)
    outside: tuple[str, ...] = ()
    unreached: tuple[str, ...] = ()
    frozen: tuple[str, ...] = ()
    detached: tuple[str, ...] = ()
    """Of the unreached: their module was called in training, with gradients on."""
    last: bool = False
    """The model's last parameters, in the order of its layers, are outside."""
    roots: tuple[str, ...] = ()
    """Classes of the models that were called from outside any module."""
    alone: tuple[str, ...] = ()
    """Of the roots those that get gradients and of which no optimizer that stepped holds any."""
    stale: int = 0
    stale_shapes: tuple[tuple[int, ...], ...] = ()
    unregistered: tuple[Unregistered, ...] = ()
