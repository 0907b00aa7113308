"""State dicts among the records of a pickle: dictionaries of tensors, and modules saved whole."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from torchmedic.data.objects import stored
from torchmedic.data.pickles import Global, Made

if TYPE_CHECKING:
    from torchmedic.observed.weights import Stored

DEEPEST = 48
MOST = 500_000
"""Attributes of one module in all: modules that hold each other many times would have no end."""
_MAKERS = ("copyreg._reconstructor", "copy_reg._reconstructor", "copyreg.__newobj__")


def items_of(value: Any) -> Mapping[Any, Any] | None:
    """The items of a dictionary, or of an object that is one, such as a `defaultdict`."""
    return value if isinstance(value, dict) else value.items if isinstance(value, Made) else None


def attributes(value: Any) -> Mapping[Any, Any] | None:
    """What an object's `__dict__` would be."""
    state = value.state if isinstance(value, Made) else None
    if isinstance(state, tuple) and len(state) == 2:
        state = state[0] or state[1]
    return state if isinstance(state, dict) else None


def state_dict(value: Any) -> dict[str, Stored] | None:
    """The tensors of a dictionary of them, or of a module that was saved whole."""
    if is_module(value):
        return dict(_of_module(value, "", 0, [MOST])) or None
    found = {str(k): t for k, v in (items_of(value) or {}).items()
             if isinstance(k, (str, int)) and (t := stored(v)) is not None}
    return found if found and len(found) * 2 > len(items_of(value) or ()) else None


def is_module(value: Any) -> bool:
    """A whole `nn.Module`, or a part of a TorchScript archive."""
    found = attributes(value)
    scripted = isinstance(value, Made) and isinstance(value.maker, Global) and (
        value.maker.module.startswith("__torch__"))
    return found is not None and ("_modules" in found or scripted)


def class_of(value: Made) -> str:
    """`pkg.Net`, also where a helper such as `copyreg._reconstructor` would make it."""
    first = value.args[0] if isinstance(value.args, tuple) and value.args else None
    helper = str(value.maker) in _MAKERS and isinstance(first, Global)
    return str(first if helper else value.maker)[:200]


def _of_module(value: Any, path: str, depth: int, left: list[int]
               ) -> Iterator[tuple[str, Stored]]:
    """Parameters and buffers of a module's record, as `state_dict` names them."""
    state = attributes(value)
    left[0] -= 1 + len(state or ())
    if state is None or depth > DEEPEST or left[0] < 0:
        return
    eager = "_parameters" in state
    hidden = state.get("_non_persistent_buffers_set")
    own = [state.get(name) for name in ("_parameters", "_buffers")] if eager else [state]
    for room in own:
        left[0] -= len(items_of(room) or ())
        for name, item in (items_of(room) or {}).items():
            hide = isinstance(hidden, (set, frozenset)) and name in hidden
            if not hide and (tensor := stored(item)) is not None:
                yield f"{path}{name}", tensor
    for name, item in (items_of(state.get("_modules") if eager else state) or {}).items():
        if isinstance(item, Made) and stored(item) is None:
            yield from _of_module(item, f"{path}{name}.", depth + 1, left)
