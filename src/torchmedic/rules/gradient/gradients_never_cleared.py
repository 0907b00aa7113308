"""Gradients are not cleared between optimizer steps, so each step uses the sum of all batches.

## What you see
No error. The gradient norm grows from batch to batch; the loss is noisy, then diverges or stays
worse than it should be.
## Why
`backward()` adds to `param.grad`; nothing replaces it. Without `zero_grad()` for each step, the
gradients of all earlier batches are still in it.
## Fix
`optimizer.zero_grad()` once for each optimizer step, before `backward()`.
## When this is fine
Gradient accumulation, where the gradients are cleared after each `step()`.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import TYPE_CHECKING

from torchmedic import changes
from torchmedic.model import Evidence, Fix, Problem, Rule, fires, quiet
from torchmedic.source.flow import trace_of
from torchmedic.source.flow.trace import Event, Trace, shares
from torchmedic.source.flow.training import (
    Update,
    clears,
    place,
    unconditional,
    updates,
    written,
)
from torchmedic.trainings import MODEL, STEP, training

if TYPE_CHECKING:
    from torchmedic.observed import Run
    from torchmedic.source.script import Script


def in_run(run: Run) -> Iterator[Problem]:
    for process in run.processes:
        for optimizer in {u.optimizer.key: u.optimizer for u in process.updates}.values():
            seen = [u for u in process.updates if u.optimizer == optimizer
                    and u.cleared is not None]
            if len(seen) >= 2 and not any(u.cleared for u in seen):
                steps = ", ".join(str(u.step) for u in seen[:4])
                yield Problem(
                    f"`{optimizer.type}` steps without its gradients being cleared in between",
                    where=seen[0].place, evidence=(
                        Evidence(f"before steps {steps}: backward began with the gradients of the "
                                 "step before still there", "gradients"),),
                    fix=Fix("`optimizer.zero_grad()` before each `backward()`, or after each "
                            "`step()`", "", "unsafe"))


def in_source(script: Script) -> Iterator[Problem]:
    trace = trace_of(script)
    for update in updates(trace):
        if not clears(trace, update.loop, update.step.target) and not _fresh(update):
            yield _problem(trace, update)
    yield from _by_hand(script, trace)


def _fresh(update: Update) -> bool:
    """Each round makes the optimizer anew, and its model, or what nobody knows."""
    made = update.step.target
    return made is not None and update.loop in made.loops and all(
        update.loop in m.loops for m in made.items)


def _by_hand(script: Script, trace: Trace) -> Iterator[Problem]:
    """`w -= lr * w.grad` in a loop that goes backward and never clears `w.grad`."""
    seen = set()
    for event in trace.of("backward"):
        loop = event.loops[-1].node if event.loops else None
        if loop is None or id(loop) in seen or event.file != script.file:
            continue
        seen.add(id(loop))
        text = ast.unparse(loop)
        if any(word in text for word in ("zero", "clear", ".grad = ", "requires_grad", "step(")):
            continue
        used = next((n for n in ast.walk(loop) if isinstance(n, ast.AugAssign)
                     and isinstance(n.op, ast.Sub) and any(
                         isinstance(g, ast.Attribute) and g.attr == "grad"
                         for g in ast.walk(n.value))), None)
        if used is not None:
            yield Problem(
                f"`{ast.unparse(used)}` uses the gradients of all rounds so far: nothing clears "
                "them", where=place(script.file, event), confidence="likely",
                evidence=(Evidence(f"line {event.line}: `backward()` adds to the gradients",
                                   "source"),),
                fix=Fix("`.grad.zero_()` after the update", "", "unsafe"))


def _problem(trace: Trace, update: Update) -> Problem:
    owner = _owner(update.step)
    outside = next((e for e in trace.before(update.backward, "clear")
                    if e.loops and shares(update.step.target, e.target)
                    and set(e.loops) < set(update.backward.loops)), None)
    where = outside or update.backward
    loop = getattr(update.loop.node, "lineno", 0)
    facts = [Evidence(f"line {update.backward.line}: `backward()` adds to the gradients in the "
                      f"loop of line {loop}; line {update.step.line} steps", "source")]
    if outside:
        facts.append(Evidence(f"line {outside.line}: they are cleared outside that loop", "source"))
    return Problem(
        f"`{owner}` steps in each round of a loop that never clears its gradients",
        where=place(trace.script.file, where), evidence=tuple(facts), confidence="likely",
        fix=Fix(f"`{owner}.zero_grad()` inside the loop, before `backward()`", "", "unsafe",
                edits=_edits(trace, update, owner)))


def _edits(trace: Trace, update: Update, owner: str) -> changes.Edits:
    """Before backward, in the block where that and the step stand."""
    back, loop, script = update.backward, update.loop, trace.script
    steps = {e.line: e for e in trace.inside(loop, "step") if e.target is update.step.target}
    backs = {id(e.node) for e in trace.inside(loop, "backward")}
    if any(
            e.file != script.file or e.function != back.function or e.loops != back.loops
            or e.more["closure"] for e in steps.values()) or back.file != script.file:
        return ()
    clear = f"{owner}.zero_grad()"
    if len(backs) == len(steps) == 1 and unconditional(back, loop) and unconditional(
            update.step, loop):
        return changes.before(script, back.line, clear)
    behind = [changes.after(script, line, clear) for line in steps]
    return tuple(e for edits in behind for e in edits) if all(behind) else ()


def _owner(step: Event) -> str:
    args = getattr(step.node, "args", [])
    if step.value is not None and args:
        return ast.unparse(args[0])  # scaler.step(optimizer)
    return written(step)


_NEVER = STEP.replace("optimizer.zero_grad()\n", "")
_HELPER = """
def clear(optimizer):
    for group in optimizer.param_groups:
        for p in group["params"]:
            p.grad = None
