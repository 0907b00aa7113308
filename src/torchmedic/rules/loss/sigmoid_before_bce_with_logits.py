"""`BCEWithLogitsLoss` is given probabilities; it takes scores and applies sigmoid itself.

## What you see
No error. Training is slow and every prediction stays above 0.5: sigmoid of a number between 0 and
1 lies between 0.5 and 0.73.
## Why
The loss applies sigmoid to its input. Applied twice, it can't express a confident answer.
## Fix
Give the loss the output of the last linear layer, or use `BCELoss` with the sigmoid.
## When this is fine
Sigmoid for metrics or predictions beside the loss.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from torchmedic import lossinputs
from torchmedic.model import Evidence, Fix, Problem, Rule, fires, quiet
from torchmedic.source.flow import trace_of
from torchmedic.source.flow.losses import losses
from torchmedic.trainings import training

if TYPE_CHECKING:
    from torchmedic.source.script import Script


SOURCE_WORDS = ("bce", "binary_cross")


def in_source(script: Script) -> Iterator[Problem]:
    for given in losses(trace_of(script), "BCEWithLogitsLoss"):
        if given.act not in ("sigmoid", "softmax", "log_softmax"):
            continue
        yield Problem(
            f"the output of `{given.text}` goes into `{given.loss}`, which applies sigmoid itself",
            where=given.place(script.file), confidence="certain",
            evidence=(Evidence(f"line {given.event.line}: the loss is computed from it",
                               "source"),),
            fix=Fix(f"leave out `{given.text}`, or use `BCELoss`", "", "unsafe",
                    edits=lossinputs.without(script, given)))


_SETUP = """
model = nn.Sequential(nn.Linear(8, 1), nn.Sigmoid())
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
criterion = nn.BCEWithLogitsLoss()
loader = DataLoader(TensorDataset(torch.randn(64, 8), torch.rand(64, 1)), batch_size=8)
"""
_RIGHT = _SETUP.replace(", nn.Sigmoid()", "")

RULE = Rule(
    name="sigmoid-before-bce-with-logits", doc=__doc__, category="code", severity="warning",
    in_source=in_source, examples=(
        fires(training(setup=_SETUP), "`nn.Sigmoid()` goes into `BCEWithLogitsLoss`",
              kind="source", line="nn.Sigmoid()", title="last layer"),
        quiet(training(setup=_RIGHT), kind="source", title="scores"),
        quiet(training(setup=_SETUP.replace("BCEWithLogitsLoss", "BCELoss")), kind="source",
              title="other loss"),
        quiet(training(setup=_RIGHT, after="print(torch.sigmoid(model(x)))"), kind="source",
              title="for a metric"),
    ),
)
