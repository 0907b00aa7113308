"""Passes over a loader that evaluate a model, and how the model was called in them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from torchmedic.model import Evidence

if TYPE_CHECKING:
    from torchmedic.observed import Calls, Iteration, Mode, Process

STATISTICS = ("update_bn", "swa_utils")
"""Functions and files that run a model in training mode only to renew BatchNorm's statistics."""


def of(process: Process) -> Iterator[tuple[Iteration, Calls]]:
    """Model calls in passes that train nothing, of models that other passes train."""
    trained = {_model(c.mode) for i in process.iterations if i.steps for c in i.calls
               if c.mode.grad and c.mode.parameters}
    for item in process.iterations:
        if item.steps or item.backwards or item.batches < 1:
            continue
        if any(word in f.function or word in f.file for f in item.started for word in STATISTICS):
            continue
        for call in item.calls:
            if _model(call.mode) in trained:
                yield item, call


def frozen_after(process: Process) -> Iterator[tuple[Iteration, Calls, Iteration]]:
    """(pass, its calls, earlier pass): a model trained in evaluation mode that was not before."""
    before: dict[tuple[str, str], Iteration] = {}
    told = set()
    for item in process.iterations:
        if not item.steps:
            continue
        for model in {_model(c.mode) for c in item.calls if c.mode.parameters}:
            ways = [c for c in item.calls if _model(c.mode) == model and c.mode.grad]
            still = [c for c in ways if not c.mode.training]
            if any(c.mode.training for c in ways):
                before.setdefault(model, item)
            elif still and model in before and model not in told and _matters(still[0].mode):
                told.add(model)
                yield item, still[0], before[model]


def layers(mode: Mode) -> Evidence:
    """The layers for which the mode matters."""
    parts = [(mode.norms, "BatchNorm"), (mode.drops, "dropout")]
    text = " and ".join(f"{count} {name} layer{'s' if count > 1 else ''}"
                        for count, name in parts if count)
    return Evidence(f"it has {text}", "modes")


def _matters(mode: Mode) -> bool:
    return bool(mode.norms or mode.drops)


def _model(mode: Mode) -> tuple[str, str]:
    return mode.module, mode.type
