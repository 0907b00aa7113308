"""The level a loss cannot fall below when a softmax stands before cross-entropy."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

from torchmedic.model import Evidence, Fix, Problem, fires, quiet

if TYPE_CHECKING:
    from torchmedic.observed import Log

LOSS = re.compile(r"\bloss\b\W{0,4}(\d+\.\d+)", re.IGNORECASE)
RIGHT = re.compile(r"\bacc(?:uracy)?\b\W{0,4}(\d+(?:\.\d+)?) ?(%)?", re.IGNORECASE)
LAYER = re.compile(r"^\s*\(\w+\): (?:Log)?Softmax\(")
CLASSES = re.compile(r"out_features=(\d+)")
LEAST = 4
"""Lines at the level, with nearly every sample right."""
RIGHT_SHARE = 0.95
NEAR = 0.012
FEW = 20
"""Classes up to which the levels lie far enough apart to tell their number from the loss."""


def floor(classes: int) -> float:
    """The loss at which every probability is 0 or 1: they are taken for logits."""
    return math.log(1 + (classes - 1) / math.e)


def in_log(log: Log) -> Iterator[Problem]:
    # A sample that is wrong with certainty costs 1 more than one that is right.
    levels = [(number, loss, loss - (1 - right)) for number, loss, right in _figures(log)
              if right >= RIGHT_SHARE]
    if len(levels) < LEAST:
        return
    number, level, lowest = levels[-1]
    classes = _classes(log, lowest)
    if classes is None or any(abs(least - floor(classes)) > NEAR
                              for _, _, least in levels[-LEAST:]):
        return
    layer = next((n for n, line in enumerate(log.lines, 1) if LAYER.match(line)), None)
    shown = (Evidence("the printed model ends in a Softmax", f"log:{layer}"),) if layer else ()
    yield Problem(
        f"the loss stays at {level:g} although nearly every sample is right: a softmax stands "
        "before cross-entropy", confidence="certain" if layer else "likely",
        evidence=(Evidence(f"ln(1 + {classes - 1}/e) = {floor(classes):.4f} is the least that "
                           f"cross-entropy gives for {classes} classes when it is given "
                           "probabilities", f"log:{number}"), *shown),
        fix=Fix("give `CrossEntropyLoss` the last layer's own output, without softmax",
                "it applies log-softmax itself", "unsafe"))


def _figures(log: Log) -> Iterator[tuple[int, float, float]]:
    """(line, loss, share that is right)."""
    for number, line in enumerate(log.lines, 1):
        loss, right = LOSS.search(line), RIGHT.search(line)
        if loss and right:
            share = float(right[1])
            yield number, float(loss[1]), share / 100 if right[2] or share > 1 else share


def _classes(log: Log, level: float) -> int | None:
    """The number of classes of which this is the floor; the printed model's, where it is shown."""
    told = [int(n) for line in log.lines for n in CLASSES.findall(line)]
    counts = told[-1:] or range(2, FEW + 1)
    return next((n for n in counts if abs(floor(n) - level) <= NEAR), None)


_LINE = "epoch {}: loss 1.46{}, accuracy {}%\n"
EXAMPLES = (
    fires("  (act): Softmax(dim=1)\n" + "".join(
        _LINE.format(n, 12, "99.9") for n in range(1, 7)), "ln(1 + 9/e)", "without softmax",
        kind="log", title="the floor of ten classes"),
    fires("".join(f"epoch {n} train loss {1.4612 + (100 - right) / 100:.3f} acc {right}%\n"
                  for n, right in enumerate((60, 96, 98, 99, 99.2), 1)), "stays at 1.469",
          kind="log", title="some samples are wrong"),
    quiet("".join(f"epoch {n} loss {loss} acc 0.99\n" for n, loss in enumerate(
        (1.30, 1.20, 1.10, 1.00, 0.90))), kind="log", title="a loss that falls on"),
    quiet("".join(_LINE.format(n, 12, "61.5") for n in range(1, 7)), kind="log",
          title="many samples are wrong"),
)
