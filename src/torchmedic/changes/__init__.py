"""Exact edits of a script, as fixes need them. An empty tuple: it can't be done exactly."""

from torchmedic.changes.expressions import (
    TIGHT,
    emptying,
    of_part,
    out_of_place,
    renaming,
    replacing,
    unwrapping,
    with_keyword,
    without_argument,
    wrapping,
)
from torchmedic.changes.names import assigned, importing, name_of, reaches
from torchmedic.changes.places import Edits
from torchmedic.changes.statements import (
    after,
    at_start,
    before,
    block_of,
    moving,
    removing,
    within,
)

__all__ = [
    "TIGHT", "Edits", "after", "assigned", "at_start", "before", "block_of", "emptying",
    "importing", "moving", "name_of", "of_part", "out_of_place", "reaches", "removing", "renaming",
    "replacing", "unwrapping", "with_keyword", "within", "without_argument", "wrapping",
]
