"""A schedule made for batches is stepped once per epoch, or one made for epochs once per batch.

## What you see
The learning rate stays almost where it began, or is next to nothing after the first epoch.
## Why
A scheduler counts calls of `step()`. `OneCycleLR` with `steps_per_epoch` counts batches;
`StepLR(step_size=10)` means ten epochs and is over after ten batches when stepped for each.
## Fix
Step batch schedules in the batch loop, right after `optimizer.step()`, and epoch schedules after
the loop.
## When this is fine
A schedule whose numbers are meant in batches.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import TYPE_CHECKING

from torchmedic.model import Evidence, Fix, Problem, Rule, fires, quiet
from torchmedic.source.flow import Event, Trace, Value, trace_of
from torchmedic.source.flow.layers import number
from torchmedic.source.flow.training import place, unconditional
from torchmedic.trainings import training
from torchmedic.turns import turns

if TYPE_CHECKING:
    from torchmedic.source.script import Script

SOURCE_WORDS = ("sched",)
EPOCHS = "epoch"
LENGTHS = {
    "CosineAnnealingLR": (("T_max", 1),), "PolynomialLR": (("total_iters", 1),),
    "LinearLR": (("total_iters", 3),), "OneCycleLR": (("total_steps", 2),),
}
"""Arguments that say how many steps a schedule has, and their positions."""


def in_source(script: Script) -> Iterator[Problem]:
    trace = trace_of(script)
    seen = set()
    for event in trace.of("schedule"):
        made = event.target
        if made is None or made.id in seen or not made.type.startswith("torch.optim.lr_sch"):
            continue
        steps = [e for e in trace.of("step") if made.owner in (None, e.target) and e.loops]
        wrong = _wrong(trace, event, steps)
        if wrong:
            seen.add(made.id)
            line = getattr(made.node, "lineno", 0)
            yield Problem(
                f"`{made.name}` {wrong}", where=place(script.file, event), confidence="likely",
                evidence=(Evidence(f"line {line}: it is built for the other", "source"),),
                fix=Fix("step it in the other loop, or change its numbers", "", "unsafe"))


def _wrong(trace: Trace, event: Event, steps: list[Event]) -> str:
    made = event.target
    inner = [e for e in steps if len(e.loops) > 1 and event.loops and e.loops[-2] in event.frames]
    if made is None or len(inner) != 1 or (trace.of("opaque") and any(
            "step" in e.more["name"] for e in trace.of("opaque"))):
        return ""
    step = inner[0]
    outside = step.loops[-1] not in event.frames
    if outside and _counts_batches(made):
        return "counts batches and is stepped once per epoch"
    if not outside and unconditional(event, step.loops[-1]) and _counts_epochs(
            made, turns(step.loops[-2])):
        return "counts epochs and is stepped for every batch"
    return ""


def _counts_batches(made: Value) -> bool:
    """Its length is that of a loader, times something or not."""
    if made.name == "OneCycleLR" and "steps_per_epoch" in made.kwargs:
        return True
    return any("len(" in _written(made, name, at) and "load" in _written(made, name, at)
               for name, at in LENGTHS.get(made.name, ()))


def _counts_epochs(made: Value, epochs: int | None) -> bool:
    """Its length is the number of epochs, or it would be over after a few batches."""
    for name, at in LENGTHS.get(made.name, ()):
        given = made.keyword(name, at)
        text = _written(made, name, at)
        bare = text.replace("args.", "").replace("self.", "").isidentifier()
        if made.name != "OneCycleLR" and ((bare and EPOCHS in text) or (
                epochs is not None and given is not None and number(given) == epochs)):
            return True
    if made.name == "StepLR" and epochs is not None:
        size = number(made.keyword("step_size", 1))
        return size is not None and size <= epochs and _falls(made, 2)
    if made.name == "MultiStepLR" and epochs is not None:
        given = made.keyword("milestones", 1)
        marks = [number(m) for m in given.items] if given is not None else []
        return bool(marks) and all(m is not None and m <= epochs for m in marks) and _falls(made, 2)
    return False


def _falls(made: Value, at: int) -> bool:
    """By half or more each time."""
    gamma = made.keyword("gamma", at)
    return gamma is None or (gamma.kind == "const" and isinstance(gamma.data, float)
                             and gamma.data <= 0.5)


def _written(made: Value, name: str, at: int) -> str:
    """The text of an argument, or of what its name was given."""
    given = made.keyword(name, at)
    if given is None:
        return ""
    call = made.node
    spots = [k.value for k in call.keywords if k.arg == name] if isinstance(call, ast.Call) else []
    spots += call.args[at:at + 1] if isinstance(call, ast.Call) else []
    texts = [ast.unparse(spot) for spot in spots]
    if texts and not texts[0].replace(".", "").isidentifier():
        return texts[0]
    deeper = ast.unparse(given.node) if isinstance(given.node, ast.BinOp) else ""
    return deeper or next(iter(texts), "")


_MADE = "epochs = 3\nscheduler = torch.optim.lr_scheduler."
_ONE = _MADE + "OneCycleLR(optimizer, 0.1, epochs=epochs, steps_per_epoch=8)\n"
_COSINE = _MADE + "CosineAnnealingLR(optimizer, T_max=epochs)\n"
_EACH = """
optimizer.zero_grad()
loss = criterion(model(x), y)
loss.backward()
optimizer.step()
scheduler.step()
"""

RULE = Rule(
    name="scheduler-cadence", doc=__doc__, category="code", severity="warning",
    in_source=in_source, examples=(
        fires(training(more=_ONE, after="scheduler.step()"), "stepped once per epoch",
              kind="source", line="scheduler.step()", title="one cycle per epoch"),
        fires(training(_EACH, more=_COSINE), "stepped for every batch", kind="source",
              line="scheduler.step()", title="cosine per batch"),
        fires(training(_EACH, more=_MADE + "StepLR(optimizer, step_size=2)\n"), kind="source",
              line="scheduler.step()", title="steps of epochs per batch"),
        fires(training(more=_COSINE.replace("=epochs)", "=epochs * len(loader))"),
                       after="scheduler.step()"), "stepped once per epoch", kind="source",
              title="cosine of batches per epoch"),
        quiet(training(_EACH, more=_MADE + "StepLR(optimizer, step_size=100)\n"), kind="source",
              title="steps of batches"),
        quiet(training(_EACH, more=_ONE), kind="source", title="one cycle per batch"),
        quiet(training(more=_COSINE, after="scheduler.step()"), kind="source",
              title="cosine per epoch"),
        quiet(training(_EACH, more=_COSINE.replace("=epochs)", "=epochs * len(loader))")),
              kind="source", title="cosine in batches"),
    ),
)
