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

from collections.abc import Iterator

from torchmedic.model import Evidence, Fix, Problem, Rule, fires, quiet
from torchmedic.source.flow import Event, trace_of
from torchmedic.source.flow.training import place
from torchmedic.source.flow.values import Shape
from torchmedic.source.script import Script
from torchmedic.trainings import training

LOSSES = ("MSELoss", "L1Loss", "SmoothL1Loss", "HuberLoss")


def in_source(script: Script) -> Iterator[Problem]:
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
                fix=Fix("`.squeeze(1)` on the one with two axes", "", "unsafe"))


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

RULE = Rule(
    name="broadcast-target", doc=__doc__, category="code", severity="warning",
    in_source=in_source, examples=(
        fires(training(setup=_SETUP % "64"), "the output is (N, 1) and the target (N)",
              kind="source", line="loss = criterion", title="column against row"),
        quiet(training(setup=_SETUP % "64, 1"), kind="source", title="both columns"),
        quiet(training(_RIGHT, setup=_SETUP % "64"), kind="source", title="squeezed"),
        quiet(training(setup=_SETUP % "n"), kind="source", title="unknown"),
    ),
)
