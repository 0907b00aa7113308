"""The transform of one part of a split is set, and with it that of all parts.

## What you see
Augmentation disappears from training, or evaluation is augmented too.
## Why
`random_split` and `Subset` give views of one data set. `part.dataset.transform = …` changes the
set that all of them share.
## Fix
Two data sets with their own transforms and the same indices: `Subset(augmented, train_indices)`
and `Subset(plain, test_indices)`.
## When this is fine
When all parts are to have the same transform.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import TYPE_CHECKING

from torchmedic.model import Evidence, Fix, Problem, Rule, fires, quiet
from torchmedic.source.flow import trace_of
from torchmedic.source.flow.training import place

if TYPE_CHECKING:
    from torchmedic.source.script import Script

SOURCE_WORDS = ("random_split", "subset")
NAMES = ("transform", "transforms", "augment", "target_transform")


def in_source(script: Script) -> Iterator[Problem]:
    trace = trace_of(script)
    splits = [made for made in trace.made if made.kind == "split" or made.name == "Subset"]
    seen = set()
    for event in trace.of("set"):
        spot = event.more["spot"]
        if not splits or event.more["name"] not in NAMES or id(event.node) in seen:
            continue
        if isinstance(spot.value, ast.Attribute) and spot.value.attr == "dataset" and (
                "loader" not in ast.unparse(spot.value.value)):
            seen.add(id(event.node))
            yield Problem(
                f"`{ast.unparse(spot)}` belongs to all parts of the split",
                where=place(script.file, event), confidence="likely",
                evidence=(Evidence(f"line {getattr(splits[0].node, 'lineno', 0)}: the parts are "
                                   "views of one data set", "source"),),
                fix=Fix("two data sets with their own transforms, and `Subset` of each", "",
                        "unsafe"))


_PROGRAM = """
import torch
from torch.utils.data import random_split
from project import Pictures, augment

train, test = random_split(Pictures(), [80, 20])
%s
"""

RULE = Rule(
    name="transform-shared-by-split", doc=__doc__, category="data", severity="warning",
    in_source=in_source, examples=(
        fires(_PROGRAM % "train.dataset.transform = augment", "belongs to all parts",
              kind="source", line="train.dataset.transform", title="set on one part"),
        quiet(_PROGRAM % "print(train.dataset.transform)", kind="source", title="read"),
    ),
)
