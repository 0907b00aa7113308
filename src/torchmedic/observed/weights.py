"""A checkpoint's tensors and how they fit a model, as rules see them. No tensor is read."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from math import prod


@dataclass(frozen=True, slots=True)
class Stored:
    """A tensor's shape and type. storage: where it begins; tensors of one place share memory.

    kind: what a plain dense tensor is not: `sparse`, `quantized`, `meta`, `DTensor`, `NumPy`, …
    room: values in the whole storage, which can be more than this tensor shows.
    """

    shape: tuple[int, ...]
    dtype: str
    storage: str = ""
    kind: str = ""
    room: int = 0

    @property
    def count(self) -> int:
        return prod(self.shape)


@dataclass(frozen=True, slots=True)
class Entry:
    """One entry of the file's outermost dictionary."""

    name: str
    what: str
    tensors: int = 0


@dataclass(frozen=True, slots=True)
class Defect:
    """Why a file can't be loaded. kind: `pointer`, `page`, `json`, `text`, `empty`, `cut`,
    `damaged`, `other`, `encrypted`, `hostile`, `whole-model`, `too-large`, `shard`, `pickle`,
    `unpacked`.

    detail: the fact that shows it; names: what the file asks for (globals, classes, files).
    """

    kind: str
    detail: str
    names: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """What is in a file or a folder.

    weights: of the state dict that is the model's; within: keys that lead to it.
    """

    file: str
    format: str
    size: int
    weights: Mapping[str, Stored] = field(default_factory=dict)
    within: tuple[str, ...] = ()
    entries: tuple[Entry, ...] = ()
    defects: tuple[Defect, ...] = ()
    others: tuple[tuple[str, ...], ...] = ()
    """Keys that lead to further state dicts."""
    refused: tuple[str, ...] = ()
    """Globals that `weights_only=True` does not know."""
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Differs:
    """One key that does not simply load. reason: why, where something shows it."""

    key: str
    checkpoint: Stored | None = None
    model: Stored | None = None
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Prefix:
    """`removed` taken off the checkpoint's keys and `added` in its place makes them fit.

    inside: parts such as `_orig_mod` that one side has in the middle of its keys.
    """

    removed: str
    added: str
    keys: int
    inside: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Comparison:
    """How a checkpoint fits a model. plain: keys that fit without repair of the prefix.

    names: the checkpoint's keys with what they are called once the prefix is repaired.
    """

    model: str
    plain: int
    matched: tuple[str, ...]
    shapes: tuple[Differs, ...]
    missing: tuple[Differs, ...]
    unexpected: tuple[Differs, ...]
    prefix: Prefix | None = None
    dtypes: tuple[Differs, ...] = ()
    names: Mapping[str, str] = field(default_factory=dict)

    @property
    def loaded(self) -> int:
        """Keys that fit, BatchNorm's counters apart: these fit everywhere."""
        return sum(not key.endswith("num_batches_tracked") for key in self.matched)


@dataclass(frozen=True, slots=True)
class Weights:
    """What `in_data` sees of a checkpoint. not_finite: (key, NaN, Inf) where these were counted."""

    checkpoint: Checkpoint
    comparison: Comparison | None = None
    not_finite: tuple[tuple[str, int, int], ...] = ()
