"""The best weights are kept as a reference, and training goes on changing them.

## What you see
Restoring the best weights changes nothing: the model is that of the last epoch.
## Why
`state_dict()` holds the parameters themselves, not copies; so does a second name for the model.
Every later step changes them in place.
## Fix
`copy.deepcopy(model.state_dict())`, or write them to a file at once.
## When this is fine
When the training stops right there.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import TYPE_CHECKING

from torchmedic import changes
from torchmedic.model import Evidence, Fix, Problem, Rule, fires, quiet
from torchmedic.source.flow import Event, Frame, Trace, Value, trace_of
from torchmedic.source.flow.training import place
from torchmedic.source.flow.values import is_module
from torchmedic.trainings import training

if TYPE_CHECKING:
    from torchmedic.source.script import Script

SHALLOW = ("dict", "OrderedDict", "copy.copy")


def in_source(script: Script) -> Iterator[Problem]:
    trace = trace_of(script)
    seen = set()
    for event in trace.of("assign", "set", "item"):
        value = event.value
        if value is not None and is_module(value) and id(event.node) not in seen:
            seen.add(id(event.node))
            yield from _model(script, trace, event)
        if value is None or not _is_state(value):
            continue
        loop = _trained(trace, event)
        used = _restored(trace, event, value, loop) if loop else None
        if used is not None and id(event.node) not in seen:
            seen.add(id(event.node))
            yield _problem(script, event, used)


def _model(script: Script, trace: Trace, event: Event) -> Iterator[Problem]:
    """`best_model = model` under a condition in a training loop, and used after it."""
    name, given = event.more.get("name"), getattr(event.node, "value", None)
    loop = _trained(trace, event)
    end = getattr(loop.node, "end_lineno", None) if loop is not None else None
    if end is None or not isinstance(given, (ast.Name, ast.Attribute)) or event.file != script.file:
        return
    function = script.function_at(event.line)
    if loop is None or not getattr(loop.node, "lineno", 0) < event.line <= end:
        return  # a name of a function that the loop calls
    used = next((n for n in ast.walk(script.tree) if isinstance(n, ast.Name) and n.id == name
                 and isinstance(n.ctx, ast.Load) and n.lineno > end
                 and script.function_at(n.lineno) == function), None)
    if used is not None:
        text = ast.unparse(given)
        yield Problem(
            f"`{name} = {text}` is no copy: later steps change it too",
            where=place(script.file, event), confidence="certain",
            evidence=(Evidence(f"line {used.lineno} uses it when the loop is over", "source"),),
            fix=Fix(f"`copy.deepcopy({text})`", "", "unsafe", edits=_edits(script, event, given)))


def _edits(script: Script, event: Event, given: ast.AST | None) -> changes.Edits:
    if event.file != script.file or given is None:
        return ()
    added = changes.importing(script, "copy")
    return () if added is None else (*changes.wrapping(given, "copy.deepcopy(", ")"), *added)


def _is_state(value: Value) -> bool:
    """`model.state_dict()`, or a dict with the very same tensors."""
    if value.kind == "state":
        return value.data != "copy" and not value.args
    made = value.node
    if isinstance(made, ast.DictComp) and ".state_dict().items()" in ast.unparse(made):
        return isinstance(made.value, ast.Name)
    return isinstance(made, ast.Call) and ast.unparse(made.func) in SHALLOW and (
        len(made.args) == 1 and ast.unparse(made.args[0]).endswith(".state_dict()"))


def _trained(trace: Trace, event: Event) -> Frame | None:
    """The loop that keeps them under a condition and goes on training."""
    for loop in event.loops:
        kept = any(f.kind == "branch" for f in event.within(loop))
        if kept and trace.inside(loop, "step", "backward"):
            return loop
    return None


def _restored(trace: Trace, event: Event, value: Value, loop: Frame) -> Event | None:
    """Where these weights are loaded or saved when the loop is over."""
    for later in trace.after(event, "load", "save"):
        if loop in later.frames or later.value is None:
            continue
        held = [later.value, *later.value.attrs.values()]
        if any(o is value for v in held for o in v.options()):
            return later
    return None


def _problem(script: Script, event: Event, used: Event) -> Problem:
    call = getattr(event.node, "value", None)
    text = ast.unparse(call) if call is not None else "the weights"
    return Problem(
        f"`{text}` is no copy: later steps change the weights that it keeps",
        where=place(script.file, event), confidence="certain",
        evidence=(Evidence(f"line {used.line} uses them when the loop is over", "source"),),
        fix=Fix(f"`copy.deepcopy({text})`", "", "unsafe", edits=_edits(script, event, call)))


_KEEP = """
if best is None or loss.item() < lowest:
    lowest = loss.item()
    best = %s
"""
_AFTER = "\nmodel.load_state_dict(best)\n"


_OWN = """
class Trainer:
    def __init__(self, model):
        self.model = model

    def check(self, loader):
        current = self.model
        return [current(x) for x, _ in loader]


trainer = Trainer(model)
"""
_SAVES = """
def save(current):
    torch.save(current.state_dict(), "last.pt")
"""


def _program(kept: str, after: str = _AFTER) -> str:
    head = "import copy\nbest, lowest = None, float('inf')\n"
    return training(more=head, after=_KEEP % kept) + after


RULE = Rule(
    name="weights-kept-by-reference", doc=__doc__, category="code", severity="warning",
    in_source=in_source, examples=(
        fires(_program("model.state_dict()"), "`model.state_dict()` is no copy",
              "`copy.deepcopy(model.state_dict())`", kind="source", line="best = model",
              title="loaded afterwards"),
        fires(_program("model.state_dict()", "\ntorch.save(best, 'best.pt')\n"), kind="source",
              line="best = model", title="saved afterwards"),
        quiet(training(after="if epoch:\n    trainer.check(loader)", more=_OWN) + _SAVES,
              kind="source", title="a name of another function"),
        quiet(_program("copy.deepcopy(model.state_dict())"), kind="source", title="copied"),
        quiet(_program("{k: v.clone() for k, v in model.state_dict().items()}"), kind="source",
              title="cloned"),
        quiet(_program("model.state_dict()\n    torch.save(best, 'best.pt')", ""), kind="source",
              title="saved at once"),
    ),
)
