"""A variable of the user's that holds results together with their graphs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from torchmedic.observed.failure import user_place

if TYPE_CHECKING:
    from torchmedic.model import Place
    from torchmedic.observed.failure import Frame


@dataclass(frozen=True, slots=True)
class Kept:
    """kind: a `list` of results, or a `sum` of them; count: how many; size: their own bytes.

    older: the first was made before an optimizer step that is over. training: the mode of the
    model that was called last. The innermost of frames is the function that holds the variable.
    """

    name: str
    kind: str
    count: int
    size: int
    older: bool
    training: bool
    frames: tuple[Frame, ...]
    epoch: int | None = None
    batch: int | None = None
    step: int = 0

    @property
    def place(self) -> Place:
        return user_place(self.frames, None, self.epoch, self.batch, self.step)
