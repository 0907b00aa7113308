"""The gradients of a scaled loss reach the optimizer without the scaler, or the reverse.

## What you see
The loss jumps or becomes NaN in the first steps; or mixed precision runs and learns nothing.
## Why
`scaler.scale(loss)` multiplies the loss, and with it every gradient, by up to 65536.
`scaler.step(optimizer)` divides them again and leaves out steps that overflowed; `optimizer.step()`
does neither. A loss that was not scaled is divided all the same. Without `scaler.update()` the
scale never adapts.
## Fix
`scaler.scale(loss).backward()`, `scaler.step(optimizer)`, `scaler.update()`: all three, or none.
## When this is fine
`optimizer.step()` after `scaler.unscale_(optimizer)`, where overflow is handled by hand.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from torchmedic import changes
from torchmedic.misfits import replacing
from torchmedic.model import Edit, Evidence, Fix, Problem, Rule, fires, quiet
from torchmedic.source.flow import Event, Trace, trace_of
from torchmedic.source.flow.training import Update, place, updates, written
from torchmedic.trainings import training

if TYPE_CHECKING:
    from torchmedic.source.script import Script


SOURCE_WORDS = ("scaler",)


def in_source(script: Script) -> Iterator[Problem]:
    trace = trace_of(script)
    if any("scal" in e.more["name"].lower() for e in trace.of("opaque")):
        return  # a scaler that we can't look into
    seen = set()
    for update in updates(trace):
        step, loss = update.step, update.backward.value
        if id(step.node) in seen or loss is None or loss.kind != "tensor":
            continue
        seen.add(id(step.node))
        scaled, through = loss.type == "scaled", step.value is not None
        if scaled and not through and not trace.inside(update.loop, "unscale"):
            yield _straight(script, trace, update)
        elif through and not scaled and loss.type in ("loss", "Add", "Div", "Mult", "mean", "sum"):
            yield _not_scaled(script, update)
        elif scaled and through and not trace.of("rescale"):
            yield _never_updated(script, trace, step)


def _straight(script: Script, trace: Trace, update: Update) -> Problem:
    step, scaler = update.step, written_scaler(update.backward)
    return Problem(
        f"`{written(step)}.step()` uses gradients that are still scaled",
        where=place(script.file, step), confidence="certain",
        evidence=(Evidence(f"line {update.backward.line}: `{scaler}.scale` multiplies the loss, "
                           "and nothing divides the gradients", "source"),),
        fix=Fix(f"`{scaler}.step({written(step)})`, then `{scaler}.update()`", "", "unsafe",
                edits=_through(script, trace, update, scaler)))


def _through(script: Script, trace: Trace, update: Update, scaler: str) -> changes.Edits:
    step = update.step
    named = ".scale(" in written(update.backward) and not getattr(step.node, "args", [])
    stepped = _call(step, f"{scaler}.step({written(step)})")
    if step.file != script.file or update.backward.file != script.file or not named:
        return ()
    if trace.of("rescale"):
        return stepped
    updated = changes.after(script, step.line, f"{scaler}.update()")
    return (*stepped, *updated) if updated else ()


def _not_scaled(script: Script, update: Update) -> Problem:
    back = update.backward
    return Problem(
        "the loss goes backward without the scaler, which divides the gradients all the same",
        where=place(script.file, back), confidence="certain",
        evidence=(Evidence(f"line {update.step.line}: `{written(update.step)}.step` divides them",
                           "source"),),
        fix=Fix(f"`{written(update.step)}.scale({written(back)}).backward()`", "", "unsafe",
                edits=_call(back, f"{written(update.step)}.scale({written(back)}).backward()")))


def _never_updated(script: Script, trace: Trace, step: Event) -> Problem:
    return Problem(
        f"`{written(step)}.update()` is never called: the scale stays what it was at the start",
        where=place(script.file, step), confidence="likely",
        evidence=(Evidence(f"{len(trace.of('step'))} `step` in the program, no `update`",
                           "source"),),
        fix=Fix(f"`{written(step)}.update()` after this line", "", "unsafe",
                edits=changes.after(script, step.line, f"{written(step)}.update()")
                if step.file == script.file else ()))


def written_scaler(backward: Event) -> str:
    """`scaler` in `scaler.scale(loss).backward()`."""
    return written(backward).partition(".scale(")[0] if ".scale(" in written(backward) else "scaler"


def _call(event: Event, text: str) -> tuple[Edit, ...]:
    return (replacing(event.node, text),)  # type: ignore[arg-type]


_STEP = """
optimizer.zero_grad()
loss = criterion(model(x), y)
scaler.scale(loss).backward()
scaler.step(optimizer)
scaler.update()
"""
_MADE = "scaler = torch.amp.GradScaler('cuda')\n"
_BY_HAND = _STEP.replace("scaler.step(optimizer)", "scaler.unscale_(optimizer)\noptimizer.step()")

RULE = Rule(
    name="scaler-bypassed", doc=__doc__, category="code", severity="warning",
    in_source=in_source, examples=(
        fires(training(_STEP.replace("scaler.step(optimizer)", "optimizer.step()"), more=_MADE),
              "`optimizer.step()` uses gradients that are still scaled", kind="source",
              line="optimizer.step()", title="plain step"),
        fires(training(_STEP.replace("scaler.scale(loss)", "loss"), more=_MADE),
              "goes backward without the scaler", kind="source", line="loss.backward()",
              title="plain backward"),
        fires(training(_STEP.replace("scaler.update()\n", ""), more=_MADE), "is never called",
              kind="source", line="scaler.step", title="no update"),
        quiet(training(_STEP, more=_MADE), kind="source", title="all three"),
        quiet(training(_BY_HAND, more=_MADE), kind="source", title="unscaled by hand"),
        quiet(training(), kind="source", title="none"),
    ),
)
