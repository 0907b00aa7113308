"""How often the loops of a program go round, and how often a schedule is stepped in them."""

from __future__ import annotations

from math import ceil, prod
from typing import TYPE_CHECKING

from torchmedic import sourceloaders
from torchmedic.source.flow.layers import number

if TYPE_CHECKING:
    from torchmedic.source.flow import Event, Frame, Value


def turns(loop: Frame) -> int | None:
    """Of `for epoch in range(10)` and of a loop over a loader of known size."""
    over = loop.value
    while over is not None and over.kind == "enumerate":
        over = over.owner
    if over is None:
        return None
    if over.type == "range" and len(over.args) == 1:
        return number(over.args[0])
    return batches(over) if over.kind == "loader" else None


def batches(loader: Value) -> int | None:
    """How many batches a loader gives."""
    size = loader.keyword("batch_size", 1)
    count, each = sourceloaders.samples(sourceloaders.dataset(loader)), number(size, 1)
    if count is None or not each or any(k in loader.kwargs for k in ("sampler", "batch_sampler")):
        return None
    return count // each if "drop_last" in loader.kwargs else ceil(count / each)


def times(event: Event) -> int | None:
    """How often something happens in all, where nothing but loops is around it."""
    if any(frame.kind == "branch" for frame in event.frames):
        return None
    counts = [turns(loop) for loop in event.loops]
    return prod(c for c in counts if c is not None) if None not in counts else None
