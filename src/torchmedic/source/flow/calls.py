"""What a call does: to functions and classes of the project, and to what was imported."""

from __future__ import annotations

import ast
from collections.abc import Sequence
from typing import Any

from torchmedic.source.flow import dtypes, layers, library, shapes
from torchmedic.source.flow.externals import External
from torchmedic.source.flow.methods import Methods
from torchmedic.source.flow.scopes import Scope
from torchmedic.source.flow.trace import Frame
from torchmedic.source.flow.values import Value, const, either, is_module, tensor
from torchmedic.source.paths import FUNCTIONS

DEEPEST = 14
MODULE_BASES = ("Module", "LightningModule", "PreTrainedModel")
NOT_TORCH = ("flax", "haiku", "jax", "keras", "mlx", "paddle", "sonnet", "tensorflow", "tinygrad")
DATASET_BASES = ("Dataset", "IterableDataset", "TensorDataset")


class Calls(Methods, External):
    """Calls and attributes."""

    active: list[ast.AST]
    returned: list[Value]
    seen: set[int]
    unsure: int

    def call(self, node: ast.Call) -> Value:
        if isinstance(node.func, ast.Attribute) and _is_super(node.func.value):
            return self.call_super(node)
        base: Value | None = None
        if isinstance(node.func, ast.Attribute):
            base = self.value(node.func.value)
        args = [self.starred_argument(a) for a in node.args]
        kwargs = {k.arg or "**": self.value(k.value) for k in node.keywords}
        if base is None:
            function = self.value(node.func)
            return self.any_of(function, args, kwargs, node)
        assert isinstance(node.func, ast.Attribute)
        name = node.func.attr
        return either(self.method(o, name, args, kwargs, node) for o in base.options())

    def any_of(self, function: Value, args: list[Value], kwargs: dict[str, Value],
               node: ast.Call) -> Value:
        """A call of what may be one of several."""
        self.unsure += function.kind == "either"
        made = either([self.called(o, args, kwargs, node) for o in function.options()])
        self.unsure -= function.kind == "either"
        return made

    def starred_argument(self, node: ast.expr) -> Value:
        value = self.value(node)
        return Value("unknown", "starred", node, self.file, owner=value) if isinstance(
            node, ast.Starred) else value

    def called(self, function: Value, args: list[Value], kwargs: dict[str, Value],
               node: ast.Call) -> Value:
        kind = function.kind
        if kind == "function":
            return self.run_function(function, args, kwargs, function.owner, node)
        if kind == "class":
            return self.instance(function, args, kwargs, node)
        if kind == "external":
            return self.external(function.type, args, kwargs, node)
        if kind in ("module", "criterion"):
            return self.forward(function, args, kwargs, node)
        if kind == "instance":
            return self.call_instance(function, args, kwargs, node)
        if kind == "partial" and function.owner is not None:
            both = {**function.kwargs, **kwargs}
            return self.called(function.owner, [*function.args, *args], both, node)
        return self.opaque(node, args, kwargs, owner=function)

    def opaque(self, node: ast.AST, args: list[Value], kwargs: dict[str, Value], name: str = "",
               owner: Value | None = None) -> Value:
        """A call that we can't look into: it may do anything to what it is given."""
        given = [*args, *kwargs.values()]
        for value in given:
            for option in value.options():
                if option.kind == "function" and id(option.node) not in self.seen:
                    self.guess_call(option)
        self.event("opaque", node, owner, Value("tuple", items=given), name=name or _text(node))
        if any(o.kind == "tensor" for v in given for o in v.options()):
            return tensor(given, node, self.file, graph=None, type="opaque")
        return Value("unknown", "", node, self.file, args=given)

    def guess_call(self, function: Value) -> None:
        """A function that is handed to somebody will be called, with what nobody knows."""
        if isinstance(function.node, FUNCTIONS):
            self.enter(function, function.owner)

    def enter(self, function: Value, owner: Value | None = None) -> None:
        raise NotImplementedError

    def block(self, body: Sequence[ast.stmt]) -> bool:
        raise NotImplementedError

    # functions of the project

    def run_function(self, function: Value, args: list[Value], kwargs: dict[str, Value],
                     owner: Value | None, node: ast.AST) -> Value:
        body = function.node
        if body in self.active or len(self.active) > DEEPEST or self.left < 0 or body is None:
            return self.opaque(node, args, kwargs, function.type, owner)
        self.seen.add(id(body))
        scope = Scope(function.file, function.scope)
        grad = self.grad
        frame = Frame("call", body, function.file, getattr(body, "name", "<lambda>"), value=owner)
        frame.site = node
        self.active.append(body)
        before, self.returned = self.returned, []
        try:
            with self.inside(frame), self.elsewhere(scope, function.file):
                self.bind(body, scope, args, kwargs, owner)
                self.decorated(body)
                return self.result(body)
        finally:
            self.active.pop()
            self.returned, self.grad = before, grad

    def result(self, body: Any) -> Value:
        if isinstance(body, ast.Lambda):
            return self.value(body.body)
        first = len(self.trace.events)
        self.block(body.body)
        yielded = [e.value for e in self.trace.events[first:]
                   if e.kind == "yield" and e.value and e.frames and self.frames[-1] in e.frames]
        if yielded:
            return Value("list", "generator", body, self.file, items=[yielded[0]],
                         data="comprehension")
        return either(self.returned) if self.returned else const(None)

    def decorated(self, body: Any) -> None:
        for decorator in getattr(body, "decorator_list", ()):
            text = ast.unparse(decorator)
            if "no_grad" in text or "inference_mode" in text:
                self.grad = False

    def bind(self, body: Any, scope: Scope, args: list[Value], kwargs: dict[str, Value],
             owner: Value | None) -> None:
        arguments = body.args
        positional = [a.arg for a in (*arguments.posonlyargs, *arguments.args)]
        values: dict[str, Value] = {}
        given = [owner, *args] if owner is not None and not _is_static(body) else list(args)
        for name, value in zip(positional, given, strict=False):
            if value is not None:
                values[name] = value
        known = {*positional, *(a.arg for a in arguments.kwonlyargs)}
        values.update((n, v) for n, v in kwargs.items() if n in known)
        if (more := kwargs.get("**")) is not None:  # it may hold what has a default
            for name in known - set(values):
                values[name] = more.attrs.get(f"[{name}]") or Value("unknown", "", body, self.file)
        self.bind_defaults(arguments, positional, values)
        if arguments.vararg:
            values[arguments.vararg.arg] = Value("tuple", items=list(given[len(positional):]))
        if arguments.kwarg:
            values[arguments.kwarg.arg] = Value("dict", attrs={
                f"[{n}]": v for n, v in kwargs.items() if n not in known})
        for name in known:
            value = values.get(name) or Value("unknown", "", body, self.file)
            if value.kind == "const":
                value = Value("const", value.type, value.node, value.file, data=value.data)
                value.loops = self.loops()
            scope.names[name] = value
        scope.names.update((n, v) for n, v in values.items() if n not in known)

    def bind_defaults(self, arguments: ast.arguments, positional: list[str],
                      values: dict[str, Value]) -> None:
        defaults = arguments.defaults
        pairs = list(zip(positional[len(positional) - len(defaults):], defaults, strict=True))
        pairs += [(a.arg, d) for a, d in zip(arguments.kwonlyargs, arguments.kw_defaults,
                                             strict=True) if d is not None]
        for name, default in pairs:
            if name not in values:
                values[name] = self.value(default)

    # classes of the project

    def base_kind(self, made: Value) -> str:
        """module, dataset, or "" for a class of another sort."""
        for base in made.items:
            if base.kind == "class" and base.data:
                return str(base.data)
            if base.kind == "external":
                last = base.type.rpartition(".")[2]
                if base.type.partition(".")[0] in NOT_TORCH:
                    return ""
                if last in MODULE_BASES or base.type.startswith("torch.nn."):
                    return "module"
                if last in DATASET_BASES:
                    return "dataset"
                if base.type.startswith("torch.optim."):
                    return "optimizer"
        return ""

    def methods(self, made: Value) -> dict[str, Any]:
        assert isinstance(made.node, ast.ClassDef)
        return {n.name: n for n in made.node.body if isinstance(n, FUNCTIONS)}

    def method_of(self, made: Value, name: str, depth: int = 0) -> tuple[Value, Any] | None:
        """(class, function) that a name means in a class of the project or its bases."""
        if made.kind != "class" or depth > 8:
            return None
        found = self.methods(made).get(name)
        if found is not None:
            return made, found
        inherited = (self.method_of(base, name, depth + 1) for base in made.items)
        return next((i for i in inherited if i), None)

    def bound(self, made: Value, node: Any, owner: Value) -> Value:
        return Value("function", node.name, node, made.file, scope=made.scope, owner=owner)

    def instance(self, made: Value, args: list[Value], kwargs: dict[str, Value],
                 node: ast.AST | None, guess: bool = False) -> Value:
        if made.data == "optimizer":
            return self.optimizer(made.type, args, kwargs, node or made.node or ast.Pass())
        value = Value("instance", made.type, node, self.file, data=made.data, owner=made,
                      args=args, kwargs=kwargs)
        value.loops = self.loops()
        found = self.method_of(made, "__init__")
        if found is not None:
            function = self.bound(found[0], found[1], value)
            if guess:
                self.enter(function, value)
            else:
                self.run_function(function, args, kwargs, value, node or found[1])
        elif made.data == "":
            self.fields(made, value, args, kwargs)
        return value

    def fields(self, made: Value, value: Value, args: list[Value],
               kwargs: dict[str, Value]) -> None:
        """A dataclass keeps its arguments."""
        assert isinstance(made.node, ast.ClassDef)
        names = [n.target.id for n in made.node.body
                 if isinstance(n, ast.AnnAssign) and isinstance(n.target, ast.Name)]
        value.attrs.update(zip(names, args, strict=False))
        value.attrs.update(kwargs)

    def call_instance(self, value: Value, args: list[Value], kwargs: dict[str, Value],
                      node: ast.Call) -> Value:
        name = "forward" if value.data == "module" else "__call__"
        found = value.owner and self.method_of(value.owner, name)
        if not found:
            found = value.owner and self.method_of(value.owner, "__call__")
        if not found:
            if value.data == "module":
                return self.forward(value, args, kwargs, node)
            return self.opaque(node, args, kwargs, owner=value)
        result = self.run_function(self.bound(found[0], found[1], value), args, kwargs, value, node)
        if value.data == "module":
            self.mark(result, value)
            self.event("forward", node, value, result, args=args)
        return result

    def mark(self, result: Value, module: Value, depth: int = 0) -> None:
        for option in result.options():
            if option.kind == "tensor":
                option.sources |= {module.id}
            elif depth < 3:
                for item in option.items:
                    self.mark(item, module, depth + 1)

    def forward(self, module: Value, args: list[Value], kwargs: dict[str, Value],
                node: ast.Call) -> Value:
        """A call of a layer, a container or a model that we can't look into."""
        inputs = [*args, *kwargs.values()]
        if module.kind == "criterion":
            return self.loss(module, args, kwargs, node)
        if module.name in library.WRAPPERS and module.owner is not None:
            result = self.called(module.owner, args, kwargs, node)
            self.mark(result, module)
        elif module.name == "Sequential" and module.items:
            result = self.in_turn(module, args, node)
        else:
            result = library.layer(module, inputs, node, self.file)
            self.attach(result, module)
            self.check_input(module, inputs, node)
        self.mark(result, module)
        self.event("forward", node, module, result, args=args)
        return result

    def check_input(self, module: Value, inputs: list[Value], node: ast.Call) -> None:
        """A size or a type that the layer refuses."""
        if not inputs:
            return
        wrong = layers.misfit(module, inputs)
        if wrong is not None and self.is_sure(module):
            self.event("misfit", node, module, inputs[0], wrong=wrong)
        if inputs[0].dtype in ("float64", *dtypes.WHOLE) and inputs[0].kind == "tensor" and (
                module.name.startswith(("Linear", "Conv", "LSTM", "GRU", "RNN"))) and (
                self.is_sure(module)):
            self.event("dtype", node, module, inputs[0])

    def in_turn(self, module: Value, args: list[Value], node: ast.Call) -> Value:
        """The layers of a `Sequential`, which a loop may have made more of than we saw."""
        result = args[0] if args else Value()
        repeated = any(set(item.loops) - set(module.loops) for item in module.items)
        self.unsure += repeated
        for item in module.items:
            result = self.any_of(item, [result], {}, node)
            if repeated and result.kind == "tensor":
                result.shape = None
        self.unsure -= repeated
        return result

    def is_sure(self, module: Value) -> bool:
        """This very layer is called, each time that the code around is reached."""
        inner = [f.kind == "call" and f.name == "forward" for f in self.frames]
        first = inner.index(True) if True in inner else len(inner)
        return not self.unsure and set(module.loops) <= set(self.frames) and not any(
            f.kind == "branch" and (at > first or _of_sizes(f)) for at, f in enumerate(
                self.frames))

    def attach(self, result: Value, module: Value) -> None:
        """Its output hangs on its parameters, where gradients are on and it has some."""
        for option in (result, *result.items):
            has = module.name not in (*library.ACTS, *library.SAME) and not (
                module.name.startswith(library.BARE))
            if option.kind == "tensor" and has and module.attrs.get("*frozen") is None:
                option.cut, option.graph = "", self.grad if self.grad is not True else True
                if option.graph:
                    root = len(self.trace.roots)
                    self.trace.roots[root] = self.loops()
                    self.trace.layers[root] = module.id
                    option.roots |= {root}

    def call_super(self, node: ast.Call) -> Value:
        """`super().__init__(…)`: the method of the base class, on the same object."""
        assert isinstance(node.func, ast.Attribute)
        args = [self.value(a) for a in node.args]
        kwargs = {k.arg or "**": self.value(k.value) for k in node.keywords}
        call = next((f for f in reversed(self.frames) if f.kind == "call" and f.value), None)
        owner = call.value if call else None
        self.event("super", node, owner, None, name=node.func.attr)
        if owner is None or call is None or owner.owner is None:
            return Value()
        for base in self.bases_after(owner.owner, call.node):
            found = self.method_of(base, node.func.attr)
            if found:
                return self.run_function(self.bound(found[0], found[1], owner), args, kwargs,
                                         owner, node)
        if is_module(owner):
            return self.builtin(owner, node.func.attr, args, kwargs, node) or Value()
        return Value()

    def bases_after(self, made: Value, method: ast.AST | None, depth: int = 0) -> list[Value]:
        if method in self.methods(made).values() or depth > 8:
            return [b for b in made.items if b.kind == "class"]
        return [found for base in made.items if base.kind == "class"
                for found in self.bases_after(base, method, depth + 1)]

    # loops

    def element(self, over: Value, node: ast.AST) -> Value:
        """What one time round a loop gets."""
        one = next(over.options())
        if one.kind == "loader":
            return self.batch(one, node)
        if one.kind in ("list", "tuple", "module") and one.items:
            return either(one.items)
        if one.kind == "tensor":
            return shapes.moved(one, "rows", [], node, self.file)
        if one.kind == "enumerate" and one.owner is not None:
            count = Value("unknown", "number", node, self.file)
            return Value("tuple", items=[count, self.element(one.owner, node)])
        if one.kind == "zip":
            return Value("tuple", items=[self.element(item, node) for item in one.items])
        if one.kind == "dict" and one.items:
            return Value("unknown", "", node, self.file)
        if one.type == "range":
            return Value("unknown", "number", node, self.file)
        return Value("unknown", "", node, self.file, owner=one)

    def batch(self, loader: Value, node: ast.AST) -> Value:
        """A batch has the axes of the set's tensors."""
        dataset = loader.keyword("dataset", 0)
        plain = loader.type == "torch.utils.data.DataLoader" and "collate_fn" not in loader.kwargs
        host = "host" if plain else ""
        one = next(dataset.options()) if dataset is not None else Value()
        if one.kind == "dataset" and one.name == "TensorDataset":
            parts = [tensor([], a.node or node, a.file or self.file, data="batch",
                            device=a.device or host,
                            shape=a.shape and (None, *a.shape[1:]), dtype=a.dtype)
                     for a in (next(o.options()) for o in one.args)]
            return Value("tuple", "", node, self.file, items=parts)
        if one.kind == "instance" and one.owner is not None and plain:
            return self.collated(one, node)
        return Value("unknown", "", node, self.file, data="batch", device=host)

    def collated(self, dataset: Value, node: ast.AST) -> Value:
        assert dataset.owner is not None
        found = self.method_of(dataset.owner, "__getitem__")
        if not found:
            return Value("unknown", "", node, self.file, data="batch", device="host")
        function = self.bound(found[0], found[1], dataset)
        with self.inside(Frame("item", node, self.file)):
            item = self.run_function(function, [Value("unknown", "number")], {}, dataset, node)
        return self.stacked(next(item.options()), node)

    def subscripted(self, base: Value, key: Value, node: ast.Subscript) -> Value:
        """`dataset[i]` of a class of the project."""
        found = base.owner and self.method_of(base.owner, "__getitem__")
        if not found:
            return shapes.item(base, key, node, self.file)
        return self.run_function(self.bound(found[0], found[1], base), [key], {}, base, node)

    def stacked(self, item: Value, node: ast.AST) -> Value:
        if item.kind == "tuple":
            return Value("tuple", "", node, self.file,
                         items=[self.stacked(next(p.options()), node) for p in item.items])
        if item.kind == "dict" and not item.items:
            return Value("dict", "", node, self.file, attrs={
                k: self.stacked(next(v.options()), node) for k, v in item.attrs.items()})
        if item.kind == "tensor" or item.type == "array":
            return tensor([], item.node or node, item.file or self.file, data="batch",
                          dtype=item.dtype, device=item.device or "host",
                          shape=None if item.shape is None else (None, *item.shape))
        if (item.kind == "const" and type(item.data) in (int, float)) or item.type == "number":
            dtype = {int: "int64", float: "float64"}.get(type(item.data), item.dtype)
            return tensor([], item.node or node, item.file or self.file, data="batch",
                          shape=(None,), dtype=dtype, device="host")
        return Value("tensor", "", node, self.file, data="batch")


def _of_sizes(branch: Frame) -> bool:
    text = ast.unparse(getattr(branch.node, "test", None) or ast.Name("size"))
    return any(word in text for word in ("shape", "size", "dim", "len("))


def _is_super(node: ast.AST) -> bool:
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and (
        node.func.id == "super")


def _is_static(body: Any) -> bool:
    return any(isinstance(d, ast.Name) and d.id == "staticmethod"
               for d in getattr(body, "decorator_list", ()))


def _text(node: ast.AST) -> str:
    return ast.unparse(node.func) if isinstance(node, ast.Call) else ""
