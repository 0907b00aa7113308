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

from torchmedic.model import Evidence, Fix, Problem, Rule, fires, quiet
from torchmedic.observed import Failure
from torchmedic.remedies import raised

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

RULE = Rule(
    name="schedule-too-short", doc=__doc__, category="code", in_failure=in_failure,
    examples=(
        fires(_PROGRAM % 3, "the schedule was made for 3 steps and is stepped 4 times",
              "steps_per_epoch=len(loader)", line="schedule.step()", title="one step more"),
        quiet(_PROGRAM % 5, title="enough steps"),
    ),
)
