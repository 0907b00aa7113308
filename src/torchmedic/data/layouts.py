"""Finds the weights among the entries of a checkpoint, and says what the others are."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from torchmedic.data.objects import DEEPEST, state_dict, stored
from torchmedic.data.pickles import Made
from torchmedic.observed.weights import Entry, Stored

FIRST = ("state_dict", "model_state_dict", "model_state", "model", "module", "net", "network",
         "weights", "params", "generator", "ema", "model_ema", "ema_state_dict")
"""Names of the model's entry, most usual first; averaged weights only where no other are."""


@dataclass(frozen=True, slots=True)
class Layout:
    """within: keys that lead to the weights; others: further places that hold state dicts."""

    weights: Mapping[str, Stored]
    within: tuple[str, ...]
    entries: tuple[Entry, ...]
    others: tuple[str, ...] = ()


def lay_out(root: Any, inside: tuple[str, ...] | None = None) -> Layout:
    """What a checkpoint's outermost object holds. inside: the keys asked for."""
    found = dict(_places(root))
    order = sorted(found, key=_rank)
    if inside is not None:
        order = [place for place in order if place == inside]
    entries = tuple(_entries(root)) if () not in found else ()
    if not order:
        return Layout({}, (), entries)
    others = tuple(".".join(place) for place in found if place != order[0])
    return Layout(found[order[0]], order[0], entries, others)


def _places(value: Any, path: tuple[str, ...] = ()) -> Any:
    if (tensors := state_dict(value)) is not None:
        yield path, tensors
    elif isinstance(value, dict) and len(path) < 3:
        for key, inner in value.items():
            if isinstance(key, str) and "optim" not in key.lower():
                yield from _places(inner, (*path, key))


def _rank(place: tuple[str, ...]) -> tuple[int, int]:
    known = [FIRST.index(name) for name in place if name in FIRST]
    return (min(known, default=len(FIRST)), len(place))


def _entries(root: Any) -> Any:
    for key, value in list(root.items())[:100] if isinstance(root, dict) else ():
        count = _tensors(value)
        yield Entry(str(key) if isinstance(key, (str, int, float)) else "?", _what(value), count)


def _what(value: Any) -> str:
    if isinstance(value, (bool, int, float, type(None))):
        return str(value)[:40]
    if isinstance(value, str):
        return f"text {value[:40]!r}"
    if (tensor := stored(value)) is not None:
        return f"tensor {list(tensor.shape)} {tensor.dtype}"
    if isinstance(value, dict):
        if set(value) >= {"state", "param_groups"}:
            states, groups = value["state"], value["param_groups"]
            return (f"optimizer: {len(states) if isinstance(states, dict) else 0} states, "
                    f"{len(groups) if isinstance(groups, list) else 0} groups")
        return f"dictionary of {len(value)}"
    if isinstance(value, (list, tuple, set)):
        return f"{type(value).__name__} of {len(value)}"
    return f"object {value.maker}"[:80] if isinstance(value, Made) else type(value).__name__


def _tensors(value: Any) -> int:
    """Tensors below a value, each place counted once."""
    count, seen, left = 0, set(), [(value, 0)]
    while left:
        item, depth = left.pop()
        if id(item) in seen or depth > DEEPEST:
            continue
        seen.add(id(item))
        if stored(item) is not None:
            count += 1
        elif isinstance(item, dict):
            left.extend((inner, depth + 1) for inner in item.values())
        elif isinstance(item, (list, tuple)):
            left.extend((inner, depth + 1) for inner in item)
        elif isinstance(item, Made):
            left.append((item.state, depth + 1))
            left.append((item.items, depth + 1))
    return count
