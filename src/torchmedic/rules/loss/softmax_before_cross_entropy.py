"""`CrossEntropyLoss` is given probabilities; it takes scores and applies softmax itself.

## What you see
No error. The loss falls slowly and stays high (with 10 classes it can't fall below 1.46), and the
accuracy stays behind.
## Why
`cross_entropy` computes log-softmax of its input. Of probabilities, all between 0 and 1, it makes
an almost uniform distribution, and gradients become tiny.
## Fix
Give the loss the output of the last linear layer. Apply softmax where probabilities are shown.
## When this is fine
Softmax for metrics or predictions beside the loss.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from torchmedic import lossfloor, lossgraph, lossinputs
from torchmedic.model import Evidence, Fix, Problem, Rule, fires, quiet
from torchmedic.source.flow import trace_of
from torchmedic.source.flow.losses import losses
from torchmedic.trainings import HEAD, module, training

if TYPE_CHECKING:
    from torchmedic.observed import Run
    from torchmedic.source.script import Script

SOURCE_WORDS = ("cross",)
WORDS = ("acc",)


def in_run(run: Run) -> Iterator[Problem]:
    for backward, way in lossgraph.losses(run, "NllLoss", "NllLoss2D"):
        if [node.operation for node in way[1:3]] == ["LogSoftmax", "Softmax"]:
            yield Problem(
                "`cross_entropy` is given the result of a softmax, and applies softmax itself",
                where=backward.place, evidence=(lossgraph.evidence(backward, way, 3),),
                fix=Fix("give the loss the scores: leave out the softmax before it"))


def in_source(script: Script) -> Iterator[Problem]:
    for given in losses(trace_of(script), "CrossEntropyLoss"):
        if given.act not in ("softmax", "sigmoid"):
            continue
        yield Problem(
            f"the output of `{given.text}` goes into `{given.loss}`, which applies softmax itself",
            where=given.place(script.file), confidence="certain",
            evidence=(Evidence(f"line {given.event.line}: the loss is computed from it",
                               "source"),),
            fix=Fix(f"leave out `{given.text}` and give the loss the scores", "", "unsafe",
                    edits=lossinputs.without(script, given)))


_SETUP = """
model = nn.Sequential(nn.Linear(8, 3), nn.Softmax(dim=1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
criterion = nn.CrossEntropyLoss()
loader = DataLoader(TensorDataset(torch.randn(64, 8), torch.randint(0, 3, (64,))), batch_size=8)
"""
_LOCAL = """
optimizer.zero_grad()
p = F.softmax(model(x), dim=1)
loss = F.cross_entropy(p, y)
loss.backward()
optimizer.step()
"""
_METRIC = """
optimizer.zero_grad()
scores = model(x)
loss = criterion(scores, y)
loss.backward()
optimizer.step()
print(scores.softmax(dim=1).max())
"""
_FORWARD = "loss = nn.CrossEntropyLoss()(model(torch.randn(4, 8)), torch.tensor([0, 1, 2, 0]))"
_MODE = """
if self.training:
    return self.layer(x)
return self.layer(x).softmax(1)
"""

_PROGRAM = """
import torch
from torch import nn

torch.set_num_threads(1)


def probabilities(scores):
    return {}


net = nn.Linear(4, 3)
optimizer = torch.optim.SGD(net.parameters(), 0.1)
for _ in range(4):
    optimizer.zero_grad()
    head = getattr(nn.functional, "cross_entropy")
    loss = head(probabilities(net(torch.randn(8, 4))), torch.randint(3, (8,)))
    loss.backward()
    optimizer.step()
"""

_BASE = """
class Base:
    def __init__(self, model, criterion=nn.CrossEntropyLoss(), **more):
        self.model, self.criterion = model, criterion


class Coder(Base):
    def __init__(self, model, criterion=nn.MSELoss(), **more):
        arguments = dict(model=model, criterion=criterion, **more)
        super().__init__(**arguments)

    def loss(self, x):
        return self.criterion(F.softmax(self.model(x), dim=1), x)
"""

RULE = Rule(
    name="softmax-before-cross-entropy", doc=__doc__, category="code", severity="warning",
    in_source=in_source, in_run=in_run, in_log=lossfloor.in_log, examples=(
        *lossfloor.EXAMPLES,
        fires(training(setup=_SETUP), "`nn.Softmax(dim=1)` goes into `CrossEntropyLoss`",
              kind="source", line="nn.Softmax(dim=1)", title="last layer"),
        fires(training(_LOCAL), kind="source", line="F.softmax(", title="local variable"),
        fires(module("return F.softmax(self.layer(x), dim=-1)", more=_FORWARD), kind="source",
              line="return F.softmax", title="in forward"),
        fires(_PROGRAM.format("torch.softmax(scores, 1)"), "Softmax → LogSoftmax → NllLoss",
              line="torch.softmax(scores", title="seen in the graph"),
        quiet(_PROGRAM.format("scores"), title="scores, run"),
        quiet(training(_METRIC), kind="source", title="for a metric"),
        quiet(module(_MODE, more=_FORWARD), kind="source", title="only in evaluation"),
        quiet(training(), kind="source", title="scores"),
        quiet(HEAD + _BASE, kind="source", title="a default that is replaced"),
    ),
)
