"""`backward(retain_graph=True)`, although nothing goes through that graph again.

## What you see
More memory than needed for each batch. With a recurrent state: each step is slower and larger than
the one before, or an error about an in-place operation.
## Why
Backward frees the graph as it goes. `retain_graph=True` keeps all of it until the last tensor of
it is gone. It is often added to silence `Trying to backward through the graph a second time`.
## Fix
Leave `retain_graph=True` out. If backward then fails in the second batch, something of the first
batch goes into the second: detach it.
## When this is fine
Several backward passes over one graph, as for two losses of one forward pass; all but the last
need it.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import TYPE_CHECKING

from torchmedic import changes
from torchmedic.model import Evidence, Fix, Problem, Rule, fires, quiet
from torchmedic.source.flow import Event, Trace, trace_of
from torchmedic.source.flow.training import function_of, place
from torchmedic.trainings import STEP, training

if TYPE_CHECKING:
    from torchmedic.source.script import Script


SOURCE_WORDS = ("retain_graph",)


def in_source(script: Script) -> Iterator[Problem]:
    trace = trace_of(script)
    for event in trace.of("backward"):
        flag = (event.more.get("kwargs") or {}).get("retain_graph")
        if flag is None or flag.kind != "const" or flag.data is not True:
            continue
        if event.loops and _alone(trace, event) and not _callers(script, event):
            yield Problem(
                "`retain_graph=True` keeps the graph of each batch, and no other backward uses it",
                where=place(script.file, event), confidence="likely",
                evidence=(Evidence("this is the last backward through what this loss was computed "
                                   "from", "source"),),
                fix=Fix("`backward()` without it; detach what goes from batch to batch", "",
                        "unsafe", edits=_edits(script, event)))


def _callers(script: Script, event: Event) -> bool:
    """Who calls this function says whether the graph is kept."""
    function = function_of(script, event)
    given = {k.value.id for k in getattr(event.node, "keywords", ())
             if k.arg == "retain_graph" and isinstance(k.value, ast.Name)}
    return function is not None and any(
        a.arg in given for a in ast.walk(function.node) if isinstance(a, ast.arg))


def _edits(script: Script, event: Event) -> changes.Edits:
    call = event.node
    if event.file != script.file or not isinstance(call, ast.Call):
        return ()
    value = next((k.value for k in call.keywords if k.arg == "retain_graph"), None)
    return changes.without_argument(script, call, value)


def _alone(trace: Trace, event: Event) -> bool:
    """Nothing of this graph goes backward again, nor leaves for where we can't see."""
    value = event.value
    if value is None or value.kind != "tensor" or value.graph is not True or not value.sources:
        return False
    made = [e for e in trace.of("forward") if e.value and any(
        o.id in value.lineage for o in e.value.options())]
    if not made or not all(event.loops[-1] in e.frames for e in made):
        return False  # made outside the innermost loop: the next round needs it
    later = (*trace.after(event, "backward", "autograd"), *trace.after(event, "opaque"))
    ids = value.lineage - {value.id}
    return not any(ids & o.lineage for e in later if e.value and event.loops[-1] in e.frames
                   for i in (e.value, *e.value.items) for o in i.options() if o.graph is not False)


_KEPT = STEP.replace("backward()", "backward(retain_graph=True)")
_TWO = """
optimizer.zero_grad()
out = model(x)
criterion(out, y).backward(retain_graph=True)
out.pow(2).mean().backward()
optimizer.step()
"""
_PENALTY = """
optimizer.zero_grad()
loss = criterion(model(x), y)
loss.backward(retain_graph=True)
slope = torch.autograd.grad(loss, list(model.parameters()))
optimizer.step()
"""

_SCORE = """
def score(x, y, keep=True):
    criterion(model(x), y).backward(retain_graph=keep)
"""

RULE = Rule(
    name="retain-graph-left-on", doc=__doc__, category="code", severity="warning",
    in_source=in_source, examples=(
        fires(training(_KEPT), "`retain_graph=True` keeps the graph", kind="source",
              line="retain_graph=True", title="left on"),
        quiet(training(), kind="source", title="off"),
        quiet(training(_TWO), kind="source", title="two losses of one output"),
        quiet(training("score(x, y)", more=_SCORE), kind="source", title="the caller says"),
        quiet(training(_PENALTY), kind="source", title="gradients again"),
    ),
)
