"""Goes through statements in the order in which Python would."""

from __future__ import annotations

import ast
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from torchmedic.source.flow import views
from torchmedic.source.flow.calls import Calls
from torchmedic.source.flow.names import imported, module_of
from torchmedic.source.flow.scopes import Scope, guessed
from torchmedic.source.flow.trace import Frame, Trace
from torchmedic.source.flow.values import Value, const, either, tensor
from torchmedic.source.paths import FUNCTIONS

if TYPE_CHECKING:
    from torchmedic.source.script import Script

JUMPS = (ast.Return, ast.Raise, ast.Break, ast.Continue)
GRAD_OFF = ("no_grad", "inference_mode")


def follow(script: Script) -> Trace:
    """The trace of a file: its own code, then every function that this code does not call."""
    run = Interpreter(script)
    text = "\n".join(script.lines)
    if "torch" not in text and "nn." not in text:
        return run.trace
    run.block(script.tree.body)
    run.rest()
    for number, event in enumerate(run.trace.events):
        event.at = number
    return run.trace


class Interpreter(Calls):
    """The state of one passage through a file."""

    def __init__(self, script: Script) -> None:
        self.script = script
        self.trace = Trace(script)
        self.file = script.file
        self.scope = self.top = Scope(script.file, None, script)
        self.frames: tuple[Frame, ...] = ()
        self.grad: bool | None = True
        self.active: list[ast.AST] = []
        self.returned: list[Value] = []
        self.seen: set[int] = set()
        self.modules: dict[str, Scope] = {}
        self.unsure = 0
        """How many calls we are in of which it is not known that they happen like this."""
        self.left = 30_000
        """Statements that may still be looked at: no file is worth more time."""

    def rest(self) -> None:
        """Functions and classes that nothing calls, with parameters nobody knows."""
        for value in list(self.top.names.values()):
            if value.file != self.script.file:
                continue
            if value.kind == "function" and isinstance(value.node, FUNCTIONS) and (
                    id(value.node) not in self.seen):
                self.enter(value)
            elif value.kind == "class":
                self.enter_class(value)

    def enter(self, function: Value, owner: Value | None = None) -> None:
        node = function.node
        assert isinstance(node, FUNCTIONS)
        arguments = node.args
        named = [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs]
        if owner is not None and named and not _is_static(node):
            named = named[1:]
        known = {a.arg: guessed(a.arg, a, self.file) for a in named}
        self.run_function(function, [], known, owner, node)

    def enter_class(self, made: Value) -> None:
        owner = None
        for node in self.methods(made).values():
            if id(node) in self.seen or node.name in ("__init__", "__new__"):
                continue
            if owner is None:
                owner = self.instance(made, [], {}, made.node, guess=True)
            self.enter(self.bound(made, node, owner), owner)
        if owner is None and not any(id(n) in self.seen for n in self.methods(made).values()):
            self.instance(made, [], {}, made.node, guess=True)

    # statements

    def block(self, body: Sequence[ast.stmt]) -> bool:
        """Goes through statements; whether they end with a jump."""
        for statement in body:
            self.left -= 1
            if self.left < 0:
                return True
            if self.statement(statement):
                return True
        return False

    def statement(self, node: ast.stmt) -> bool:
        handle = getattr(self, f"do_{type(node).__name__}", None)
        try:
            return bool(handle(node)) if handle else False
        except (RecursionError, AssertionError, AttributeError, TypeError, ValueError, IndexError,
                KeyError):
            return False  # code nobody expected: what follows is still read

    def do_Expr(self, node: ast.Expr) -> None:
        self.value(node.value)

    def do_Assign(self, node: ast.Assign) -> None:
        value = self.value(node.value)
        for target in node.targets:
            if isinstance(node.value, ast.BinOp) and isinstance(node.value.op, ast.Add):
                self.added(node, target, value)
            self.assign(target, value, node)

    def added(self, node: ast.Assign, target: ast.expr, made: Value) -> None:
        """`total = total + loss` is `total += loss`."""
        assert isinstance(node.value, ast.BinOp)
        name, left, right = ast.unparse(target), node.value.left, node.value.right
        if ast.unparse(left) == name:
            self.keep(node, target, self.value(left), self.value(right), made)
        elif ast.unparse(right) == name:
            self.keep(node, target, self.value(right), self.value(left), made)

    def do_AnnAssign(self, node: ast.AnnAssign) -> None:
        if node.value is not None:
            self.assign(node.target, self.value(node.value), node)

    def do_AugAssign(self, node: ast.AugAssign) -> None:
        old, new = self.value(node.target), self.value(node.value)
        made = self.operation(node, old, new, node.op)
        if isinstance(node.op, ast.Add):
            self.keep(node, node.target, old, new, made)
        elif old.kind == "tensor":
            self.event("inplace", node, old)
        made.loops = made.loops or old.loops  # it lives as long as what it is added to
        self.assign(node.target, made, node, again=True)

    def do_Return(self, node: ast.Return) -> bool:
        value = self.value(node.value) if node.value else const(None)
        if value.kind != "const" or node.value is not None:
            self.event("return", node, None, value)
            self.returned.append(value)
        return True

    def do_Raise(self, node: ast.Raise) -> bool:
        return True

    do_Break = do_Continue = do_Raise

    def do_Import(self, node: ast.Import) -> None:
        for name, full in imported(node):
            self.scope.set(name, self.pending(full, node))

    def do_ImportFrom(self, node: ast.ImportFrom) -> None:
        for name, full in imported(node):
            if name == "*":
                self.import_all(full.removesuffix(".*"))
            else:
                self.scope.set(name, self.pending(full, node))

    def pending(self, full: str, node: ast.AST) -> Value:
        """An import whose file is only read once its name is used."""
        file = self.file

        def resolve() -> Value:
            before = self.frames, self.grad, self.active, self.unsure, self.returned
            self.frames, self.grad, self.active, self.unsure, self.returned = (), True, [], 0, []
            try:
                with self.elsewhere(self.scope, file):
                    return self.outside(full, node)
            finally:
                self.frames, self.grad, self.active, self.unsure, self.returned = before

        return Value("pending", full, node, file, data=resolve)

    def outside(self, full: str, node: ast.AST) -> Value:
        """What an import gives: something of the project, or the name of something else."""
        found = module_of(full, self.file) if self.left > 0 else None
        if found is None:
            return Value("external", full, node, self.file)
        script, name = found
        scope = self.module_scope(script)
        if not name:
            return Value("external", full, node, self.file, scope=scope)
        return scope.get(name) or Value("external", full, node, self.file)

    def import_all(self, full: str) -> None:
        found = module_of(full, self.file)
        if found is not None and not found[1]:
            self.scope.names.update(self.module_scope(found[0]).names)
        elif full in ("torch.nn", "torch", "torch.nn.functional", "torch.optim"):
            self.scope.set(f"*{full}", Value("external", full))

    def module_scope(self, script: Script) -> Scope:
        """The names that another file defines; its loops and calls are its own affair."""
        if script.file not in self.modules:
            scope = self.modules[script.file] = Scope(script.file, None, script)
            with self.elsewhere(scope, script.file):
                for statement in script.tree.body:
                    if isinstance(statement, (ast.Import, ast.ImportFrom, *FUNCTIONS, ast.ClassDef,
                                              ast.Assign)):
                        self.statement(statement)
        return self.modules[script.file]

    def do_FunctionDef(self, node: ast.FunctionDef) -> None:
        value = Value("function", node.name, node, self.file, scope=self.scope)
        for decorator in node.decorator_list:
            self.value(decorator)
        self.scope.set(node.name, value)

    do_AsyncFunctionDef = do_FunctionDef

    def do_ClassDef(self, node: ast.ClassDef) -> None:
        made = Value("class", node.name, node, self.file, scope=self.scope)
        made.items = [self.value(base) for base in node.bases]
        made.data = self.base_kind(made)
        self.scope.set(node.name, made)
        if self.file == self.script.file:
            self.trace.classes.append(made)

    def do_Global(self, node: ast.Global | ast.Nonlocal) -> None:
        self.scope.declare(node)

    do_Nonlocal = do_Global

    def do_If(self, node: ast.If) -> bool:
        known = self.decided(node.test)
        before = dict(self.scope.names)
        jumped = self.branch(node, node.body, "body", known)
        first, self.scope.names = self.scope.names, dict(before)
        jumped_else = self.branch(node, node.orelse, "orelse", None if known is None else not known)
        second = self.scope.names
        if known is True or (known is None and jumped_else and not jumped):
            self.scope.names = first
            return jumped
        if known is False or (known is None and jumped and not jumped_else):
            return jumped_else
        self.scope.names = {name: _joined(first.get(name), second.get(name))
                            for name in {**first, **second}}
        return jumped and jumped_else

    def branch(self, node: ast.stmt, body: Sequence[ast.stmt], part: str,
               taken: bool | None) -> bool:
        if taken is False or not body:
            return False
        if taken:
            return self.block(body)
        with self.inside(Frame("branch", node, self.file, branch=part)):
            return self.block(body)

    def do_Try(self, node: ast.Try) -> bool:
        jumped = self.block(node.body)
        for handler in node.handlers:
            with self.inside(Frame("branch", node, self.file, branch="handler")):
                self.block(handler.body)
        self.block(node.orelse)
        self.block(node.finalbody)
        return jumped and not node.handlers

    do_TryStar = do_Try

    def do_Match(self, node: ast.Match) -> None:
        self.value(node.subject)
        for case in node.cases:
            with self.inside(Frame("branch", node, self.file, branch="case")):
                self.block(case.body)

    def do_With(self, node: ast.With) -> bool:
        grad = self.grad
        for item in node.items:
            value = self.value(item.context_expr)
            self.enter_context(value)
            if item.optional_vars is not None:
                self.assign(item.optional_vars, value, node)
        with self.inside(Frame("with", node, self.file)):
            jumped = self.block(node.body)
        self.grad = grad
        return jumped

    do_AsyncWith = do_With

    def enter_context(self, value: Value) -> None:
        for option in value.options():
            if option.kind == "grad":
                self.grad = option.data

    def do_For(self, node: ast.For) -> bool:
        over = self.value(node.iter)
        if _few_words(over):
            for item in over.items:  # such as `for phase in ("train", "val")`
                self.assign(node.target, const(item.data, item.node), node)
                self.block(node.body)
            return False
        frame = Frame("loop", node, self.file, value=over)
        before = dict(self.scope.names)
        with self.inside(frame):
            self.assign(node.target, self.element(over, node.iter), node)
            self.block(node.body)
        self.carried(before)
        self.block(node.orelse)
        return False

    do_AsyncFor = do_For

    def do_While(self, node: ast.While) -> bool:
        before = dict(self.scope.names)
        with self.inside(Frame("loop", node, self.file)):
            self.value(node.test)
            self.block(node.body)
        self.carried(before)
        return False

    def carried(self, before: dict[str, Value]) -> None:
        """What a loop carries on has been gone through once: sizes and counts are not known."""
        for name, old in before.items():
            new = self.scope.names.get(name)
            if new is None or new is old:
                continue
            for option in new.options():
                option.shape = None
            if new.kind == "const" and type(new.data) is int:
                self.scope.names[name] = Value("unknown", "number", new.node, new.file)

    def do_Delete(self, node: ast.Delete) -> None:
        for target in node.targets:
            if isinstance(target, ast.Name):
                self.scope.names.pop(target.id, None)

    # assignment

    def assign(self, target: ast.expr, value: Value, node: ast.AST, again: bool = False) -> None:
        if isinstance(target, ast.Name):
            if not again and not value.loops:
                value.loops = self.loops()
            self.event("assign", node, None, value, name=target.id, again=again)
            self.scope.set(target.id, value)
        elif isinstance(target, (ast.Tuple, ast.List)):
            self.unpack(target.elts, value, node)
        elif isinstance(target, ast.Attribute):
            self.assign_attribute(target, value, node, again)
        elif isinstance(target, ast.Subscript):
            self.assign_item(target, value, node)
        elif isinstance(target, ast.Starred):
            self.assign(target.value, Value("list", items=[value]), node)

    def unpack(self, targets: list[ast.expr], value: Value, node: ast.AST) -> None:
        starred = any(isinstance(t, ast.Starred) for t in targets)
        rows = [] if starred else [o.items for o in value.options() if o.kind in (
            "tuple", "list") and len(o.items) == len(targets)]
        for at, target in enumerate(targets):
            if rows:  # what has another length can't be meant
                self.assign(target, either(row[at] for row in rows), node)
            else:
                self.assign(target, self.part(value, node, at), node)

    def part(self, value: Value, node: ast.AST, at: int) -> Value:
        """One of the things that something unknown unpacks to."""
        if value.data == "sizes" and value.owner is not None:
            return views.size(value.owner, at, node, self.file)
        if value.kind == "tensor":
            made = tensor([value], node, self.file)
            if at and made.graph:
                made.graph = None  # beside a loss a model may give numbers
            return made
        if value.kind == "list" and value.items:
            return either(value.items)
        if value.kind == "unknown" and value.data == "batch":
            return Value("tensor", "", node, self.file, data="batch", device=value.device)
        return Value("unknown", "", node, self.file, owner=value.owner)

    def assign_attribute(self, target: ast.Attribute, value: Value, node: ast.AST,
                         again: bool) -> None:
        base = self.value(target.value)
        self.event("set", node, base, value, name=target.attr, again=again, spot=target)
        if target.attr == "requires_grad" and (value.kind != "const" or not value.data):
            self.freeze(base, sure=value.kind == "const" and not self.branched())
        for option in base.options():
            old = option.attrs.get(target.attr)
            unsure = base.kind == "either" or self.branched()
            option.attrs[target.attr] = either([old, value]) if (
                old is not None and unsure and value.kind != "const") else value
        if not again and not value.loops:
            value.loops = self.loops()

    def assign_item(self, target: ast.Subscript, value: Value, node: ast.AST) -> None:
        base = self.value(target.value)
        key = self.value(target.slice)
        self.event("item", node, base, value, key=key)
        for option in base.options():
            if key.kind == "const" and isinstance(key.data, str):
                option.attrs[f"[{key.data}]"] = value
            elif option.kind in ("list", "module") and type(key.data) is int and (
                    -len(option.items) <= key.data < len(option.items)) and not self.branched():
                option.items[key.data] = value
            elif option.kind in ("list", "dict", "module") and len(option.items) < 64:
                option.items.append(value)
            elif option.kind == "tensor" and value.kind == "tensor":
                option.sources |= value.sources
                option.graph = option.graph or value.graph

    def branched(self) -> bool:
        return bool(self.frames) and self.frames[-1].kind == "branch"


def _joined(one: Value | None, other: Value | None) -> Value:
    if one is None or other is None or one is other:
        return one or other or Value()
    return either([one, other])


def _few_words(over: Value) -> bool:
    return over.kind in ("list", "tuple") and 0 < len(over.items) <= 3 and all(
        item.kind == "const" and isinstance(item.data, (str, bool)) for item in over.items)


def _is_static(node: Any) -> bool:
    return any(isinstance(d, ast.Name) and d.id == "staticmethod" for d in node.decorator_list)
