"""From the records of a pickle to tensors: shapes, types and storages, no values."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from torchmedic.data.pickles import Global, Made, Persistent
from torchmedic.observed.weights import Stored

DTYPES = {
    "Float": "float32", "Double": "float64", "Half": "float16", "BFloat16": "bfloat16",
    "Long": "int64", "Int": "int32", "Short": "int16", "Char": "int8", "Byte": "uint8",
    "Bool": "bool", "ComplexFloat": "complex64", "ComplexDouble": "complex128",
    "ComplexHalf": "complex32", "QInt8": "qint8", "QUInt8": "quint8", "QInt32": "qint32",
    "QUInt4x2": "quint4x2", "QUInt2x4": "quint2x4", "Untyped": "uint8",
}
NUMPY = {"f8": "float64", "f4": "float32", "f2": "float16", "i8": "int64", "i4": "int32",
         "i2": "int16", "i1": "int8", "u1": "uint8", "u2": "uint16", "u4": "uint32",
         "u8": "uint64", "b1": "bool", "c8": "complex64", "c16": "complex128"}
SIZES = {"float64": 8, "int64": 8, "complex64": 8, "complex128": 16, "float32": 4, "int32": 4,
         "qint32": 4, "float16": 2, "bfloat16": 2, "int16": 2, "uint16": 2, "uint32": 4,
         "uint64": 8, "complex32": 4, "bits16": 2}
"""Bytes of one element; all others take one."""
DEEPEST = 12
PLAIN = ("torch.Tensor", "torch.nn.parameter.Parameter")


def dtype_of(kind: Any) -> str:
    """The type a storage class or a dtype stands for."""
    name = kind.name if isinstance(kind, Global) else str(kind)[:40]
    return DTYPES.get(name.removesuffix("Storage"), name.removesuffix("Storage").lower())


def stored(value: Any, depth: int = 0) -> Stored | None:
    """The tensor or NumPy array that a record would be rebuilt to; None when it would be none."""
    if not isinstance(value, Made) or not isinstance(value.maker, Global) or depth > DEEPEST:
        return None
    read = _READERS.get(value.maker.name)
    if read is None or not value.maker.module.startswith(("torch", "numpy")):
        return None
    try:
        return read(value, depth + 1)
    except (IndexError, TypeError, ValueError, AttributeError, StopIteration):
        return None  # arguments that the real function would not take either


def storage_of(id_: Any) -> tuple[str, str, int]:
    """Key, type and number of elements of a storage; empty where the reference is none."""
    if isinstance(id_, tuple) and len(id_) > 4 and id_[0] == "storage" and (
            isinstance(id_[4], int) and 0 <= id_[4] < 1 << 62):
        return str(id_[2])[:200], dtype_of(id_[1]), id_[4]
    return "", "unknown", 0


def shape_of(value: Any) -> tuple[int, ...] | None:
    """A shape as a tuple, a list or a `torch.Size`."""
    if isinstance(value, Made):
        value = value.args[0] if isinstance(value.args, tuple) and value.args else None
    fits = isinstance(value, (tuple, list)) and len(value) <= 64 and all(
        isinstance(n, int) and 0 <= n < 1 << 62 for n in value)
    return tuple(value) if fits else None


def _shape(value: Any) -> tuple[int, ...]:
    found = shape_of(value)
    if found is None:
        raise ValueError("no shape")
    return found


def _dense(value: Made, depth: int) -> Stored | None:
    """(storage, offset, size, stride, …); the third form has its type at the end."""
    args = value.args
    key, dtype, count = storage_of(args[0].id if isinstance(args[0], Persistent) else None)
    if not key:
        return None
    if value.maker.name.endswith("_v3"):
        count = count * SIZES.get(dtype, 1) // SIZES.get(dtype_of(args[6]), 1)
        dtype = dtype_of(args[6])
    return Stored(_shape(args[2]), dtype, f"{key}+{args[1]}", room=count)


def _quantized(value: Made, depth: int) -> Stored | None:
    found = _dense(value, depth)
    return found and replace(found, kind="quantized")


def _inner(value: Made, depth: int) -> Stored | None:
    return stored(value.args[0], depth)


def _sparse(value: Made, depth: int) -> Stored | None:
    """(layout, parts): the last tensor holds the values, the first shape is the tensor's."""
    parts = value.args[1]
    tensors = [found for part in parts if (found := stored(part, depth)) is not None]
    shape = next(shape for part in parts if stored(part, depth) is None
                 and (shape := shape_of(part)) is not None)
    return Stored(shape, tensors[-1].dtype, kind="sparse")


def _meta(value: Made, depth: int) -> Stored:
    return Stored(_shape(value.args[1]), dtype_of(value.args[0]), kind="meta")


def _subclass(value: Made, depth: int) -> Stored:
    cls, dtype, shape = value.args[:3]
    return Stored(_shape(shape), dtype_of(dtype), kind=cls.name)


def _from_type(value: Made, depth: int) -> Stored | None:
    """(function, class, its arguments, state)."""
    function, cls, args = value.args[:3]
    found = stored(Made(function, args), depth)
    return found if found is None or str(cls) in PLAIN else replace(found, kind=cls.name)


def _nested(value: Made, depth: int) -> Stored | None:
    found = stored(value.args[0], depth)
    return found and replace(found, kind="nested")


def _of_device(value: Made, depth: int) -> Stored | None:
    """(array or CPU tensor, dtype, device, …)."""
    found = stored(value.args[0], depth)
    return found and replace(found, dtype=dtype_of(value.args[1]), kind="")


def _array(value: Made, depth: int) -> Stored:
    """The state of a NumPy array: (version, shape, type, order, bytes)."""
    _, shape, dtype = value.state[:3]
    code = str(dtype.args[0]).lstrip("<>=|")[:20]
    return Stored(_shape(shape), NUMPY.get(code, code), kind="NumPy")


_READERS: dict[str, Callable[[Made, int], Stored | None]] = {
    "_rebuild_tensor": _dense, "_rebuild_tensor_v2": _dense, "_rebuild_tensor_v3": _dense,
    "_rebuild_qtensor": _quantized, "_rebuild_parameter": _inner, "Parameter": _inner,
    "_rebuild_parameter_with_state": _inner, "_rebuild_sparse_tensor": _sparse,
    "_rebuild_meta_tensor_no_storage": _meta, "_rebuild_wrapper_subclass": _subclass,
    "_rebuild_from_type_v2": _from_type, "_rebuild_from_type": _from_type,
    "_rebuild_nested_tensor": _nested, "_rebuild_device_tensor_from_numpy": _of_device,
    "_rebuild_device_tensor_from_cpu_tensor": _of_device, "_reconstruct": _array,
}
