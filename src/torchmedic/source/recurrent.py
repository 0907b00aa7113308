"""Names that carry a value from one batch's forward pass into the next: recurrent state."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from torchmedic.source.paths import inside

if TYPE_CHECKING:
    from torchmedic.source.script import Script

RECURRENT = ("RNN", "LSTM", "GRU", "RNNCell", "LSTMCell", "GRUCell")


@dataclass(frozen=True, slots=True)
class Kept:
    """A call that takes `name` and gives its next value, without detaching it between batches.

    layer: class of the recurrent layer, where the file shows that the call is of one.
    reset: other code of the file assigns the name, maybe between the batches.
    """

    name: str
    line: int
    call: str
    layer: str | None = None
    reset: bool = False
    node: ast.Assign | None = field(default=None, repr=False, compare=False)


def kept_states(script: Script) -> Iterator[Kept]:
    """States that a loop or an object keeps, in the order of their lines."""
    layers = _layers(script.tree)
    found = [*_in_loops(script.tree, layers), *_in_objects(script, layers)]
    yield from sorted(found, key=lambda kept: kept.line)


def _layers(tree: ast.Module) -> dict[str, str]:
    """`self.lstm` → `LSTM`: names assigned from a recurrent layer, or from a class that has one."""
    found: dict[str, str] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Call):
            kind = ast.unparse(node.value.func).rpartition(".")[2]
            if kind in RECURRENT:
                found.update((ast.unparse(target), kind) for target in node.targets)
    for holder in (n for n in ast.walk(tree) if isinstance(n, ast.ClassDef)):
        text = ast.unparse(holder)
        inner = [kind for name, kind in found.items()
                 if name.startswith("self.") and f"{name} = " in text]
        if inner and "detach" not in text and "no_grad" not in text:
            found.update((name, inner[0]) for name in _instances(tree, holder.name))
    return found


def _instances(tree: ast.Module, kind: str) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Call):
            made = {ast.unparse(n.func) for n in ast.walk(node.value) if isinstance(n, ast.Call)}
            if kind in made:  # also `Net().to(device)`
                yield from (ast.unparse(target) for target in node.targets)


def _in_loops(tree: ast.Module, layers: dict[str, str]) -> Iterator[Kept]:
    for loop in ast.walk(tree):
        if not isinstance(loop, (ast.For, ast.While)) or not _goes_backward(loop):
            continue
        for call in _calls(loop):
            for name in _names(call.targets) & _names(_arguments(call)):
                if "." not in name and not _stored_elsewhere(loop, name, layers):
                    yield _kept(name, call, layers, reset=False)


def _goes_backward(loop: ast.For | ast.While) -> bool:
    """`backward()` runs in each round of this loop, not in a loop inside it."""
    inner = [n for n in inside(loop) if isinstance(n, (ast.For, ast.While))]
    deeper = {id(node) for other in inner for node in inside(other)}
    return any(id(node) not in deeper and _is_call_of(node, "backward") for node in inside(loop))


def _calls(node: ast.AST) -> Iterator[ast.Assign]:
    for found in inside(node):
        if isinstance(found, ast.Assign) and isinstance(found.value, ast.Call):
            yield found


def _stored_elsewhere(loop: ast.For | ast.While, name: str, layers: dict[str, str]) -> bool:
    """Detached, or given another value than from such a call, somewhere in the loop."""
    if isinstance(loop, ast.For) and name in _names([loop.target]):
        return True
    for node in inside(loop):
        if isinstance(node, ast.Assign) and name in _names(node.targets):
            takes_itself = isinstance(node.value, ast.Call) and name in _names(_arguments(node))
            if not takes_itself or not _is_forward(node, layers):
                return True
        elif _detaches(node, name) or name in _rebound(node):
            return True
    return False


def _detaches(node: ast.AST, name: str) -> bool:
    return _is_call_of(node, "detach_") and ast.unparse(node).startswith(f"{name}.")


def _rebound(node: ast.AST) -> set[str]:
    """Names that a statement other than a plain assignment gives a value."""
    kinds = (ast.For, ast.AugAssign, ast.AnnAssign, ast.NamedExpr)
    return _names([node.target]) if isinstance(node, kinds) else set()


def _is_forward(node: ast.Assign, layers: dict[str, str]) -> bool:
    """A call that may be a module's; `repackage(state)` gives the state alone and is none."""
    arguments = _names(_arguments(node))
    return _callee(node) in layers or len(arguments) > 1


