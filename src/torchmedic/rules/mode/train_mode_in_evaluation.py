"""The model is evaluated in training mode.

## What you see
The accuracy on the test set changes from call to call and is worse than it should be; it depends
on the batch size.
## Why
In training mode dropout drops values, and BatchNorm uses the statistics of the test batch and
adds them to its own.
## Fix
`model.eval()` before the evaluation, `model.train()` after it.
## When this is fine
Dropout left on to sample predictions; models without dropout and BatchNorm.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import TYPE_CHECKING

from torchmedic import changes, evaluations
from torchmedic.model import Evidence, Fix, Problem, Rule, fires, quiet
from torchmedic.source.flow import Event, Trace, Value, trace_of
from torchmedic.source.flow.library import is_dependent
from torchmedic.source.flow.training import place, trains
from torchmedic.source.flow.values import family
from torchmedic.trainings import MODEL, training

if TYPE_CHECKING:
    from torchmedic.observed import Run
    from torchmedic.source.script import Script

SOURCE_WORDS = ("no_grad", "inference_mode", "grad_enabled")
MEASURES = ("argmax", "max", "comparison", "eq", "item")


def in_run(run: Run) -> Iterator[Problem]:
    for process in run.processes:
        for item, call in evaluations.of(process):
            mode = call.mode
            if not mode.grad and (mode.norms_training or mode.drops_training) and (
                    call.count <= item.batches):  # more often: dropout is sampled on purpose
                yield Problem(
                    f"`{mode.type}` is evaluated in training mode",
                    where=mode.place, confidence="likely", evidence=(
                        Evidence(f"{call.count} calls without gradients in a pass of "
                                 f"{item.batches} batches that trains nothing", "modes"),
                        evaluations.layers(mode)),
                    fix=Fix("`model.eval()` before, `model.train()` after it", "", "unsafe"))
                return


def in_source(script: Script) -> Iterator[Problem]:
    trace = trace_of(script)
    seen = set()
    for event in trace.of("forward"):
        model = event.target
        if event.grad is not False or model is None or model.id in seen or _inner(event):
            continue
        layer = next((m for m in family(model).values() if is_dependent(m)), None)
        if layer is None or not trains(trace, model) or not _measured(trace, event):
            continue
        if not _evaluated(trace, model):
            seen.add(model.id)
            yield _problem(script, event, layer)


def _inner(event: Event) -> bool:
    """Called by another module's forward."""
    return any(f.kind == "call" and f.name == "forward" for f in event.frames)


def _evaluated(trace: Trace, model: Value) -> bool:
    """Something sets it, a part or a whole of it, to `eval()` somewhere."""
    own = family(model)
    modes = [e.target for e in trace.of("eval", "mode") if e.target is not None]
    return any(m.id in own or model.id in family(m) or m.kind in ("unknown", "either")
               for m in modes) or any(
        "eval" in e.more["name"].rpartition(".")[2].lower() for e in trace.of("opaque"))


def _measured(trace: Trace, event: Event) -> bool:
    """Its output is compared with targets: a loss, or a class that is picked."""
    made = {o.id for o in event.value.options()} if event.value else set()
    if any(o.type == "loss" for i in (event.value.items if event.value else ())
           for o in i.options()):
        return True  # the model gives its loss itself
    for later in trace.after(event, "loss"):
        if any(made & o.lineage for o in later.more["input"].options()) and later.grad is False:
            return True
    return any(o.cut in MEASURES and made & o.lineage for e in trace.after(
        event, "assign", "keep", "return")
               for o in (e.value.options() if e.value else ()))


def _edits(script: Script, event: Event) -> changes.Edits:
    """Before and after the `with torch.no_grad():` of the same function."""
    call = event.node.func if isinstance(event.node, ast.Call) else None
    last = max((i for i, f in enumerate(event.frames) if f.kind == "call"), default=-1)
    around = next((f for f in event.frames[last + 1:] if f.kind == "with"), None)
    if event.file != script.file or around is None or not isinstance(
            around.node, ast.With) or not isinstance(call, (ast.Name, ast.Attribute)) or any(
            isinstance(n, ast.Return) for n in ast.walk(around.node)):
        return ()
    line, name = around.node.lineno, ast.unparse(call)
    first = changes.before(script, line, f"{name}.eval()")
    then = changes.after(script, line, f"{name}.train()")
    return (*first, *then) if first and then else ()


def _problem(script: Script, event: Event, layer: Value) -> Problem:
    line = getattr(layer.node, "lineno", 0)
    return Problem(
        "the model is evaluated here in training mode: nothing calls `eval()`",
        where=place(script.file, event), confidence="likely",
        evidence=(Evidence(f"it has a `{layer.name}` (line {line})", "source"),),
        fix=Fix("`model.eval()` before, `model.train()` after it", "", "unsafe",
                edits=_edits(script, event)))


_CHECK = """
with torch.no_grad():
    loss = criterion(model(torch.randn(4, 8)), torch.tensor([0, 1, 2, 0]))
    print(loss.item())
"""
_PASS = """
with torch.no_grad():
    hits = 0
    for x, y in loader:
        hits += (model(x).argmax(1) == y).sum().item()
"""
_TEACHER = """
with torch.no_grad():
    target = model(x)
optimizer.zero_grad()
loss = F.mse_loss(model(x), target)
loss.backward()
optimizer.step()
"""

RULE = Rule(
    name="train-mode-in-evaluation", doc=__doc__, category="code", severity="warning",
    in_run=in_run, in_source=in_source, examples=(
        fires(training(after=_CHECK), "evaluated here in training mode", "`BatchNorm1d`",
              kind="source", line="loss = criterion(model(torch", title="no eval"),
        fires(training(after=_PASS), "calls without gradients in a pass of 8 batches",
              line="hits += ", title="seen in a run"),
        quiet(training(after=_PASS, before="model.train()").replace(
            "with torch", "model.eval()\n    with torch"), title="eval, in a run"),
        quiet(training(before="model.train()", after="model.eval()\n" + _CHECK), kind="source",
              title="eval"),
        quiet(training(setup=MODEL.replace("nn.BatchNorm1d(16), ", ""), after=_CHECK),
              kind="source", title="no such layers"),
        quiet(training(_TEACHER), kind="source", title="targets"),
    ),
)
