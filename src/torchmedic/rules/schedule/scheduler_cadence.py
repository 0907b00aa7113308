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

from torchmedic.model import Evidence, Fix, Problem, Rule, fires, quiet
from torchmedic.source.flow import Event, Trace, trace_of
from torchmedic.source.flow.training import place, unconditional
from torchmedic.source.script import Script
from torchmedic.trainings import training

EPOCHS = "epoch"


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
    if made.name == "OneCycleLR" and outside and "steps_per_epoch" in made.kwargs:
        return "counts batches and is stepped once per epoch"
    with_epochs = made.name in ("CosineAnnealingLR", "PolynomialLR", "LinearLR") and any(
        EPOCHS in _text(v.node) or EPOCHS in _keyword(made.node, k)
        for k, v in (("T_max", made.keyword("T_max", 1) or made),
                     ("total_iters", made.keyword("total_iters", 3) or made)))
    if not outside and unconditional(event, step.loops[-1]) and with_epochs:
        return "counts epochs and is stepped for every batch"
    return ""


def _keyword(node: ast.AST | None, name: str) -> str:
    """The text of an argument, where it does not speak of batches too."""
    if not isinstance(node, ast.Call):
        return ""
    texts = [ast.unparse(k.value) for k in node.keywords if k.arg == name]
    texts += [ast.unparse(a) for a in node.args[1:2]]
    bare = (t for t in texts if t.replace("args.", "").replace("self.", "").isidentifier())
    return next(bare, "")


def _text(node: ast.AST | None) -> str:
    return node.id if isinstance(node, ast.Name) else ""


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
        quiet(training(_EACH, more=_ONE), kind="source", title="one cycle per batch"),
        quiet(training(more=_COSINE, after="scheduler.step()"), kind="source",
              title="cosine per epoch"),
        quiet(training(_EACH, more=_COSINE.replace("=epochs)", "=epochs * len(loader))")),
              kind="source", title="cosine in batches"),
    ),
)
