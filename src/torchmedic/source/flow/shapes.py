"""Shapes and last operations of tensors, as far as the code tells them."""

from __future__ import annotations

import ast

from torchmedic.source.flow import views
from torchmedic.source.flow.layers import flattened, times
from torchmedic.source.flow.values import Shape, Value, either, tensor

KEPT = ("contiguous", "clone", "float", "double", "half", "bfloat16", "to", "cuda", "cpu", "type",
        "type_as", "requires_grad_", "clamp", "clamp_", "clamp_min", "clamp_max", "nan_to_num",
        "retain_grad", "long", "int", "bool", "pin_memory")
MOVED = ("squeeze", "unsqueeze", "view", "reshape", "flatten", "permute", "transpose", "t",
         "expand", "repeat", "swapaxes", "movedim", "unflatten", "index_select", "gather",
         "masked_select", "narrow", "select", "chunk", "split", "expand_as", "view_as", "unfold")
REDUCED = ("mean", "sum", "norm", "std", "var", "prod", "amax", "amin", "logsumexp", "max", "min",
           "median")
MADE = ("randn", "rand", "zeros", "ones", "empty", "full")
LIKE = ("randn_like", "rand_like", "zeros_like", "ones_like", "empty_like", "full_like")


def number(value: Value | None) -> int | None:
    if value is not None and value.kind == "const" and type(value.data) is int:
        return value.data
    return None


def made_with(args: list[Value]) -> Shape | None:
    """The shape of `torch.randn(3, n)` or `torch.zeros((3, n))`."""
    if len(args) == 1 and args[0].kind in ("tuple", "list"):
        args = args[0].items
    if not args or any(a.kind not in ("const", "unknown", "either") for a in args):
        return None
    if any(a.kind != "const" and (a.data == "sizes" or a.type == "starred") for a in args):
        return None
    if len(args) == 1 and args[0].kind != "const":
        return None  # it may be a size with several numbers
    return tuple(number(a) for a in args)


def parts(base: Value, args: list[Value], node: ast.AST, file: str) -> Value:
    """`x.split(n)` and `x.chunk(n)`: several of the same axes."""
    one = moved(base, "", [], node, file)
    at = number(args[1]) if len(args) > 1 else 0
    if base.shape is not None and at is not None and -len(base.shape) <= at < len(base.shape):
        at %= len(base.shape)
        one.shape = (*base.shape[:at], None, *base.shape[at + 1:])
    return Value("list", "", node, file, items=[one], data="comprehension")


def unfolded(shape: Shape | None, args: list[Value]) -> Shape | None:
    """`x.unfold(axis, size, step)`: windows along an axis."""
    at, size = (number(a) for a in args[:2]) if len(args) > 1 else (None, None)
    if shape is None or at is None or not -len(shape) <= at < len(shape):
        return None
    at %= len(shape)
    return (*shape[:at], None, *shape[at + 1:], size)


def moved(base: Value, name: str, args: list[Value], node: ast.AST, file: str) -> Value:
    """`x.view(…)`, `x.squeeze(1)` and others that keep the values."""
    made = tensor([base], node, file, act=base.act, act_node=base.act_node,
                  act_file=base.act_file, data=base.data if base.data == "batch" else None)
    made.dtype, made.device = base.dtype, base.device
    made.type, made.owner = base.type if base.type == "recurrent" and not name else "", base.owner
    made.shape = _moved(base.shape, name, args)
    return made


def _moved(shape: Shape | None, name: str, args: list[Value]) -> Shape | None:
    at = number(args[0]) if args else None
    if not name:
        return shape
    if name == "gather":
        return args[1].shape if len(args) > 1 and args[1].kind == "tensor" else None
    if name in ("view", "reshape"):
        return views.viewed(shape, args)
    if name == "flatten" and not args:
        return (times(shape),) if shape else (None,)
    if shape is None:
        return None
    if name == "squeeze":
        return _squeezed(shape, at, bool(args))
    if name == "unsqueeze" and at is not None:
        at = at if at >= 0 else len(shape) + 1 + at
        return (*shape[:at], 1, *shape[at:])
    if name == "flatten":
        return flattened(shape, at, number(args[1]) if len(args) > 1 else -1)
    if name == "unfold":
        return unfolded(shape, args)
    if name == "permute":
        return views.permuted(shape, args)
    return views.transposed(shape, args) if name in ("transpose", "swapaxes") else None


