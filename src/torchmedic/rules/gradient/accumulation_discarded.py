"""Gradients are cleared before the optimizer has used them.

## What you see
No error. Of the batches that were to be accumulated only the last one counts, or nothing is
learned at all.
## Why
`zero_grad()` runs for every batch, `step()` only for every k-th: what the batches between added
is thrown away. Between `backward()` and `step()` it throws away everything.
## Fix
Clear right after the step, under the same condition.
## When this is fine
Never.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import TYPE_CHECKING

from torchmedic import changes
from torchmedic.model import Evidence, Fix, Problem, Rule, fires, quiet
from torchmedic.source.flow import Event, Trace, trace_of
from torchmedic.source.flow.trace import shares
from torchmedic.source.flow.training import Update, conditions, place, unconditional, updates
from torchmedic.trainings import STEP, training

if TYPE_CHECKING:
    from torchmedic.source.script import Script


def in_source(script: Script) -> Iterator[Problem]:
    trace = trace_of(script)
    for update in updates(trace):
        cleared = _between(trace, update) or _every_batch(trace, update)
        if cleared:
            yield _problem(script, update, cleared)
    for step in trace.of("step"):
        late = _late(trace, step)
        if late is not None:
            yield _problem(script, *late)


def _late(trace: Trace, step: Event) -> tuple[Update, Event] | None:
    """step, backward: in this order in each round, with a clear before the next step."""
    loop = step.loops[-1] if step.loops else None
    if loop is None or step.more["closure"] or step.target is None:
        return None
    around = [e for e in trace.inside(loop, "backward") if e.loops == step.loops]
    if not around or around[0].at < step.at or conditions(around[0]) != conditions(step):
        return None
    update = Update(around[0], step, loop)
    for clear in trace.inside(loop, "clear"):
        if clear.loops == step.loops and conditions(clear) == conditions(step) and _same(
                update, clear) and (clear.at < step.at or clear.at > update.backward.at):
            return update, clear
    return None


def _every_batch(trace: Trace, update: Update) -> Event | None:
    """Cleared in each round of the loop, while only every k-th steps."""
    if update.loop is not update.backward.loops[-1] or not update.step.periodic(update.loop):
        return None
    if not unconditional(update.backward, update.loop):
        return None
    return next((e for e in trace.inside(update.loop, "clear") if unconditional(e, update.loop)
                 and e.loops[-1] is update.loop and _same(update, e)), None)


def _between(trace: Trace, update: Update) -> Event | None:
    """backward, clear, step: in this order in one round."""
    for event in trace.events[update.backward.at:update.step.at]:
        clear = event.kind == "clear" and update.loop in event.frames and _same(update, event)
        if clear and conditions(event) <= conditions(update.step) and (
                event.loops == update.step.loops):
            return event
    return None


def _same(update: Update, event: Event) -> bool:
    target = event.target
    if target is None or not shares(update.step.target, target):
        return False
    return target.kind in ("optimizer", "instance", "module") and (
        target.kind != "optimizer" or target is update.step.target)


def _problem(script: Script, update: Update, cleared: Event) -> Problem:
    backward, step = update.backward.line, update.step.line
    return Problem(
        "gradients are cleared before `step()` has used them",
        where=place(script.file, cleared), confidence="likely",
        evidence=(Evidence(f"line {backward} computes them, line {cleared.line} clears them, "
                           f"line {step} steps", "source"),),
        fix=Fix("`zero_grad()` right after `step()`, under the same condition", "", "unsafe",
                edits=_edits(script, update, cleared)))


def _edits(script: Script, update: Update, cleared: Event) -> changes.Edits:
    """Behind the step, as it is written; nothing else may stand on its line."""
    step, found = update.step, script.statement_at(cleared.line)
    if {step.file, cleared.file, update.backward.file} != {script.file} or found is None or (
            step.function != cleared.function or not isinstance(found.node, ast.Expr)):
        return ()
    if step.at < update.backward.at:  # it steps on what an earlier round left
        return changes.moving(script, step.line, update.backward.line)
    taken, put = changes.removing(script, found.line), changes.after(
        script, step.line, ast.unparse(found.node))
    return (*taken, *put) if taken and put else ()


_BETWEEN = """
loss = criterion(model(x), y)
loss.backward()
optimizer.zero_grad()
optimizer.step()
"""
_EVERY = """
optimizer.zero_grad()
loss = criterion(model(x), y) / 4
loss.backward()
if (i + 1) % 4 == 0:
    optimizer.step()
"""
_RIGHT = """
loss = criterion(model(x), y) / 4
loss.backward()
if (i + 1) % 4 == 0 or i + 1 == len(loader):
    optimizer.step()
    optimizer.zero_grad()
"""
_FINITE = STEP.replace("optimizer.step()", "if torch.isfinite(loss):\n    optimizer.step()")

RULE = Rule(
    name="accumulation-discarded", doc=__doc__, category="code", severity="warning",
    in_source=in_source, examples=(
        fires(training("loss = criterion(model(x), y)\noptimizer.zero_grad()\noptimizer.step()\n"
                       "loss.backward()"), kind="source", line="optimizer.zero_grad()",
              title="step before backward"),
        quiet(training("optimizer.step()\noptimizer.zero_grad()\n"
                       "loss = criterion(model(x), y)\nloss.backward()"), kind="source",
              title="step of the round before"),
        fires(training(_EVERY, index=True), "cleared before `step()`", kind="source",
              line="optimizer.zero_grad()", title="every batch"),
        fires(training(_BETWEEN), kind="source", line="optimizer.zero_grad()", title="between"),
        quiet(training(_RIGHT, index=True), kind="source", title="accumulated"),
        quiet(training(_FINITE), kind="source", title="skipped when not finite"),
        quiet(training(), kind="source", title="plain"),
    ),
)
