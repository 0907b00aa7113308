"""An optimizer is built and its model's loss goes backward, but it is never stepped.

## What you see
No error: these parameters keep their first values, and the loss does not fall.
## Why
`backward()` only computes gradients; `step()` changes the parameters. With two optimizers the
wrong one is easily stepped twice.
## Fix
`optimizer.step()` after `backward()`, on the optimizer that holds these parameters.
## When this is fine
When another part of the program steps it.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import TYPE_CHECKING

from torchmedic import changes
from torchmedic.model import Evidence, Fix, Problem, Rule, fires, quiet
from torchmedic.source.flow import Event, Trace, Value, trace_of
from torchmedic.source.flow.trace import modules_of
from torchmedic.source.flow.training import place, steps_unknown, written
from torchmedic.trainings import STEP, training

if TYPE_CHECKING:
    from torchmedic.observed import Run
    from torchmedic.source.script import Script


def in_run(run: Run) -> Iterator[Problem]:
    """Alone no proof: a model that only scores another one's output looks the same."""
    for process in run.processes:
        known = process.parameters
        if known is not None and known.alone and known.looked >= 3:
            yield Problem(
                f"`{known.alone[0]}` gets gradients, and no optimizer steps with its parameters",
                where=process.updates[0].place if process.updates else None,
                severity="info", confidence="possible", evidence=(
                    Evidence(f"{known.counts.get('outside', 0)} parameters got gradients in the "
                             "steps looked at; none is in an optimizer that stepped",
                             "parameters"),),
                fix=Fix("step the optimizer that holds them; or `requires_grad_(False)`"))


def in_source(script: Script) -> Iterator[Problem]:
    trace = trace_of(script)
    stepped = [o for e in trace.of("step") for o in (e.target.options() if e.target else ())]
    lines = {id(o.node) for o in stepped}  # of a class that is made several times
    if steps_unknown(trace):
        return
    for made in trace.made:
        if made.kind != "optimizer" or made in stepped or made.data is None:
            continue
        if id(made.node) in lines or _leaves(trace, made):
            continue
        backward = _backward(trace, made)
        if backward is not None:
            yield _problem(trace, made, backward)


def _backward(trace: Trace, made: Value) -> Event | None:
    """The first backward pass in a loop through what this optimizer holds."""
    held = modules_of(made) or frozenset()
    return next((e for e in trace.of("backward") if e.loops and e.value is not None and any(
        held & o.sources for o in e.value.options())), None)


def _leaves(trace: Trace, made: Value) -> bool:
    """It goes somewhere we can't look into."""
    for event in trace.of("opaque", "return", "yield", "item"):
        held = [v for v in (event.value, event.target) if v is not None]
        if any(o is made for v in held for i in (v, *v.items) for o in i.options()):
            return True
    return made.kind == "optimizer" and any(
        made in (o for i in (v, *v.items, *v.attrs.values()) for o in i.options())
        for e in trace.of("make") if e.target and e.target.kind != "scheduler"
        for v in e.target.args)


def _problem(trace: Trace, made: Value, backward: Event) -> Problem:
    line = getattr(made.node, "lineno", 0)
    other = next((e for e in trace.after(backward, "step") if e.loops == backward.loops), None)
    facts = [Evidence(f"line {backward.line}: a loss of its parameters goes backward", "source")]
    if other is not None:
        facts.append(Evidence(f"line {other.line}: `{written(other)}.step()` follows instead",
                              "source"))
    return Problem(
        f"the optimizer built in line {line} is never stepped",
        where=place(trace.script.file, other or backward), evidence=tuple(facts),
        confidence="likely", fix=Fix("`step()` of this optimizer after that `backward()`", "",
                                     "unsafe", edits=_edits(trace, made, backward, other)))


def _edits(trace: Trace, made: Value, backward: Event, other: Event | None) -> changes.Edits:
    """Its step behind the only backward pass, or in the place of another's second step."""
    script, loop = trace.script, backward.loops[-1]
    name = changes.assigned(script, made.node)
    if {backward.file, made.file or script.file} != {script.file} or name is None or not (
            name.startswith("self.")
            or changes.reaches(script, getattr(made.node, "lineno", 0), backward.line)):
        return ()
    if other is None:
        alone = len(trace.inside(loop, "backward")) == 1 and not trace.inside(loop, "step")
        return changes.after(script, backward.line, f"{name}.step()") if alone else ()
    again = [e for e in trace.inside(loop, "step") if e.target is other.target]
    call = other.node
    if len(again) < 2 or other.file != script.file or not isinstance(
            call, ast.Call) or not isinstance(call.func, ast.Attribute) or other.value is not None:
        return ()
    return changes.replacing(call.func.value, name)


_TWO = """
head = nn.Linear(3, 3)
second = torch.optim.SGD(head.parameters(), lr=0.1)
"""
_BOTH = """
optimizer.zero_grad()
second.zero_grad()
loss = criterion(head(model(x)), y)
loss.backward()
optimizer.step()
%s.step()
"""

_TWICE = """
class Pair:
    def __init__(self):
        self.model = nn.Linear(8, 3)
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.1)

    def loss(self, x, y):
        for _ in range(2):
            criterion(self.model(x), y).backward()

    def step(self, x, y):
        self.optimizer.zero_grad()
        self.loss(x, y)
        self.optimizer.step()


Pair().loss(torch.randn(4, 8), torch.zeros(4).long())
pair = Pair()
"""
_WRAPPED = """
class Noisy:
    def __init__(self, inner):
        self.inner = inner

    def step(self):
        self.inner.update()


noisy = Noisy(optimizer)
"""

RULE = Rule(
    name="optimizer-not-stepped", doc=__doc__, category="code", severity="warning",
    in_run=in_run, in_source=in_source, examples=(
        fires(training(STEP.replace("optimizer.step()", "")), "is never stepped", kind="source",
              line="loss.backward()", title="no step"),
        fires(training(_BOTH % "optimizer", more=_TWO), "`optimizer.step()` follows instead",
              kind="source", line="optimizer.step()", title="the other one"),
        fires(training(_BOTH % "optimizer", more=_TWO), "none is in an optimizer that stepped",
              line="optimizer.step()", title="the other one, in a run"),
        quiet(training(_BOTH % "second", more=_TWO), title="both, in a run"),
        quiet(training(), kind="source", title="stepped"),
        quiet(training("pair.step(x, y)", more=_TWICE), kind="source", title="made twice"),
        quiet(training(_BOTH % "second", more=_TWO), kind="source", title="both"),
        quiet(training(STEP.replace("optimizer", "noisy").replace("noisy.zero", "optimizer.zero"),
                       more=_WRAPPED), kind="source", title="wrapped"),
        quiet(training(STEP.replace("optimizer.step()", "update(optimizer)")), kind="source",
              title="elsewhere"),
    ),
)
