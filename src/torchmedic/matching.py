"""`load_matching`: loads what fits of a checkpoint into a model, and says what did not."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from torchmedic.data.comparing import compare
from torchmedic.data.layouts import FIRST
from torchmedic.observed.weights import Comparison, Prefix, Stored

if TYPE_CHECKING:
    from torch import Tensor
    from torch.nn import Module

COUNTER = "num_batches_tracked"


@dataclass(frozen=True, slots=True)
class Loaded:
    """What was loaded. Prints as a table; keys are the model's, those of `unexpected` the file's.

    missing: keys that kept the values the model had; shapes: those of them that the checkpoint
    has in another shape. share: part of the model's tensors that was loaded.
    """

    comparison: Comparison
    matched: tuple[str, ...]
    missing: tuple[str, ...]
    shapes: tuple[str, ...]
    unexpected: tuple[str, ...]
    share: float

    @property
    def prefix(self) -> Prefix | None:
        return self.comparison.prefix

    def __str__(self) -> str:
        from torchmedic.data import telling

        return telling.compared(self.comparison, 100).rstrip("\n")


class NothingLoaded(Exception):
    """Less of the checkpoint fits than was asked for; the model is as it was."""

    def __init__(self, why: str, report: Loaded | None = None) -> None:
        super().__init__(f"{why}\n{report}" if report else why)
        self.report = report


def load_matching(model: Module, checkpoint: str | os.PathLike[str] | Mapping[str, Any], *,
                  prefixes: Iterable[str] | None = None, min_matched: float = 0.1) -> Loaded:
    """Loads the tensors that fit the model by name and shape; the others stay as they are.

    checkpoint: a file or folder (read with `weights_only=True`), or what was read from one; the
    state dict may lie in an entry such as `state_dict`. prefixes: what to take off its keys; when
    None, the one change of prefix with which most tensors fit is found. min_matched: the part of
    the model's tensors, from 0 to 1, that must fit.

    Types, devices, wrappers and shared weights of the model stay as they are. Raises
    `NothingLoaded` when less fits; whatever is raised, the model is as it was before.
    """
    if not 0 <= min_matched <= 1:
        raise ValueError("min_matched is a part of the model's tensors, from 0 to 1")
    own, tied = _own(model)
    state = _state(checkpoint if isinstance(checkpoint, Mapping) else _read(checkpoint))
    for prefix in prefixes or ():
        state = {key.removeprefix(prefix): value for key, value in state.items()}
    compared = compare(_described(state), _described(own), type(model).__name__, tied,
                       repair=prefixes is None)
    report = _report(compared, own, tied)
    if not compared.loaded or report.share < min_matched:
        raise NothingLoaded(f"{compared.loaded} of {_count(own)} tensors of the model are in the "
                            "checkpoint, and nothing was loaded", report)
    named = {compared.names[key]: value for key, value in state.items()}
    _copy({key: (own[key], named[key]) for key in compared.matched})
    return report


def _own(model: Module) -> tuple[dict[str, Tensor], dict[str, str]]:
    """The model's own tensors, and keys that share one with an earlier key."""
    import torch

    own: dict[str, Tensor] = {}
    first: dict[int, str] = {}
    tied: dict[str, str] = {}
    for key, value in model.state_dict(keep_vars=True).items():
        if not isinstance(value, torch.Tensor):
            continue
        if torch.nn.parameter.is_lazy(value):
            raise ValueError(f"{key} has no shape yet: run a batch through the model first")
        own[key] = value
        if first.setdefault(id(value), key) != key:
            tied[key] = first[id(value)]
    return own, tied


def _read(file: str | os.PathLike[str]) -> Any:
    from torchmedic.data import read_tensors

    return read_tensors.load(file)  # type: ignore[no-untyped-call]


def _state(loaded: Any, depth: int = 0) -> dict[str, Tensor]:
    """The state dict in what was read."""
    import torch

    if isinstance(loaded, Mapping):
        tensors = {str(k): v for k, v in loaded.items() if isinstance(v, torch.Tensor)}
        if tensors and len(tensors) * 2 > len(loaded):
            return tensors
        for name in (*FIRST, *(k for k in loaded if "optim" not in str(k).lower())):
            inner = loaded.get(name)
            if isinstance(inner, Mapping) and depth < 3:
                try:
                    return _state(inner, depth + 1)
                except NothingLoaded:
                    continue
    raise NothingLoaded("there is no state dict in the checkpoint")


def _described(tensors: Mapping[str, Tensor]) -> dict[str, Stored]:
    return {key: Stored(tuple(value.shape), str(value.dtype).removeprefix("torch."))
            for key, value in tensors.items()}


def _count(keys: Iterable[str]) -> int:
    """Tensors without BatchNorm's counters, which fit everywhere."""
    return sum(not key.endswith(COUNTER) for key in keys)


def _report(compared: Comparison, own: Mapping[str, Tensor], tied: Mapping[str, str]) -> Loaded:
    matched = set(compared.matched)
    through = {key for key, first in tied.items() if first in matched}
    shapes = tuple(item.key for item in compared.shapes)
    missing = tuple(item.key for item in compared.missing if item.key not in through)
    return Loaded(compared, compared.matched, (*shapes, *missing), shapes,
                  tuple(item.key for item in compared.unexpected),
                  _count(matched | through) / max(1, _count(own)))


def _copy(pairs: Mapping[str, tuple[Tensor, Tensor]]) -> None:
    """Copies in place, or leaves all as it was: what is overwritten is kept until the end."""
    import torch

    for key, (target, source) in pairs.items():
        if target.is_meta or source.is_meta:
            raise ValueError(f"{key} is on the meta device and has no values")
        if source.is_complex() and not target.is_complex():
            raise ValueError(f"{key} is complex in the checkpoint and real in the model")
    kept: list[tuple[Tensor, Tensor]] = []
    with torch.no_grad():
        try:
            for target, source in pairs.values():
                kept.append((target, target.detach().to("cpu", copy=True)))
                target.copy_(source)
        except BaseException:
            for target, before in reversed(kept):
                target.copy_(before)
            raise
