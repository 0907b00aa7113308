"""What stood between the model and its loss in the backward passes that were looked at."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from torchmedic.model import Evidence

if TYPE_CHECKING:
    from torchmedic.observed import Run
    from torchmedic.observed.graphs import Backward, Node

VIEWS = frozenset((
    "View", "UnsafeView", "ReshapeAlias", "Squeeze", "Unsqueeze", "Permute", "Transpose", "T",
    "Slice", "Select", "Clone", "Alias", "ToCopy", "Contiguous", "Flatten", "Unflatten",
))


def losses(run: Run, *names: str) -> Iterator[tuple[Backward, tuple[Node, ...]]]:
    """Each loss of one of these operations, with the ways from it that differ, once each.

    The way begins with the loss itself; views and copies are left out of it.
    """
    seen = set()
    for process in run.processes:
        for backward in process.backwards:
            for way in backward.losses:
                line = (backward.place.file, backward.place.line)
                told = (line, tuple(node.operation for node in way))
                if way and way[0].operation in names and told not in seen:
                    seen.add(told)
                    yield backward, without_views(way)


def without_views(way: tuple[Node, ...]) -> tuple[Node, ...]:
    """The operations that compute something."""
    return tuple(n for n in way if n.operation.rstrip("0123456789") not in VIEWS)


def evidence(backward: Backward, way: tuple[Node, ...], count: int) -> Evidence:
    """The first operations of a way, in the order in which they ran."""
    names = " → ".join(node.operation for node in reversed(way[:count]))
    return Evidence(f"autograd's graph of step {backward.step + 1}: … → {names}", "graph")
