"""Names that code gives to a tensor's axes, and views that list these names in another order."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from torchmedic.source.paths import FUNCTIONS

if TYPE_CHECKING:
    from torchmedic.source.script import Script

Axes = tuple[str | None, ...]
"""A name for each axis; None where the code gives it none. Trailing axes may be missing."""
VIEWS = ("view", "reshape")
SAME_AXES = ("contiguous", "clone", "detach", "float", "double", "half", "long", "int", "to",
             "cuda", "cpu", "relu", "sigmoid", "tanh", "abs", "copy", "astype")
REDUCING = ("mean", "sum", "amax", "amin")
IN_PLACE = ("transpose_", "swapaxes_", "swapdims_", "t_", "squeeze_", "unsqueeze_", "resize_",
            "set_")


@dataclass(frozen=True, slots=True)
class Reordering:
    """A view of a tensor whose axes are `axes`, to elements made of these names in other order."""

    node: ast.Call
    receiver: str
    axes: Axes
    wanted: tuple[frozenset[str], ...]
    """Names in each element of the view's size; a product of names is one element."""
    sizes: tuple[ast.expr, ...]

    @property
    def permutation(self) -> tuple[int, ...] | None:
        """The axes in the wanted order; None where an axis has no name in the view."""
        order = [self.axes.index(name) for names in self.wanted
                 for name in sorted(names, key=self.axes.index)]
        return tuple(order) if sorted(order) == list(range(len(self.axes))) else None


def reorderings(script: Script) -> Iterator[Reordering]:
    """Views that would need a permute, in the order of their lines."""
    bodies: list[Sequence[ast.stmt]] = [script.tree.body]
    bodies += [function.node.body for function in script.functions]
    for body in bodies:
        yield from _Scope().walk(body)


@dataclass(slots=True)
class _Scope:
    """What one function's code has said about axes so far."""

    known: dict[str, dict[int, str]] = field(default_factory=dict)
    rank: dict[str, int] = field(default_factory=dict)
    unclear: set[str] = field(default_factory=set)

    def walk(self, body: Sequence[ast.stmt]) -> Iterator[Reordering]:
        for statement in body:
            if isinstance(statement, (*FUNCTIONS, ast.ClassDef)):
                continue
            yield from self._views(statement)
            if isinstance(statement, ast.Assign):
                self._assign(statement)
            else:
                self._forget_all(_stored(statement))
            for part in ("body", "orelse", "finalbody"):
                yield from self.walk(getattr(statement, part, []))
            for handler in getattr(statement, "handlers", []):
                yield from self.walk(handler.body)

    def _views(self, statement: ast.stmt) -> Iterator[Reordering]:
        for node in _own_nodes(statement):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
                if node.func.attr in IN_PLACE:
                    self._forget(ast.unparse(node.func.value))
                elif node.func.attr in VIEWS and (found := self._reordering(node)):
                    yield found

    def _reordering(self, call: ast.Call) -> Reordering | None:
        assert isinstance(call.func, ast.Attribute)
        receiver, sizes = call.func.value, list(call.args)
        if ast.unparse(receiver) == "torch" and sizes:
            receiver = sizes.pop(0)
        if len(sizes) == 1 and isinstance(sizes[0], (ast.Tuple, ast.List)):
            sizes = sizes[0].elts
        axes = self._axes(receiver)
        if axes is None or not sizes:
            return None
        wanted = _elements(sizes, axes)
        if wanted is None or not _out_of_order(wanted, axes) or _twice(wanted):
            return None
        return Reordering(call, ast.unparse(receiver), axes, wanted, tuple(sizes))

    def _axes(self, node: ast.expr) -> Axes | None:
        """Axes of an expression that has those of an unpacked tensor."""
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            inner = self._axes(node.func.value)
            if inner is None or node.func.attr in SAME_AXES:
                return inner
            return _reduced(inner, node) if node.func.attr in REDUCING else None
        name = ast.unparse(node) if isinstance(node, (ast.Name, ast.Attribute)) else ""
        if name not in self.known or name in self.unclear:
            return None
        names = self.known[name]
        length = self.rank.get(name, max(names, default=-1) + 1)
        return tuple(names.get(at) for at in range(length))

    def _assign(self, statement: ast.Assign) -> None:
        pairs = [pair for target in statement.targets for pair in _pairs(target, statement.value)]
        before = {tensor: dict(axes) for tensor, axes in self.known.items()}
        self._forget_all({name for target, _ in pairs for name in _names(target)})
        for target, value in pairs:
            self._learn(target, value)
        for tensor, axes in self.known.items():
            old = before.get(tensor, {})
            if any(old.get(at, name) != name for at, name in axes.items()):
                self.unclear.add(tensor)  # unpacked twice, in two ways

    def _learn(self, target: ast.expr, value: ast.expr) -> None:
        told = _shape_of(value)
        if told is None:
            return
        tensor, first, length = told
        if isinstance(target, ast.Name) and length == 1:
            self._name(tensor, first, target.id)
        elif isinstance(target, (ast.Tuple, ast.List)) and length != 1:
            self._name_all(tensor, first, target.elts, whole=length is None and first == 0)

    def _name_all(self, tensor: str, first: int, targets: list[ast.expr], whole: bool) -> None:
        if not all(isinstance(target, ast.Name) for target in targets):
            return  # a starred name: positions are unknown
        names = [target.id for target in targets if isinstance(target, ast.Name)]
        if whole and self.rank.get(tensor, len(names)) != len(names):
            self.unclear.add(tensor)
        if whole:
            self.rank[tensor] = len(names)
        for at, name in enumerate(names, first):
            if not name.startswith("_") and names.count(name) == 1:
                self._name(tensor, at, name)

    def _name(self, tensor: str, at: int, name: str) -> None:
        self.known.setdefault(tensor, {})[at] = name

    def _forget_all(self, names: set[str]) -> None:
        for name in names:
            self._forget(name)
            for axes in self.known.values():
                for at in [at for at, known in axes.items() if known == name]:
                    del axes[at]

    def _forget(self, tensor: str) -> None:
        self.known.pop(tensor, None)
        self.rank.pop(tensor, None)


