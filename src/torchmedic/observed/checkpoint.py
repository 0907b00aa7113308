"""A checkpoint as rules see it: names, shapes and types, and how they fit a model. No tensor."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from math import prod


@dataclass(frozen=True, slots=True)
class Stored:
    """A tensor's shape and type. storage: tensors with the same one share memory.

    kind: what a plain dense tensor is not: `sparse`, `quantized`, `meta`, `DTensor`, `NumPy`, …
    room: bytes of the whole storage, which can be more than this tensor shows.
    """

    shape: tuple[int, ...]
    dtype: str
    storage: str = ""
    kind: str = ""
    device: str = ""
    room: int | None = None

    @property
    def count(self) -> int:
        return prod(self.shape)


@dataclass(frozen=True, slots=True)
class Entry:
    """One entry of the file's outermost dictionary."""

    name: str
    what: str


@dataclass(frozen=True, slots=True)
class Defect:
    """Why a file can't be loaded. kind: `pointer`, `page`, `json`, `text`, `empty`, `cut`,
    `damaged`, `other`, `encrypted`, `too-large`, `shard`, `hostile`, `whole-model`, `pickle`.

    detail: the fact that shows it; names: what the file asks for (globals, classes, files).
    """

    kind: str
    detail: str
    names: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class States:
    """A state dict in a file: keys that lead to it, and its tensors."""

    within: tuple[str, ...]
    weights: Mapping[str, Stored]


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """What is in a file or a folder. states: the model's own first."""

    file: str
    format: str
    size: int
    states: tuple[States, ...] = ()
    entries: tuple[Entry, ...] = ()
    defects: tuple[Defect, ...] = ()
    refused: tuple[str, ...] = ()
    """Globals that `weights_only=True` does not know."""
    notes: tuple[str, ...] = ()

    @property
    def weights(self) -> Mapping[str, Stored]:
        return self.states[0].weights if self.states else {}

    @property
    def within(self) -> tuple[str, ...]:
        return self.states[0].within if self.states else ()


@dataclass(frozen=True, slots=True)
class Architecture:
    """A model that was built. ties: keys whose tensors are one. optional: keys that torch fills."""

    name: str
    weights: Mapping[str, Stored]
    optional: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class Differs:
    """One key that does not simply load. reason: why, where something shows it."""

    key: str
    checkpoint: Stored | None = None
    model: Stored | None = None
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Prefix:
    """`removed` taken off the checkpoint's keys and `added` in its place makes `keys` fit."""

    removed: str
    added: str
    keys: int


@dataclass(frozen=True, slots=True)
class Comparison:
    """How a checkpoint fits a model, its prefix repaired.

    plain: how many keys fit as they are. matched: (key in the model, key in the checkpoint).
    renames: keys of the checkpoint with those of the model that agree in shape and order.
    """

    model: str
    keys: int
    plain: int
    matched: tuple[tuple[str, str], ...]
    shapes: tuple[Differs, ...] = ()
    missing: tuple[Differs, ...] = ()
    unexpected: tuple[Differs, ...] = ()
    prefix: Prefix | None = None
    wrappers: tuple[str, ...] = ()
    """Parts such as `_orig_mod` taken out of the middle of keys."""
    dtypes: tuple[Differs, ...] = ()
    renames: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class Weights:
    """What is known of a checkpoint, alone or beside a model."""

    checkpoint: Checkpoint
    comparison: Comparison | None = None
    values: tuple[Differs, ...] = ()
    """Tensors with values that are not finite; `reason` says how many."""


@dataclass(frozen=True, slots=True)
class Data:
    """What `in_data` sees: what training reads. What was not looked at is None."""

    weights: Weights | None = None
