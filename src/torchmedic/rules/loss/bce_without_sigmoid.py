"""`BCELoss` is given something else than probabilities.

## What you see
`all elements of input should be between 0 and 1`, an assertion on the GPU, or a loss that does not
move.
## Why
`BCELoss` takes the logarithm of its input and of one minus it. Scores and log-probabilities lie
outside 0 to 1. A softmax over a single output is always 1, its logarithm always 0.
## Fix
`sigmoid` as the last operation, or `BCEWithLogitsLoss` on the scores.
## When this is fine
Never.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

from torchmedic import changes
from torchmedic.model import Evidence, Fix, Problem, Rule, fires, quiet
from torchmedic.remedies import raised
from torchmedic.source.flow import trace_of
from torchmedic.source.flow.losses import losses
from torchmedic.trainings import module

if TYPE_CHECKING:
    from torchmedic.observed import Failure
    from torchmedic.source.flow.losses import Given
    from torchmedic.source.script import Script

SOURCE_WORDS = ("bce", "binary_cross")
WORDS = ("between 0 and 1",)
OUTSIDE = re.compile(r"all elements of (?P<what>input|target) should be between 0 and 1")
"""torch 1.5 to 2.14; on the GPU it is an assertion, which `device-side-assert` reads."""


def in_failure(failure: Failure) -> Iterator[Problem]:
    found = OUTSIDE.search(failure.message)
    if found is None:
        return
    if found["what"] == "target":
        yield Problem("`BCELoss` is given targets outside 0 to 1", where=failure.place,
                      evidence=(raised(failure),), fix=Fix(
                          "labels of 0 and 1, as floats; several classes need `CrossEntropyLoss`"),
                      severity="error")
        return
    yield Problem("`BCELoss` is given numbers outside 0 to 1, or NaN", where=failure.place,
                  evidence=(raised(failure),), fix=Fix(
                      "`sigmoid` as the last operation, or `BCEWithLogitsLoss` on the scores",
                      "a NaN fails the same check: look at the losses before", "unsafe"),
                  severity="error")


def in_source(script: Script) -> Iterator[Problem]:
    for given in losses(trace_of(script), "BCELoss"):
        if given.act not in ("linear", "log_softmax", "logsigmoid", "tanh"):
            continue
        what = "scores" if given.act == "linear" else "no probabilities"
        yield Problem(
            f"`{given.text}` gives {what} to `BCELoss`, which takes numbers from 0 to 1",
            where=given.place(script.file), confidence="certain",
            evidence=(Evidence(f"line {given.event.line}: the loss is computed from it",
                               "source"),),
            fix=Fix("`sigmoid` in its place" if given.act != "linear" else
                    "`sigmoid` after it, or `BCEWithLogitsLoss`", "", "unsafe",
                    edits=_edits(script, given) if given.act == "linear" else ()))


def _edits(script: Script, given: Given) -> changes.Edits:
    """The loss that takes scores, where the file names it once for all."""
    loss, place = given.event.target, given.file or script.file
    if loss is None or place != script.file or (loss.file or script.file) != script.file:
        return ()
    return changes.renaming(loss.node, "BCELoss", "BCEWithLogitsLoss")


_LOSS = "loss = nn.BCELoss()(model(torch.randn(4, 8)), torch.rand(4, 3))"

RULE = Rule(
    name="bce-without-sigmoid", doc=__doc__, category="code", severity="warning",
    in_failure=in_failure, in_source=in_source, examples=(
        fires("RuntimeError: all elements of input should be between 0 and 1\n",
              "outside 0 to 1, or NaN", "BCEWithLogitsLoss", kind="log", title="log"),
        fires(module("return self.layer(x)", more=_LOSS), "gives scores to `BCELoss`",
              kind="source", line="nn.Linear", title="scores"),
        fires(module("return F.log_softmax(self.layer(x), dim=1)", more=_LOSS), kind="source",
              line="F.log_softmax", title="log softmax"),
        quiet(module("return torch.sigmoid(self.layer(x))", more=_LOSS), kind="source",
              title="sigmoid"),
        quiet(module("return self.layer(x)", more=_LOSS.replace("BCELoss", "BCEWithLogitsLoss")),
              kind="source", title="with logits"),
    ),
)
