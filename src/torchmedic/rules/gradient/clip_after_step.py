"""Gradients are clipped after the optimizer has used them.

## What you see
Clipping has no effect: the loss still jumps or becomes NaN.
## Why
`clip_grad_norm_` scales `param.grad`. The step has already been taken with what was there before.
## Fix
`backward()`, then `clip_grad_norm_`, then `step()`.
## When this is fine
Measuring the norm only, with a limit that is never reached, for example `inf`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from torchmedic import changes
from torchmedic.model import Evidence, Fix, Problem, Rule, fires, quiet
from torchmedic.source.flow import Event, Trace, trace_of
from torchmedic.source.flow.trace import shares
from torchmedic.source.flow.training import Update, place, updates
from torchmedic.trainings import STEP, training

if TYPE_CHECKING:
    from torchmedic.source.script import Script


SOURCE_WORDS = ("clip",)


def in_source(script: Script) -> Iterator[Problem]:
    trace = trace_of(script)
    for update in updates(trace):
        late = _late(trace, update)
        if late is not None:
            yield Problem(
                "gradients are clipped where `step()` has already used them",
                where=place(script.file, late), confidence="likely",
                evidence=(Evidence(f"line {update.backward.line}: backward, line "
                                   f"{update.step.line}: step, line {late.line}: clip", "source"),),
                fix=Fix("clip between `backward()` and `step()`", "", "unsafe",
                        edits=_edits(script, late, update)))


def _edits(script: Script, late: Event, update: Update) -> changes.Edits:
    """Before the step, where both stand in one block of the file."""
    step = update.step
    if {late.file, step.file, update.backward.file} != {script.file} or (
            late.loops != step.loops or late.function != step.function):
        return ()
    early = late.line < step.line  # then behind the backward pass
    return changes.moving(script, late.line, update.backward.line if early else step.line)


def _late(trace: Trace, update: Update) -> Event | None:
    """The clip of the loop, when none stands between backward and step."""
    clips = [e for e in trace.inside(update.loop, "clip") if shares(update.step.target, e.target)
             and e.target is not None and not _unlimited(e)]
    if any(update.backward.at < e.at < update.step.at for e in clips):
        return None
    if any(e.at < update.backward.at for e in clips) and any(
            e.at < clips[0].at for e in trace.inside(update.loop, "backward")):
        return None  # several passes in one loop: which clip is whose can't be said
    unknown = trace.events[update.backward.at:update.step.at]
    if any(e.kind == "opaque" and "clip" in e.more["name"].lower() for e in unknown):
        return None
    return clips[0] if clips else None


def _unlimited(event: Event) -> bool:
    return any("inf" in part for part in map(_text, getattr(event.node, "args", [])[1:]))


def _text(node: object) -> str:
    import ast

    return ast.unparse(node) if isinstance(node, ast.AST) else ""


_CLIP = "nn.utils.clip_grad_norm_(model.parameters(), 1.0)\n"
_RIGHT = STEP.replace("optimizer.step()", _CLIP + "optimizer.step()")

RULE = Rule(
    name="clip-after-step", doc=__doc__, category="code", severity="warning",
    in_source=in_source, examples=(
        fires(training(STEP + _CLIP), "already used them", kind="source", line="clip_grad_norm_",
              title="after the step"),
        fires(training(STEP.replace("loss.backward()", _CLIP + "loss.backward()")), kind="source",
              line="clip_grad_norm_", title="before backward"),
        quiet(training(_RIGHT), kind="source", title="between"),
        quiet(training(), kind="source", title="none"),
    ),
)
