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
from typing import TYPE_CHECKING

from torchmedic import changes
from torchmedic.model import Evidence, Fix, Problem, Rule, fires, quiet
from torchmedic.source.flow import Event, Trace, Value, trace_of
from torchmedic.source.flow.layers import known
from torchmedic.source.flow.training import place
from torchmedic.trainings import module

if TYPE_CHECKING:
    from torchmedic.source.script import Script

NAMES = re.compile(r"(self\.)?_?(batch_?size|bs|batch|n_?batch)$", re.IGNORECASE)


def in_source(script: Script) -> Iterator[Problem]:
    trace = trace_of(script)
    yield from _states(script, trace)
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
                fix=Fix("`x.size(0)` in its place", "", "unsafe", edits=_edits(script, event)))


def _edits(script: Script, event: Event) -> changes.Edits:
    """`x.size(0)` of the tensor that is viewed, where its first axis is the batch."""
    shape, call = known(event.target), event.node
    owner = call.func.value if isinstance(call, ast.Call) and isinstance(
        call.func, ast.Attribute) else None
    if event.file != script.file or not shape or shape[0] is not None or not isinstance(
            owner, ast.Name):
        return ()
    return changes.replacing(call.args[0], f"{owner.id}.size(0)")  # type: ignore[attr-defined]


def _states(script: Script, trace: Trace) -> Iterator[Problem]:
    """`torch.zeros(layers, BATCH, hidden)` in `forward`: a first state for one batch size."""
    seen = set()
    for event in trace.of("create"):
        sizes = event.more["args"]
        if len(sizes) == 1 and sizes[0].kind == "tuple":
            sizes = sizes[0].items
        if event.function != "forward" or event.more["name"] not in ("zeros", "randn", "ones") or (
                len(sizes) != 3 or id(event.node) in seen):
            continue
        size = sizes[1]
        text = ast.unparse(size.node) if size.node is not None else ""
        if size.kind == "const" and _is_batch_size(trace, size, text):
            seen.add(id(event.node))
            yield Problem(
                f"`forward` makes a state for batches of {size.data} and no others",
                where=place(script.file, event), confidence="likely",
                evidence=(Evidence("the last batch of an epoch may be smaller", "source"),),
                fix=Fix("`x.size(0)` in its place, or of the axis of the batch", "", "unsafe"))


def _is_batch_size(trace: Trace, size: Value, text: str) -> bool:
    """A number that a loader without `drop_last` takes for its batches."""
    loaders = [made for made in trace.made if made.kind == "loader"]
    if not loaders or any("drop_last" in made.kwargs or "batch_sampler" in made.kwargs
                          for made in loaders) or type(size.data) is not int or size.data < 2:
        return False
    return bool(NAMES.match(text)) or any(
        (given := made.keyword("batch_size", 1)) is not None and given.kind == "const"
        and given.data == size.data for made in loaders)


def _fixed(trace: Trace, event: Event) -> bool:
    """The first size is a batch size that a loader without `drop_last` is made with."""
    args = getattr(event.node, "args", [])
    if len(args) < 2 or not event.more["args"]:
        return False
    size, text = event.more["args"][0], ast.unparse(args[0])
    return size.kind == "const" and _is_batch_size(trace, size, text)


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
        fires(_program("-1").replace(
            "return self", "h = torch.zeros(1, 8, 4)\n        return self"),
              "makes a state for batches of 8", kind="source", line="torch.zeros(1, 8, 4)",
              title="first state"),
        quiet(_program("x.size(0)"), kind="source", title="from the tensor"),
        quiet(_program("-1"), kind="source", title="left open"),
        quiet(_program("BATCH", ", drop_last=True"), kind="source", title="last batch dropped"),
    ),
)
