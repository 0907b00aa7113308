"""Imported names as full names, and the files of the project that they come from."""

from __future__ import annotations

import ast
import os
from collections.abc import Iterator
from functools import lru_cache

from torchmedic.source.script import Script

LIBRARIES = frozenset((
    "torch", "torchvision", "torchaudio", "torchtext", "numpy", "random", "math", "os", "sys",
    "copy", "time", "json", "argparse", "itertools", "functools", "collections", "typing", "tqdm",
    "pathlib", "re", "logging", "pickle", "matplotlib", "sklearn", "scipy", "pandas", "PIL", "cv2",
    "transformers", "timm", "lightning", "pytorch_lightning", "accelerate", "wandb", "dataclasses",
))


def imported(node: ast.Import | ast.ImportFrom) -> Iterator[tuple[str, str]]:
    """(local name, full name); `*` stands for itself."""
    if isinstance(node, ast.Import):
        for alias in node.names:
            if alias.asname:
                yield alias.asname, alias.name
            else:
                top = alias.name.partition(".")[0]
                yield top, top
        return
    prefix = "." * node.level + (node.module or "")
    for alias in node.names:
        joined = prefix + alias.name if prefix.endswith(".") else f"{prefix}.{alias.name}"
        yield alias.asname or alias.name, joined


asked: dict[str, set[str]] = {}
"""For each file that was read, the paths at which a module that it imports was looked for."""


def depends_on(file: str) -> set[str]:
    """Every path whose content, or absence, what is known of a file may hang on."""
    found: set[str] = set()
    left = [file]
    while left:
        for path in asked.get(left.pop(), ()):
            if path not in found:
                found.add(path)
                left.append(path)
    return found - {file}


def forget() -> None:
    """Files may have come and gone since they were looked for."""
    _looked_for.cache_clear()


def project_file(name: str, file: str) -> str | None:
    """The file of a module of the project, as seen from a file that imports it."""
    found, probed = _looked_for(name, os.path.dirname(file))  # noqa: PTH120
    asked.setdefault(file, set()).update(probed)
    return found


@lru_cache(maxsize=100_000)
def _looked_for(name: str, folder: str) -> tuple[str | None, tuple[str, ...]]:
    """(the file, or None; every path that was tried)."""
    probed: list[str] = []
    bare = name.lstrip(".")
    level = len(name) - len(bare)
    parts = bare.split(".") if bare else []
    if not level and (not parts or parts[0] in LIBRARIES):
        return None, ()
    for start in _starts(folder, level, probed):
        base = os.path.join(start, *parts)  # noqa: PTH118
        for path in (f"{base}.py", os.path.join(base, "__init__.py")):  # noqa: PTH118
            probed.append(path)
            if os.path.isfile(path):  # noqa: PTH113
                return path, tuple(probed)
    return None, tuple(probed)


def _starts(folder: str, level: int, probed: list[str]) -> Iterator[str]:
    for _ in range(level - 1):
        folder = os.path.dirname(folder) if folder else ".."  # noqa: PTH120
    yield folder
    for _ in range(0 if level else 3):  # the folder above, where the file is inside a package
        probed.append(os.path.join(folder, "__init__.py"))  # noqa: PTH118
        if not os.path.isfile(probed[-1]):  # noqa: PTH113
            return
        folder = os.path.dirname(folder) if folder else ".."  # noqa: PTH120
        yield folder


def module_of(name: str, file: str) -> tuple[Script, str] | None:
    """(script, name inside it) for `pkg.training.Trainer`; "" for the module itself."""
    path = project_file(name, file)
    if path is not None and (script := Script.read(path)):
        return script, ""
    outer, dot, last = name.rpartition(".")
    if not dot:
        return None
    if not outer.strip("."):
        outer = name[:len(name) - len(last)]
    path = project_file(outer, file)
    if path is None or (script := Script.read(path)) is None:
        return None
    return script, last
