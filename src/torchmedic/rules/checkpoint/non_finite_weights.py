"""The checkpoint's tensors hold NaN or Inf.

## What you see
The loaded model answers NaN for every input, or fine-tuning has a loss of NaN from its first step.
## Why
The run that saved it had gone wrong before: a NaN in the loss reaches all weights within one step,
and saving does not look. A BatchNorm's `running_mean` can be NaN where the weights are not.
## Fix
Go back to the last checkpoint that is finite, and let the run stop at a loss that is not.
## When this is fine
Where a buffer holds Inf on purpose, such as an attention mask of `-inf`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from torchmedic.model import Evidence, Fix, Place, Problem, Rule, fires, quiet

if TYPE_CHECKING:
    from torchmedic.observed import Weights


def in_data(seen: Weights) -> Iterator[Problem]:
    bad = seen.not_finite
    masks = [one for one in bad if not one[1] and "mask" in one[0]]
    bad = tuple(one for one in bad if one not in masks)
    if not bad:
        return
    nans = sum(1 for _, count, _ in bad if count)
    count = nans or len(bad)
    yield Problem(
        f"{count} {'tensor holds' if count == 1 else 'tensors hold'} {'NaN' if nans else 'Inf'}",
        where=Place(file=seen.checkpoint.file),
        evidence=tuple(Evidence(f"`{name}` has {nan} NaN and {inf} Inf", "values")
                       for name, nan, inf in bad[:5]),
        fix=Fix("go back to the last checkpoint whose values are finite",
                "in the loop: `if not torch.isfinite(loss): raise …` before `backward`, and look "
                "before saving"))


_PROGRAM = """
import torch

net = torch.nn.Linear(4, 3)
with torch.no_grad():
    net.%s
torch.save({"epoch": 7, "state_dict": net.state_dict()}, "checkpoint.pt")
"""

RULE = Rule(
    name="non-finite-weights", doc=__doc__, category="data", in_data=in_data, examples=(
        fires(_PROGRAM % "weight[1, 2] = float('nan')", "1 tensor holds NaN",
              "`state_dict.weight` has 1 NaN and 0 Inf", "go back", kind="checkpoint",
              options=("--values",), title="NaN"),
        fires(_PROGRAM % "bias[:] = float('inf')", "1 tensor holds Inf", kind="checkpoint",
              options=("--values",), title="Inf"),
        quiet(_PROGRAM % "weight[1, 2] = 3e38", kind="checkpoint", options=("--values",),
              title="large but finite"),
        quiet(_PROGRAM % "register_buffer('mask', torch.full((3, 3), float('-inf')))",
              kind="checkpoint", options=("--values",), title="a mask"),
    ),
)
