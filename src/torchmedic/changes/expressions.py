"""Edits of expressions: a part of them goes, comes, or gets another name."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from torchmedic.changes.places import Edits, span, text_between
from torchmedic.model import Edit
from torchmedic.source.arguments import Spot, arguments

if TYPE_CHECKING:
    from torchmedic.source.script import Script

TIGHT = (ast.Name, ast.Attribute, ast.Call, ast.Subscript, ast.Constant, ast.List, ast.Dict,
         ast.Set, ast.ListComp, ast.DictComp, ast.SetComp)
"""Expressions that stay one whatever stands beside them."""


def replacing(node: ast.AST | None, text: str) -> Edits:
    """Puts a text in the place of an expression or statement."""
    if node is None or getattr(node, "end_col_offset", None) is None:
        return ()
    start, end = span(node)
    return (Edit(*start, *end, text),)


def wrapping(node: ast.AST | None, before: str, after: str) -> Edits:
    """Puts text on both sides of an expression; it must be one that no operator splits."""
    if node is None or getattr(node, "end_col_offset", None) is None:
        return ()
    start, end = span(node)
    return (*((Edit(*start, *start, before),) if before else ()), Edit(*end, *end, after))


def unwrapping(script: Script, node: ast.AST, inner: ast.AST) -> Edits:
    """Leaves of a call only one of its parts, as it is written."""
    (start, end), (first, last) = span(node), span(inner)
    if not start <= first <= last <= end:
        return ()
    if "#" in text_between(script, start, first) + text_between(script, last, end):
        return ()  # a comment would go
    left, right = ("", "") if isinstance(inner, TIGHT) else ("(", ")")
    return (Edit(*start, *first, left), Edit(*last, *end, right))


def out_of_place(script: Script, node: ast.AugAssign) -> Edits:
    """`x += y` as `x = x + y`."""
    sign = _SIGNS.get(type(node.op))
    (_, start), (end, last) = span(node.target), span(node.value)
    if sign is None or "#" in text_between(script, start, end):
        return ()
    tight = isinstance(node.value, TIGHT) or "(" in text_between(script, start, end)
    left, right = ("", "") if tight else ("(", ")")
    return (Edit(*start, *end, f" = {ast.unparse(node.target)} {sign} {left}"),
            *((Edit(*last, *last, right),) if right else ()))


_SIGNS: dict[type[ast.operator], str] = {
    ast.Add: "+", ast.Sub: "-", ast.Mult: "*", ast.Div: "/", ast.Pow: "**", ast.MatMult: "@"}


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


def of_part(node: ast.AST, method: str, part: str) -> Edits:
    """`a.method(…)` of a part of `a`, where an expression holds one such call."""
    calls = [n for n in ast.walk(node) if isinstance(n, ast.Call)
             and isinstance(n.func, ast.Attribute) and n.func.attr == method]
    owner = calls[0].func.value if len(calls) == 1 else None  # type: ignore[attr-defined]
    return wrapping(owner, "", f".{part}") if isinstance(owner, TIGHT) else ()


def with_keyword(script: Script, call: ast.AST | None, name: str, value: str) -> Edits:
    """`name=value` in a call: in the place of the value it has, else as its last argument."""
    if not isinstance(call, ast.Call) or any(k.arg is None for k in call.keywords):
        return ()  # `**options` may hold it
    given = next((k.value for k in call.keywords if k.arg == name), None)
    found = arguments(script, call)
    if given is not None or found is None:
        return replacing(given, value)
    if len(call.args) == 1 and isinstance(call.args[0], ast.GeneratorExp):
        return ()  # it would need brackets
    spots, closing = found
    if not spots:
        return (Edit(*closing, *closing, f"{name}={value}"),)
    return _behind(script, spots[-1].start, spots[-1].end, f"{name}={value}")


def _behind(script: Script, start: Spot, end: Spot, text: str) -> Edits:
    """One more argument: on a line of its own where the last one has its own."""
    head = text_between(script, (start[0], 0), start)
    rest = script.line(end[0]).encode("utf-8", "surrogatepass")[end[1]:].decode("utf-8", "replace")
    if head.strip() or rest.partition("#")[0].strip() not in ("", ","):
        return (Edit(*end, *end, f", {text}"),)
    comma = rest.strip().startswith(",")
    close = (end[0], len(script.line(end[0]).encode("utf-8", "surrogatepass")))
    comment = () if comma else (Edit(*end, *end, ","),)
    return (*comment, Edit(*close, *close, f"\n{head}{text}{',' if comma else ''}")) if (
        "#" in rest or comma) else (Edit(*end, *end, f",\n{head}{text}"),)


def without_argument(script: Script, call: ast.AST | None, value: ast.AST | None) -> Edits:
    """Leaves one argument out of a call, with the comma that goes with it."""
    found = arguments(script, call) if isinstance(call, ast.Call) else None
    if found is None:
        return ()
    spots, _ = found
    at = next((i for i, spot in enumerate(spots) if spot.node is value), None)
    if at is None:
        return ()
    own = spots[at]
    if len(spots) == 1 and isinstance(call, ast.Call):
        return emptying(script, call)  # also the comma behind it
    if _fills(script, own.start, own.end):
        return (Edit(own.start[0], 0, own.end[0] + 1, 0, ""),)
    start = spots[at - 1].end if at else own.start
    end = spots[1].start if not at and len(spots) > 1 else own.end
    return () if "#" in text_between(script, start, end) else (Edit(*start, *end, ""),)


def emptying(script: Script, call: ast.Call) -> Edits:
    """Leaves all arguments out of a call."""
    found = arguments(script, call)
    if not found or not found[0]:
        return ()
    (_, called), end = span(call.func), found[1]
    before = text_between(script, called, found[0][0].start)
    rows = before[:before.rfind("(") + 1].split("\n")
    column = len(rows[-1].encode("utf-8", "surrogatepass"))
    start = (called[0] + len(rows) - 1, column + (called[1] if len(rows) == 1 else 0))
    return () if "#" in text_between(script, called, end) else (Edit(*start, *end, ""),)


def _fills(script: Script, start: Spot, end: Spot) -> bool:
    """Nothing but a comma stands on the same lines."""
    before = text_between(script, (start[0], 0), start)
    after = script.line(end[0]).encode("utf-8", "surrogatepass")[end[1]:].strip()
    return not before.strip() and after in (b"", b",")
