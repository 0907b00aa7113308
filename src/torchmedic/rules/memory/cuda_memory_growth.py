"""Memory of the GPU grows from step to step, until it is full.

## What you see
`CUDA out of memory` after many steps or epochs that went well, and figures in the log that rise
all the time.
## Why
Something keeps the graph of every step: `total += loss`, a list of losses or outputs, a meter that
is given tensors; validation without `no_grad`; a state that is carried on without `detach()`.
## Fix
Keep numbers, not tensors: `loss.item()`, `output.detach().cpu()`; `with torch.no_grad():` around
validation.
## When this is fine
While buffers fill up, in the first steps; then it stays level.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import pairwise
from typing import TYPE_CHECKING

from torchmedic import cudamemory, logtext
from torchmedic.model import Evidence, Fix, Problem, Rule, fires, quiet

if TYPE_CHECKING:
    from torchmedic.observed import Log

WORDS = ("out of memory",)
FIGURE = re.compile(
    r"\b(?P<label>gpu ?\d*(?:[ _-]?mem\w*)?|(?:max[ _-]?)?mem(?:ory)?(?:[ _-]?(?:allocated|used))?"
    r"|vram|cuda[ _]mem\w*)\W{1,4}(?P<number>\d+(?:\.\d+)?) ?(?P<unit>[MG]i?B?)?\b", re.IGNORECASE)
LEAST = 4
"""Figures that must rise."""
RISE = 1.25


def in_log(log: Log) -> Iterator[Problem]:
    failure = next((f for f in logtext.lasting(log) if cudamemory.read(f.message)), None)
    alone = cudamemory.told_alone(log)
    if failure is None and alone is None:
        return
    last = (failure.line_number if failure else alone[0] if alone else None) or len(log.lines)
    series = _series(log, last)
    if not _grows([value for _, value, _ in series]):
        return
    first, end = series[0], series[-1]
    yield Problem(
        f"memory of the GPU grew from {first[2]} to {end[2]} while it trained, until it was full",
        where=failure.place if failure else None, confidence="likely",
        evidence=(Evidence(f"{len(series)} figures, each larger than the one before: {first[2]} … "
                           f"{end[2]}", f"log:{end[0]}"),),
        fix=Fix("keep numbers in place of tensors across steps: `total += loss.item()`, "
                "`outputs.append(y.detach().cpu())`",
                "look for what is kept from step to step: sums and lists of losses, meters; "
                "`torch.no_grad()` around validation. A smaller batch only delays it"),
        about=logtext.about(failure))


def _series(log: Log, last: int) -> list[tuple[int, float, str]]:
    """(line, value, as written) of the figure that comes most often."""
    found: dict[str, list[tuple[int, float, str]]] = {}
    for number, line in enumerate(log.lines[:last - 1], 1):
        for match in FIGURE.finditer(line):
            unit = match["unit"] or ""
            value = float(match["number"]) * (1024 if unit[:1].upper() == "G" else 1)
            shown = f"{match['number']} {unit}".strip()
            found.setdefault(match["label"].lower(), []).append((number, value, shown))
    return max(found.values(), key=len, default=[])


def _grows(values: list[float]) -> bool:
    """All the way to the end: a plateau is the usual peak."""
    rises = all(a < b for a, b in pairwise(values))
    return len(values) >= LEAST and rises and values[-1] >= RISE * values[0] > 0


_LOG = """epoch 1 step 100 loss 2.1 mem: {} MiB
epoch 1 step 900 loss 1.7 mem: {} MiB
epoch 2 step 100 loss 1.4 mem: {} MiB
epoch 2 step 900 loss 1.2 mem: {} MiB
RuntimeError: CUDA out of memory. Tried to allocate 20.00 MiB (GPU 0; 7.80 GiB total capacity; 7.10 GiB already allocated; 10.44 MiB free; 7.20 GiB reserved in total by PyTorch)
"""  # noqa: E501

RULE = Rule(
    name="cuda-memory-growth", doc=__doc__, category="code", in_log=in_log,
    examples=(
        fires(_LOG.format(3000, 4100, 5600, 7100), "grew from 3000 MiB to 7100 MiB",
              "loss.item()", kind="log"),
        quiet(_LOG.format(6900, 7000, 7000, 7000), kind="log", title="a level peak"),
    ),
)
