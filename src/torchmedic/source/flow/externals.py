"""Calls of torch and other libraries by their full names."""

from __future__ import annotations

import ast

from torchmedic.source.flow import dtypes, library, shapes, views
from torchmedic.source.flow.expressions import Expressions
from torchmedic.source.flow.methods import goes
from torchmedic.source.flow.values import Value, const, either, family, is_module, tensor

SCHEDULERS = "torch.optim.lr_scheduler."
COPIES = ("copy.deepcopy",)
CASTS = ("builtins.float", "builtins.int", "builtins.str", "builtins.bool", "builtins.round")
PASSED = ("torch.compile", "torch.jit.script", "tqdm.tqdm", "tqdm.auto.tqdm", "tqdm.trange", "tqdm",
          "torch.autograd.Variable", "builtins.iter", "builtins.reversed",
          "builtins.sorted", "torch.nn.Parameter.data", "tqdm.notebook.tqdm",
          "torch.nn.SyncBatchNorm.convert_sync_batchnorm", "torch.as_tensor", "torch.from_numpy")


class External(Expressions):
    """What imported functions and classes give."""

    def opaque(self, node: ast.AST, args: list[Value], kwargs: dict[str, Value], name: str = "",
               owner: Value | None = None) -> Value:
        raise NotImplementedError

    def called(self, function: Value, args: list[Value], kwargs: dict[str, Value],
               node: ast.Call) -> Value:
        raise NotImplementedError

    def external(self, full: str, args: list[Value], kwargs: dict[str, Value],
                 node: ast.Call) -> Value:
        full = full.replace("torch.nn.modules.loss.", "torch.nn.")
        last = full.rpartition(".")[2]
        if full.startswith("builtins."):
            return self.builtin_function(last, args, kwargs, node)
        if full in PASSED and args and args[0].type == "array":
            return self.from_array(args[0], kwargs, node)
        if full.startswith("torch."):
            found = self.of_torch(full, last, args, kwargs, node)
            if found is not None:
                return found
        if full in PASSED and args:
            return args[0]
        if full == "functools.partial" and args:
            return Value("partial", "", node, self.file, owner=next(args[0].options()),
                         args=args[1:], kwargs=kwargs)
        if full == "collections.OrderedDict":
            return args[0] if args else Value("dict", "", node, self.file)
        if full in COPIES and args:
            return self.copied(args[0], node)
        if last.endswith(("DataLoader", "Loader")) and last[:1].isupper():
            return self.made("loader", full, args, kwargs, node)
        return self.unknown_function(full, last, args, kwargs, node)

    def made(self, kind: str, full: str, args: list[Value], kwargs: dict[str, Value],
             node: ast.AST) -> Value:
        value = Value(kind, full, node, self.file, args=args, kwargs=kwargs)
        value.loops = self.loops()
        self.trace.made.append(value)
        self.event("make", node, value, None)
        return value

    def copied(self, value: Value, node: ast.AST) -> Value:
        """A deep copy is another object."""
        one = next(value.options())
        made = Value(one.kind, one.type, node, self.file)
        kept = {name: value for name, value in vars(one).items()
                if name not in ("id", "node", "file", "attrs", "items")}
        vars(made).update(kept)
        made.attrs, made.items = dict(one.attrs), list(one.items)
        if one.kind == "state":
            made.data = "copy"
        return made

    def unknown_function(self, full: str, last: str, args: list[Value], kwargs: dict[str, Value],
                         node: ast.Call) -> Value:
        given = [o for v in (*args, *kwargs.values()) for o in v.options()]
        if last[:1].isupper() and any(o.kind == "parameters" for o in given):
            return self.optimizer(full, args, kwargs, node)
        if full.startswith(("torchvision.models", "timm.")) or last in (
                "from_pretrained", "create_model"):
            return self.made("module", full, args, kwargs, node)
        if last.endswith("Scheduler") or "schedule" in last:
            return self.made("scheduler", full, args, kwargs, node)
        if last in library.WRAPPERS and args:
            return self.made("module", full, args, kwargs, node)
        made = self.opaque(node, args, kwargs, full)
        if full.startswith("numpy.") and made.kind == "unknown":
            made.type, made.dtype = "array", dtypes.numpy(full, args, kwargs)
            sized = args if last in ("randn", "rand") else args[:1]
            if last in ("randint", "normal", "uniform", "permutation"):
                sized = [kwargs["size"]] if "size" in kwargs else args[2:3]
            if last in dtypes.DOUBLE_MADE or last == "randint":
                made.shape = shapes.made_with(sized)
        return made

    def from_array(self, array: Value, kwargs: dict[str, Value], node: ast.AST) -> Value:
        """`torch.from_numpy(array)`."""
        dtype = dtypes.named(kwargs["dtype"]) if "dtype" in kwargs else array.dtype
        return tensor([array], node, self.file, shape=array.shape, dtype=dtype)

    def optimizer(self, full: str, args: list[Value], kwargs: dict[str, Value],
                  node: ast.AST) -> Value:
        given = args[0] if args else kwargs.get("params")
        held = library.parameters([given] if given else [Value()], node, self.file)
        value = self.made("optimizer", full, args, kwargs, node)
        value.data, value.items = held.data, held.items
        value.attrs["*held"] = Value("list", items=[
            child for item in held.items for child in _frozen_family(item)], data=len(held.items))
        return value

    def of_torch(self, full: str, last: str, args: list[Value], kwargs: dict[str, Value],
                 node: ast.Call) -> Value | None:
        if full.startswith(SCHEDULERS):
            value = self.made("scheduler", full, args, kwargs, node)
            value.owner = args[0] if args else kwargs.get("optimizer")
            return value
        if full.startswith("torch.optim.") and (last[:1].isupper() or last == "?"):
            return self.optimizer(full, args, kwargs, node)
        if full.startswith("torch.utils.data."):
            return self.of_data(full, last, args, kwargs, node)
        if full == "torch.device":
            return Value("unknown", "device", node, self.file, args=args)
        if last == "GradScaler":
            return self.made("scaler", full, args, kwargs, node)
        if last in ("no_grad", "inference_mode", "enable_grad", "set_grad_enabled"):
            return self.grad_mode(last, args, node)
        if full.startswith("torch.nn.utils."):
            return self.of_utils(last, args, kwargs, node)
        if full.startswith(("torch.nn.", "torch.distributed.fsdp")) and last[:1].isupper():
            return self.layer_made(full, last, args, kwargs, node)
        if full == "torch.autograd.grad":
            self.event("autograd", node, None, args[0] if args else None)
            return tensor(args, node, self.file, shape=None, graph=None, sources=frozenset())
        if full == "torch.autograd.backward" and args:
            self.event("backward", node, None, args[0], kwargs=kwargs)
            return const(None)
        if full in ("torch.save", "torch.load"):
            self.event(last, node, None, args[0] if args else None, args=args)
            return Value("unknown", "checkpoint" if last == "load" else "", node, self.file)
        return self.function_of_torch(full, last, args, kwargs, node)

    def of_data(self, full: str, last: str, args: list[Value], kwargs: dict[str, Value],
                node: ast.Call) -> Value | None:
        if last == "DataLoader":
            return self.made("loader", full, args, kwargs, node)
        if last == "random_split":
            self.made("split", full, args, kwargs, node)
            return Value("unknown", "", node, self.file, owner=args[0] if args else None)
        if last == "Subset" or last.endswith("Dataset"):
            return self.made("dataset", full, args, kwargs, node)
        if last.endswith("Sampler"):
            return self.made("sampler", full, args, kwargs, node)
        return None

    def grad_mode(self, last: str, args: list[Value], node: ast.AST) -> Value:
        known: bool | None = last == "enable_grad"
        if last == "set_grad_enabled" or (args and args[0].kind == "const"):
            given = args[0] if args else Value()
            known = bool(given.data) if given.kind == "const" else None
            known = (not known) if last == "inference_mode" and known is not None else known
        if last == "set_grad_enabled":
            self.grad = known
        return Value("grad", "", node, self.file, data=known)

    def of_utils(self, last: str, args: list[Value], kwargs: dict[str, Value],
                 node: ast.Call) -> Value | None:
        if last.startswith(("clip_grad_norm", "clip_grad_value")):
            held = library.parameters(args[:1], node, self.file)
            self.event("clip", node, held, None, name=last)
            return Value("unknown", "number", node, self.file)
        if last in ("weight_norm", "spectral_norm") and args:
            return args[0]
        return None

    def layer_made(self, full: str, last: str, args: list[Value], kwargs: dict[str, Value],
                   node: ast.Call) -> Value:
        if last in ("Parameter", "UninitializedParameter", "Buffer"):
            made = tensor(args, node, self.file, graph=last != "Buffer", type="parameter")
            made.sources |= {made.id}
            return made
        kind = "criterion" if last.endswith("Loss") else "module"
        value = self.made(kind, full, args, kwargs, node)
        if last in library.WRAPPERS:
            value.owner = next(args[0].options()) if args else kwargs.get("module")
        elif last in ("Sequential", "ModuleList"):
            value.items = self.contents(args)
        elif last == "ModuleDict" and args:
            value.items = list(args[0].items)
            value.attrs.update(args[0].attrs)
        return value

    def contents(self, args: list[Value]) -> list[Value]:
        """The modules inside a container; unpacked and listed ones too."""
        found: list[Value] = []
        for arg in args:
            arg = arg.owner if arg.type == "starred" and arg.owner is not None else arg
            if arg.kind in ("list", "tuple", "dict") or arg.name == "OrderedDict":
                inner = [*arg.items, *arg.attrs.values()]
                found += [p for i in inner for p in (i.items[1:] if i.kind == "tuple" else [i])]
            else:
                found.append(arg)
        return found

    def function_of_torch(self, full: str, last: str, args: list[Value],
                          kwargs: dict[str, Value], node: ast.Call) -> Value | None:
        if last in library.LOSSES:
            criterion = Value("criterion", f"torch.nn.{library.LOSSES[last]}", node, self.file,
                              kwargs={k: v for k, v in kwargs.items() if k != "input"})
            return self.loss(criterion, args, kwargs, node)
        if last in library.ACTS:
            if library.ACTS[last] in ("softmax", "log_softmax"):
                self.event("softmax", node, None, args[0] if args else None, name=last, args=args,
                           kwargs=kwargs)
            return library.activated(last, args, kwargs, node, self.file)
        if last.endswith("Tensor") and last in dtypes.NAMES and args:
            return tensor(args, node, self.file, dtype=dtypes.NAMES[last], shape=(
                args[0].shape if args[0].type == "array" else None))
        if last in shapes.MADE or last in ("tensor", "arange", "linspace", "randint", "randperm",
                                           "eye", "normal"):
            return self.created(last, args, kwargs, node)
        return self.function_on_tensor(full, last, args, kwargs, node)

    def created(self, last: str, args: list[Value], kwargs: dict[str, Value],
                node: ast.Call) -> Value:
        made = tensor([], node, self.file, type="created", kwargs=kwargs)
        if last in shapes.MADE:
            first = args[:1] if last == "full" else args
            made.shape = shapes.made_with([kwargs["size"]] if "size" in kwargs else first)
        elif last in ("arange", "linspace", "randperm"):
            count = args[0].data if len(args) == 1 and args[0].kind == "const" else None
            made.shape = (int(count) if isinstance(count, (int, float)) else None,)
        elif last == "randint" and args:
            sizes = args[-1] if args[-1].kind == "tuple" else kwargs.get("size")
            made.shape = shapes.made_with([sizes]) if sizes is not None else None
        elif last == "tensor" and args:
            made.shape = _listed(args[0])
            made.args = args
            if any(o.sources for i in (args[0], *args[0].items) for o in i.options()):
                made = self.cut(tensor(args, node, self.file), node, "torch.tensor")
        if made.shape == (0,):
            made.shape = None  # it holds the place of what comes later
        if "requires_grad" in kwargs and not made.cut:
            made.graph = None  # one to be trained, without a layer
        made.dtype = dtypes.created(last, args, kwargs)
        made.device = "moved" if goes("to", [], kwargs) else ""
        self.event("create", node, made, None, name=last, args=args, kwargs=kwargs)
        return made

    def function_on_tensor(self, full: str, last: str, args: list[Value],
                           kwargs: dict[str, Value], node: ast.Call) -> Value | None:
        if last in shapes.LIKE:
            return tensor([], node, self.file, shape=args[0].shape if args else None,
                          dtype="" if "dtype" in kwargs or not args else args[0].dtype)
        given = [*args, *(v for k, v in kwargs.items() if k in ("input", "tensors"))]
        tensors = [o for v in given for i in (v, *v.items) for o in i.options()
                   if o.kind == "tensor"]
        if tensors and given[0].kind in ("tensor", "either") and full.count(".") <= 3:
            return self.tensor_method(next(given[0].options()), last, args[1:], kwargs, node)
        if tensors:
            made = tensor(given, node, self.file)
            if last in ("cat", "concat", "stack"):
                axis = kwargs.get("dim", args[1] if len(args) > 1 else const(0))
                join = views.piled if last == "stack" else views.joined
                made.shape = join(given[0], shapes.number(axis))
                made.dtype = dtypes.together(given[0].items)
                self.event("join", node, made, given[0], name=last, axis=axis)
            return made
        if full.count(".") == 1 and args and args[0].kind == "unknown" and last not in (
                "device", "Generator", "manual_seed"):
            return tensor(given, node, self.file)
        return Value("unknown", "", node, self.file) if not any(
            is_module(o) for v in args for o in v.options()) else None

    def tensor_method(self, base: Value, name: str, args: list[Value], kwargs: dict[str, Value],
                      node: ast.Call) -> Value:
        raise NotImplementedError

    def loss(self, criterion: Value, args: list[Value], kwargs: dict[str, Value],
             node: ast.Call) -> Value:
        given = args[0] if args else kwargs.get("input", Value())
        wanted = args[1] if len(args) > 1 else kwargs.get("target", Value())
        made = tensor([given, wanted], node, self.file, type="loss")
        made.owner = criterion
        if criterion.name:
            made.shape = ()
        else:
            made.graph = given.graph if given.kind == "tensor" else None
        self.event("loss", node, criterion, made, input=given, wanted=wanted)
        return made

    def builtin_function(self, last: str, args: list[Value], kwargs: dict[str, Value],
                         node: ast.Call) -> Value:
        first = next(args[0].options()) if args else Value()
        if last == "iter":
            self.event("iter", node, first)
        if last in ("list", "tuple", "set", "iter", "reversed", "sorted", "filter"):
            return args[-1] if args else Value("list", last, node, self.file)
        if last == "map" and len(args) > 1:
            inner = self.called(first, [self.element(a, node) for a in args[1:]], {}, node)
            return Value("list", "", node, self.file, items=[inner], data="comprehension")
        if last == "enumerate" and args:
            return Value("enumerate", "", node, self.file, owner=args[0])
        if last == "zip":
            return Value("zip", "", node, self.file, items=args)
        if last == "next" and args:
            self.event("next", node, first, None)
            return self.element(first, node)
        if last == "sum" and first.items:
            return tensor(first.items, node, self.file, shape=first.items[0].shape)
        if last == "getattr" and len(args) > 1:
            return self.by_name(first, args[1], node)
        if last == "dict":
            made = Value("dict", "", node, self.file, items=args)
            made.attrs = {f"[{k}]": v for k, v in kwargs.items()}
            return self.shallow(first) if first.kind == "state" else made
        if last in ("float", "int", "round", "bool"):
            dtype = {"float": "float64", "int": "int64"}.get(last, "")
            return Value("unknown", "number", node, self.file, dtype=dtype)
        if last in ("print", "len", "isinstance", "hasattr", "type", "id", "str", "range", "repr",
                    "max", "min", "abs", "super", "open", "format", "any", "all", "vars"):
            self.event("builtin", node, None, first, name=last)
            known = {"len": "number", "abs": "number", "range": "range"}
            return Value("unknown", known.get(last, ""), node, self.file,
                         args=args if last == "range" else [])
        return self.opaque(node, args, kwargs, f"builtins.{last}")

    def shallow(self, value: Value) -> Value:
        return value

    def by_name(self, base: Value, name: Value, node: ast.AST) -> Value:
        text = name.data if name.kind == "const" and isinstance(name.data, str) else "?"
        if base.kind == "external":
            return Value("external", f"{base.type}.{text}", node, self.file)
        if text in base.attrs:
            return base.attrs[text]
        return either(v for v in base.attrs.values() if is_module(v)) if text == "?" else Value()


def _listed(value: Value) -> tuple[int | None, ...] | None:
    """The shape of `torch.tensor(value)`."""
    if value.kind == "const" or value.type == "number":
        return ()
    if value.type == "array":
        return value.shape
    if value.kind in ("list", "tuple") and value.items and all(
            _listed(item) == () for item in value.items):
        return (None if value.data == "comprehension" else len(value.items),)
    return None


def _frozen_family(module: Value) -> list[Value]:
    return list(family(module).values()) if module.kind != "parameter" else [module]
