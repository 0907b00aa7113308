"""What is in a checkpoint, as tables for people and as plain data for programs."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from itertools import groupby
from typing import TYPE_CHECKING, Any

from torchmedic.data.objects import SIZES
from torchmedic.tables import table

if TYPE_CHECKING:
    from torchmedic.observed.weights import Checkpoint, Comparison, Differs, Stored

ROWS = 24
WHOLE = ("int64", "int32", "int16", "bool")
"""Types of indices, counts and masks; weights can be quantized to 8 bits."""
COUNTERS = ("running_mean", "running_var", "num_batches_tracked")


def contents(checkpoint: Checkpoint, width: int) -> str:
    """Format, entries and modules."""
    facts = [["file", checkpoint.file],
             ["format", f"{checkpoint.format}, {size(checkpoint.size)}"]]
    if checkpoint.weights:
        facts.append(["weights", _sum(checkpoint)])
        facts += [["types", _types(checkpoint.weights)]]
    facts += [["note", note] for note in checkpoint.notes]
    if checkpoint.refused:
        facts.append(["note", "`weights_only=True` does not know: "
                      + ", ".join(checkpoint.refused[:6])])
    text = table(facts, width)
    if checkpoint.entries:
        rows = [[e.name, str(e.tensors) if e.tensors else "", e.what] for e in checkpoint.entries]
        text += "\n" + table([["entry", "tensors", "what"], *rows], width)
    if checkpoint.weights:
        text += "\n" + table([["module", "tensors", "values", "shapes"],
                              *_modules(checkpoint.weights)], width)
    return text


def compared(comparison: Comparison, width: int) -> str:
    """The four kinds of keys with their reasons."""
    total = len(comparison.matched) + len(comparison.shapes) + len(comparison.missing)
    head = f"compared with {comparison.model}: {len(comparison.matched)} of {total} tensors match"
    if comparison.prefix:
        old, new = comparison.prefix.removed, comparison.prefix.added
        how = f"`{old}` read as `{new}`" if old and new else (
            f"`{old}` taken off the checkpoint's keys" if old else f"`{new}` put before them"
            if new else f"`{'`, `'.join(comparison.prefix.inside)}` left out of the keys")
        head += f", with {how}; {comparison.plain} without"
    rows = [["", "key", "checkpoint", "model", "likely reason"]]
    for word, items in (("shape", comparison.shapes), ("missing", comparison.missing),
                        ("unexpected", comparison.unexpected)):
        told = list(_rows(word, items))
        rows += told[:ROWS]
        if len(told) > ROWS:
            rows.append([word, "and more", "", "", "all of them with --output-format json"])
    if comparison.dtypes:
        one = comparison.dtypes[0]
        rows.append(["type", f"{len(comparison.dtypes)} tensors", one.checkpoint.dtype if
                     one.checkpoint else "", one.model.dtype if one.model else "",
                     "converted when loaded"])
    return head + "\n" + (table(rows, width) if len(rows) > 1 else "")


def _rows(word: str, items: Iterable[Differs]) -> Iterator[list[str]]:
    """One line for keys in a row that differ for the same reason."""
    for reason, alike in groupby(items, key=lambda item: item.reason):
        first, *further = alike
        lines = [first, *further] if len(further) < 3 else [first]
        yield from ([word, d.key, _shape(d.checkpoint), _shape(d.model), reason] for d in lines)
        if len(lines) <= len(further):
            yield [word, f"{further[0].key} … {further[-1].key}", "", "",
                   f"{len(further)} more of this kind"]


def as_data(checkpoint: Checkpoint, comparison: Comparison | None) -> dict[str, Any]:
    """The same for programs."""
    data: dict[str, Any] = {
        "file": checkpoint.file, "format": checkpoint.format, "size": checkpoint.size,
        "within": list(checkpoint.within), "tensors": len(checkpoint.weights),
        "parameters": parameters(checkpoint.weights), "bytes": _bytes(checkpoint.weights),
        "entries": [{"name": e.name, "what": e.what, "tensors": e.tensors}
                    for e in checkpoint.entries],
        "refused": list(checkpoint.refused), "notes": list(checkpoint.notes),
        "weights": {k: {"shape": list(t.shape), "dtype": t.dtype}
                    for k, t in checkpoint.weights.items()},
    }
    if comparison is not None:
        prefix = comparison.prefix
        data["comparison"] = {
            "model": comparison.model, "matched": list(comparison.matched),
            "matched_without_repair": comparison.plain,
            "prefix": {"removed": prefix.removed, "added": prefix.added} if prefix else None,
            **{word: [_differs(d) for d in items] for word, items in (
                ("shape_differs", comparison.shapes), ("missing", comparison.missing),
                ("unexpected", comparison.unexpected), ("dtype_differs", comparison.dtypes))}}
    return data


def _differs(item: Differs) -> dict[str, Any]:
    sides = (("checkpoint", item.checkpoint), ("model", item.model))
    return {"key": item.key, "reason": item.reason, **{
        name: {"shape": list(side.shape), "dtype": side.dtype} for name, side in sides if side}}


def _shape(tensor: Stored | None) -> str:
    return str(list(tensor.shape)) if tensor else "-"


def parameters(weights: Mapping[str, Stored]) -> int:
    """Values that are learnt: no counts, no statistics of BatchNorm, shared memory once."""
    seen: dict[object, int] = {}
    for name, tensor in weights.items():
        if name.rpartition(".")[2] not in COUNTERS and tensor.dtype not in WHOLE:
            seen[(tensor.storage or name, tensor.shape)] = tensor.count
    return sum(seen.values())


def _sum(checkpoint: Checkpoint) -> str:
    where = "".join(f'["{key}"]' for key in checkpoint.within)
    inside = f" in {where}" if where else ""
    count = len(checkpoint.weights)
    return (f"{count} tensor{'' if count == 1 else 's'}{inside}, "
            f"{parameters(checkpoint.weights):,} parameters")


def _bytes(weights: Mapping[str, Stored]) -> dict[str, int]:
    found: Counter[str] = Counter()
    for tensor in weights.values():
        found[tensor.dtype] += tensor.count * SIZES.get(tensor.dtype, 1)
    return dict(found.most_common())


def _types(weights: Mapping[str, Stored]) -> str:
    return ", ".join(f"{name} {size(count)}" for name, count in _bytes(weights).items())


def size(count: int) -> str:
    """Bytes as people read them."""
    amount = float(count)
    for unit in ("bytes", "kB", "MB", "GB"):
        if amount < 1000 or unit == "GB":
            break
        amount /= 1000
    return f"{amount:.0f} bytes" if unit == "bytes" else f"{amount:.1f} {unit}"


def _modules(weights: Mapping[str, Stored]) -> list[list[str]]:
    """Tensors by the beginnings of their names, as deep as the rows allow."""
    depth = next((d for d in (4, 3, 2) if len({_head(n, d) for n in weights}) <= ROWS), 1)
    groups: dict[str, list[Stored]] = defaultdict(list)
    for name, tensor in weights.items():
        groups[_head(name, depth)].append(tensor)
    rows = [[name, str(len(items)), f"{sum(t.count for t in items):,}", _shapes(items)]
            for name, items in list(groups.items())[:ROWS]]
    if len(groups) > ROWS:
        rows.append([f"{len(groups) - ROWS} more", "", "", ""])
    return rows


def _head(name: str, depth: int) -> str:
    parts = name.split(".")
    return ".".join(parts[:min(depth, max(1, len(parts) - 1))])


def _shapes(items: Iterable[Stored]) -> str:
    shown = list(dict.fromkeys(str(list(t.shape)) for t in items if t.shape))
    return " ".join(shown[:3]) + (" …" if len(shown) > 3 else "")
