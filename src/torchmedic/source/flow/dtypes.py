"""Types of the elements of tensors and arrays, as far as the code tells them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torchmedic.source.flow.values import Value

NAMES = {
    "float": "float32", "float32": "float32", "double": "float64", "float64": "float64",
    "half": "float16", "float16": "float16", "bfloat16": "bfloat16", "long": "int64",
    "int64": "int64", "int": "int32", "int32": "int32", "bool": "bool", "uint8": "uint8",
    "FloatTensor": "float32", "DoubleTensor": "float64", "LongTensor": "int64",
    "IntTensor": "int32", "BoolTensor": "bool", "HalfTensor": "float16",
}
FLOATS = ("float16", "bfloat16", "float32", "float64")
WHOLE = ("int32", "int64")
FLOAT_MADE = ("randn", "rand", "zeros", "ones", "empty", "eye", "linspace", "normal")
DOUBLE_MADE = ("randn", "rand", "random", "random_sample", "normal", "uniform", "standard_normal",
               "zeros", "ones", "empty", "linspace", "eye")
KEPT = ("abs", "neg", "contiguous", "clone", "sum", "cumsum", "max", "min", "flip", "roll",
        "sort", "unique", "add", "sub", "mul", "clip", "copy", "ravel", "flatten", "reshape",
        "transpose", "squeeze", "repeat", "take", "concatenate", "stack", "vstack", "hstack")


def named(value: Value | None) -> str:
    """What `dtype=torch.float32` or `"float32"` names."""
    if value is None:
        return ""
    if value.kind == "const":
        return NAMES.get(str(value.data), "") if isinstance(value.data, str) else ""
    if value.type in ("builtins.float", "builtins.int"):
        return "float64" if value.type == "builtins.float" else "int64"
    if value.kind == "external" and value.type.startswith(("torch.", "numpy.")):
        numpy = value.type.startswith("numpy.")
        last = value.type.rpartition(".")[2]
        return "float64" if numpy and last in ("float", "double") else NAMES.get(last, "")
    return ""


def created(name: str, args: Sequence[Value], kwargs: dict[str, Value]) -> str:
    """Of `torch.zeros(3)`, `torch.tensor([1, 2])`, …"""
    if "dtype" in kwargs:
        return named(kwargs["dtype"])
    if name in FLOAT_MADE:
        return "float32"
    if name in ("randint", "randperm"):
        return "int64"
    if name == "arange":
        return _of_numbers(args)
    return held(args[0]) if name == "tensor" and args else ""


def held(value: Value) -> str:
    """What `torch.tensor(value)` makes of a number, a list or an array."""
    if value.kind in ("list", "tuple"):
        kinds = {held(item) for item in value.items}
        return kinds.pop() if len(kinds) == 1 else "float32" if kinds <= {"int64", "float32"} and (
            kinds) else ""
    if value.kind == "const":
        return _of_numbers([value])
    if value.type == "number":
        return {"float64": "float32"}.get(value.dtype, value.dtype)
    return value.dtype


def _of_numbers(values: Sequence[Value]) -> str:
    types = {type(v.data) if v.kind == "const" else None for v in values}
    if types == {int}:
        return "int64"
    return "float32" if types and types <= {int, float} else ""


def cast(name: str, args: Sequence[Value], kwargs: dict[str, Value], before: str) -> str:
    """Of `x.float()`, `x.to(torch.long)`, `x.astype("float32")` and what keeps the type."""
    if name in NAMES:
        return NAMES[name]
    if name in ("to", "type", "astype"):
        given = [named(v) for v in (*args, *kwargs.values())]
        found = next((g for g in given if g), "")
        unsure = any(v.kind == "unknown" or v.kind == "either" for v in args) and name != "to"
        return found or ("" if unsure or name == "astype" else before)
    return "" if name == "type_as" else before


def together(values: Iterable[Value]) -> str:
    """Of a sum, a product or a join."""
    found = {v.dtype for v in values if v.kind != "const" and v.type != "number"}
    if "" in found or not found:
        return ""
    floats = [f for f in FLOATS if f in found]
    if floats:
        return floats[-1]
    return found.pop() if len(found) == 1 else ""


def numpy(full: str, args: Sequence[Value], kwargs: dict[str, Value]) -> str:
    """Of what a function of numpy gives."""
    if "dtype" in kwargs:
        return named(kwargs["dtype"])
    last = full.rpartition(".")[2]
    if last in DOUBLE_MADE:
        return "float64"
    if last in ("randint", "permutation") or (last == "arange" and _of_numbers(args) == "int64"):
        return "int64"
    if last in ("array", "asarray") and args:
        known = held(args[0])
        return "float64" if known == "float32" and args[0].dtype != "float32" else known
    if last in ("float32", "float64", "int64"):
        return last
    if last in KEPT and args:
        parts = args[0].items if args[0].kind in ("list", "tuple") else args[:1]
        return together(parts)
    return ""
