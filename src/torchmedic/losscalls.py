"""Which loss a failure came from: torch's function, or what the user's line calls."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torchmedic.observed import Failure

FUNCTIONS = ("cross_entropy", "nll_loss", "nll_loss_nd", "binary_cross_entropy",
             "binary_cross_entropy_with_logits", "mse_loss", "l1_loss", "smooth_l1_loss")
CALLED = re.compile(r"\b((?:self\.)?\w*(?:loss|criterion|crit|bce|cross_entropy)\w*)\(", re.I)
BACKWARD = ("backward", "_engine_run_backward")


def loss_of(failure: Failure) -> str | None:
    """None where it came from something else, or where nothing tells."""
    inner = next((f.function for f in reversed(failure.frames)
                  if not f.user and f.function in FUNCTIONS), None)
    if inner is not None or failure.how != "logged":
        return inner
    if "nll_loss" in failure.message:
        return "nll_loss"
    last = failure.frames[-1] if failure.frames else None
    line = failure.user_frame.text if failure.user_frame else None
    if last is None or line is None or not (last.user or last.function in BACKWARD):
        return None
    if ".backward(" in line:
        return "the loss"
    called = CALLED.search(line)
    return called[1] if called else None
