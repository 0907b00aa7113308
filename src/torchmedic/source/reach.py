"""What of a script can be reached: a `raise SystemExit`, the end of a function."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence

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


def falls_through(body: Sequence[ast.stmt]) -> bool:
    """Whether the end of these statements can be reached: not after `return` on every way."""
    return all(not isinstance(statement, LEAVE) and _goes_on(statement) for statement in body)


def _goes_on(node: ast.stmt) -> bool:
    if isinstance(node, ast.If):
        return falls_through(node.body) or falls_through(node.orelse)
    if isinstance(node, (ast.With, ast.AsyncWith)):
        return falls_through(node.body)
    if isinstance(node, ast.While) and isinstance(node.test, ast.Constant) and node.test.value:
        return any(isinstance(n, ast.Break) for n in ast.walk(node))
    if type(node).__name__ in ("Try", "TryStar"):
        assert isinstance(node, ast.Try)
        if node.finalbody and not falls_through(node.finalbody):
            return False
        return falls_through([*node.body, *node.orelse]) or any(
            falls_through(handler.body) for handler in node.handlers)
    if isinstance(node, ast.Match):
        return not (_is_whole(node) and not any(falls_through(c.body) for c in node.cases))
    return True


def _is_whole(node: ast.Match) -> bool:
    """Some case takes everything."""
    last = node.cases[-1]
    return isinstance(last.pattern, ast.MatchAs) and last.pattern.pattern is None and (
        last.guard is None)
