"""`scheduler.step(epoch)`: the argument is deprecated and replaces the schedule's own count.

## What you see
`UserWarning: The epoch parameter in scheduler.step() was not necessary and is being deprecated`.
Chained and warm-up schedules jump; with a loss in its place the learning rate is nonsense.
## Why
Given an argument, the scheduler uses a closed form for that epoch instead of its own state. Only
`ReduceLROnPlateau` takes an argument, the metric.
## Fix
`scheduler.step()` without an argument.
## When this is fine
`ReduceLROnPlateau.step(metric)` and `CosineAnnealingWarmRestarts.step(epoch + i / batches)`.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import TYPE_CHECKING

from torchmedic import changes, logwarnings
from torchmedic.model import Fix, Problem, Rule, fires, quiet
from torchmedic.source.flow import trace_of
from torchmedic.source.flow.training import place
from torchmedic.trainings import training

if TYPE_CHECKING:
    from torchmedic.source.flow import Event
    from torchmedic.source.script import Script

SOURCE_WORDS = ("sched",)
WORDS = ("epoch parameter",)
TAKERS = ("ReduceLROnPlateau", "CosineAnnealingWarmRestarts", "SequentialLR", "?")
HOME = "torch.optim.lr_scheduler."


def in_source(script: Script) -> Iterator[Problem]:
    seen = set()
    for event in trace_of(script).of("schedule"):
        kind = event.target.type if event.target is not None else ""
        given = [*event.more["args"], *event.more["kwargs"].values()]
        known = kind.startswith(HOME) and kind.removeprefix(HOME) not in TAKERS
        if given and known and id(event.node) not in seen and (
                "metrics" not in event.more["kwargs"]) and not _asked(event):
            seen.add(id(event.node))
            name = ast.unparse(event.node)
            yield Problem(
                f"`{name}` gives `{kind.removeprefix(HOME)}` an argument that replaces its count",
                where=place(script.file, event),
                fix=Fix(f"`{name.partition('(')[0]}()`", "", "unsafe",
                        edits=_edits(script, event)))


def _asked(event: Event) -> bool:
    """The branch is for schedulers that take one, whatever this one is."""
    return any("Plateau" in ast.unparse(f.node.test) for f in event.branches
               if isinstance(f.node, ast.If))


def _edits(script: Script, event: Event) -> changes.Edits:
    node = event.node
    if event.file != script.file or not isinstance(node, ast.Call):
        return ()
    return changes.emptying(script, node)


def _program(kind: str, call: str) -> str:
    made = f"scheduler = torch.optim.lr_scheduler.{kind}\n"
    return training(more=made, after=call)


RULE = Rule(
    name="scheduler-epoch-argument", doc=__doc__, category="code", severity="warning",
    in_source=in_source, in_log=logwarnings.epoch_given, examples=(
        *logwarnings.EPOCH_GIVEN,
        fires(_program("StepLR(optimizer, 2)", "scheduler.step(epoch)"),
              "`scheduler.step(epoch)` gives `StepLR` an argument", kind="source",
              line="scheduler.step(epoch)", title="epoch"),
        fires(_program("ExponentialLR(optimizer, 0.9)", "scheduler.step(loss.item())"),
              kind="source", line="scheduler.step(", title="loss"),
        quiet(_program("ReduceLROnPlateau(optimizer)", "scheduler.step(loss.item())"),
              kind="source", title="plateau"),
        quiet(_program("StepLR(optimizer, 2)\nplateau = False\n",
                       "if plateau:\n    scheduler.step(metrics=loss.item())"), kind="source",
              title="for another scheduler"),
        quiet(_program("StepLR(optimizer, 2)", "if isinstance(scheduler, torch.optim.lr_scheduler."
                       "ReduceLROnPlateau):\n    scheduler.step(loss.item())\nelse:\n"
                       "    scheduler.step()"), kind="source", title="asked which one it is"),
        quiet(_program("StepLR(optimizer, 2)", "scheduler.step()"), kind="source", title="none"),
        quiet(_program("CosineAnnealingWarmRestarts(optimizer, 2)", "scheduler.step(epoch + 0.5)"),
              kind="source", title="warm restarts"),
    ),
)
