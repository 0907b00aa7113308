"""A softmax normalizes over the samples of a batch in place of the classes of each sample.

## What you see
The loss depends on the batch size and falls slowly; predictions for a single sample are useless:
every class has probability 1.
## Why
With `dim=0` the scores of one class over all samples of the batch add up to 1. The axis of the
classes is 1, or -1.
## Fix
`dim=1`, or `dim=-1`.
## When this is fine
Attention over the first axis, where it is no batch; scores of one sample without a batch axis.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import TYPE_CHECKING

from torchmedic.misfits import replacing
from torchmedic.model import Edit, Evidence, Fix, Problem, Rule, fires, quiet
from torchmedic.source.flow import trace_of
from torchmedic.source.flow.layers import known
from torchmedic.source.flow.losses import losses
from torchmedic.trainings import module, training

if TYPE_CHECKING:
    from torchmedic.source.script import Script

WANTED = ("NLLLoss", "CrossEntropyLoss", "KLDivLoss", "BCELoss")


def in_source(script: Script) -> Iterator[Problem]:
    for given in losses(trace_of(script), *WANTED):
        if given.act not in ("softmax", "log_softmax"):
            continue
        value = next(given.event.more["input"].options())
        shape, axis = known(value), _axis(value.act_node)
        if axis is None or (shape is not None and len(shape) < 2):
            continue
        if _number(axis) == 0 or (shape is not None and _number(axis) == -len(shape)):
            yield Problem(
                f"`{given.text}` normalizes over the batch, not over the classes",
                where=given.place(script.file), confidence="certain",
                evidence=(Evidence(f"line {given.event.line}: `{given.loss}` takes the classes "
                                   "from axis 1", "source"),),
                fix=Fix("`dim=1`", "", "unsafe", edits=_edits(axis)))


def _axis(node: ast.AST | None) -> ast.expr | None:
    """The `dim` that the code writes."""
    if not isinstance(node, ast.Call):
        return None
    named = next((k.value for k in node.keywords if k.arg == "dim"), None)
    if named is not None:
        return named
    text = ast.unparse(node.func)
    bound = text.rpartition(".")[0] not in ("F", "torch", "nn.functional", "torch.nn.functional",
                                            "functional") and not text[:1].isupper()
    layer = text.rpartition(".")[2][:1].isupper()
    at = 0 if layer or (bound and "." in text) else 1
    return node.args[at] if len(node.args) > at else None


def _number(node: ast.expr) -> int | None:
    try:
        value = ast.literal_eval(node)
    except ValueError:
        return None
    return value if type(value) is int else None


def _edits(axis: ast.expr) -> tuple[Edit, ...]:
    return (replacing(axis, "1"),)


_LOSS = "loss = F.nll_loss(model(torch.randn(4, 8)), torch.tensor([0, 1, 2, 0]))"
_LOCAL = """
optimizer.zero_grad()
loss = F.nll_loss(model(x).log_softmax(%s), y)
loss.backward()
optimizer.step()
"""

RULE = Rule(
    name="softmax-over-batch", doc=__doc__, category="code", severity="warning",
    in_source=in_source, examples=(
        fires(module("return F.log_softmax(self.layer(x), dim=0)", more=_LOSS),
              "normalizes over the batch", "`dim=1`", kind="source", line="dim=0",
              title="in forward"),
        fires(training(_LOCAL % "0"), kind="source", line="log_softmax(0)", title="method"),
        fires(module("return self.out(self.layer(x))", more=_LOSS, init=(
            "self.layer = nn.Linear(8, 3)\nself.out = nn.LogSoftmax(dim=0)")), kind="source",
              line="nn.LogSoftmax(dim=0)", title="layer"),
        quiet(module("return F.log_softmax(self.layer(x), dim=1)", more=_LOSS), kind="source",
              title="classes"),
        quiet(training(_LOCAL % "-1"), kind="source", title="last axis"),
        quiet(module("w = torch.softmax(self.layer(x), dim=0)\nreturn (w * x[:, :3]).sum(0)"),
              kind="source", title="attention"),
    ),
)
