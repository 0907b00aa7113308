"""The way from a module down to one line: which statement in which part of which statement."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass

Block = ast.stmt | ast.ExceptHandler | ast.match_case
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
PARTS = ("body", "handlers", "orelse", "finalbody", "cases")


@dataclass(frozen=True, slots=True)
class Step:
    """One statement on the way, and which part of it goes on to the line ("" at the end)."""

    node: Block
    part: str = ""


def path_to(tree: ast.Module, line: int) -> tuple[Step, ...]:
    """Outermost first, from the innermost function that holds the line.

    What encloses a `def` does not enclose its body when it is called.
    """
    steps: list[Step] = []
    node: ast.AST = tree
    while (found := _child_on(node, line)) is not None:
        part, child = found
        if steps:
            steps[-1] = Step(steps[-1].node, part)
        if isinstance(node, FUNCTIONS):
            steps = []
        steps.append(Step(child))
        node = child
    return tuple(steps)


def _child_on(node: ast.AST, line: int) -> tuple[str, Block] | None:
    found = None
    for part, child in children(node):
        first, last = extent(child)
        if first <= line <= last:
            found = part, child
    return found


def children(node: ast.AST) -> Iterator[tuple[str, Block]]:
    """The statements directly inside, with the part they are in."""
    for part in PARTS:
        inside = getattr(node, part, None)
        if isinstance(inside, list):  # a lambda's and a conditional's body is no list
            for child in inside:
                yield part, child


def extent(node: Block) -> tuple[int, int]:
    """First and last line, decorators included."""
    if isinstance(node, ast.match_case):
        return node.pattern.lineno, extent(node.body[-1])[1]
    decorators = getattr(node, "decorator_list", [])
    first = min([node.lineno, *(d.lineno for d in decorators)])
    return first, node.end_lineno or node.lineno


def inside(node: ast.AST) -> Iterator[ast.AST]:
    """Everything below a node that runs with it: not the bodies of nested functions."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, (*FUNCTIONS, ast.Lambda)):
            continue
        yield child
        yield from inside(child)
