"""Leaves out, or renames, an operation between a model and its loss: a layer, or a call."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from torchmedic import changes
from torchmedic.source.paths import FUNCTIONS

if TYPE_CHECKING:
    from torchmedic.source.flow.losses import Given
    from torchmedic.source.script import Script


def without(script: Script, given: Given) -> changes.Edits:
    """The edits; none where its place is no simple one, or something else uses its result."""
    node = given.node
    if given.file not in (None, "", script.file) or not isinstance(node, ast.Call):
        return ()
    if _is_layer(node):
        return _without_layer(script, node)
    inner = _inner(script, node)
    if inner is None or not _for_the_loss_alone(script, node, given.act):
        return ()
    return changes.unwrapping(script, node, inner)


def renamed(script: Script, given: Given, names: dict[str, str]) -> changes.Edits:
    """Another operation in its place, which takes the same arguments."""
    node = given.node
    if given.file not in (None, "", script.file) or not isinstance(node, ast.Call):
        return ()
    alone = _in_sequential(script, node) is not None or _called_once(script, node)
    if not isinstance(node.func, ast.Attribute) or (_is_layer(node) and not alone):
        return ()
    old = node.func.attr
    if old not in names or not (_is_layer(node) or _for_the_loss_alone(script, node, "")):
        return ()
    return changes.renaming(node, old, names[old])


def _is_layer(call: ast.Call) -> bool:
    name = call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")
    return name[:1].isupper()


def _without_layer(script: Script, node: ast.Call) -> changes.Edits:
    """The last layer of a `Sequential` goes; elsewhere `Identity` takes its place."""
    holder = _in_sequential(script, node)
    if holder is not None and holder.args[-1] is node and len(holder.args) > 1:
        return changes.without_argument(script, holder, node)
    if isinstance(node.func, ast.Attribute) and (holder is not None or _called_once(script, node)):
        prefix = ast.unparse(node.func.value)
        return changes.replacing(node, f"{prefix}.Identity()")
    return ()


def _in_sequential(script: Script, node: ast.Call) -> ast.Call | None:
    holder = next((n for n in ast.walk(script.tree) if isinstance(n, ast.Call)
                   and any(a is node for a in n.args)), None)
    inside = holder is not None and ast.unparse(holder.func).rpartition(".")[2] == "Sequential"
    return holder if inside else None


def _called_once(script: Script, node: ast.Call) -> bool:
    """`self.act = nn.Softmax(1)`, which one line of its class calls and nothing else reads."""
    holder = next((c for c in ast.walk(script.tree) if isinstance(c, ast.ClassDef)
                   and c.lineno <= node.lineno <= (c.end_lineno or 0)), None)
    kept = next((n for n in ast.walk(holder or script.tree) if isinstance(n, ast.Assign)
                 and n.value is node and len(n.targets) == 1), None)
    if holder is None or kept is None or not isinstance(kept.targets[0], ast.Attribute):
        return False
    name = ast.unparse(kept.targets[0])
    reads = [n for n in ast.walk(holder) if isinstance(n, ast.Attribute)
             and n is not kept.targets[0] and ast.unparse(n) == name]
    calls = [n for n in ast.walk(holder) if isinstance(n, ast.Call)
             and any(n.func is r for r in reads)]
    return len(reads) == len(calls) == 1 and name.startswith("self.")


def _inner(script: Script, node: ast.Call) -> ast.expr | None:
    """What the operation is given: `x` in `F.softmax(x, 1)` and in `x.softmax(1)`."""
    root: ast.expr = node.func
    while isinstance(root, ast.Attribute):
        root = root.value
    if isinstance(root, ast.Name) and root.id in _imported(script.tree):
        named = [k.value for k in node.keywords if k.arg == "input"]
        given = [*node.args[:1], *named]
        return None if not given or isinstance(given[0], ast.Starred) else given[0]
    if not isinstance(node.func, ast.Attribute):
        return None
    owner = node.func.value
    return None if isinstance(owner, ast.Name) and owner.id in ("self", "cls") else owner


def _imported(tree: ast.Module) -> set[str]:
    return {(a.asname or a.name).partition(".")[0] for n in ast.walk(tree)
            if isinstance(n, (ast.Import, ast.ImportFrom)) for a in n.names}


def _for_the_loss_alone(script: Script, node: ast.Call, act: str) -> bool:
    """Where its result gets a name, at most one line reads it, or they only pick the largest."""
    kept = next((n for n in ast.walk(script.tree) if isinstance(n, ast.Assign)
                 and n.value is node), None)
    if kept is None:
        return True
    if len(kept.targets) != 1 or not isinstance(kept.targets[0], ast.Name):
        return False
    name, end = kept.targets[0].id, kept.end_lineno or 0
    function = script.function_at(kept.lineno)
    around: ast.AST = function.node if function is not None else script.tree
    if not isinstance(around, (*FUNCTIONS, ast.Module)):
        return False
    reads = [n for n in ast.walk(around) if isinstance(n, ast.Name) and n.id == name
             and isinstance(n.ctx, ast.Load) and n.lineno > end]
    picks = {id(n) for n in ast.walk(around) for n in _picked(n)} if "softmax" in act else set()
    return sum(id(n) not in picks for n in reads) <= 1


def _picked(node: ast.AST) -> list[ast.expr]:
    """`x` in `x.argmax(1)` and `torch.argmax(x, 1)`, which softmax does not change."""
    if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute) or (
            node.func.attr != "argmax"):
        return []
    return [node.func.value, *node.args[:1]]