def _own_nodes(statement: ast.stmt) -> Iterator[ast.AST]:
    """The expressions of a statement, without the statements inside it and without lambdas."""
    waiting: list[ast.AST] = [statement]
    while waiting:
        node = waiting.pop()
        yield node
        waiting += [child for child in ast.iter_child_nodes(node)
                    if not isinstance(child, (ast.stmt, ast.ExceptHandler, ast.Lambda))]


def _stored(statement: ast.stmt) -> set[str]:
    """Names that a statement gives a value in itself: a loop's target, `with … as`, `+=`."""
    return {ast.unparse(node) for node in _own_nodes(statement)
            if isinstance(node, (ast.Name, ast.Attribute)) and isinstance(node.ctx, ast.Store)}


def _names(target: ast.expr) -> set[str]:
    return {ast.unparse(node) for node in ast.walk(target)
            if isinstance(node, (ast.Name, ast.Attribute)) and isinstance(node.ctx, ast.Store)}


def _pairs(target: ast.expr, value: ast.expr) -> list[tuple[ast.expr, ast.expr]]:
    if isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple) and (
            len(target.elts) == len(value.elts)):
        return list(zip(target.elts, value.elts, strict=True))
    return [(target, value)]


def _twice(wanted: tuple[frozenset[str], ...]) -> bool:
    """A size that is written twice stands for another axis too, one of those without a name."""
    names = [name for element in wanted for name in element]
    return len(names) != len(set(names))


def _shape_of(node: ast.expr) -> tuple[str, int, int | None] | None:
    """(tensor, first axis, number of axes or None for all) that `x.shape[:2]` and others give."""
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and (
            node.func.attr == "size"):
        if not node.args and not node.keywords:
            return ast.unparse(node.func.value), 0, None
        at = _number(node.args[0]) if len(node.args) == 1 else None
        return None if at is None or at < 0 else (ast.unparse(node.func.value), at, 1)
    if isinstance(node, ast.Attribute) and node.attr == "shape":
        return ast.unparse(node.value), 0, None
    if isinstance(node, ast.Subscript) and (whole := _shape_of(node.value)) and whole[2] is None:
        return _subscript(whole[0], node.slice)
    return None


def _subscript(tensor: str, index: ast.expr) -> tuple[str, int, int | None] | None:
    if isinstance(index, ast.Slice):
        first = 0 if index.lower is None else _number(index.lower)
        last = None if index.upper is None else _number(index.upper)
        bounded = last is not None and last > 1
        if index.step or first is None or first < 0 or not (bounded or index.upper is None):
            return None
        return tensor, first, None if last is None else last - first
    at = _number(index)
    return None if at is None or at < 0 else (tensor, at, 1)


def _number(node: ast.expr) -> int | None:
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        inner = _number(node.operand)
        return None if inner is None else -inner
    plain = isinstance(node, ast.Constant) and type(node.value) is int
    return node.value if plain else None  # type: ignore[attr-defined]


def _reduced(axes: Axes, call: ast.Call) -> Axes | None:
    """The axes that `x.mean(dim=(3, 4))` leaves."""
    given = [*call.args, *(k.value for k in call.keywords if k.arg in ("dim", "axis"))]
    if len(given) != 1 or any(k.arg == "keepdim" for k in call.keywords):
        return None
    parts = given[0].elts if isinstance(given[0], (ast.Tuple, ast.List)) else given
    gone = [_number(part) for part in parts]
    if any(at is None or not -len(axes) <= at < len(axes) for at in gone):
        return None
    places = {at % len(axes) for at in gone if at is not None}
    return tuple(name for at, name in enumerate(axes) if at not in places)


def _elements(sizes: list[ast.expr], axes: Axes) -> tuple[frozenset[str], ...] | None:
    """Axis names in each element; -1 stands for the named axes that no other element names."""
    found: list[frozenset[str] | None] = []
    for size in sizes:
        if isinstance(size, ast.Starred):
            return None
        rest = _number(size) == -1
        found.append(None if rest else frozenset(_factors(size, axes)))
    named = frozenset().union(*(names for names in found if names))
    missing = frozenset(name for name in axes if name and name not in named)
    return tuple(missing if names is None else names for names in found)


def _factors(size: ast.expr, axes: Axes) -> Iterator[str]:
    if isinstance(size, ast.Name) and size.id in axes:
        yield size.id
    elif isinstance(size, ast.BinOp) and isinstance(size.op, ast.Mult):
        yield from _factors(size.left, axes)
        yield from _factors(size.right, axes)
    elif isinstance(size, ast.BinOp) and isinstance(size.op, ast.FloorDiv):
        yield from _factors(size.left, axes)
    elif isinstance(size, ast.Call) and ast.unparse(size.func) == "int" and len(size.args) == 1:
        yield from _factors(size.args[0], axes)


def _out_of_order(wanted: Sequence[frozenset[str]], axes: Axes) -> bool:
    last = -1
    for names in wanted:
        places = [axes.index(name) for name in names]
        if places and min(places) < last:
            return True
        last = max([last, *places])
    return False