def _squeezed(shape: Shape, at: int | None, given: bool) -> Shape | None:
    if given:
        if at is None or not -len(shape) <= at < len(shape):
            return None
        at %= len(shape)
        if shape[at] == 1:
            return shape[:at] + shape[at + 1:]
        return shape if shape[at] is not None else None
    if not any(size is None for size in shape[1:]):
        return tuple(size for size in shape if size != 1)
    return None


def reduced(shape: Shape | None, args: list[Value], kwargs: dict[str, Value]) -> Shape | None:
    dim = kwargs.get("dim", args[0] if args else None)
    if dim is None:
        return ()
    if shape is None:
        return None
    axes = _axes(dim, len(shape))
    if axes is None:
        return None
    keep = kwargs.get("keepdim") or (args[1] if len(args) > 1 else None)
    if keep is not None and keep.kind != "const":
        return None
    if keep is not None and keep.data:
        return tuple(1 if at in axes else s for at, s in enumerate(shape))
    return tuple(s for at, s in enumerate(shape) if at not in axes)


def _axes(dim: Value, count: int) -> set[int] | None:
    """The axes that a reduction names."""
    found = [number(d) for d in (dim.items if dim.kind in ("tuple", "list") else [dim])]
    if not found or any(a is None or not -count <= a < count for a in found):
        return None
    return {a % count for a in found if a is not None}


def item(base: Value, key: Value, node: ast.Subscript, file: str) -> Value:
    """`base[key]`."""
    if key.kind == "const" and isinstance(key.data, str) and f"[{key.data}]" in base.attrs:
        return base.attrs[f"[{key.data}]"]
    if base.kind == "tensor":
        made = moved(base, "", [], node, file)
        made.shape = _indexed(base.shape, node.slice, key)
        return made
    at = number(key)
    if base.data == "sizes" and base.owner is not None:
        return views.size(base.owner, at, node, file)
    plain = base.kind in ("tuple", "list") and base.data != "comprehension"
    if (plain or (base.kind == "module" and base.name == "Sequential")) and at is not None and (
            -len(base.items) <= at < len(base.items)):
        return base.items[at]
    if base.items and base.kind in ("list", "tuple", "module"):
        if key.kind == "slice" and base.kind != "module":
            return Value("list", "", node, file, items=base.items)
        return either(base.items)
    if base.kind == "dict" and (base.items or base.attrs):
        return either([*base.items, *base.attrs.values()])
    if base.type == "array":
        return Value("unknown", "array", node, file, dtype=base.dtype,
                     shape=_indexed(base.shape, node.slice, key))
    return Value("unknown", "array" if base.type == "array" else "", node, file, owner=base,
                 dtype=base.dtype, data=base.data if base.data == "batch" else None,
                 device=base.device)


def _indexed(shape: Shape | None, key: ast.expr, value: Value) -> Shape | None:
    if shape is None:
        return None
    parts = key.elts if isinstance(key, ast.Tuple) else [key]
    values = value.items if isinstance(key, ast.Tuple) else [value]
    left: list[int | None] = list(shape)
    found: list[int | None] = []
    for part, worth in zip(parts, values, strict=True):
        if isinstance(part, ast.Constant) and part.value is None:
            found.append(1)
        elif (isinstance(part, ast.Constant) and part.value is Ellipsis) or not left:
            return None
        elif isinstance(part, ast.Slice):
            size = left.pop(0)
            whole = part.lower is None and part.upper is None
            found.append(size if whole else None)
        elif _is_number(part) or worth.type in ("int", "number"):
            left.pop(0)
        elif len(parts) == 1 and value.kind == "tensor" and value.shape is not None and (
                len(value.shape) == 1):
            left.pop(0)
            found.append(None)
        else:
            return None
    return (*found, *left)


def _is_number(node: ast.expr) -> bool:
    inner = node.operand if isinstance(node, ast.UnaryOp) else node
    return isinstance(inner, ast.Constant) and type(inner.value) is int
