"""`Value`: what is known about an object of the program."""

from __future__ import annotations

import ast
import itertools
from collections.abc import Iterable, Iterator
from typing import Any

_numbers = itertools.count(1)
Shape = tuple[int | None, ...]


class Value:
    """One object, or one of several.

    kind: unknown, const, external (something imported), function, class, instance (of a class of
    the project), module (a layer, or a model we can't look into), criterion, tensor, optimizer,
    scheduler, scaler, loader, dataset, parameters, state (a state dict), list, tuple, dict,
    either (`items` holds the possibilities).
    type: full name such as `torch.nn.Linear`. node, file: where it was made.
    """

    # Defaults are the class's own: most objects keep most of them, and there are very many objects.
    data: Any = None
    """The constant, for a const; text for others where the maker wants to keep one."""
    owner: Value | None = None
    scope: Any = None
    script: Any = None
    loops: tuple[Any, ...] = ()
    shape: Shape | None = None
    device: str = ""
    """`host` for a batch as a loader gives it, `moved` for what was moved; else not known."""
    roots: frozenset[int] = frozenset()
    """The calls of layers that its graph goes through, as numbers in `Trace.roots`."""
    dtype: str = ""
    """Of a tensor's or an array's elements: `float32`, `int64`, …"""
    graph: bool | None = False
    """A tensor that hangs on a model's parameters; None where gradients may be off."""
    sources: frozenset[int] = frozenset()
    """Ids of the modules it was computed with."""
    lineage: frozenset[int] = frozenset()
    """Ids of the tensors it was computed from, its own included."""
    act: str = ""
    """The operation that gave a tensor its values: softmax, log_softmax, sigmoid, linear, …"""
    act_node: ast.AST | None = None
    act_file: str = ""
    cut: str = ""
    """What took it out of the graph: detach, argmax, item, floor, …"""
    cut_node: ast.AST | None = None
    cut_file: str = ""

    def __init__(self, kind: str = "unknown", type: str = "", node: ast.AST | None = None,
                 file: str = "", **more: Any) -> None:
        self.kind, self.type, self.node, self.file = kind, type, node, file
        self.id = next(_numbers)
        self.args: list[Value] = []
        self.kwargs: dict[str, Value] = {}
        self.attrs: dict[str, Value] = {}
        self.items: list[Value] = []
        if more:
            self.__dict__.update(more)

    def __repr__(self) -> str:
        return f"<{self.kind} {self.type} {self.id} {self.act} {self.shape}>"

    @property
    def name(self) -> str:
        """The last part of the type, such as `Linear`."""
        return self.type.rpartition(".")[2]

    def options(self) -> Iterator[Value]:
        """The possibilities; itself, when there is one."""
        if self.kind == "either":
            for item in self.items:
                yield from item.options()
        else:
            yield self

    def keyword(self, name: str, position: int | None = None) -> Value | None:
        """An argument it was made with."""
        if name in self.kwargs:
            return self.kwargs[name]
        if position is not None and position < len(self.args):
            return self.args[position]
        return None


def const(value: object, node: ast.AST | None = None) -> Value:
    return Value("const", type(value).__name__, node, data=value)


def either(values: Iterable[Value]) -> Value:
    """One of them; the same object twice is one."""
    found: dict[int, Value] = {}
    for value in values:
        for option in value.options():
            found.setdefault(option.id, option)
    if not found:
        return Value()
    if len(found) == 1:
        return next(iter(found.values()))
    return Value("either", items=list(found.values())[:8])


def is_module(value: Value | None) -> bool:
    """A layer, a model, or an object of a class that derives from `nn.Module`."""
    return value is not None and (value.kind in ("module", "criterion") or (
        value.kind == "instance" and value.data == "module"))


def tensor(parents: Iterable[Value] = (), node: ast.AST | None = None, file: str = "",
           **more: Any) -> Value:
    """A tensor computed from others: it hangs on what they hang on."""
    made = Value("tensor", "", node, file)
    inputs = [option for parent in parents for option in parent.options()]
    for parent in inputs:
        inherit(made, parent)
    made.lineage |= {made.id}
    for name, value in more.items():
        setattr(made, name, value)
    return made


def inherit(made: Value, parent: Value, depth: int = 0) -> None:
    if parent.kind in ("list", "tuple", "dict", "either") and depth < 4:
        for item in [*parent.items, *parent.attrs.values()]:
            inherit(made, item, depth + 1)
        made.lineage |= {parent.id}
        return
    made.sources |= parent.sources
    made.lineage |= parent.lineage
    made.roots |= parent.roots
    untold = parent.kind == "unknown" and not parent.type and parent.data is None
    if (parent.graph is None or untold) and made.graph is False:
        made.graph = None  # what nobody knows may hang on parameters
    elif parent.graph:
        made.graph = True
    if parent.cut and not made.cut:
        made.cut, made.cut_node, made.cut_file = parent.cut, parent.cut_node, parent.cut_file


def children(module: Value) -> Iterator[Value]:
    """The modules directly inside."""
    held = [*module.items, *module.attrs.values()]
    if module.kind == "module" and module.owner is not None:
        held.append(module.owner)
    for item in held:
        for option in item.options():
            if is_module(option):
                yield option


def family(module: Value) -> dict[int, Value]:
    """The module and all inside it, by id."""
    found: dict[int, Value] = {}
    waiting = [module]
    while waiting and len(found) < 500:
        one = waiting.pop()
        if one.id not in found:
            found[one.id] = one
            waiting += children(one)
    return found
