"""Gradients are clipped while they are still multiplied by the `GradScaler`'s factor.

## What you see
Training with mixed precision hardly moves: every gradient is clipped to a tiny one.
## Why
`scaler.scale(loss)` multiplies the loss, and so the gradients, by a factor such as 65536.
`clip_grad_norm_` compares these with its limit.
## Fix
`scaler.unscale_(optimizer)` before clipping; `scaler.step` then knows that it was done.
## When this is fine
Never, except when the scaler is switched off.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import TYPE_CHECKING

from torchmedic import changes
from torchmedic.model import Evidence, Fix, Problem, Rule, fires, quiet
from torchmedic.source.flow import trace_of
from torchmedic.source.flow.training import place, updates
from torchmedic.trainings import training

if TYPE_CHECKING:
    from torchmedic.source.flow import Event
    from torchmedic.source.flow.training import Update
    from torchmedic.source.script import Script


SOURCE_WORDS = ("scaler",)


def in_source(script: Script) -> Iterator[Problem]:
    trace = trace_of(script)
    for update in updates(trace):
        loss = update.backward.value
        if loss is None or loss.type != "scaled":
            continue
        between = trace.events[update.backward.at:update.step.at]
        clips = [e for e in between if e.kind == "clip"]
        if clips and not any(e.kind in ("unscale", "opaque") and e.at < clips[0].at
                             for e in between if e.kind != "opaque" or "unscale" in e.more["name"]):
            yield Problem(
                "gradients are clipped while they are still scaled",
                where=place(script.file, clips[0]), confidence="certain",
                evidence=(Evidence(f"line {update.backward.line} scales the loss; nothing unscales "
                                   "before this line", "source"),),
                fix=Fix("`scaler.unscale_(optimizer)` before it", "", "unsafe",
                        edits=_edits(script, clips[0], update)))


def _edits(script: Script, clip: Event, update: Update) -> changes.Edits:
    """The scaler and the optimizer as the step names them."""
    call = update.step.node
    if clip.file != script.file or not isinstance(call, ast.Call) or not call.args or (
            not isinstance(call.func, ast.Attribute)):
        return ()
    scaler, optimizer = ast.unparse(call.func.value), ast.unparse(call.args[0])
    return changes.before(script, clip.line, f"{scaler}.unscale_({optimizer})")


_STEP = """
optimizer.zero_grad()
loss = criterion(model(x), y)
scaler.scale(loss).backward()
%snn.utils.clip_grad_norm_(model.parameters(), 1.0)
scaler.step(optimizer)
scaler.update()
"""
_MADE = "scaler = torch.amp.GradScaler('cuda')\n"

RULE = Rule(
    name="clip-before-unscale", doc=__doc__, category="code", severity="warning",
    in_source=in_source, examples=(
        fires(training(_STEP % "", more=_MADE), "still scaled", kind="source",
              line="clip_grad_norm_", title="no unscale"),
        quiet(training(_STEP % "scaler.unscale_(optimizer)\n", more=_MADE), kind="source",
              title="unscaled"),
    ),
)
