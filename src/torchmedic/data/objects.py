"""From the records of a pickle to tensors, state dicts and the names that ask to be run."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from torchmedic.data.pickles import Global, Made, Persistent
from torchmedic.observed.weights import Stored

DTYPES = {
    "Float": "float32", "Double": "float64", "Half": "float16", "BFloat16": "bfloat16",
    "Long": "int64", "Int": "int32", "Short": "int16", "Char": "int8", "Byte": "uint8",
    "Bool": "bool", "ComplexFloat": "complex64", "ComplexDouble": "complex128",
    "QInt8": "qint8", "QUInt8": "quint8", "QInt32": "qint32", "Untyped": "uint8",
}
SIZES = {"float64": 8, "int64": 8, "complex64": 8, "complex128": 16, "float32": 4, "int32": 4,
         "qint32": 4, "float16": 2, "bfloat16": 2, "int16": 2, "uint16": 2, "uint32": 4,
         "uint64": 8}
"""Bytes of one element; all others take one."""
DEEPEST = 12
RUNS = {"os", "posix", "nt", "subprocess", "sys", "shutil", "socket", "runpy", "importlib", "pty",
        "ctypes", "commands", "webbrowser", "code", "pickle", "_pickle", "marshal", "builtins",
        "__builtin__", "operator", "functools", "types", "urllib", "asyncio", "multiprocessing",
        "threading", "tempfile", "io", "_io", "timeit", "pdb", "bdb", "cProfile", "profile", "pip",
        "imp", "inspect", "signal", "platform", "requests", "httpx", "aiohttp", "ensurepip"}
"""Modules whose functions no weights need: whoever asks for them wants to do something."""
HARMLESS = {"set", "frozenset", "dict", "list", "tuple", "slice", "range", "complex", "bytearray",
            "bytes", "int", "float", "str", "bool", "object", "SimpleNamespace", "attrgetter",
            "itemgetter", "partial", "ellipsis", "type", "print", "NoneType", "BytesIO",
            "Signature", "Parameter"}
KNOWN = ("torch._utils.", "torch.nn.parameter.", "collections.", "_codecs.encode", "numpy.",
         "torch.serialization.", "torch.storage.", "torch._tensor.", "datetime.", "pathlib.")


def dtype_of(kind: Any) -> str:
    """The type a storage class or a dtype stands for."""
    name = kind.name if isinstance(kind, Global) else str(kind)
    return DTYPES.get(name.removesuffix("Storage"), name.removesuffix("Storage").lower())


def stored(value: Any) -> Stored | None:
    """The tensor that a record would be rebuilt to; None when it would be none."""
    for _ in range(4):
        if not isinstance(value, Made) or not isinstance(value.maker, Global):
            return None
        args = value.args if isinstance(value.args, tuple) else ()
        name = value.maker.name
        if name in ("_rebuild_parameter", "_rebuild_parameter_with_state", "Parameter") and args:
            value = args[0]
        elif name == "_rebuild_from_type_v2" and len(args) > 2:
            value = Made(args[0], args[2])
        else:
            return _rebuilt(name, args)
    return None


def _rebuilt(name: str, args: tuple[Any, ...]) -> Stored | None:
    if name in ("_rebuild_tensor", "_rebuild_tensor_v2", "_rebuild_tensor_v3", "_rebuild_qtensor"):
        storage, shape = (args[0], _shape(args[2])) if len(args) > 2 else (None, None)
        if not isinstance(storage, Persistent) or shape is None:
            return None
        found = storage_of(storage.id)
        dtype = dtype_of(args[6]) if name.endswith("_v3") and len(args) > 6 else found[1]
        return Stored(shape, dtype, f"{found[0]}+{args[1]}")
    if name == "_rebuild_meta_tensor_no_storage" and len(args) > 1:
        shape = _shape(args[1])
        return None if shape is None else Stored(shape, dtype_of(args[0]))
    return None


def storage_of(id_: Any) -> tuple[str, str, int]:
    """Key, type and number of elements of a storage; empty where the reference is none."""
    if isinstance(id_, tuple) and len(id_) > 4 and id_[0] == "storage" and isinstance(id_[4], int):
        return str(id_[2]), dtype_of(id_[1]), id_[4]
    return "", "unknown", 0


def _shape(value: Any) -> tuple[int, ...] | None:
    if isinstance(value, Made):  # torch.Size
        value = value.args[0] if isinstance(value.args, tuple) and value.args else None
    fits = isinstance(value, (tuple, list)) and len(value) <= 64 and all(
        isinstance(n, int) and 0 <= n < 1 << 62 for n in value)
    return tuple(value) if fits else None


def state_dict(value: Any) -> dict[str, Stored] | None:
    """The tensors of a dictionary of them, or of a module that was saved whole."""
    if isinstance(value, Made):
        return dict(_of_module(value)) or None
    if not isinstance(value, dict):
        return None
    found = {str(k): t for k, v in value.items() if (t := stored(v)) is not None}
    return found if found and len(found) * 2 > len(value) else None


def _of_module(value: Any, path: str = "", depth: int = 0,
               seen: frozenset[int] = frozenset()) -> Iterator[tuple[str, Stored]]:
    """Parameters and buffers of a module's record, as `state_dict` names them."""
    state = value.state if isinstance(value, Made) else None
    if isinstance(state, tuple) and len(state) == 2:
        state = state[1] or state[0]
    if not isinstance(state, dict) or depth > 4 * DEEPEST or id(value) in seen:
        return
    seen = seen | {id(value)}
    eager = "_parameters" in state
    rooms = [state.get(name) for name in ("_parameters", "_buffers")] if eager else [state]
    for room in rooms:
        for name, item in _items(room):
            if (tensor := stored(item)) is not None:
                yield f"{path}{name}", tensor
    for name, item in _items(state.get("_modules") if eager else state):
        if isinstance(item, Made) and stored(item) is None:
            yield from _of_module(item, f"{path}{name}.", depth + 1, seen)


def _items(room: Any) -> Iterable[tuple[Any, Any]]:
    return room.items() if isinstance(room, dict) else ()


def wants_to_run(names: Iterable[Global]) -> tuple[str, ...]:
    """Those that no weights need."""
    return tuple(str(name) for name in names
                 if (name.module.partition(".")[0] in RUNS and name.name not in HARMLESS)
                 or name.module.startswith(("torch.hub", "torch.utils.cpp_extension"))
                 or ("." in name.name and name.module.partition(".")[0] in RUNS))


def foreign(names: Iterable[Global]) -> tuple[str, ...]:
    """Those that `weights_only=True` refuses: classes of the user's or of libraries."""
    return tuple(str(name) for name in names if not (
        str(name).startswith(KNOWN)
        or name.module in ("builtins", "__builtin__", "torch")
        or name.module.startswith("__torch__")))
