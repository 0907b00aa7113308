"""Exact edits of a script, as fixes need them. An empty tuple: it can't be done exactly."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from torchmedic.model import Edit

if TYPE_CHECKING:
    from torchmedic.source.script import Script

Edits = tuple[Edit, ...]


def replacing(node: ast.AST | None, text: str) -> Edits:
    """Puts a text in the place of an expression or statement."""
    if node is None or getattr(node, "end_col_offset", None) is None:
        return ()
    return (Edit(node.lineno, node.col_offset, node.end_lineno, node.end_col_offset, text),)  # type: ignore[attr-defined]


def wrapping(node: ast.AST | None, before: str, after: str) -> Edits:
    """Puts text on both sides of an expression."""
    if node is None or getattr(node, "end_col_offset", None) is None:
        return ()
    start = (node.lineno, node.col_offset)  # type: ignore[attr-defined]
    end = (node.end_lineno, node.end_col_offset)  # type: ignore[attr-defined]
    return (*((Edit(*start, *start, before),) if before else ()), Edit(*end, *end, after))


def renaming(node: ast.AST | None, old: str, new: str) -> Edits:
    """Another name for the last part of `a.b.old`, or of the name that an assignment sets."""
    if isinstance(node, ast.Call):
        node = node.func
    if isinstance(node, ast.Assign) and len(node.targets) == 1:
        node = node.targets[0]
    if not isinstance(node, (ast.Attribute, ast.Name)) or node.end_col_offset is None:
        return ()
    if (node.attr if isinstance(node, ast.Attribute) else node.id) != old:
        return ()
    line, end = node.end_lineno or node.lineno, node.end_col_offset
    return (Edit(line, end - len(old.encode()), line, end, new),)


def with_keyword(call: ast.AST | None, text: str) -> Edits:
    """One more argument at the end of a call: `text` is `name=value`."""
    if not isinstance(call, ast.Call) or call.end_col_offset is None:
        return ()
    given = [*call.args, *(keyword.value for keyword in call.keywords)]
    if not given:
        at = (call.end_lineno or call.lineno, call.end_col_offset - 1)
        return (Edit(*at, *at, text),)
    last = max(given, key=lambda node: (node.end_lineno or 0, node.end_col_offset or 0))
    at = (last.end_lineno or last.lineno, last.end_col_offset or 0)
    return (Edit(*at, *at, f", {text}"),)


def without_argument(script: Script, call: ast.AST | None, value: ast.AST | None) -> Edits:
    """Leaves one argument out of a call, with the comma that goes with it."""
    if not isinstance(call, ast.Call) or value is None:
        return ()
    spans = sorted([_span(node) for node in call.args]
                   + [_span(keyword) for keyword in call.keywords])
    keyword = next((k for k in call.keywords if k.value is value), None)
    own = _span(keyword if keyword is not None else value)
    if own not in spans:
        return ()
    at = spans.index(own)
    if at:
        start, end = spans[at - 1][1], own[1]
    elif len(spans) > 1:
        start, end = own[0], spans[1][0]
    else:
        start, end = own
    between = _text(script, start, end)
    return () if "#" in between else (Edit(*start, *end, ""),)


def before(script: Script, line: int, text: str) -> Edits:
    """A line of its own before the statement that begins on `line`, as far indented."""
    indent = _indent(script, line)
    if indent is None:
        return ()
    return (Edit(line, 0, line, 0, f"{indent}{text}\n"),)


def after(script: Script, line: int, text: str) -> Edits:
    """A line of its own after the statement that begins on `line`."""
    indent, statement = _indent(script, line), script.statement_at(line)
    if indent is None or statement is None or statement.end_line >= len(script.lines):
        return ()
    return (Edit(statement.end_line + 1, 0, statement.end_line + 1, 0, f"{indent}{text}\n"),)


def moving(script: Script, line: int, to: int) -> Edits:
    """Takes the simple statement on `line` to before or after the one on `to`, further down."""
    statement, goal = script.statement_at(line), script.statement_at(to)
    if statement is None or goal is None or hasattr(statement.node, "body"):
        return ()
    if _indent(script, line) is None or _indent(script, to) is None:
        return ()
    if statement.line == goal.line or statement.end_line >= len(script.lines):
        return ()
    if _alone(script, statement.node):
        return ()  # its block would be empty
    first, last = statement.line, statement.end_line
    old, new = _indent(script, line) or "", _indent(script, to) or ""
    lines = [new + text.removeprefix(old) for text in script.lines[first - 1:last]]
    place = goal.end_line + 1 if goal.line > last else goal.line
    if place > len(script.lines):
        return ()
    return (Edit(first, 0, last + 1, 0, ""), Edit(place, 0, place, 0, "\n".join(lines) + "\n"))


def importing(script: Script, module: str) -> Edits:
    """`import module` among the imports of the file, unless it is there."""
    places = []
    for node in script.tree.body:
        if isinstance(node, ast.Import) and any(
                a.name == module and a.asname is None for a in node.names):
            return ()
        if isinstance(node, (ast.Import, ast.ImportFrom)):
            future = isinstance(node, ast.ImportFrom) and node.module == "__future__"
            places.append((node.end_lineno or node.lineno) + 1 if future else node.lineno)
    line = places[1] if len(places) > 1 and _is_future(script, places[0]) else \
        places[0] if places else 1
    return (Edit(line, 0, line, 0, f"import {module}\n"),)


def _is_future(script: Script, line: int) -> bool:
    return "__future__" in script.line(line - 1)


def _indent(script: Script, line: int) -> str | None:
    """The white space before the statement; None where something else stands before it."""
    statement = script.statement_at(line)
    column = getattr(statement.node, "col_offset", None) if statement is not None else None
    if statement is None or statement.line != line or column is None:
        return None
    head = script.line(line)[:column]
    text = script.line(statement.end_line)
    end = getattr(statement.node, "end_col_offset", None)
    rest = "" if end is None or hasattr(statement.node, "body") else \
        text.encode()[end:].decode("utf-8", "ignore").strip()
    return head if not head.strip() and not rest.startswith(";") else None


def _alone(script: Script, node: ast.AST) -> bool:
    """The only statement of its block."""
    for parent in ast.walk(script.tree):
        for part in ("body", "orelse", "finalbody"):
            block = getattr(parent, part, None)
            if isinstance(block, list) and node in block:
                return len(block) == 1
    return True


def _span(node: ast.AST) -> tuple[tuple[int, int], tuple[int, int]]:
    start = (getattr(node, "lineno", 0), getattr(node, "col_offset", 0))
    return start, (getattr(node, "end_lineno", 0) or 0, getattr(node, "end_col_offset", 0) or 0)


def _text(script: Script, start: tuple[int, int], end: tuple[int, int]) -> str:
    lines = script.lines[start[0] - 1:end[0]]
    return "\n".join(lines)[start[1]:] if len(lines) > 1 else lines[0][start[1]:end[1]]
