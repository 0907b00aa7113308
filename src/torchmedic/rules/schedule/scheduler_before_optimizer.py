"""`scheduler.step()` comes before the first `optimizer.step()`.

## What you see
`UserWarning: Detected call of lr_scheduler.step() before optimizer.step()`. The first value of the
schedule is skipped: the learning rate is a step ahead all the time.
## Why
The scheduler sets the first value when it is built. Each `step()` moves on to the next.
## Fix
`optimizer.step()` first, `scheduler.step()` after it, at the end of the epoch or the batch.
## When this is fine
Moving a schedule on to where a resumed training stopped.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from torchmedic import changes, logwarnings
from torchmedic.model import Evidence, Fix, Problem, Rule, fires, quiet
from torchmedic.source.flow import Event, Trace, trace_of
from torchmedic.source.flow.training import common_loop, conditions, place, written
from torchmedic.trainings import STEP, training

if TYPE_CHECKING:
    from torchmedic.source.script import Script

SOURCE_WORDS = ("sched",)
WORDS = ("lr_scheduler.step()",)
SCHEDULER = "scheduler = torch.optim.lr_scheduler.StepLR(optimizer, step_size=1)\n"


def in_source(script: Script) -> Iterator[Problem]:
    trace = trace_of(script)
    seen = set()
    for event in trace.of("schedule"):
        if event.target is None or event.target.id in seen:
            continue
        seen.add(event.target.id)
        step = _first_step(trace, event)
        if step is not None:
            yield Problem(
                f"`{written(event)}.step()` comes before the first `{written(step)}.step()`",
                where=place(script.file, event), confidence="likely",
                evidence=(Evidence(f"line {event.line} is reached before line {step.line}",
                                   "source"),),
                fix=Fix(f"move it after `{written(step)}.step()`", "", "unsafe",
                        edits=_edits(script, event, step)))


def _edits(script: Script, event: Event, step: Event) -> changes.Edits:
    """Behind the step, or behind the loop in which it is taken."""
    if event.file != script.file or step.file != script.file or (
            conditions(event) != conditions(step) or event.function != step.function):
        return ()
    own = script.statement_at(event.line)
    block = changes.block_of(script, own.node) if own is not None else []
    goal = next((s for s in block if s.lineno <= step.line <= (s.end_lineno or 0)), None)
    return changes.moving(script, event.line, goal.lineno) if goal is not None else ()


def _first_step(trace: Trace, event: Event) -> Event | None:
    """The optimizer's first step, when it comes after this one in the same loop."""
    target = event.target
    if target is None or not target.type.startswith("torch.optim.lr_scheduler."):
        owner = None
    else:
        owner = target.owner
    if "ReduceLROnPlateau" in (target.type if target else ""):
        return None
    if any(_theirs(e, owner) for e in trace.before(event, "step", "opaque")):
        return None
    for step in trace.after(event, "step"):
        if _theirs(step, owner) and (loop := common_loop(event, step)):
            skipped = conditions(event) - conditions(step)
            inside = any(f.kind == "branch" for f in event.within(loop))
            return None if skipped and inside else step
    return None


def _theirs(event: Event, owner: object) -> bool:
    if event.kind == "opaque":
        name = event.more["name"].lower()
        return bool(event.loops) and ("step" in name or "train" in name or "fit" in name)
    return owner is None or event.target is owner or (
        event.target is not None and event.target.kind != "optimizer")


_BEFORE = STEP.replace("optimizer.step()", "scheduler.step()\noptimizer.step()")

RULE = Rule(
    name="scheduler-before-optimizer", doc=__doc__, category="code", severity="warning",
    in_source=in_source, in_log=logwarnings.scheduler_first, examples=(
        *logwarnings.SCHEDULER_FIRST,
        fires(training(more=SCHEDULER, before="scheduler.step()"),
              "`scheduler.step()` comes before the first `optimizer.step()`", kind="source",
              line="scheduler.step()", title="start of the epoch"),
        fires(training(_BEFORE, more=SCHEDULER.replace("=1", "=900")), kind="source",
              line="scheduler.step()", title="in the batch"),
        quiet(training(more=SCHEDULER, after="scheduler.step()"), kind="source", title="after"),
        quiet(training(more=SCHEDULER, before="if epoch > 0:\n    scheduler.step()"),
              kind="source", title="not in the first epoch"),
        quiet(training(more=SCHEDULER + "for _ in range(3):\n    scheduler.step()\n",
                       after="scheduler.step()"), kind="source", title="resumed"),
    ),
)
