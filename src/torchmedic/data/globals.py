"""Names that a pickle asks for: those torch knows, others, and those that do harm."""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torchmedic.data.pickles import Global

_ALLOWED = r"""
    (?:collections\.(?:OrderedDict|Counter)
    |(?:builtins|__builtin__)\.(?:set|bytearray|complex)
    |_codecs\.encode
    |torch\.(?:cuda\.|sparse\.|cuda\.sparse\.)?[A-Z]\w*(?:Storage|Tensor)
    |torch\.(?:Tensor|Size|device|bool|bfloat16|(?:u?int|q?u?int|float|complex|bits)\d\w*
        |per_(?:tensor|channel)_\w+)
    |torch\._utils\._rebuild_(?:parameter|parameter_with_state|qtensor|tensor|tensor_v2|tensor_v3
        |sparse_tensor|meta_tensor_no_storage|nested_tensor|wrapper_subclass
        |device_tensor_from_(?:numpy|cpu_tensor))
    |torch\._tensor\._rebuild_from_type_v2
    |torch\.nn\.parameter\.Parameter
    |torch\.serialization\._get_layout
    |torch\.storage\.(?:TypedStorage|UntypedStorage)
    |torch\.distributed\.(?:tensor|_tensor|device_mesh|_mesh_layout)\b.*  # once imported
    |torch\.nested\._internal\..*
    |__torch__\..*|torch\.jit\._pickle\.\w+  # of TorchScript
    )$"""
"""As `torch._weights_only_unpickler` has them, torch 2.4 to 2.14."""

_MODULES = frozenset((
    "os", "posix", "nt", "ntpath", "posixpath", "subprocess", "sys", "socket", "shutil",
    "runpy", "pty", "code", "codeop", "importlib", "ctypes", "webbrowser", "pickle", "_pickle",
    "marshal", "imp", "pip", "pydoc", "timeit", "bdb", "pdb", "cProfile", "profile", "trace",
    "commands", "popen2", "multiprocessing", "threading", "_thread", "asyncio", "signal",
    "platform", "tempfile", "glob", "urllib", "requests", "http", "httpx", "aiohttp", "ftplib",
    "smtplib", "telnetlib", "paramiko", "ssl", "operator", "functools", "builtins",
    "__builtin__", "types", "inspect", "linecache", "site", "venv", "ensurepip", "zipimport",
    "pkgutil", "gc", "io", "_io", "setuptools", "distutils", "cffi", "fileinput"))
_HARMLESS = {
    "builtins": "set frozenset bytearray bytes complex dict list tuple int float str bool slice "
                "range object type print getattr long unicode xrange super reversed enumerate zip "
                "property staticmethod classmethod Ellipsis NotImplemented ellipsis NoneType",
    "functools": "partial OrderedDict", "operator": "itemgetter attrgetter",
    "types": "SimpleNamespace NoneType", "io": "BytesIO StringIO", "_io": "BytesIO StringIO",
    "inspect": "Signature Parameter", "multiprocessing": "", "argparse": "Namespace",
}
_DEEP = re.compile(
    r"torch\.(?:hub|utils\.(?:cpp_extension|model_zoo)|jit\.load|load$|serialization\.load$"
    r"|_inductor|compile$|ops\.load)"
    r"|numpy\.(?:testing\..*runstring|f2py|distutils|load$|ctypeslib)")
_PARTS = frozenset((
    "os", "sys", "subprocess", "shutil", "builtins", "eval", "exec", "system", "popen",
    "__import__", "__globals__", "__builtins__", "__subclasses__", "importlib", "runpy",
    "ctypes"))


@cache
def _allowed() -> re.Pattern[str]:
    return re.compile(_ALLOWED, re.VERBOSE)


def refused(names: Iterable[Global]) -> tuple[str, ...]:
    """Those that `weights_only=True` does not know."""
    return tuple(str(name)[:200] for name in names if not _allowed().match(str(name)))


def harmful(name: Global) -> bool:
    """It runs commands or code, reads or writes files or opens connections when it is called."""
    top = name.module.partition(".")[0]
    if top not in _MODULES:  # a dotted name may also lead from torch to what torch imports
        deep = _DEEP.match(str(name)) or ("." in name.name and _PARTS & set(name.name.split(".")))
        return bool(deep)
    top = "builtins" if top == "__builtin__" else top
    return name.name not in _HARMLESS.get(top, "").split()
