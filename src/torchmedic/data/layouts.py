"""Finds the weights among the entries of a checkpoint, and says what the others are."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from torchmedic.data.bounded import Opaque
from torchmedic.data.objects import DEEPEST, shape_of, stored
from torchmedic.data.pickles import Global, Made
from torchmedic.data.statedicts import attributes, class_of, is_module, items_of, state_dict
from torchmedic.observed.weights import Entry, Stored

FIRST = ("state_dict", "model_state_dict", "model_state", "model", "module", "net", "network",
         "weights", "params", "generator", "backbone", "encoder", "student")
"""Names of the model's entry, most usual first."""
ASIDE = ("optim", "sched", "scaler", "ema", "teacher", "discriminator", "callbacks", "loops", "rng",
         "momentum", "criterion", "loss")
"""Parts of names of what is not the model's own; averaged weights are taken where no other are."""
MOST_ENTRIES = 100


@dataclass(frozen=True, slots=True)
class Layout:
    """within: keys that lead to the weights; others: further places that hold state dicts."""

    weights: Mapping[str, Stored]
    within: tuple[str, ...]
    entries: tuple[Entry, ...]
    others: tuple[tuple[str, ...], ...] = ()
    models: tuple[str, ...] = ()
    """Classes of modules that were saved whole."""


def lay_out(root: Any, inside: tuple[str, ...] | None = None) -> Layout:
    """What a checkpoint's outermost object holds. inside: the keys asked for."""
    values = dict(_places(root, (), set()))
    found = {place: tensors for place, value in values.items() if (tensors := state_dict(value))}
    order = sorted(found, key=lambda place: _rank(place, found[place]))
    if inside is not None:
        order = [place for place in order if place == inside]
    bare = () in found and all(stored(v) for v in (items_of(root) or {}).values())
    entries = () if bare or is_module(root) else tuple(_entries(root))
    models = tuple(dict.fromkeys(class_of(v) for v in values.values() if is_module(v)))
    if not order:
        return Layout({}, (), entries, models=models)
    others = tuple(place for place in found if place != order[0])
    return Layout(found[order[0]], order[0], entries, others, models)


def _places(value: Any, path: tuple[str, ...], seen: set[int]
            ) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Dictionaries with tensors, and whole modules, each once."""
    items = items_of(value)
    if id(value) in seen or len(path) > 3 or (items is not None and is_optimizer(items)):
        return
    seen.add(id(value))
    if is_module(value) or (items and any(stored(one) for one in items.values())):
        yield path, value
    if not is_module(value):
        for key, inner in (items or {}).items():
            if isinstance(key, str) and (items_of(inner) is not None or is_module(inner)):
                yield from _places(inner, (*path, key), seen)


def _rank(place: tuple[str, ...], tensors: Mapping[str, Stored]) -> tuple[object, ...]:
    aside = any(word in part.lower() for part in place for word in ASIDE)
    known = min((FIRST.index(part) for part in place if part in FIRST), default=len(FIRST))
    return aside, known if place else -1, len(place), -sum(t.count for t in tensors.values())


def is_optimizer(items: Mapping[Any, Any]) -> bool:
    return "state" in items and "param_groups" in items


def _entries(root: Any) -> Iterator[Entry]:
    for key, value in list((items_of(root) or {}).items())[:MOST_ENTRIES]:
        name = str(key) if isinstance(key, (str, int, float)) else "?"
        yield Entry(name, describe(value), _tensors(value))


def describe(value: Any) -> str:
    """A few words on a value."""
    if isinstance(value, (bool, int, float, type(None))):
        large = isinstance(value, int) and abs(value) >= 1 << 64
        return "a very large number" if large else str(value)
    if isinstance(value, str):
        return f"text {value[:40]!r}" + ("…" if len(value) > 40 else "")
    if isinstance(value, (bytes, bytearray)):
        return f"{len(value)} bytes"
    if isinstance(value, Opaque):
        return f"{value.size} bytes"
    if (tensor := stored(value)) is not None:
        noun = "NumPy array" if tensor.kind == "NumPy" else f"{tensor.kind} tensor".strip()
        return f"{noun} {list(tensor.shape)} {tensor.dtype}"
    if isinstance(value, Made) and not items_of(value):
        return _object(value)
    if (items := items_of(value)) is not None:
        return _optimizer(items) if is_optimizer(items) else f"dictionary of {len(items)}"
    if isinstance(value, list) and len(value) == 1 and not isinstance(value[0], list):
        return f"list of one: {describe(value[0])}"
    if isinstance(value, (list, tuple, set, frozenset)):
        return f"{type(value).__name__} of {len(value)}"
    return f"`{value}`" if isinstance(value, Global) else type(value).__name__


def _object(value: Made) -> str:
    name = class_of(value)
    if is_module(value):
        return f"a whole model of class {name}"
    if name.endswith(".scalar") and name.startswith("numpy"):
        return "NumPy scalar"
    if name == "torch.Size":
        return f"torch.Size {list(shape_of(value) or ())}"
    known = [str(key) for key in attributes(value) or () if isinstance(key, str)][:4]
    return f"object {name}"[:80] + (f" with {', '.join(known)}"[:60] if known else "")


def _optimizer(items: Mapping[Any, Any]) -> str:
    states, groups = items_of(items["state"]) or {}, items["param_groups"]
    kept = next((inner for one in states.values() if (inner := items_of(one))), {})
    names = ", ".join(str(key) for key in kept if isinstance(key, str))
    return (f"optimizer: {len(states)} states" + (f" ({names})"[:80] if names else "")
            + f", {len(groups) if isinstance(groups, list) else 0} groups")


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
