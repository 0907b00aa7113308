"""Checkpoints of a program that are saved from a wrapped model and loaded into a bare one."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import TYPE_CHECKING

from torchmedic.source.flow.library import WRAPPERS

if TYPE_CHECKING:
    from torchmedic.source.flow import Event, Trace, Value

HANDLED = ("module.", "removeprefix", "_orig_mod", "consume_prefix")


def prefixes(trace: Trace) -> Iterator[tuple[Event, Event, str, bool]]:
    """(saved, loaded, prefix, whether the checkpoint has it) where only one side is wrapped."""
    text = "\n".join(trace.script.lines)
    if "torch.save" not in text or any(f'"{w}' in text or f"'{w}" in text for w in HANDLED):
        return
    saves = [(e, state) for e in trace.of("save") if (state := _state(e.value)) is not None]
    if len({(_wrapped(state.owner)) for _, state in saves}) != 1:
        return
    saved, state = saves[0]
    for loaded in trace.of("load"):
        model = loaded.target
        if model is None or model.kind not in ("module", "instance") or state.owner is None or (
                not _read(loaded.node, trace)):
            continue
        on_file, on_model = _wrapped(state.owner), _wrapped(model)
        if on_file != on_model and _same(_inner(state.owner), _inner(model)):
            yield saved, loaded, "module.", on_file


def _state(value: Value | None) -> Value | None:
    """The model's state in what is saved: itself, or an entry of a dict."""
    if value is None:
        return None
    found = [value, *value.items, *value.attrs.values()]
    return next((v for v in found if v.kind == "state" and v.owner is not None
                 and v.owner.kind in ("module", "instance")), None)


def _wrapped(model: Value | None) -> bool:
    return model is not None and model.kind == "module" and model.name in WRAPPERS


def _inner(model: Value) -> Value:
    return model.owner if _wrapped(model) and model.owner is not None else model


def _same(one: Value, other: Value) -> bool:
    """Of one class."""
    if one.kind == other.kind == "instance":
        return one.owner is not None and other.owner is not None and (
            one.owner.node is other.owner.node)
    return one.kind == other.kind == "module" and one.type == other.type


def _read(node: ast.AST, trace: Trace) -> bool:
    """What is loaded comes from a file: here, or in a name that a `torch.load` was given."""
    if not isinstance(node, ast.Call) or not node.args:
        return False
    text = ast.unparse(node.args[0])
    if "torch.load(" in text:
        return True
    name = text.partition("[")[0]
    return any(e.more["name"] == name and "torch.load(" in ast.unparse(e.node)
               for e in trace.of("assign"))