"""
_CLOSURE = """
def closure():
    optimizer.zero_grad()
    loss = criterion(model(x), y)
    loss.backward()
    return loss
optimizer.step(closure)
"""
_ACCUMULATED = """
loss = criterion(model(x), y) / 4
loss.backward()
if (i + 1) % 4 == 0:
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)
"""
_METHOD = """
class Trainer:
    def __init__(self, model, optimizer):
        self.model, self.optimizer = model, optimizer

    def train_step(self, x, y):
        loss = criterion(self.model(x), y)
        loss.backward()
        self.optimizer.step()
        return loss.item()


trainer = Trainer(model, optimizer)
"""

_ANEW = """
net = nn.Linear(8, 3)
weights = {name: p for name, p in net.named_parameters()}
criterion(net(x), y).backward()
once = torch.optim.SGD(weights.values(), lr=0.1)
once.step()
"""
_EMPTY = """
def made():
    pass


model = made()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
"""

RULE = Rule(
    name="gradients-never-cleared", doc=__doc__, category="code", severity="warning",
    in_run=in_run, in_source=in_source, examples=(
        fires(training(_NEVER), "never clears its gradients", "`optimizer.zero_grad()`",
              kind="source", line="loss.backward()", title="never"),
        fires(training(_NEVER, before="optimizer.zero_grad()"), "cleared outside that loop",
              kind="source", line="optimizer.zero_grad()", title="once per epoch"),
        fires(training("trainer.train_step(x, y)", more=_METHOD), kind="source",
              line="loss.backward()", title="in a method"),
        fires(training(_NEVER), "backward began with the gradients", line="loss.backward()",
              title="seen in a run"),
        quiet(training(_ACCUMULATED, index=True), title="accumulation, in a run"),
        quiet(training(_CLOSURE), title="closure, in a run"),
        quiet(training(), kind="source", title="cleared"),
        quiet(training(_NEVER + "model.zero_grad()"), kind="source", title="by the model"),
        quiet(training("clear(optimizer)\n" + _NEVER, more=_HELPER), kind="source",
              title="in a helper"),
        quiet(training(_CLOSURE), kind="source", title="closure"),
        quiet(training(_ACCUMULATED, index=True), kind="source", title="accumulation"),
        quiet(training(_ANEW), kind="source", title="made anew"),
        quiet(training(more=_EMPTY), kind="source", title="nothing known in it"),
        quiet(training(_NEVER + "scheduler_step_and_clear(optimizer)", setup=MODEL),
              kind="source", title="unknown helper"),
    ),
)
