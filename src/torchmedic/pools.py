"""Pools with a fixed window that were meant to take a whole axis, and did not."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from torchmedic.source.flow.layers import known, number, several
from torchmedic.source.flow.views import clashing

if TYPE_CHECKING:
    from torchmedic.source.flow import Event, Trace, Value
    from torchmedic.source.flow.values import Shape

POOLS = ("AvgPool", "MaxPool")
LARGE = 7
"""A window that no network moves step by step over a map."""


def pool_before(trace: Trace, event: Event) -> Event | None:
    """The call of such a pool that what does not fit at this event comes from."""
    if event.value is None or not _refused(event):
        return None
    for pool in _pools(trace, event):
        given = known(pool.more["args"][0])
        if pool.target is not None and given is not None and _whole(pool.target, given):
            return pool
    return None


def _refused(event: Event) -> Shape | None:
    """The shape that does not fit: of a layer's input, or of a part of a join."""
    if event.kind == "misfit":
        return known(event.value)
    found = clashing(event.value, number(event.more["axis"]))
    return found[2] if found else None


def _pools(trace: Trace, event: Event) -> Iterator[Event]:
    """Fixed pools that what does not fit has gone through."""
    assert event.value is not None
    parts = [event.value, *event.value.items]
    lineage = frozenset().union(*(o.lineage for part in parts for o in part.options()))
    for pool in trace.before(event, "forward"):
        made = pool.value
        if pool.target is not None and pool.target.name.startswith(POOLS) and (
                made is not None and made.id in lineage and pool.more["args"]):
            yield pool


def _whole(module: Value, given: Shape) -> bool:
    """It was meant to take whole axes: its window is large, and the same as its step."""
    axes = int(module.name[-2])
    kernel = several(module.keyword("kernel_size", 0), axes)
    sides = given[-axes:]
    return module.keyword("stride", 1) is None and all(
        k is not None and s is not None and k >= LARGE and k < s for k, s in zip(
            kernel, sides, strict=True))
