"""The output of a regression goes through a ReLU before the loss.

## What you see
Predictions are never negative, many are exactly 0; in a bad run all are 0 from the first epochs
and the loss does not move again.
## Why
A ReLU cuts off everything below 0 and passes no gradient there. An output that is negative for
every sample stays 0 for ever.
## Fix
Leave the activation of the last layer out. For targets that can't be negative: `softplus`.
## When this is fine
Targets that are never negative, and a network that starts on the positive side; features that are
compared after a ReLU on both sides.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from torchmedic import lossinputs
from torchmedic.model import Evidence, Fix, Problem, Rule, fires, quiet
from torchmedic.source.flow import Event, trace_of
from torchmedic.source.flow.losses import losses
from torchmedic.trainings import training

if TYPE_CHECKING:
    from torchmedic.source.script import Script

REGRESSION = ("MSELoss", "L1Loss", "SmoothL1Loss", "HuberLoss")
POSITIVE = ("relu", "sigmoid", "softmax")


def in_source(script: Script) -> Iterator[Problem]:
    for given in losses(trace_of(script), *REGRESSION):
        if given.act == "relu" and given.event.grad is not False and _of_data(given.event):
            yield Problem(
                f"`{given.text}` cuts off all negative outputs before `{given.loss}`",
                where=given.place(script.file), confidence="likely",
                evidence=(Evidence(f"line {given.event.line}: the loss is computed from it; where "
                                   "it is 0, no gradient flows", "source"),),
                fix=Fix(f"leave out `{given.text}`",
                        "`softplus` in its place, where targets are never negative", "unsafe",
                        edits=lossinputs.without(script, given)))


def _of_data(event: Event) -> bool:
    """The target is data, not what another network gives."""
    wanted = list(event.more["wanted"].options())
    return all(o.kind in ("tensor", "unknown") and not o.sources and o.act not in POSITIVE
               for o in wanted)


_SETUP = """
model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 1)%s)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
criterion = nn.MSELoss()
loader = DataLoader(TensorDataset(torch.randn(64, 8), torch.randn(64, 1)), batch_size=8)
"""
_FEATURES = """
optimizer.zero_grad()
loss = criterion(model(x), teacher(x))
loss.backward()
optimizer.step()
"""

RULE = Rule(
    name="activation-on-regression-output", doc=__doc__, category="code", severity="warning",
    in_source=in_source, examples=(
        fires(training(setup=_SETUP % ", nn.ReLU()"), "`nn.ReLU()` cuts off all negative outputs",
              kind="source", line="nn.Linear(16, 1)", title="last layer"),
        fires(training("optimizer.zero_grad()\nloss = F.l1_loss(F.relu(model(x)), y)\n"
                       "loss.backward()\noptimizer.step()", setup=_SETUP % ""), kind="source",
              line="F.relu(model(x))", title="in the loop"),
        quiet(training(setup=_SETUP % ""), kind="source", title="linear output"),
        quiet(training(setup=_SETUP % ", nn.Softplus()"), kind="source", title="softplus"),
        quiet(training(_FEATURES, setup=_SETUP % ", nn.ReLU()",
                       more="teacher = nn.Sequential(nn.Linear(8, 1), nn.ReLU())\n"),
              kind="source", title="features of another network"),
    ),
)
