"""Edits of whole lines: a statement comes, goes, moves, or gets a block round it."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from torchmedic.changes.places import Edits, span, text_between
from torchmedic.model import Edit
from torchmedic.source.paths import FUNCTIONS

if TYPE_CHECKING:
    from torchmedic.source.script import Script


def before(script: Script, line: int, text: str) -> Edits:
    """A line of its own before the statement that begins on `line`, as far indented."""
    indent = _indent(script, line)
    if indent is None:
        return ()
    return (Edit(line, 0, line, 0, f"{indent}{text}\n"),)


def at_start(script: Script, function: ast.AST, text: str) -> Edits:
    """A line of its own as the first of a function, behind its docstring."""
    body: list[ast.stmt] = getattr(function, "body", [])
    told = bool(body) and isinstance(body[0], ast.Expr) and isinstance(
        body[0].value, ast.Constant) and isinstance(body[0].value.value, str)
    if told and len(body) == 1:
        return after(script, body[0].lineno, text)
    first = body[1 if told else 0]
    above: list[ast.expr] = getattr(first, "decorator_list", [])
    return before(script, first.lineno, text) if not above else ()


def after(script: Script, line: int, text: str) -> Edits:
    """A line of its own after the statement that begins on `line`."""
    indent, statement = _indent(script, line), script.statement_at(line)
    if indent is None or statement is None or _rest(script, statement.node).startswith("\\"):
        return ()
    at = (statement.end_line, len(script.line(statement.end_line).encode()))
    return (Edit(*at, *at, f"\n{indent}{text}"),)


def within(script: Script, statement: ast.stmt, header: str) -> Edits:
    """A `with` or an `if` round a statement, whose lines go further in."""
    indent = _indent(script, statement.lineno)
    last = statement.end_lineno or statement.lineno
    long = (ast.Constant, ast.JoinedStr)
    if indent is None or any(isinstance(n, long) and n.lineno != n.end_lineno
                             for n in ast.walk(statement)):
        return ()  # it would change a text that goes over several lines
    step = "\t" if "\t" in indent or script.line(last).startswith("\t") else "    "
    first = Edit(statement.lineno, 0, statement.lineno, 0, f"{indent}{header}\n{step}")
    lines = [n for n in range(statement.lineno + 1, last + 1) if script.line(n).strip()]
    return (first, *(Edit(n, 0, n, 0, step) for n in lines))


def removing(script: Script, line: int) -> Edits:
    """Takes the simple statement that begins on `line` out, with its lines."""
    found = script.statement_at(line)
    if found is None or hasattr(found.node, "body") or _indent(script, line) is None:
        return ()
    if len(block_of(script, found.node)) < 2 or found.end_line >= len(script.lines) or (
            _rest(script, found.node)):
        return ()
    return (Edit(found.line, 0, found.end_line + 1, 0, ""),)


def moving(script: Script, line: int, to: int) -> Edits:
    """Takes the simple statement on `line` behind the one on `to` of the same block, or before
    it when that stands further up. Comments right above it go with it."""
    found, goal = script.statement_at(line), script.statement_at(to)
    if found is None or goal is None or found.line == goal.line or hasattr(found.node, "body"):
        return ()
    block = block_of(script, found.node)
    if not any(s is goal.node for s in block) or not _can_pass(block, found.node, goal.node):
        return ()
    if _indent(script, line) is None or _indent(script, to) is None:
        return ()
    first = found.line
    while _comments(script, first - 1, _indent(script, line) or ""):
        first -= 1
    lines = script.lines[first - 1:found.end_line]
    if found.end_line < len(script.lines):
        out = Edit(first, 0, found.end_line + 1, 0, "")
    else:
        out = Edit(first - 1, len(script.line(first - 1).encode()), found.end_line,
                   len(lines[-1].encode()), "")
    if goal.line > found.line:
        at = (goal.end_line, len(script.line(goal.end_line).encode()))
        return (out, Edit(*at, *at, "\n" + "\n".join(lines)))
    return (out, Edit(goal.line, 0, goal.line, 0, "\n".join(lines) + "\n"))


def _comments(script: Script, line: int, indent: str) -> bool:
    return line > 0 and script.line(line).startswith(f"{indent}#")


def _can_pass(block: list[ast.stmt], node: ast.AST, goal: ast.AST) -> bool:
    """No name that one of the statements on the way sets is used by the other."""
    low, high = sorted((_index(block, node), _index(block, goal)))
    way = [s for s in block[low:high + 1] if s is not node]
    if any(_leaves(s) for s in way):
        return False
    set_here, used_here = _names(node, ast.Store), _names(node, ast.Load)
    set_there = {n for s in way for n in _names(s, ast.Store)}
    used_there = {n for s in way for n in _names(s, ast.Load)}
    return not (set_here & (set_there | used_there) or used_here & set_there)


def _leaves(node: ast.AST, loop: bool = False) -> bool:
    """It may leave the block. loop: `break` and `continue` stay inside it."""
    if isinstance(node, (ast.Return, ast.Raise)):
        return True
    if isinstance(node, (ast.Break, ast.Continue)):
        return not loop
    if isinstance(node, (*FUNCTIONS, ast.ClassDef, ast.Lambda)):
        return False
    loop = loop or isinstance(node, (ast.For, ast.AsyncFor, ast.While))
    return any(_leaves(n, loop) for n in ast.iter_child_nodes(node))


def _index(block: list[ast.stmt], node: ast.AST) -> int:
    return next(i for i, s in enumerate(block) if s is node)


def _names(node: ast.AST, how: type[ast.expr_context]) -> set[str]:
    return {n.id for n in ast.walk(node) if isinstance(n, ast.Name) and isinstance(n.ctx, how)}


def block_of(script: Script, node: ast.AST) -> list[ast.stmt]:
    """The statements among which this one stands."""
    for parent in ast.walk(script.tree):
        for part in ("body", "orelse", "finalbody"):
            block = getattr(parent, part, None)
            if isinstance(block, list) and any(s is node for s in block):
                return block
    return []


def _indent(script: Script, line: int) -> str | None:
    """The white space before the statement; None where something else stands beside it."""
    statement = script.statement_at(line)
    column = getattr(statement.node, "col_offset", None) if statement is not None else None
    if statement is None or statement.line != line or column is None:
        return None
    head = text_between(script, (line, 0), (line, column))
    crowded = head.strip() or _rest(script, statement.node).startswith(";") or (
        script.line(line - 1).endswith("\\"))
    return None if crowded else head


def _rest(script: Script, node: ast.AST) -> str:
    """What stands behind a simple statement on its last line."""
    if hasattr(node, "body"):
        return ""
    _, (line, column) = span(node)
    return script.line(line).encode("utf-8", "surrogatepass")[column:].decode(
        "utf-8", "replace").strip()
