"""`softmax` without `dim`: torch guesses the axis, and the guess depends on the rank.

## What you see
`UserWarning: Implicit dimension choice for softmax has been deprecated`. For tensors with 3 axes
the batch axis is taken, so the samples of a batch share one distribution.
## Why
Without `dim`, axis 0 is taken for 0, 1 and 3 axes, axis 1 otherwise.
## Fix
Name the axis of the classes: `dim=1` for (batch, classes) and images, `dim=-1` for sequences.
## When this is fine
Never: say which axis is meant.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import TYPE_CHECKING

from torchmedic import changes, logwarnings
from torchmedic.model import Fix, Problem, Rule, fires, quiet
from torchmedic.source.flow import Event, trace_of
from torchmedic.source.flow.layers import known
from torchmedic.source.flow.training import place
from torchmedic.trainings import module

if TYPE_CHECKING:
    from torchmedic.source.flow import Trace
    from torchmedic.source.script import Script

SOURCE_WORDS = ("softmax",)
WORDS = ("implicit dimension",)
LAYERS = ("torch.nn.Softmax", "torch.nn.LogSoftmax", "torch.nn.Softmin")
WITH_DIM = 2  # F.softmax(input, dim)


def in_source(script: Script) -> Iterator[Problem]:
    trace = trace_of(script)
    for event in trace.of("softmax", "make"):
        if _lacks(event):
            text = ast.unparse(event.node.func) if isinstance(event.node, ast.Call) else "softmax"
            edits = _edits(trace, event)
            yield Problem(
                f"`{text}` does not say over which axis", where=place(script.file, event),
                fix=Fix("name the axis of the classes, such as `dim=1` or `dim=-1`", "",
                        "safe" if edits else "unsafe", edits=edits))


def _edits(trace: Trace, event: Event) -> changes.Edits:
    """The axis that torch takes by itself, where that is the one of the classes."""
    called = [event] if event.kind == "softmax" else [
        e for e in trace.of("forward") if e.target is event.target]
    shapes = {known(e.more["args"][0]) for e in called if e.more["args"]}
    axes = [len(s) for s in shapes if s is not None]
    if event.file != trace.script.file or len(axes) != len(shapes) or set(axes) != {2}:
        return ()
    return changes.with_keyword(trace.script, event.node, "dim", "1")


def _lacks(event: Event) -> bool:
    if event.kind == "make":
        layer = event.target
        called = ast.unparse(event.node.func) if isinstance(event.node, ast.Call) else ""
        if "[" in called:
            return False  # one of a table's
        return layer is not None and layer.type in LAYERS and not layer.args and not layer.kwargs
    args, kwargs = event.more["args"], event.more["kwargs"]
    if event.more["name"] == "gumbel_softmax" or _asked(event):
        return False  # the first takes the last axis
    return len(args) < WITH_DIM and "dim" not in kwargs and "axis" not in kwargs and not any(
        a.type == "starred" for a in args) and "**" not in kwargs


def _asked(event: Event) -> bool:
    """Whether it is a softmax is what decides how it is called: `if self.act is F.softmax:`."""
    called = ast.unparse(event.node.func) if isinstance(event.node, ast.Call) else ""
    return any(called in ast.unparse(f.node.test) for f in event.branches
               if isinstance(f.node, (ast.If, ast.IfExp)))


_KINDS = "KINDS = {'relu': nn.ReLU, 'softmax': nn.Softmax}\n\n\n"

RULE = Rule(
    name="softmax-without-dim", doc=__doc__, category="code", severity="warning",
    in_source=in_source, in_log=logwarnings.no_dim, examples=(
        *logwarnings.NO_DIM,
        fires(module("return F.log_softmax(self.layer(x))"), "`F.log_softmax` does not say",
              kind="source", line="F.log_softmax", title="function"),
        fires(module("return self.act(self.layer(x))",
                     init="self.layer = nn.Linear(8, 3)\nself.act = nn.Softmax()"),
              kind="source", line="nn.Softmax()", title="layer"),
        quiet(module("return self.layer(x).softmax(-1)"), kind="source", title="position"),
        quiet(module("return F.softmax(self.layer(x), dim=1)"), kind="source", title="named"),
        quiet(module("x = self.layer(x)\nif self.act is F.softmax:\n"
                     "    return self.act(x, dim=-1)\nelse:\n    return self.act(x)",
                     init="self.layer, self.act = nn.Linear(8, 3), F.softmax"), kind="source",
              title="asked before"),
        quiet(module("return self.act(self.layer(x))", init="self.layer = nn.Linear(8, 3)\n"
                     "self.act = KINDS[self.name]()").replace("class Net", _KINDS + "class Net"),
              kind="source", title="one of a table"),
        quiet(module("return F.gumbel_softmax(self.layer(x), hard=True)"), kind="source",
              title="has a default"),
        quiet(module("return nn.Softmax(1)(self.layer(x))"), kind="source", title="given layer"),
    ),
)