def _in_objects(script: Script, layers: dict[str, str]) -> Iterator[Kept]:
    for holder in (n for n in ast.walk(script.tree) if isinstance(n, ast.ClassDef)):
        for method in holder.body:
            if isinstance(method, ast.FunctionDef) and method.name != "__init__":
                for name, call in _in_method(method):
                    reset = _assigned_outside(script.tree, method, name)
                    yield _kept(name, call, layers, reset)


def _in_method(method: ast.FunctionDef) -> Iterator[tuple[str, ast.Assign]]:
    """(attribute, call) where the method feeds the attribute and stores what came back."""
    stores = [n for n in inside(method) if isinstance(n, ast.Assign)]
    for call in _calls(method):
        for name in _given_back(call, stores):
            fed = _names(_arguments(call)) & {name, *_aliases(stores, name)}
            if fed and not any(_cuts(other, name) for other in stores):
                yield name, call


def _given_back(call: ast.Assign, stores: list[ast.Assign]) -> set[str]:
    """Attributes that take what the call returns, as it is."""
    came = _names(call.targets)
    targets = [t for store in stores if store is call or _only_names(store.value, came)
               for t in store.targets]
    return {name for name in _names(targets) if name.startswith("self.")}


def _aliases(stores: list[ast.Assign], name: str) -> set[str]:
    """Local names that were read from the attribute, undetached."""
    return {alias for store in stores if name in _names([store.value])
            and "detach" not in ast.unparse(store.value) for alias in _names(store.targets)}


def _only_names(value: ast.expr, names: set[str]) -> bool:
    """`hidden` or `(hidden, cell)`, both of them among `names`."""
    parts = value.elts if isinstance(value, ast.Tuple) else [value]
    return all(isinstance(part, ast.Name) and part.id in names for part in parts)


def _cuts(store: ast.Assign, name: str) -> bool:
    text = ast.unparse(store.value)
    return name in _names(store.targets) and any(w in text for w in ("detach", ".data", "zeros"))


def _assigned_outside(tree: ast.Module, method: ast.FunctionDef, name: str) -> bool:
    attribute = name.removeprefix("self.")
    own = {id(node) for node in ast.walk(method)}
    own |= {id(node) for found in ast.walk(tree) if isinstance(found, ast.FunctionDef)
            and found.name == "__init__" for node in ast.walk(found)}
    return any(isinstance(node, ast.Attribute) and node.attr == attribute
               and isinstance(node.ctx, ast.Store) and id(node) not in own
               for node in ast.walk(tree))


def _kept(name: str, call: ast.Assign, layers: dict[str, str], reset: bool) -> Kept:
    return Kept(name, call.lineno, ast.unparse(call.value), layers.get(_callee(call)), reset, call)


def _callee(call: ast.Assign) -> str:
    return ast.unparse(call.value.func) if isinstance(call.value, ast.Call) else ""


def _arguments(call: ast.Assign) -> list[ast.expr]:
    value = call.value
    assert isinstance(value, ast.Call)
    return [*value.args, *(keyword.value for keyword in value.keywords)]


def _is_call_of(node: ast.AST, method: str) -> bool:
    return (isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)
            and node.func.attr == method)


def _names(nodes: list[ast.expr]) -> set[str]:
    """Plain and dotted names in expressions, as `hidden` and `self.state`; not those called."""
    found: set[str] = set()
    for top in nodes:
        if isinstance(top, (ast.Name, ast.Attribute)):
            found.add(ast.unparse(top))
        elif isinstance(top, (ast.Tuple, ast.List)):
            found |= _names(top.elts)
        elif isinstance(top, ast.IfExp):
            found |= _names([top.body, top.orelse])
        elif isinstance(top, ast.BoolOp):
            found |= _names(top.values)
        elif isinstance(top, ast.Starred):
            found |= _names([top.value])
    return found
