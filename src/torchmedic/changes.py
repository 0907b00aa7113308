"""Exact edits of a script, as fixes need them. An empty tuple: it can't be done exactly."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from torchmedic.model import Edit
from torchmedic.source.arguments import Spot, arguments
from torchmedic.source.paths import FUNCTIONS

if TYPE_CHECKING:
    from torchmedic.source.script import Script

Edits = tuple[Edit, ...]

TIGHT = (ast.Name, ast.Attribute, ast.Call, ast.Subscript, ast.Constant, ast.List, ast.Dict,
         ast.Set, ast.ListComp, ast.DictComp, ast.SetComp)
"""Expressions that stay one whatever stands beside them."""


def replacing(node: ast.AST | None, text: str) -> Edits:
    """Puts a text in the place of an expression or statement."""
    if node is None or getattr(node, "end_col_offset", None) is None:
        return ()
    start, end = _span(node)
    return (Edit(*start, *end, text),)


def wrapping(node: ast.AST | None, before: str, after: str) -> Edits:
    """Puts text on both sides of an expression; it must be one that no operator splits."""
    if node is None or getattr(node, "end_col_offset", None) is None:
        return ()
    start, end = _span(node)
    return (*((Edit(*start, *start, before),) if before else ()), Edit(*end, *end, after))


def out_of_place(script: Script, node: ast.AugAssign) -> Edits:
    """`x += y` as `x = x + y`."""
    sign = _SIGNS.get(type(node.op))
    (_, start), (end, last) = _span(node.target), _span(node.value)
    if sign is None or "#" in text_between(script, start, end):
        return ()
    tight = isinstance(node.value, TIGHT) or "(" in text_between(script, start, end)
    left, right = ("", "") if tight else ("(", ")")
    return (Edit(*start, *end, f" = {ast.unparse(node.target)} {sign} {left}"),
            *((Edit(*last, *last, right),) if right else ()))


_SIGNS: dict[type[ast.operator], str] = {
    ast.Add: "+", ast.Sub: "-", ast.Mult: "*", ast.Div: "/", ast.Pow: "**", ast.MatMult: "@"}


def unwrapping(script: Script, node: ast.AST, inner: ast.AST) -> Edits:
    """Leaves of a call only one of its parts, as it is written."""
    (start, end), (first, last) = _span(node), _span(inner)
    if not start <= first <= last <= end:
        return ()
    if "#" in text_between(script, start, first) + text_between(script, last, end):
        return ()  # a comment would go
    left, right = ("", "") if isinstance(inner, TIGHT) else ("(", ")")
    return (Edit(*start, *first, left), Edit(*last, *end, right))


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
    at = spots[-1].end if spots else closing
    return (Edit(*at, *at, f"{', ' if spots else ''}{name}={value}"),)


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
    start, end = found[0][0].start, found[1]
    return () if "#" in text_between(script, start, end) else (Edit(*start, *end, ""),)


def _fills(script: Script, start: Spot, end: Spot) -> bool:
    """Nothing but a comma stands on the same lines."""
    before = text_between(script, (start[0], 0), start)
    after = script.line(end[0]).encode("utf-8", "surrogatepass")[end[1]:].strip()
    return not before.strip() and after in (b"", b",")


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


def assigned(script: Script, value: ast.AST | None) -> str | None:
    """The name that an expression's value is given: `model`, `self.model`."""
    for node in ast.walk(script.tree):
        if isinstance(node, ast.Assign) and node.value is value and len(node.targets) == 1 and (
                isinstance(node.targets[0], (ast.Name, ast.Attribute))):
            return ast.unparse(node.targets[0])
    return None


def reaches(script: Script, made: int, used: int) -> bool:
    """A name that is set on one line has its value on another one, further down."""
    one, other = script.function_at(made), script.function_at(used)
    return made < used and (one is None or one == other)


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


def name_of(script: Script, module: str) -> str | None:
    """How the file names a module that it imports, such as `nn` for `torch.nn`."""
    package, _, last = module.rpartition(".")
    for node in script.tree.body:
        if isinstance(node, ast.ImportFrom) and node.module == package and not node.level:
            found = next((a.asname or a.name for a in node.names if a.name == last), None)
        elif isinstance(node, ast.Import):
            found = next((a.asname or a.name for a in node.names if a.name == module), None)
        else:
            found = None
        if found:
            return found
    outer = name_of(script, package) if package else None
    return f"{outer}.{last}" if outer else None


def importing(script: Script, module: str) -> Edits | None:
    """`import module` among the imports of the file, unless it is there; None when the file uses
    that name for something else."""
    wanted = [n for n in script.tree.body if isinstance(n, ast.Import)]
    if _taken(script.tree, module):
        return None
    if any(a.name == module and a.asname is None for n in wanted for a in n.names):
        return ()
    line = _import_line(script)
    return (Edit(line, 0, line, 0, f"import {module}\n"),)


def _import_line(script: Script) -> int:
    """Where the first import stands that is none of the future; else the first statement."""
    body = script.tree.body
    if body and ast.get_docstring(script.tree, clean=False) is not None:
        body = body[1:]
    later = [n for n in body if not (isinstance(n, ast.ImportFrom) and n.module == "__future__")]
    first = next((n for n in later if isinstance(n, (ast.Import, ast.ImportFrom))),
                 later[0] if later else None)
    if first is None:
        return 1
    above: list[ast.expr] = getattr(first, "decorator_list", [])
    return min([first.lineno, *(d.lineno for d in above)])


def _taken(tree: ast.Module, name: str) -> bool:
    """Something else in the file has this name. Methods are no names of the file."""
    methods = {id(n) for c in ast.walk(tree) if isinstance(c, ast.ClassDef) for n in c.body}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            taken = any(a.asname == name and a.name != name for a in node.names)
        elif isinstance(node, ast.ImportFrom):
            taken = any((a.asname or a.name) in (name, "*") and not (
                a.name == "*" and (node.module or "").startswith("torch")) for a in node.names)
        elif isinstance(node, (*FUNCTIONS, ast.ClassDef)):
            taken = node.name == name and id(node) not in methods
        elif isinstance(node, ast.Name):
            taken = node.id == name and not isinstance(node.ctx, ast.Load)
        else:
            taken = isinstance(node, ast.arg) and node.arg == name
        if taken:
            return True
    return False


def block_of(script: Script, node: ast.AST) -> list[ast.stmt]:
    """The statements among which this one stands."""
    for parent in ast.walk(script.tree):
        for part in ("body", "orelse", "finalbody"):
            block = getattr(parent, part, None)
            if isinstance(block, list) and any(s is node for s in block):
                return block
    return []


def text_between(script: Script, start: Spot, end: Spot) -> str:
    """What stands between two places."""
    lines = [line.encode("utf-8", "surrogatepass") for line in script.lines[start[0] - 1:end[0]]]
    if lines:
        lines[-1] = lines[-1][:end[1]]
        lines[0] = lines[0][start[1]:]
    return b"\n".join(lines).decode("utf-8", "replace")


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
    _, (line, column) = _span(node)
    return script.line(line).encode("utf-8", "surrogatepass")[column:].decode(
        "utf-8", "replace").strip()


def _span(node: ast.AST) -> tuple[Spot, Spot]:
    start = (getattr(node, "lineno", 0), getattr(node, "col_offset", 0))
    return start, (getattr(node, "end_lineno", 0) or 0, getattr(node, "end_col_offset", 0) or 0)
