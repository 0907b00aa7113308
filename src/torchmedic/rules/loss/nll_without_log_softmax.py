"""`NLLLoss` is given something else than log-probabilities.

## What you see
The loss is negative, or falls without end, and the accuracy does not follow.
## Why
`nll_loss` only picks the input at the class and negates it. Of probabilities it gives a number
between -1 and 0; of scores there is no lower end at all.
## Fix
`log_softmax` as the last operation, or `CrossEntropyLoss` on the scores.
## When this is fine
Never with a softmax; with a layer that gives log-probabilities in another way.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from torchmedic import lossinputs
from torchmedic.model import Evidence, Fix, Problem, Rule, fires, quiet
from torchmedic.source.flow import trace_of
from torchmedic.source.flow.losses import losses
from torchmedic.trainings import module, training

if TYPE_CHECKING:
    from torchmedic.source.script import Script


SOURCE_WORDS = ("nll",)


NAMES = {"softmax": "log_softmax", "Softmax": "LogSoftmax"}


def in_source(script: Script) -> Iterator[Problem]:
    for given in losses(trace_of(script), "NLLLoss"):
        if given.act not in ("softmax", "sigmoid", "linear"):
            continue
        what = "scores" if given.act == "linear" else "probabilities"
        yield Problem(
            f"`{given.text}` gives {what} to `NLLLoss`, which takes log-probabilities",
            where=given.place(script.file), confidence="certain",
            evidence=(Evidence(f"line {given.event.line}: the loss is computed from it",
                               "source"),),
            fix=Fix("`log_softmax` in its place" if given.act == "softmax" else
                    "`log_softmax` after it, or `CrossEntropyLoss`", "", "unsafe",
                    edits=lossinputs.renamed(script, given, NAMES)))


_LOSS = "loss = F.nll_loss(model(torch.randn(4, 8)), torch.tensor([0, 1, 2, 0]))"
_SETUP = """
model = nn.Sequential(nn.Linear(8, 3), nn.Softmax(dim=1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
criterion = nn.NLLLoss()
loader = DataLoader(TensorDataset(torch.randn(64, 8), torch.randint(0, 3, (64,))), batch_size=8)
"""

RULE = Rule(
    name="nll-without-log-softmax", doc=__doc__, category="code", severity="warning",
    in_source=in_source, examples=(
        fires(module("return self.layer(x)", more=_LOSS), "gives scores to `NLLLoss`",
              kind="source", line="nn.Linear", title="scores"),
        fires(training(setup=_SETUP), "gives probabilities", kind="source", line="nn.Softmax",
              title="softmax"),
        quiet(module("return F.log_softmax(self.layer(x), dim=1)", more=_LOSS), kind="source",
              title="log softmax"),
        quiet(module("return torch.log(F.softmax(self.layer(x), dim=1))", more=_LOSS),
              kind="source", title="log of softmax"),
        quiet(training(setup=_SETUP.replace("nn.Softmax", "nn.LogSoftmax")), kind="source",
              title="layer"),
    ),
)
