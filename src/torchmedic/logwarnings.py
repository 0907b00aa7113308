"""Warnings of torch that a log holds, for rules that otherwise read source."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

from torchmedic import logtext
from torchmedic.model import Fix, Place, Problem, fires, quiet

if TYPE_CHECKING:
    from torchmedic.observed import Log

BEFORE = re.compile(r"Detected call of `?lr_scheduler\.step\(\)`? before `?optimizer\.step\(\)")
SCALED = re.compile(r"\bamp\b|autocast|GradScaler|fp16|float16|half|mixed.?precision|loss.?scale"
                    r"|Gradient overflow|accelerate|deepspeed", re.IGNORECASE)
EPOCH = re.compile(r"The epoch parameter in `?scheduler\.step\(\)`? was not necessary")
DIM = re.compile(r"(?:(?P<file>\S+?):(?P<line>\d+): UserWarning: )?Implicit dimension choice "
                 r"for (?P<what>\w+) has been deprecated")


def scheduler_first(log: Log) -> Iterator[Problem]:
    """A gradient scaler skips the first step on purpose, which gives the same warning."""
    hit = logtext.first(log, BEFORE)
    if hit is None:
        return
    scaled = logtext.first(log, SCALED)
    if scaled is not None:
        yield Problem("the first optimizer step was skipped by the gradient scaler, so the "
                      "schedule seems to come first", evidence=(hit.evidence, scaled.evidence),
                      severity="info", confidence="likely")
        return
    yield Problem("the schedule is stepped before the optimizer", evidence=(hit.evidence,),
                  severity="warning", confidence="likely", fix=Fix(
                      "call `optimizer.step()` before `scheduler.step()`",
                      "in mixed precision the warning once at the beginning is harmless"))


def epoch_given(log: Log) -> Iterator[Problem]:
    if (hit := logtext.first(log, EPOCH)) is not None:
        yield Problem("`scheduler.step(epoch)` passes the epoch, which is deprecated: the run goes "
                      "on", evidence=(hit.evidence,), severity="warning", fix=Fix(
                          "call `scheduler.step()` without an argument",
                          "to resume: `scheduler.load_state_dict(…)`", "unsafe"))


def no_dim(log: Log) -> Iterator[Problem]:
    hit = logtext.first(log, DIM)
    if hit is None:
        return
    file = hit.match["file"]
    own = file is not None and "-packages" not in file
    yield Problem(
        f"`{hit.match['what']}` is called without `dim`", evidence=(hit.evidence,),
        where=Place(file=file, line=int(hit.match["line"])) if own else None, severity="warning",
        fix=Fix(f"`{hit.match['what']}(x, dim=-1)`, or the axis of the classes",
                "for 3 axes the axis taken without it is that of the batch", "unsafe"))


_SITE = "/env/lib/python3.9/site-packages/torch/optim/lr_scheduler.py:131: UserWarning: "
SCHEDULER_FIRST = (
    fires(f"{_SITE}Detected call of `lr_scheduler.step()` before `optimizer.step()`. In PyTorch "
          "1.1.0 and later, you should call them in the opposite order.\nepoch 1 loss 0.9\n",
          "stepped before the optimizer", "before `scheduler.step()`", kind="log", title="log"),
    quiet("epoch 1: scheduler step\nepoch 2 loss 0.5\n", kind="log", title="another log"),
)
EPOCH_GIVEN = (
    fires(f"{_SITE}The epoch parameter in `scheduler.step()` was not necessary and is being "
          "deprecated where possible.\nepoch 1 loss 0.9\n", "without an argument", kind="log",
          title="log"),
    quiet("epoch 1 loss 0.9\n", kind="log", title="another log"),
)
NO_DIM = (
    fires("net.py:31: UserWarning: Implicit dimension choice for softmax has been deprecated. "
          "Change the call to include dim=X as an argument.\n  return F.softmax(x)\n",
          "`softmax` is called without `dim`", "dim=-1", kind="log", title="log"),
    quiet("epoch 1: softmax temperature 0.5\n", kind="log", title="another log"),
)
