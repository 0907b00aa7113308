"""The model is evaluated with gradients on: each batch builds a graph that nobody uses.

## What you see
Evaluation takes as much memory as training and is slower than it need be; with kept outputs memory
runs out.
## Why
`eval()` changes dropout and BatchNorm only. Without `torch.no_grad()` every operation is recorded
for a backward pass that does not come.
## Fix
`with torch.no_grad():` around the evaluation, or `@torch.no_grad()` on its function.
## When this is fine
Evaluation that needs gradients of its inputs, as for adversarial examples or saliency.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import TYPE_CHECKING

from torchmedic import changes, evaluations
from torchmedic.model import Evidence, Fix, Problem, Rule, fires, quiet
from torchmedic.source.flow import Event, Frame, Trace, trace_of
from torchmedic.source.flow.training import conditions, place, trains
from torchmedic.trainings import training

if TYPE_CHECKING:
    from torchmedic.observed import Run
    from torchmedic.source.script import Script


SOURCE_WORDS = ("eval",)


def in_run(run: Run) -> Iterator[Problem]:
    for process in run.processes:
        for item, call in evaluations.of(process):
            mode = call.mode
            if mode.grad and not mode.training and mode.parameters:
                yield Problem(
                    f"`{mode.type}` is evaluated with gradients on: nothing here goes backward",
                    where=mode.place, confidence="likely", category="memory", evidence=(
                        Evidence(f"{call.count} calls with gradients on in a pass of "
                                 f"{item.batches} batches without any backward", "modes"),),
                    fix=Fix("`with torch.no_grad():` around it", "", "safe"))
                return


def in_source(script: Script) -> Iterator[Problem]:
    trace = trace_of(script)
    seen: set[int] = set()
    for event in trace.of("forward"):
        model = event.target
        if model is None or event.grad is not True or not event.loops or model.id in seen:
            continue
        if any(f.kind == "call" and f.name == "forward" for f in event.frames):
            continue
        mode = next((e for e in trace.before(event, "eval", "train", "mode")
                     if e.target is model), None)
        if mode is None or mode.kind != "eval" or not trains(trace, model):
            continue
        if _evaluates(trace, event, mode):
            seen.add(model.id)
            yield Problem(
                "the model is evaluated with gradients on: nothing here goes backward",
                where=place(script.file, event), confidence="likely", category="memory",
                evidence=(Evidence(f"line {mode.line}: `eval()`, which does not switch them off",
                                   "source"),),
                fix=Fix("`with torch.no_grad():` around it", "", "safe",
                        edits=_edits(script, event)))


def _edits(script: Script, event: Event) -> changes.Edits:
    """Round the loop of the evaluation."""
    torch, loop = changes.name_of(script, "torch"), event.loops[-1].node
    if {event.file, event.loops[-1].file} != {script.file} or torch is None or not isinstance(
            loop, (ast.For, ast.While)):
        return ()
    return changes.within(script, loop, f"with {torch}.no_grad():")


def _evaluates(trace: Trace, event: Event, mode: Event) -> bool:
    """It is the loop of an evaluation, and needs no gradient of its own."""
    loop = event.loops[-1]
    around = _around(mode, event) or loop
    if conditions(mode) - conditions(event):
        return False
    if loop in mode.frames and trace.inside(loop, "backward"):
        return False
    used = trace.inside(loop, "backward", "autograd", "step")
    used += trace.inside(around, "autograd") if around is not None else []
    asked = any("grad" in e.more["name"] for e in trace.inside(loop, "opaque"))
    return not used and not asked and not _later(trace, event)


def _around(mode: Event, event: Event) -> Frame | None:
    """The innermost function that holds both."""
    return next((f for f in reversed(mode.frames) if f.kind == "call" and f in event.frames), None)


def _later(trace: Trace, event: Event) -> bool:
    """What comes out goes backward after the loop."""
    made = {o.id for o in event.value.options()} if event.value else set()
    return any(made & o.lineage for e in trace.after(event, "backward", "autograd", "return")
               for i in ((e.value, *e.value.items) if e.value else ()) for o in i.options()
               if o.graph is not False)


_CHECK = """
model.eval()
hits = 0
for x, y in loader:
    %s
    hits += (out.argmax(1) == y).sum().item()
model.train()
"""
_PLAIN = _CHECK % "out = model(x)"
_ATTACK = _CHECK % """x.requires_grad_(True)
    slope = torch.autograd.grad(criterion(model(x), y), x)[0]
    out = model(x + slope.sign())"""

RULE = Rule(
    name="gradients-on-in-evaluation", doc=__doc__, category="memory", severity="warning",
    in_run=in_run, in_source=in_source, examples=(
        fires(training(after=_PLAIN), "evaluated with gradients on", kind="source",
              line="out = model(x)", title="no no_grad"),
        fires(training(after=_PLAIN), "in a pass of 8 batches without any backward",
              line="out = model(x)", title="seen in a run"),
        quiet(training(after=_ATTACK), title="adversarial, in a run"),
        quiet(training(after=_CHECK % "with torch.no_grad():\n        out = model(x)"),
              kind="source", title="no_grad"),
        quiet(training(after=_ATTACK), kind="source", title="adversarial"),
        quiet(training(), kind="source", title="training"),
    ),
)
