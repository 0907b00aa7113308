"""A model's forward is written for one batch size.

## What you see
`shape '[8, 3600]' is invalid for input of size …` in the last batch of an epoch, or as soon as one
sample is given to the model.
## Why
The last batch holds what is left of the data set, unless `drop_last=True`.
## Fix
Take the size from the tensor: `x.view(x.size(0), -1)`.
## When this is fine
With `drop_last=True` in every loader, and no use of the model on other sizes.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from torchmedic.model import Evidence, Fix, Problem, Rule, fires, quiet
from torchmedic.source.flow import Event, Trace, trace_of
from torchmedic.source.flow.training import place
from torchmedic.source.script import Script
from torchmedic.trainings import module

NAMES = re.compile(r"(self\.)?_?(batch_?size|bs|batch|n_?batch)$", re.IGNORECASE)


def in_source(script: Script) -> Iterator[Problem]:
    trace = trace_of(script)
    seen = set()
    for event in trace.of("view"):
        if event.function == "forward" and event.more["name"] in ("view", "reshape") and (
                id(event.node) not in seen and _fixed(trace, event)):
            seen.add(id(event.node))
            first = event.node.args[0]  # type: ignore[attr-defined]
            yield Problem(
                f"`forward` takes `{ast.unparse(first)}` for the size of every batch",
                where=place(script.file, event), confidence="likely",
                evidence=(Evidence("the last batch of an epoch may be smaller", "source"),),
                fix=Fix("`x.size(0)` in its place", "", "unsafe"))


def _fixed(trace: Trace, event: Event) -> bool:
    """The first size is a batch size that a loader without `drop_last` is made with."""
    args = getattr(event.node, "args", [])
    if len(args) < 2 or not event.more["args"]:
        return False
    size, text = event.more["args"][0], ast.unparse(args[0])
    loaders = [made for made in trace.made if made.kind == "loader"]
    if not loaders or any("drop_last" in made.kwargs or "batch_sampler" in made.kwargs
                          for made in loaders):
        return False
    named = bool(NAMES.match(text)) and size.kind == "const"
    whole = size.kind == "const" and type(size.data) is int and size.data > 1
    same = any((given := made.keyword("batch_size", 1)) is not None and given.kind == "const"
               and given.data == size.data for made in loaders)
    return whole and (same if not named else True)


_LOADER = """
BATCH = 8
for (x,) in DataLoader(TensorDataset(torch.randn(20, 4, 2)), batch_size=BATCH%s):
    model(x)
"""


def _program(size: str, more: str = "") -> str:
    return "BATCH = 8\n" + module(f"return self.layer(x.view({size}, 8))", more=_LOADER % more)


RULE = Rule(
    name="hardcoded-batch-size", doc=__doc__, category="code", severity="warning",
    in_source=in_source, examples=(
        fires(_program("BATCH"), "takes `BATCH` for the size of every batch", kind="source",
              line="x.view(BATCH", title="name"),
        fires(_program("8"), kind="source", line="x.view(8", title="number"),
        quiet(_program("x.size(0)"), kind="source", title="from the tensor"),
        quiet(_program("-1"), kind="source", title="left open"),
        quiet(_program("BATCH", ", drop_last=True"), kind="source", title="last batch dropped"),
    ),
)
