"""A schedule made for a number of steps is stepped once more.

## What you see
`ValueError: Tried to step 81 times. The specified number of total steps is 80`.
## Why
`OneCycleLR` must know all steps from the start: `total_steps`, or `epochs × steps_per_epoch`. It is
stepped after each batch, and there are more batches than that: the number was written by hand, the
last smaller batch was not counted, or a resumed run starts a new schedule at an old step.
## Fix
`steps_per_epoch=len(loader)` and the real number of epochs.
## When this is fine
Never: the scheduler refuses.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

from torchmedic.model import Evidence, Fix, Place, Problem, Rule, fires, quiet
from torchmedic.remedies import raised
from torchmedic.source.flow import Value, trace_of
from torchmedic.source.flow.layers import number
from torchmedic.trainings import STEP, training
from torchmedic.turns import times, turns

if TYPE_CHECKING:
    from torchmedic.observed import Failure
    from torchmedic.source.script import Script

SOURCE_WORDS = ("sched", "onecycle")
WORDS = ("tried to step",)
STEPS = re.compile(r"Tried to step (?P<asked>\d+) times\. The (?:specified|total) number "
                   r"of (?:total )?steps is (?P<total>\d+)")  # torch 1.1 to 2.14


def in_failure(failure: Failure) -> Iterator[Problem]:
    match = STEPS.search(failure.message)
    if match is None:
        return
    moment = [f"epoch {failure.epoch}"] if failure.epoch else []
    moment += [f"batch {failure.batch}"] if failure.batch else []
    where = (Evidence(f"this was in {', '.join(moment)}", "loader"),) if moment else ()
    yield Problem(
        f"the schedule was made for {match['total']} steps and is stepped {match['asked']} times",
        where=failure.place, evidence=(raised(failure), *where),
        fix=Fix("`steps_per_epoch=len(loader), epochs=…` from the loader and the loop that are "
                "really used", "with gradient accumulation: the number of optimizer steps",
                "unsafe"),
    )


def in_source(script: Script) -> Iterator[Problem]:
    """A schedule of a known length that loops of known lengths step too often."""
    for event in trace_of(script).of("schedule"):
        made = event.target
        asked, total = times(event), _total(made) if made is not None else None
        if made is None or asked is None or total is None or asked <= total:
            continue
        loops = " × ".join(str(turns(loop)) for loop in event.loops)
        yield Problem(
            f"the schedule was made for {total} steps and is stepped {asked} times",
            where=Place(file=made.file or script.file,
                        line=getattr(made.node, "lineno", event.line)), confidence="likely",
            evidence=(Evidence(f"line {event.line}: `step()` in loops of {loops} turns",
                               "source"),),
            fix=Fix("`steps_per_epoch=len(loader), epochs=…` from the loader and the loop that are "
                    "really used", "", "unsafe"))
        return


def _total(made: Value) -> int | None:
    if made.name != "OneCycleLR":
        return None
    if made.keyword("total_steps", 2) is not None:
        return number(made.keyword("total_steps", 2))
    epochs, each = number(made.keyword("epochs", 3)), number(made.keyword("steps_per_epoch", 4))
    return epochs * each if epochs is not None and each is not None else None


_PROGRAM = """
import torch
torch.set_num_threads(1)
net = torch.nn.Linear(2, 1)
optimizer = torch.optim.SGD(net.parameters(), 0.1)
schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 0.1, total_steps=%d)
for x in torch.randn(4, 3, 2):
    optimizer.zero_grad()
    net(x).mean().backward()
    optimizer.step()
    schedule.step()
"""
_CYCLE = training(STEP + "schedule.step()\n", more=(
    "schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 0.1, total_steps=%d)\n"))

RULE = Rule(
    name="schedule-too-short", doc=__doc__, category="code", in_failure=in_failure,
    in_source=in_source,
    examples=(
        fires(_PROGRAM % 3, "the schedule was made for 3 steps and is stepped 4 times",
              "steps_per_epoch=len(loader)", line="schedule.step()", title="one step more"),
        fires(_CYCLE % 10, "made for 10 steps and is stepped 24 times", "loops of 3 × 8 turns",
              kind="source", line="OneCycleLR", title="in source"),
        quiet(_CYCLE % 24, kind="source", title="enough in source"),
        quiet(_PROGRAM % 5, title="enough steps"),
    ),
)
