"""A cyclic schedule changes a momentum that the optimizer was not given.

## What you see
`ValueError: optimizer must support momentum or beta1 with `cycle_momentum` option enabled`; with
plain SGD nothing: it trains with a momentum of 0.85 to 0.95 that nobody asked for.
## Why
`OneCycleLR` and `CyclicLR` cycle the momentum against the learning rate, unless
`cycle_momentum=False`. They write it into the optimizer's groups, whatever was there.
## Fix
`cycle_momentum=False`, or an optimizer that is given a momentum.
## When this is fine
When the cycled momentum is wanted.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from torchmedic import changes
from torchmedic.model import (
    Evidence,
    Fix,
    Problem,
    Rule,
    Severity,
    fires,
    quiet,
)
from torchmedic.source.flow import Event, Value, trace_of
from torchmedic.source.flow.training import place
from torchmedic.trainings import training

if TYPE_CHECKING:
    from torchmedic.source.script import Script

SOURCE_WORDS = ("cycl",)
CYCLIC = ("OneCycleLR", "CyclicLR")
WITHOUT = ("Adagrad", "Adadelta", "Rprop", "ASGD", "LBFGS")
PLACES = {"OneCycleLR": 7, "CyclicLR": 9}
"""Where `cycle_momentum` stands among the arguments."""


def in_source(script: Script) -> Iterator[Problem]:
    for event in trace_of(script).of("make"):
        made = event.target
        if made is None or made.name not in CYCLIC or made.owner is None or "**" in made.kwargs:
            continue
        optimizer = made.owner
        if made.keyword("cycle_momentum", PLACES[made.name]) is not None or not (
                optimizer.type.startswith("torch.optim.")):
            continue
        line = getattr(optimizer.node, "lineno", 0)
        if optimizer.name in WITHOUT:
            yield _problem(script, event, f"`{optimizer.name}` has no momentum that `{made.name}` "
                           "could cycle: it refuses to be made", line, "error")
        elif optimizer.name == "SGD" and _plain(optimizer):
            low = "0.8" if made.name == "CyclicLR" else "0.85"
            high = "0.9" if made.name == "CyclicLR" else "0.95"
            yield _problem(script, event, f"`{made.name}` gives `SGD` a momentum from {low} to "
                           f"{high}, and it was made without one", line, "info")


def _plain(optimizer: Value) -> bool:
    given = optimizer.keyword("momentum", 2)
    return "**" not in optimizer.kwargs and (given is None or (
        given.kind == "const" and given.data == 0))


def _problem(script: Script, event: Event, message: str, line: int,
             severity: Severity) -> Problem:
    node = event.node
    edits = changes.with_keyword(script, node, "cycle_momentum", "False") \
        if event.file == script.file else ()
    return Problem(message, where=place(script.file, event), severity=severity,
                   evidence=(Evidence(f"the optimizer is made on line {line}", "source"),),
                   fix=Fix("`cycle_momentum=False`", "or give the optimizer a momentum", "unsafe",
                           edits=edits))


_SETUP = """
model = nn.Linear(8, 3)
optimizer = torch.optim.%s
criterion = nn.CrossEntropyLoss()
loader = DataLoader(TensorDataset(torch.randn(64, 8), torch.randint(0, 3, (64,))), batch_size=8)
scheduler = torch.optim.lr_scheduler.%s
"""
_EACH = """
optimizer.zero_grad()
criterion(model(x), y).backward()
optimizer.step()
scheduler.step()
"""
_CYCLE = "CyclicLR(optimizer, 0.01, 0.1)"


def _program(optimizer: str, scheduler: str) -> str:
    return training(_EACH, setup=_SETUP % (optimizer, scheduler))


RULE = Rule(
    name="scheduler-cycles-momentum", doc=__doc__, category="code", severity="warning",
    in_source=in_source, examples=(
        fires(_program("SGD(model.parameters(), lr=0.1)", _CYCLE), "a momentum from 0.8 to 0.9",
              "`cycle_momentum=False`", kind="source", line="CyclicLR(", title="plain sgd"),
        fires(_program("Adagrad(model.parameters())", _CYCLE), "refuses to be made", kind="source",
              title="no momentum at all"),
        quiet(_program("SGD(model.parameters(), lr=0.1, momentum=0.9)", _CYCLE), kind="source",
              title="momentum"),
        quiet(_program("Adam(model.parameters())", _CYCLE), kind="source", title="adam"),
        quiet(_program("SGD(model.parameters(), lr=0.1)",
                       "CyclicLR(optimizer, 0.01, 0.1, cycle_momentum=False)"), kind="source",
              title="not cycled"),
    ),
)
