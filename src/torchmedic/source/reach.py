"""Which `raise SystemExit` of a script can be reached at all."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from torchmedic.source.paths import FUNCTIONS, children

LEAVE = (ast.Raise, ast.Return, ast.Break, ast.Continue)


def exits_in(tree: ast.Module) -> Iterator[ast.Raise]:
    """Every `raise SystemExit` that is not behind a jump nor in a function that nobody names."""
    named = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
    named |= {node.attr for node in ast.walk(tree) if isinstance(node, ast.Attribute)}
    yield from _below(tree, named)


def _below(node: ast.AST, named: set[str]) -> Iterator[ast.Raise]:
    behind: set[str] = set()  # parts that a jump has left
    for part, child in children(node):
        unused = isinstance(child, FUNCTIONS) and child.name not in named and (
            not child.decorator_list and not child.name.startswith("__"))
        if part in behind or unused or _is_never(child):
            continue
        if isinstance(child, ast.Raise) and _is_exit(child):
            yield child
        yield from _below(child, named)
        if isinstance(child, LEAVE):
            behind.add(part)


def _is_never(node: ast.AST) -> bool:
    return (isinstance(node, ast.If) and isinstance(node.test, ast.Constant)
            and not node.test.value and not node.orelse)


def _is_exit(node: ast.Raise) -> bool:
    called = node.exc.func if isinstance(node.exc, ast.Call) else node.exc
    return isinstance(called, ast.Name) and called.id == "SystemExit"
