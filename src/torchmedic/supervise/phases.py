"""Which part of a training step a stack is in, where the recorder did not say.

Marking backward and the optimizer's step as they happen would cost every step; their frames are on
the stack anyway (torch 2.x).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, cast

if TYPE_CHECKING:
    from torchmedic.model import Phase
    from torchmedic.observed import Frame

STEPPING = ("step", "profile_hook_step", "_use_grad", "_use_grad_for_differentiable")


def phase_of(frames: Sequence[Frame], recorded: str | None) -> Phase | None:
    """The recorded phase, made exact by the innermost frame that tells one."""
    for frame in reversed(frames):
        file = frame.file.replace("\\", "/")
        optimizer = "/torch/optim/" in file and "lr_scheduler" not in file
        if optimizer and frame.function in STEPPING:
            return "step"
        if "/torch/autograd/" in file and frame.function in ("backward", "_engine_run_backward"):
            return "backward"
        if "/torch/nn/modules/" in file or "/torch/utils/data/" in file:
            break
    return cast("Phase | None", recorded)
