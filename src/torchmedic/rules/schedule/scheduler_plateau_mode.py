"""`ReduceLROnPlateau` waits for a metric to fall that should rise, or the other way round.

## What you see
The learning rate shrinks again and again although the metric gets better.
## Why
The default is `mode="min"`, for losses. Of an accuracy every improvement counts as a bad epoch.
## Fix
`mode="max"` for accuracies and scores, `mode="min"` for losses and errors.
## When this is fine
A metric whose name says the opposite of what it is.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

from torchmedic import changes
from torchmedic.model import Evidence, Fix, Problem, Rule, fires, quiet
from torchmedic.source.flow import trace_of
from torchmedic.source.flow.training import place
from torchmedic.trainings import training

if TYPE_CHECKING:
    from torchmedic.source.flow import Event
    from torchmedic.source.script import Script

SOURCE_WORDS = ("plateau",)
RISING = re.compile(r"(^|_|\.)(acc|accuracy|f1|auc|auroc|dice|iou|miou|m?ap|precision|recall|r2|"
                    r"psnr|ssim|bleu)(_\w+)?$", re.IGNORECASE)
FALLING = re.compile(r"(^|_|\.)(loss|error|err|mse|mae|rmse|perplexity|ppl)$", re.IGNORECASE)


def in_source(script: Script) -> Iterator[Problem]:
    seen = set()
    for event in trace_of(script).of("schedule"):
        made = event.target
        args = getattr(event.node, "args", [])
        if made is None or made.name != "ReduceLROnPlateau" or not args or id(event.node) in seen:
            continue
        mode = made.keyword("mode", 1)
        if "**" in made.kwargs or (mode is not None and mode.kind != "const"):
            continue
        value = "min" if mode is None else mode.data
        name = ast.unparse(args[0])
        wrong = RISING.search(name) if value == "min" else FALLING.search(name)
        if wrong and isinstance(args[0], (ast.Name, ast.Attribute)):
            seen.add(id(event.node))
            other = "max" if value == "min" else "min"
            yield Problem(
                f"`ReduceLROnPlateau` of mode `{value}` is given `{name}`",
                where=place(script.file, event), confidence="likely",
                evidence=(Evidence(f"line {getattr(made.node, 'lineno', 0)}: it is built with "
                                   f"mode `{value}`", "source"),),
                fix=Fix(f'`mode="{other}"`', "", "unsafe", edits=_edits(script, event, other)))


def _edits(script: Script, event: Event, mode: str) -> changes.Edits:
    """The mode where the scheduler is made, as the second argument or by its name."""
    call = event.target.node if event.target is not None else None
    if event.file != script.file or not isinstance(call, ast.Call) or (
            (event.target.file or script.file) != script.file):  # type: ignore[union-attr]
        return ()
    if len(call.args) > 1:
        return changes.replacing(call.args[1], f'"{mode}"')
    return changes.with_keyword(script, call, "mode", f'"{mode}"')


def _program(mode: str, metric: str) -> str:
    made = f"scheduler = torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer{mode})\n"
    return training(more=made, after=f"{metric} = loss.item()\nscheduler.step({metric})")


RULE = Rule(
    name="scheduler-plateau-mode", doc=__doc__, category="code", severity="warning",
    in_source=in_source, examples=(
        fires(_program("", "val_acc"), "mode `min` is given `val_acc`", kind="source",
              line="scheduler.step(", title="accuracy"),
        fires(_program(", mode='max'", "val_loss"), kind="source", line="scheduler.step(",
              title="loss"),
        quiet(_program("", "val_loss"), kind="source", title="loss falls"),
        quiet(_program(", 'max'", "accuracy"), kind="source", title="accuracy rises"),
    ),
)
