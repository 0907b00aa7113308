"""A loss subtracts a target of (N) from an output of (N, 1), which makes N × N differences.

## What you see
`Using a target size (torch.Size([8])) that is different to the input size (torch.Size([8, 1]))`,
or nothing. The model learns the mean of all targets.
## Why
Broadcasting pairs every output with every target.
## Fix
`output.squeeze(1)`, or `target.unsqueeze(1)`: both of one shape.
## When this is fine
Never for a loss of this kind.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

from torchmedic import changes
from torchmedic.model import Evidence, Fix, Problem, Rule, fires, quiet
from torchmedic.source.flow import Event, Value, trace_of
from torchmedic.source.flow.layers import known
from torchmedic.source.flow.training import place
from torchmedic.trainings import training

if TYPE_CHECKING:
    from torchmedic.source.flow.values import Shape
    from torchmedic.source.script import Script

LOSSES = ("MSELoss", "L1Loss", "SmoothL1Loss", "HuberLoss")


def in_source(script: Script) -> Iterator[Problem]:
    yield from _in_losses(script)
    yield from _by_hand(script)


def _by_hand(script: Script) -> Iterator[Problem]:
    """`((output - target) ** 2).mean()`, in place or in a function that is given both."""
    seen = set()
    for event in trace_of(script).of("spread"):
        column, row = event.target, event.value
        assert column is not None and row is not None
        if len(known(column) or ()) == 1:
            column, row = row, column
        if bool(column.sources) == bool(row.sources) or _meant(column) or _meant(row):
            continue
        site = event.more["site"] or event.node
        if id(site) not in seen:
            seen.add(id(site))
            given, wanted = (column, row) if column.sources else (row, column)
            yield Problem(
                f"the output is {_text(known(given) or ())} and the target "
                f"{_text(known(wanted) or ())}: `{ast.unparse(event.node)}` pairs each with each",
                where=replace(place(script.file, event), line=getattr(site, "lineno", event.line)),
                confidence="likely",
                evidence=(Evidence(f"line {event.line}: broadcasting makes N × N differences",
                                   "source"),),
                fix=Fix("`.squeeze(1)` on the one with two axes", "", "unsafe"))


def _meant(value: Value) -> bool:
    """The axis of length 1 was put there on purpose: `x[:, None]`, `x.unsqueeze(1)`."""
    text = ast.unparse(value.node) if value.node is not None else ""
    return "unsqueeze" in text or "None" in text or "keepdim" in text


def _in_losses(script: Script) -> Iterator[Problem]:
    seen = set()
    for event in trace_of(script).of("loss"):
        if event.target is None or event.target.name not in LOSSES or id(event.node) in seen:
            continue
        given, wanted = _shape(event, "input"), _shape(event, "wanted")
        if given and wanted and {len(given), len(wanted)} == {1, 2} and _column(given, wanted):
            seen.add(id(event.node))
            yield Problem(
                f"the output is {_text(given)} and the target {_text(wanted)}: "
                f"`{event.target.name}` pairs each with each",
                where=place(script.file, event), confidence="likely",
                evidence=(Evidence("broadcasting makes N × N differences of them", "source"),),
                fix=Fix("`.squeeze(1)` on the one with two axes", "", "unsafe",
                        edits=_edits(script, event, 0 if len(given) == 2 else 1)))


def _edits(script: Script, event: Event, at: int) -> changes.Edits:
    """On the argument of the loss that has two axes."""
    args = getattr(event.node, "args", [])
    if event.file != script.file or len(args) < 2 or any(
            isinstance(a, ast.Starred) for a in args):
        return ()
    tight = isinstance(args[at], changes.TIGHT)
    return changes.wrapping(args[at], "" if tight else "(", f"{'' if tight else ')'}.squeeze(1)")


def _shape(event: Event, which: str) -> Shape | None:
    options = list(event.more[which].options())
    return options[0].shape if len(options) == 1 and options[0].kind == "tensor" else None


def _column(one: Shape, other: Shape) -> bool:
    longer = one if len(one) == 2 else other
    shorter = other if longer is one else one
    return longer[1] == 1 and shorter[0] != 1 and longer[0] != 1


def _text(shape: Shape) -> str:
    return "(N, 1)" if len(shape) == 2 else "(N)"


_SETUP = """
model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
criterion = nn.MSELoss()
loader = DataLoader(TensorDataset(torch.randn(64, 8), torch.randn(%s)), batch_size=8)
"""
_RIGHT = """
optimizer.zero_grad()
loss = criterion(model(x).squeeze(1), y)
loss.backward()
optimizer.step()
"""
_HAND = """
def rmse(pred, true):
    return ((pred - true) ** 2).mean().sqrt()
optimizer.zero_grad()
loss = rmse(model(x), y)
loss.backward()
optimizer.step()
"""

RULE = Rule(
    name="broadcast-target", doc=__doc__, category="code", severity="warning",
    in_source=in_source, examples=(
        fires(training(setup=_SETUP % "64"), "the output is (N, 1) and the target (N)",
              kind="source", line="loss = criterion", title="column against row"),
        fires(training(_HAND, setup=_SETUP % "64"), "`pred - true` pairs each with each",
              kind="source", line="loss = rmse(", title="by hand"),
        quiet(training(_HAND.replace("model(x)", "model(x).view(-1)"), setup=_SETUP % "64"),
              kind="source", title="by hand right"),
        quiet(training(setup=_SETUP % "64, 1"), kind="source", title="both columns"),
        quiet(training(_RIGHT, setup=_SETUP % "64"), kind="source", title="squeezed"),
        quiet(training(setup=_SETUP % "n"), kind="source", title="unknown"),
    ),
)
