"""What an expression is worth."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from torchmedic.source.flow import dtypes, spread
from torchmedic.source.flow.trace import Event, Frame, Trace
from torchmedic.source.flow.values import Value, const, either, tensor

if TYPE_CHECKING:
    from torchmedic.source.flow.scopes import Scope


LONGEST = 400
"""Items of a list that are told apart; sums of lists in recursive calls double each time."""


class Expressions:
    """Evaluates expressions in the present scope."""

    trace: Trace
    file: str
    scope: Scope
    frames: tuple[Frame, ...]
    grad: bool | None
    left: int

    def call(self, node: ast.Call) -> Value:
        raise NotImplementedError

    def attribute(self, base: Value, name: str, node: ast.AST) -> Value:
        raise NotImplementedError

    def subscripted(self, base: Value, key: Value, node: ast.Subscript) -> Value:
        raise NotImplementedError

    # the surroundings

    @contextmanager
    def inside(self, frame: Frame) -> Iterator[None]:
        frames, self.frames = self.frames, (*self.frames, frame)
        try:
            yield
        finally:
            self.frames = frames

    @contextmanager
    def elsewhere(self, scope: Scope, file: str) -> Iterator[None]:
        before = self.scope, self.file
        self.scope, self.file = scope, file
        try:
            yield
        finally:
            self.scope, self.file = before

    def event(self, kind: str, node: ast.AST, target: Value | None = None,
              value: Value | None = None, **more: Any) -> Event:
        made = Event(kind, node, self.file, self.frames, len(self.trace.events), target, value,
                     self.grad, more)
        self.trace.events.append(made)
        return made

    def loops(self) -> tuple[Frame, ...]:
        return tuple(frame for frame in self.frames if frame.kind == "loop")

    # expressions

    def value(self, node: ast.expr | None) -> Value:
        if node is None:
            return Value()
        self.left -= 1
        if self.left < -400:
            return Value()
        handle = getattr(self, f"of_{type(node).__name__}", None)
        if handle is not None:
            found: Value = handle(node)
            return found
        return self.parts(node)

    def parts(self, node: ast.AST) -> Value:
        """An expression that we know nothing of: what is inside it still happens."""
        inner = [self.value(child) for child in ast.iter_child_nodes(node)
                 if isinstance(child, ast.expr)]
        if any(i.kind == "tensor" for i in inner) and not isinstance(node, ast.JoinedStr):
            return tensor(inner, node, self.file)
        return Value("unknown", "", node, self.file)

    def of_Constant(self, node: ast.Constant) -> Value:
        return const(node.value, node)

    def of_Name(self, node: ast.Name) -> Value:
        found = self.scope.get(node.id)
        if found is None:
            return self.starred(node)
        return found

    def starred(self, node: ast.Name) -> Value:
        """A name that nobody assigns: of `from torch.nn import *`, or a builtin."""
        for full in ("torch.nn", "torch.nn.functional", "torch.optim", "torch"):
            if self.scope.get(f"*{full}") is not None and node.id[:1].isupper():
                return Value("external", f"{full}.{node.id}", node, self.file)
        return Value("external", f"builtins.{node.id}", node, self.file)

    def of_Attribute(self, node: ast.Attribute) -> Value:
        base = self.value(node.value)
        if base.kind == "either":
            return either(self.attribute(option, node.attr, node) for option in base.options())
        return self.attribute(base, node.attr, node)

    def of_Call(self, node: ast.Call) -> Value:
        return self.call(node)

    def of_Tuple(self, node: ast.Tuple) -> Value:
        return Value("tuple", "", node, self.file, items=[self.value(e) for e in node.elts])

    def of_List(self, node: ast.List) -> Value:
        return Value("list", "", node, self.file, items=[self.value(e) for e in node.elts])

    def of_Set(self, node: ast.Set) -> Value:
        return Value("list", "", node, self.file, items=[self.value(e) for e in node.elts])

    def of_Dict(self, node: ast.Dict) -> Value:
        made = Value("dict", "", node, self.file)
        for key, item in zip(node.keys, node.values, strict=True):
            value = self.value(item)
            if isinstance(key, ast.Constant) and isinstance(key.value, str):
                made.attrs[f"[{key.value}]"] = value
            else:
                made.items.append(value)
        return made

    def of_Starred(self, node: ast.Starred) -> Value:
        return self.value(node.value)

    def of_Await(self, node: ast.Await) -> Value:
        return self.value(node.value)

    def of_Lambda(self, node: ast.Lambda) -> Value:
        return Value("function", "<lambda>", node, self.file, scope=self.scope)

    def of_NamedExpr(self, node: ast.NamedExpr) -> Value:
        value = self.value(node.value)
        self.scope.set(node.target.id, value)
        return value

    def of_IfExp(self, node: ast.IfExp) -> Value:
        known = self.decided(node.test)
        if known is None:
            return either([self.value(node.body), self.value(node.orelse)])
        return self.value(node.body if known else node.orelse)

    def of_Yield(self, node: ast.Yield) -> Value:
        value = self.value(node.value)
        self.event("yield", node, None, value)
        return Value("unknown", "", node, self.file)

    def of_BinOp(self, node: ast.BinOp) -> Value:
        return self.operation(node, self.value(node.left), self.value(node.right), node.op)

    def of_UnaryOp(self, node: ast.UnaryOp) -> Value:
        inner = self.value(node.operand)
        if isinstance(node.op, ast.Not):
            known = self.truth(inner)
            return Value("unknown", "", node) if known is None else const(not known, node)
        if inner.kind == "const" and isinstance(inner.data, (int, float)):
            return const(-inner.data if isinstance(node.op, ast.USub) else inner.data, node)
        if inner.kind == "tensor":
            return tensor([inner], node, self.file, shape=inner.shape)
        return inner

    def of_BoolOp(self, node: ast.BoolOp) -> Value:
        values = [self.value(v) for v in node.values]
        known = [self.truth(v) for v in values]
        stop = isinstance(node.op, ast.Or)
        if stop in known:
            return const(stop, node)
        return const(not stop, node) if None not in known else Value("unknown", "", node)

    def of_Compare(self, node: ast.Compare) -> Value:
        left, right = self.value(node.left), self.value(node.comparators[0])
        known = compared(left, node.ops[0], right) if len(node.ops) == 1 else None
        if known is not None:
            return const(known, node)
        for option in (*left.options(), *right.options()):
            if option.kind == "tensor":
                made = tensor([left, right], node, self.file, shape=broadcast(left, right))
                return self.cut(made, node, "comparison")
        return Value("unknown", "", node, self.file)

    def of_Subscript(self, node: ast.Subscript) -> Value:
        from torchmedic.source.flow import shapes

        base, key = self.value(node.value), self.value(node.slice)
        if base.kind == "tensor" and base.type == "recurrent":
            self.event("index", node, base, key)
        if base.kind == "either":
            return either(shapes.item(o, key, node, self.file) for o in base.options())
        if base.kind == "instance":
            return self.subscripted(base, key, node)
        return shapes.item(base, key, node, self.file)

    def of_Slice(self, node: ast.Slice) -> Value:
        for part in (node.lower, node.upper, node.step):
            self.value(part)
        return Value("slice", "", node)

    def of_ListComp(self, node: ast.ListComp | ast.SetComp | ast.GeneratorExp) -> Value:
        made = Value("list", "", node, self.file, data="comprehension")
        made.items = [self.comprehension(node.generators, node.elt)]
        return made

    of_SetComp = of_GeneratorExp = of_ListComp

    def of_DictComp(self, node: ast.DictComp) -> Value:
        made = Value("dict", "", node, self.file, data="comprehension")
        made.items = [self.comprehension(node.generators, node.value)]
        return made

    def comprehension(self, generators: list[ast.comprehension], element: ast.expr) -> Value:
        names = dict(self.scope.names)
        with self.inside(Frame("loop", generators[0].iter, self.file, "comprehension")):
            for one in generators:
                over = self.value(one.iter)
                self.assign(one.target, self.element(over, one.iter), one.iter)
                for test in one.ifs:
                    self.value(test)
            found = self.value(element)
        self.scope.names = names
        return found

    def assign(self, target: ast.expr, value: Value, node: ast.AST, again: bool = False) -> None:
        raise NotImplementedError

    def element(self, over: Value, node: ast.AST) -> Value:
        raise NotImplementedError

    # what operations give

    def operation(self, node: ast.AST, left: Value, right: Value, op: ast.operator) -> Value:
        if left.kind == right.kind == "const":
            return calculated(left.data, right.data, op, node)
        if left.kind in ("list", "tuple") and right.kind in ("list", "tuple"):
            if len(left.items) + len(right.items) > LONGEST:
                return Value("unknown", "", node, self.file)
            return Value("list", "", node, self.file, items=[*left.items, *right.items])
        if "parameters" in (left.kind, right.kind):
            from torchmedic.source.flow.library import parameters

            return parameters([left, right], node, self.file)
        if not any(o.kind == "tensor" for v in (left, right) for o in v.options()):
            if "array" in (left.type, right.type):
                return Value("unknown", "array", node, self.file,
                             dtype=dtypes.together([left, right]))
            return Value("unknown", "", node, self.file)
        made = tensor([left, right], node, self.file)
        made.shape = None if isinstance(op, ast.MatMult) else broadcast(left, right)
        made.type = type(op).__name__
        if made.graph is False and any(
                o.kind == "const" and o.data is None for v in (left, right) for o in v.options()):
            made.graph = None  # None stands for what is set later
        made.dtype = dtypes.together([left, right]) if not isinstance(op, ast.Div) else ""
        made.args = [left, right]
        new, other = spread.fresh(left), spread.fresh(right)
        if (new is None) != (other is None):
            self.event("meet", node, new or other, right if new is not None else left)
        if isinstance(op, ast.Sub) and spread.pairs_all(left, right):
            self.event("spread", node, left, right,
                       site=spread.site(self.frames, self.scope.names, left, right))
        kept = left if right.kind == "const" else right if left.kind == "const" else None
        if kept is not None and kept.kind == "tensor" and isinstance(op, ast.Add) and kept.act in (
                "softmax", "sigmoid"):  # `p + 1e-8` is still a probability
            made.act, made.act_node, made.act_file = kept.act, kept.act_node, kept.act_file
        return made

    def keep(self, node: ast.AST, target: ast.expr, old: Value, new: Value, made: Value) -> None:
        """`total += loss`: the new total holds what the old one held."""
        made.loops = old.loops
        made.lineage |= {made.id}
        self.event("keep", node, old, new, made=made, name=ast.unparse(target))

    def cut(self, made: Value, node: ast.AST, how: str) -> Value:
        """Takes a tensor out of the graph."""
        if made.graph is not False or made.sources:
            made.cut, made.cut_node, made.cut_file = how, node, self.file
        if made.graph is not False:
            self.event("cut", node, made, None, how=how)
        made.graph = False
        made.roots = frozenset()
        return made

    def truth(self, value: Value) -> bool | None:
        return bool(value.data) if value.kind == "const" else None

    def decided(self, test: ast.expr) -> bool | None:
        """The outcome of a test, where every time round the loop gives the same."""
        known = self.truth(self.value(test))
        if known is None or not self.loops():
            return known
        for name in ast.walk(test):
            if isinstance(name, ast.Name) and name.id != "self":
                found = self.scope.get(name.id)
                if found is None or found.kind not in ("const", "tensor"):
                    continue
                if found.loops != self.loops():
                    return None  # set before the loop: it may change in it
            elif isinstance(name, ast.Attribute):
                return None
        return known


def compared(left: Value, op: ast.cmpop, right: Value) -> bool | None:
    """The outcome, where it is certain."""
    if isinstance(op, (ast.Is, ast.IsNot)) and right.kind == "const" and right.data is None:
        if left.kind in ("unknown", "either", "external"):
            return None
        none = left.kind == "const" and left.data is None
        return none if isinstance(op, ast.Is) else not none
    known = left.kind == right.kind == "const" and str in (type(left.data), type(right.data))
    if isinstance(op, (ast.Eq, ast.NotEq)) and known:
        return (left.data == right.data) is isinstance(op, ast.Eq)
    return None


def calculated(left: object, right: object, op: ast.operator, node: ast.AST) -> Value:
    if type(left) in (int, float) and type(right) in (int, float):
        a, b = float(left), float(right)  # type: ignore[arg-type]
        whole = type(left) is type(right) is int
        done: float | None = None
        if isinstance(op, ast.Add):
            done = a + b
        elif isinstance(op, ast.Sub):
            done = a - b
        elif isinstance(op, ast.Mult):
            done = a * b
        elif isinstance(op, ast.FloorDiv) and b:
            done = a // b
        if done is not None and abs(done) < 1e12:
            return const(int(done) if whole else done, node)
    return Value("unknown", "number", node)


def broadcast(left: Value, right: Value) -> tuple[int | None, ...] | None:
    """The shape of `left + right`; None when it is not known."""
    if right.kind == "const" or (right.kind == "unknown" and right.type == "number"):
        return left.shape
    if left.kind == "const" or (left.kind == "unknown" and left.type == "number"):
        return right.shape
    if left.shape is None or right.shape is None:
        return None
    longer, shorter = sorted((left.shape, right.shape), key=len, reverse=True)
    padded = (1,) * (len(longer) - len(shorter)) + shorter
    return tuple(b if a == 1 or (a is None and b != 1) else a
                 for a, b in zip(longer, padded, strict=True))
