"""Functions, handlers, loops and statements of a script, as rules ask for them."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Literal, TypeGuard

from torchmedic.source.paths import FUNCTIONS, Step, children, extent, inside

HandlerKind = Literal["pass", "break", "continue", "return", "other"]
JUMPS: dict[type[ast.stmt], HandlerKind] = {
    ast.Break: "break", ast.Continue: "continue", ast.Return: "return",
}


# `with` blocks that end with the exception in their body: the first allows it, the others want it.
TAKERS = ("suppress", "assertRaises", "assertRaisesRegex", "raises")


@dataclass(frozen=True, slots=True)
class Function:
    """A function or method; `name` is qualified as in `Net.forward`."""

    name: str
    line: int
    end_line: int
    node: ast.FunctionDef | ast.AsyncFunctionDef = field(repr=False, compare=False)


@dataclass(frozen=True, slots=True)
class Handler:
    """An `except` clause, or a `with suppress(…)`.

    types: what it catches, as written; empty for a bare `except:`.
    kind: `pass` when the body does nothing, a jump when the body ends with one, else `other`.
    reraises: every way through its body raises. chooses: only some do, such as `if …: raise`.
    expects: the exception has to come, as in `with pytest.raises(…)`.
    """

    line: int
    end_line: int
    types: tuple[str, ...]
    kind: HandlerKind
    reraises: bool
    name: str | None
    try_line: int
    node: ast.AST = field(repr=False, compare=False)
    chooses: bool = False
    expects: bool = False

    @property
    def text(self) -> str:
        """Its first line without the colon, such as `except (ValueError, OSError)`."""
        if isinstance(self.node, (ast.With, ast.AsyncWith)):
            return f"with {'raises' if self.expects else 'suppress'}({', '.join(self.types)})"
        listed = ", ".join(self.types)
        listed = f"({listed})" if len(self.types) > 1 else listed
        return f"except {listed}".rstrip() + (f" as {self.name}" if self.name else "")


@dataclass(frozen=True, slots=True)
class Loop:
    """A loop. target and over are text: `images, labels` and `loader`; a `while` has no target."""

    line: int
    end_line: int
    kind: Literal["for", "while"]
    target: str | None
    over: str
    node: ast.For | ast.AsyncFor | ast.While = field(repr=False, compare=False)


@dataclass(frozen=True, slots=True)
class Statement:
    """One statement: its kind in lower case (`break`, `return`, `assign`, …) and first line."""

    line: int
    end_line: int
    kind: str
    text: str
    node: ast.AST = field(repr=False, compare=False)


def functions_in(node: ast.AST, prefix: str = "") -> Iterator[Function]:
    """All functions below a node, outer before inner."""
    for _, child in children(node):
        name = prefix
        if isinstance(child, (*FUNCTIONS, ast.ClassDef)):
            name = f"{prefix}.{child.name}" if prefix else child.name
        if isinstance(child, FUNCTIONS):
            yield Function(name, child.lineno, child.end_lineno or child.lineno, child)
        yield from functions_in(child, name)


def handlers_on(step: Step) -> Iterator[Handler]:
    """The handlers that guard what a step leads to."""
    node = step.node
    if step.part == "body" and _is_try(node):
        for handler in node.handlers:
            yield _handler(handler, node.lineno)
    elif step.part == "body" and isinstance(node, (ast.With, ast.AsyncWith)):
        for item in node.items:
            called = item.context_expr
            if isinstance(called, ast.Call) and (name := _called(called)) in TAKERS:
                yield _taker(node, called, expects=name != "suppress")


def _is_try(node: ast.AST) -> TypeGuard[ast.Try]:
    return type(node).__name__ in ("Try", "TryStar")  # TryStar: `except*`, from 3.11


def own_handler(step: Step) -> Handler | None:
    """The handler that a step is."""
    if isinstance(step.node, ast.ExceptHandler):
        return _handler(step.node, None)
    return None


def _handler(node: ast.ExceptHandler, try_line: int | None) -> Handler:
    first, last = extent(node)
    surely = _raises(node.body)
    return Handler(
        line=first, end_line=last, types=_types(node.type), kind=_kind(node.body),
        reraises=surely, name=node.name, try_line=try_line or first, node=node,
        chooses=not surely and any(isinstance(found, ast.Raise) for found in inside(node)),
    )


def _raises(body: Sequence[ast.stmt]) -> bool:
    """Every way through these statements ends in a `raise`."""
    for statement in body:
        if isinstance(statement, ast.Raise):
            return True
        if isinstance(statement, ast.If) and _raises(statement.body) and _raises(statement.orelse):
            return True
        if isinstance(statement, (ast.With, ast.AsyncWith)) and _raises(statement.body):
            return True
        if any(isinstance(found, tuple(JUMPS)) for found in (statement, *inside(statement))):
            return False
    return False


def _types(node: ast.expr | None) -> tuple[str, ...]:
    if node is None:
        return ()
    if isinstance(node, ast.Tuple):
        return tuple(ast.unparse(item) for item in node.elts)
    return (ast.unparse(node),)


def _kind(body: Sequence[ast.stmt]) -> HandlerKind:
    if all(isinstance(s, ast.Pass) or _is_constant(s) for s in body):
        return "pass"
    return JUMPS.get(type(body[-1]), "other")


def _is_constant(statement: ast.stmt) -> bool:
    return isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)


def _called(call: ast.Call) -> str:
    return ast.unparse(call.func).rpartition(".")[2]


def _taker(node: ast.With | ast.AsyncWith, call: ast.Call, *, expects: bool) -> Handler:
    first, last = extent(node)
    given = call.args
    if expects:  # one type or a tuple of them; then a pattern
        first_type = next((k.value for k in call.keywords
                           if k.arg == "expected_exception"), None)
        types = _types(given[0] if given else first_type)
    else:
        types = tuple(ast.unparse(a) for a in given)
    return Handler(
        line=first, end_line=last, types=types, kind="pass",
        reraises=False, name=None, try_line=first, node=node, expects=expects,
    )


def loop_of(step: Step) -> Loop | None:
    """The loop that goes round over what a step leads to; not its `else`."""
    node = step.node
    if step.part == "orelse":
        return None
    if isinstance(node, (ast.For, ast.AsyncFor)):
        target, over = ast.unparse(node.target), ast.unparse(node.iter)
        return Loop(node.lineno, node.end_lineno or node.lineno, "for",
                    target.removeprefix("(").removesuffix(")"), over, node)
    if isinstance(node, ast.While):
        return Loop(node.lineno, node.end_lineno or node.lineno, "while", None,
                    ast.unparse(node.test), node)
    return None


def statement_of(node: ast.AST) -> Statement:
    """A statement's kind and text; of a compound one its first line."""
    kind = type(node).__name__.lower()
    text = ast.unparse(node).partition("\n")[0]
    line = getattr(node, "lineno", 0) or getattr(getattr(node, "pattern", None), "lineno", 0)
    return Statement(line, getattr(node, "end_lineno", line) or line, kind, text, node)
