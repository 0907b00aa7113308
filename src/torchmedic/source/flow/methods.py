"""Attributes and methods of objects whose kind is known: tensors, models, optimizers, lists."""

from __future__ import annotations

import ast
from typing import Any

from torchmedic.source.flow import dtypes, layers, library, shapes, views
from torchmedic.source.flow.expressions import Expressions, broadcast
from torchmedic.source.flow.values import Value, const, either, family, is_module, tensor

DETACHING = ("detach", "detach_", "item", "tolist", "numpy", "cpu_numpy")
SELF = ("to", "cuda", "cpu", "float", "double", "half", "bfloat16", "requires_grad_", "apply",
        "share_memory", "compile", "xpu", "type")
CASTS = ("float", "double", "half", "bfloat16", "float16", "float32", "float64", "long", "int")
CLEARS = ("zero_grad", "zero_grads")


class Methods(Expressions):
    """What `base.name` and `base.name(…)` mean."""

    def opaque(self, node: ast.AST, args: list[Value], kwargs: dict[str, Value], name: str = "",
               owner: Value | None = None) -> Value:
        raise NotImplementedError

    def called(self, function: Value, args: list[Value], kwargs: dict[str, Value],
               node: ast.Call) -> Value:
        raise NotImplementedError

    def method_of(self, made: Value, name: str, depth: int = 0) -> tuple[Value, Any] | None:
        raise NotImplementedError

    def bound(self, made: Value, node: Any, owner: Value) -> Value:
        raise NotImplementedError

    def attribute(self, base: Value, name: str, node: ast.AST) -> Value:
        if name in base.attrs:
            return base.attrs[name]
        if base.kind == "external":
            found = base.scope.get(name) if base.scope is not None else None
            return found or Value("external", f"{base.type}.{name}", node, self.file)
        if base.kind in ("instance", "class"):
            return self.member(base, name, node)
        if base.kind == "tensor":
            return self.tensor_attribute(base, name, node)
        if name == "module" and base.owner is not None and base.name in library.WRAPPERS:
            return base.owner
        if name == "dataset" and base.kind == "loader":
            return base.keyword("dataset", 0) or Value()
        return self.remembered(base, name, node)

    def remembered(self, base: Value, name: str, node: ast.AST) -> Value:
        """The same unknown attribute is the same object, each time it is asked for."""
        made = Value("unknown", "", node, self.file, owner=base)
        if base.kind in ("unknown", "module", "instance") and base.node is not None:
            base.attrs[name] = made
        return made

    def member(self, base: Value, name: str, node: ast.AST) -> Value:
        made = base.owner if base.kind == "instance" else base
        found = self.method_of(made, name) if made is not None else None
        if found is not None:
            function = self.bound(found[0], found[1], base)
            if base.kind == "class":
                function.owner = None
            if any("property" in ast.unparse(d) for d in found[1].decorator_list):
                return self.called(function, [], {}, node)  # type: ignore[arg-type]
            return function
        if made is not None and isinstance(made.node, ast.ClassDef):
            for statement in made.node.body:  # `lr = 0.1` in the class's body
                if isinstance(statement, ast.Assign) and isinstance(
                        statement.value, ast.Constant) and any(
                        isinstance(t, ast.Name) and t.id == name for t in statement.targets):
                    return const(statement.value.value, statement)
                if isinstance(statement, ast.AnnAssign) and isinstance(
                        statement.value, ast.Constant) and isinstance(
                        statement.target, ast.Name) and statement.target.id == name:
                    return const(statement.value.value, statement.value)
        return self.remembered(base, name, node)

    def tensor_attribute(self, base: Value, name: str, node: ast.AST) -> Value:
        if name in ("data", "grad_fn"):
            return self.cut(tensor([base], node, self.file, shape=base.shape, act=base.act,
                                   act_node=base.act_node, act_file=base.act_file), node, name)
        if name == "grad":
            return Value("gradient", "", node, self.file, owner=base)
        if name in ("T", "mT", "real", "imag"):
            return tensor([base], node, self.file)
        if name == "shape":
            return Value("unknown", "", node, self.file, data="sizes", owner=base)
        return Value("unknown", "", node, self.file)

    def method(self, base: Value, name: str, args: list[Value], kwargs: dict[str, Value],
               node: ast.Call) -> Value:
        if base.kind == "instance" and base.owner is not None and (
                found := self.method_of(base.owner, name)):
            return self.called(self.bound(found[0], found[1], base), args, kwargs, node)
        if name in base.attrs:
            return self.called_option(base.attrs[name], args, kwargs, node)
        if base.kind in ("external", "class"):
            return self.called(self.attribute(base, name, node), args, kwargs, node)
        handle = getattr(self, f"on_{base.kind}", None)
        done = handle(base, name, args, kwargs, node) if handle else None
        if done is None and is_module(base):
            done = self.builtin(base, name, args, kwargs, node)
        return self.on_anything(base, name, args, kwargs, node) if done is None else done

    def called_option(self, function: Value, args: list[Value], kwargs: dict[str, Value],
                      node: ast.Call) -> Value:
        return either(self.called(o, args, kwargs, node) for o in function.options())

    def on_anything(self, base: Value, name: str, args: list[Value], kwargs: dict[str, Value],
                    node: ast.Call) -> Value:
        """What a name says about an object that nobody knows."""
        if name in ("backward", "manual_backward"):
            loss = args[0] if args and name != "step" else base
            self.event("backward", node, base, loss, kwargs=kwargs)
            return const(None)
        if name in CLEARS:
            self.event("clear", node, base)
            return const(None)
        if name in ("parameters", "named_parameters", "trainable_parameters"):
            if base.kind == "unknown":
                base.kind = "module"
            return library.parameters([base], node, self.file)
        if name in ("train", "eval") and not args and base.kind in ("unknown", "module"):
            self.event(name, node, base)
            return base
        if name == "set_epoch":
            self.event("set_epoch", node, base)
        if name in ("append", "extend", "add", "insert", "appendleft", "put"):
            self.event("append", node, base, args[-1] if args else None)
            return const(None)
        if name == "state_dict":
            return Value("state", "", node, self.file, owner=base, args=args)
        if name == "load_state_dict":
            self.event("load", node, base, args[0] if args else None)
            return Value()
        if name in DETACHING and base.kind == "unknown":
            return Value("unknown", "number", node, self.file)
        if name in ("parse_args", "parse_known_args", "add_argument"):
            return self.arguments(base, name, args, kwargs, node)
        return self.opaque(node, args, kwargs, name, base)

    def arguments(self, base: Value, name: str, args: list[Value], kwargs: dict[str, Value],
                  node: ast.Call) -> Value:
        if name == "add_argument":
            self.event("argument", node, base, None, args=args, kwargs=kwargs)
            return Value()
        return Value("unknown", "namespace", node, self.file, owner=base)

    # models

    def builtin(self, base: Value, name: str, args: list[Value], kwargs: dict[str, Value],
                node: ast.AST) -> Value | None:
        """A method of `nn.Module`."""
        if name in ("train", "eval"):
            mode = self.truth(args[0]) if args else True
            kind = "eval" if name == "eval" or mode is False else "train"
            self.event(kind if mode is not None else "mode", node, base)
            return base
        if name in ("parameters", "named_parameters"):
            return library.parameters([base], node, self.file)
        if name in CLEARS:
            self.event("clear", node, base)
            return const(None)
        if name in SELF:
            if name in ("to", "cuda"):
                self.trace.moves = True
            if goes(name, args, kwargs):
                for part in family(base).values():
                    part.device = "moved"
            if name == "requires_grad_" and args and self.truth(args[0]) is False:
                self.frozen(base)
            return base
        if name == "state_dict":
            self.event("state", node, base, None, args=args)
            return Value("state", "", node, self.file, owner=base, args=args)
        if name == "load_state_dict":
            self.event("load", node, base, args[0] if args else None)
            return Value()
        if name in ("modules", "children", "named_modules", "named_children"):
            return Value("list", "", node, self.file, data="comprehension",
                         items=[m for m in family(base).values() if m is not base])
        if name in ("register_buffer", "register_parameter", "add_module", "register_module"):
            return self.registered(base, args, node)
        if name == "append" and args:
            base.items.append(args[0])
            return base
        return None

    def registered(self, base: Value, args: list[Value], node: ast.AST) -> Value:
        if len(args) > 1 and args[0].kind == "const":
            base.attrs[str(args[0].data)] = args[1]
        elif len(args) > 1:
            base.items.append(args[1])
        self.event("register", node, base, args[1] if len(args) > 1 else None)
        return const(None)

    def freeze(self, base: Value, sure: bool) -> None:
        """One of the parameters of some modules is frozen: all of them, where that is sure."""
        if base.owner is not None and base.owner.kind == "parameters":
            for held in base.owner.items:
                for module in family(held).values():
                    module.attrs["*frozen" if sure else "*maybe"] = const(True)

    def frozen(self, base: Value) -> None:
        for module in family(base).values():
            module.attrs["*frozen"] = const(True)

    def on_optimizer(self, base: Value, name: str, args: list[Value], kwargs: dict[str, Value],
                     node: ast.Call) -> Value | None:
        if name == "step":
            for closure in [*args, *kwargs.values()]:
                if closure.kind == "function":
                    self.called(closure, [], {}, node)
            self.event("step", node, base, None, closure=bool(args or kwargs))
            return Value()
        if name in CLEARS:
            self.event("clear", node, base)
            return const(None)
        if name == "add_param_group":
            held = library.parameters(args, node, self.file)
            base.items += held.items
            base.data = base.data and held.data
            self.event("group", node, base)
            return const(None)
        return None

    def on_scheduler(self, base: Value, name: str, args: list[Value], kwargs: dict[str, Value],
                     node: ast.Call) -> Value | None:
        if name in ("step", "step_update"):
            self.event("schedule", node, base, None, args=args, kwargs=kwargs)
            return Value()
        return None

    def on_scaler(self, base: Value, name: str, args: list[Value], kwargs: dict[str, Value],
                  node: ast.Call) -> Value | None:
        first = args[0] if args else Value()
        if name == "scale":
            made = tensor([first], node, self.file, type="scaled", owner=base, args=[first])
            return made
        if name == "step":
            self.event("step", node, first, base, closure=False)
        elif name == "unscale_":
            self.event("unscale", node, first, base)
        elif name == "update":
            self.event("rescale", node, base)
        else:
            return Value()
        return Value()

    def on_unknown(self, base: Value, name: str, args: list[Value], kwargs: dict[str, Value],
                   node: ast.Call) -> Value | None:
        """An array of numpy; nothing else is known of here."""
        if name == "requires_grad_":
            self.freeze(base, sure=bool(args) and self.truth(args[0]) is False)
            return base
        if base.type != "array":
            return None
        if name == "astype":
            dtype = dtypes.cast(name, args, kwargs, base.dtype)
        else:
            dtype = base.dtype if name in dtypes.KEPT else ""
        shape = base.shape if name in ("astype", "copy") else None
        return Value("unknown", "array", node, self.file, dtype=dtype, shape=shape)

    # collections

    def on_list(self, base: Value, name: str, args: list[Value], kwargs: dict[str, Value],
                node: ast.Call) -> Value | None:
        if name in ("append", "extend", "insert", "appendleft", "add") and args:
            new = args[-1]
            if len(base.items) < 64:
                base.items += new.items if name == "extend" and new.items else [new]
            base.data = "comprehension"  # how many there are is not known any more
            self.event("append", node, base, new)
            return const(None)
        if name == "pop" and base.items:
            return either(base.items)
        return Value("unknown", "", node, self.file) if name in (
            "clear", "reverse", "sort", "index", "count", "copy", "remove") else None

    def on_dict(self, base: Value, name: str, args: list[Value], kwargs: dict[str, Value],
                node: ast.Call) -> Value | None:
        inner = [*base.items, *(v for k, v in base.attrs.items() if k.startswith("["))]
        if name == "values":
            return Value("list", "", node, self.file, items=inner, data="comprehension")
        if name == "items":
            pair = Value("tuple", items=[Value("unknown"), either(inner)])
            return Value("list", "", node, self.file, items=[pair], data="comprehension")
        if name in ("get", "pop") and args and args[0].kind == "const":
            return base.attrs.get(f"[{args[0].data}]") or (args[1] if len(args) > 1 else Value())
        if name == "update" and args:
            if len(base.items) < 64:
                base.items += [*args[0].items, *args[0].attrs.values()]
            return const(None)
        return Value("unknown", "", node, self.file) if name in ("keys", "copy", "clear") else None

    on_tuple = on_list

    def on_state(self, base: Value, name: str, args: list[Value], kwargs: dict[str, Value],
                 node: ast.Call) -> Value | None:
        if name == "copy":
            return base
        if name in ("items", "values", "keys"):
            return Value("unknown", "", node, self.file)
        return None

    def on_gradient(self, base: Value, name: str, args: list[Value], kwargs: dict[str, Value],
                    node: ast.Call) -> Value | None:
        if name in ("zero_", "fill_"):
            self.event("clear", node, None)
        return Value()

    # tensors

    def on_tensor(self, base: Value, name: str, args: list[Value], kwargs: dict[str, Value],
                  node: ast.Call) -> Value | None:
        if name == "backward":
            self.event("backward", node, None, base, kwargs=kwargs)
            return const(None)
        if name in ("append", "add_param_group"):
            return None
        return self.tensor_method(base, name, args, kwargs, node)

    def tensor_method(self, base: Value, name: str, args: list[Value], kwargs: dict[str, Value],
                      node: ast.Call) -> Value:
        if name in DETACHING:
            return self.detached(base, name, node)
        if name.endswith("_") and not name.endswith("__") and name != "requires_grad_":
            self.event("inplace", node, base)
        if name in library.CUTS:
            made = tensor([base, *args], node, self.file)
            made.shape = shapes.reduced(base.shape, args, kwargs) if (
                name in ("argmax", "argmin") and args) else None
            made.dtype = "int64" if name in ("argmax", "argmin", "argsort") else ""
            return self.cut(made, node, name)
        if name in library.FLAT:
            return self.cut(tensor([base], node, self.file, shape=base.shape), node, name)
        if name in library.ACTS:
            if library.ACTS[name] in ("softmax", "log_softmax"):
                self.event("softmax", node, None, base, name=name, args=[base, *args],
                           kwargs=kwargs)
            return library.activated(name, [base, *args], kwargs, node, self.file)
        if name in ("log", "log_", "log2", "log10"):
            self.event("log", node, None, base)
            return library.logged(base, node, self.file)
        if name in shapes.KEPT:
            return self.kept(base, name, args, kwargs, node)
        if name.rstrip("_") in shapes.MOVED:
            return self.rearranged(base, name, args, kwargs, node)
        return self.computed(base, name, args, kwargs, node)

    def rearranged(self, base: Value, name: str, args: list[Value], kwargs: dict[str, Value],
                   node: ast.Call) -> Value:
        named = (kwargs.get(k) for k in ("dim", "start_dim", "dim0", "dim1", "end_dim", "size"))
        args = [*args, *(value for value in named if value is not None)]
        if name in ("split", "chunk"):
            return shapes.parts(base, args, node, self.file)
        made = shapes.moved(base, name.rstrip("_"), args, node, self.file)
        if name.endswith("_"):
            base.shape, made = made.shape, base
        self.event("view", node, base, made, name=name, args=args)
        return made

    def computed(self, base: Value, name: str, args: list[Value], kwargs: dict[str, Value],
                 node: ast.Call) -> Value:
        if name == "size":
            return views.size(base, shapes.number(args[0]), node, self.file) if args else (
                self.tensor_attribute(base, "shape", node))
        if name in ("dim", "numel", "nelement", "get_device", "stride"):
            return Value("unknown", "", node, self.file)
        made = tensor([base, *args, *kwargs.values()], node, self.file,
                      shape=layers.function(name, [base, *args], kwargs))
        made.dtype = base.dtype if name in dtypes.KEPT and not args else ""
        if name in shapes.REDUCED:
            made.shape = shapes.reduced(base.shape, args, kwargs)
            made.type = name
            if name in ("max", "min", "median") and (args or kwargs):
                second = self.cut(tensor([base], node, self.file), node, name)
                return Value("tuple", "", node, self.file, items=[made, second])
        elif name in ("exp", "abs", "sqrt", "pow", "square", "cos", "sin", "neg", "log1p", "mul",
                      "div", "add", "sub"):
            made.shape = broadcast(base, args[0]) if args else base.shape
            made.type = name
            if name == "exp" and base.act == "log_softmax":
                made.act, made.act_node, made.act_file = "softmax", base.act_node, base.act_file
        elif name in ("bucketize", "cumsum", "clip", "roll", "flip"):
            made.shape = base.shape
        if name in ("div", "mul"):
            made.type = "Div"
        return made

    def kept(self, base: Value, name: str, args: list[Value], kwargs: dict[str, Value],
             node: ast.AST) -> Value:
        if name in ("to", "cuda"):
            self.trace.moves = True
        made = shapes.moved(base, "", [], node, self.file)
        made.shape, made.type, made.args = base.shape, base.type, base.args
        made.dtype = dtypes.cast(name, args, kwargs, base.dtype)
        if goes(name, args, kwargs):
            made.device = "moved"
        if name.startswith("clamp") and made.type in ("", "Add", "Sub"):
            made.type = "clamped"
        made.owner = base.owner
        if name in ("to", "cuda", "cpu", "type_as") and made.type == "created":
            made.type = ""
        if name in ("long", "int", "bool"):
            return self.cut(made, node, name)
        if name == "requires_grad_" and base.cut:
            made.type = "forced"
        elif name == "requires_grad_" and not args and made.graph is False:
            made.graph = None  # one to be trained, without a layer
        return made

    def detached(self, base: Value, name: str, node: ast.AST) -> Value:
        made = tensor([base], node, self.file, shape=base.shape, act=base.act,
                      act_node=base.act_node, act_file=base.act_file, dtype=base.dtype)
        if base.type == "created" and not base.sources and name in ("detach", "detach_", "data"):
            made.graph = False  # no graph to cut off
            return made
        self.cut(made, node, name)
        if name in ("item", "tolist", "numpy"):
            return Value("unknown", "number" if name == "item" else "array", node, self.file,
                         sources=made.sources, lineage=made.lineage, owner=base, cut=made.cut,
                         cut_node=made.cut_node, cut_file=made.cut_file)
        return made


def goes(name: str, args: list[Value], kwargs: dict[str, Value]) -> bool:
    """`x.cuda()` and `x.to(device)`, where that may be another device than the CPU."""
    if name in ("cuda", "xpu"):
        return True
    given = kwargs.get("device") or next((a for a in args if not _is_type(a)), None)
    if name != "to" or given is None:
        return False
    return any(o.kind != "const" or (isinstance(o.data, str) and o.data not in ("cpu", "meta"))
               for o in _devices(given))


def _devices(given: Value) -> list[Value]:
    """What a device may be: of `torch.device(name)` the name."""
    return [inner for o in given.options() for inner in (
        o.args[0].options() if o.type == "device" and o.args else [o])]


def _is_type(value: Value) -> bool:
    return value.kind == "external" and value.name in CASTS
