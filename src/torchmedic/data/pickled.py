"""From the value of a checkpoint's pickle to all that a reader of it should know."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from torchmedic.data.bounded import TooLarge, Unreadable
from torchmedic.data.globals import harmful, refused
from torchmedic.data.layouts import lay_out
from torchmedic.data.objects import SIZES, storage_of, stored
from torchmedic.data.pickles import Global, Machine, Made, Persistent
from torchmedic.data.statedicts import class_of, is_module
from torchmedic.observed.weights import Checkpoint, Defect, Stored

SCRIPT = "TorchScript"
SCRIPTED = "a compiled model: `torch.jit.load` reads it, `torch.load` does not"
LARGE = 1 << 20
"""Values of a storage from which on a small view of it is told."""


def made(blank: Checkpoint, machine: Machine, root: Any, inside: tuple[str, ...] | None
         ) -> Checkpoint:
    """What the outermost object holds, and what is wrong with it."""
    layout = lay_out(root, inside)
    script = blank.format == SCRIPT
    defects = [*hostile(machine)]
    if layout.models and not script:
        defects.append(Defect("whole-model", "the class is needed to read it", layout.models))
    elif isinstance(root, Made) and not root.items and stored(root) is None and not script and (
            not defects and not is_module(root)):
        defects.append(Defect("whole-model", "its outermost object is neither a tensor nor a "
                              "dictionary", (class_of(root),)))
    elif isinstance(root, (Persistent, int, str, bytes, float, type(None))):
        what = "storage" if isinstance(root, Persistent) else type(root).__name__
        defects.append(Defect("other", f"its outermost object is of type {what}"))
    if isinstance(root, Made) and (one := stored(root)) is not None:
        layout = replace(layout, weights={"(the file's only tensor)": one})
    names = ", ".join(f"`{'.'.join(place)}`" for place in layout.others[:6])
    others = (f"further state dicts: {names}",) if names else ()
    return replace(blank, weights=layout.weights, within=layout.within, entries=layout.entries,
                   others=layout.others, defects=tuple(defects),
                   refused=refused(machine.globals), notes=(
                       *((SCRIPTED,) if script else ()), *others, *remarks(layout.weights)))


def broken(blank: Checkpoint, machine: Machine, error: Exception) -> Checkpoint:
    """A pickle that could not be read to its end."""
    if isinstance(error, TooLarge):
        return _with(blank, Defect("too-large", str(error)))
    if found := hostile(machine):
        return _with(blank, *found)
    cut = isinstance(error, Unreadable) and error.cut
    if cut:
        return _with(blank, Defect("cut", "it ends inside the description of its tensors; how "
                                   "many bytes followed is not told"))
    if blank.format == "pickle" and not machine.globals:
        return _with(replace(blank, format="unknown"), Defect(
            "damaged", f"its bytes are of no known format ({error})"))
    return _with(blank, Defect("damaged", f"its pickle can't be read: {error}"))


def _with(checkpoint: Checkpoint, *defects: Defect) -> Checkpoint:
    return replace(checkpoint, defects=(*checkpoint.defects, *defects))


def hostile(machine: Machine) -> tuple[Defect, ...]:
    """What would be called if the file were unpickled without `weights_only`."""
    names = [name for name in machine.globals if harmful(name)]
    if not names:
        return ()
    called = next((name for name in names if name in machine.called), None)
    detail = f"`{called}({_arguments(machine.called[called])})` would be called; it was not" \
        if called else "the pickle asks for them; they were not called"
    return (Defect("hostile", detail, tuple(str(name)[:200] for name in names)),)


def _arguments(args: Any) -> str:
    return ", ".join(map(_argument, args[:3])) if isinstance(args, tuple) else "…"


def _argument(value: Any) -> str:
    if isinstance(value, (str, bytes)):
        return repr(value[:200])
    if isinstance(value, (int, float, type(None))) and abs(value or 0) < 1 << 64:
        return repr(value)
    return str(value)[:80] if isinstance(value, Global) else "…"


def rooms(machine: Machine) -> dict[str, int]:
    """The storages that the pickle refers to, with their bytes."""
    found = (storage_of(item.id) for item in machine.references)
    return {key: count * SIZES.get(dtype, 1) for key, dtype, count in found if key}


def remarks(weights: Mapping[str, Stored]) -> Iterator[str]:
    """What a table of shapes does not show."""
    kinds = Counter(tensor.kind for tensor in weights.values() if tensor.kind)
    for kind, count in kinds.most_common():
        noun = "array" if kind == "NumPy" else "tensor"
        yield f"{count} {kind} {noun}{'' if count == 1 else 's'}"
    yield from _shared(weights)
    users = Counter(tensor.storage.partition("+")[0] for tensor in weights.values())
    alone = [(name, tensor) for name, tensor in weights.items()
             if tensor.room >= LARGE and tensor.count * 10 < tensor.room
             and users[tensor.storage.partition("+")[0]] == 1]
    if alone:
        name, tensor = alone[0]
        yield (f"`{name}` shows {tensor.count:,} of the {tensor.room:,} values that are saved with "
               "it: a view was saved, `.clone()` before saving leaves the rest out")


def _shared(weights: Mapping[str, Stored]) -> Iterator[str]:
    places: dict[object, list[str]] = defaultdict(list)
    for name, tensor in weights.items():
        if tensor.storage and tensor.count:
            places[tensor.storage, tensor.shape].append(name)
    groups = [names for names in places.values() if len(names) > 1]
    for names in groups[:3]:
        yield "one tensor under several names: " + ", ".join(f"`{name}`" for name in names[:4])
    if len(groups) > 3:
        yield f"{len(groups) - 3} more tensors have several names"
