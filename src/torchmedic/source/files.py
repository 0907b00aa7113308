"""Which files a check reads, and why one can't be read."""

from __future__ import annotations

import ast
import fnmatch
import os
import tokenize
import warnings
from collections.abc import Iterator, Sequence
from io import BytesIO
from pathlib import Path

from torchmedic.source import notebooks
from torchmedic.source.script import Script
from torchmedic.source.text import LARGEST

SUFFIXES = (".py", ".ipynb")
SKIPPED = frozenset((
    ".git", ".hg", ".svn", ".tox", ".nox", ".venv", "venv", "env", ".env", "__pycache__",
    "site-packages", "node_modules", ".ipynb_checkpoints", ".mypy_cache", ".ruff_cache",
    ".pytest_cache", ".eggs", ".torchmedic",
))


class Unreadable(Exception):
    """A file that can't be checked; the message says why in a few words."""


def found(paths: Sequence[str]) -> Iterator[str]:
    """Every file below the paths, each once, sorted; a file that is named is always read."""
    seen: set[str] = set()
    for path in paths:
        for file in ([path] if not Path(path).is_dir() else _below(path, ())):
            key = os.path.realpath(file)
            if key not in seen:
                seen.add(key)
                yield file


def read(file: str) -> Script:
    """The script in a file or a notebook. Raises `Unreadable`."""
    try:
        data = Path(file).read_bytes()
    except (OSError, ValueError) as error:
        raise Unreadable(getattr(error, "strerror", None) or str(error)) from None
    return parsed(data, file)


def parsed(data: bytes, file: str) -> Script:
    """The script in the bytes of a file of that name. Raises `Unreadable`."""
    if len(data) > LARGEST:
        raise Unreadable(f"larger than {LARGEST // 2**20} MiB")
    if file.endswith(".ipynb"):
        return _parsed(_cells(data), file)
    if b"\0" in data:
        raise Unreadable("holds a null byte: no Python source")
    return _parsed(_decoded(data), file)


def _cells(data: bytes) -> str:
    try:
        return notebooks.source(data.decode("utf-8-sig"))
    except ValueError as error:
        raise Unreadable(f"no notebook: {error}") from None


def _decoded(data: bytes) -> str:
    try:
        encoding = tokenize.detect_encoding(BytesIO(data).readline)[0]
        text = data.decode(encoding)
    except (SyntaxError, UnicodeDecodeError, LookupError) as error:
        raise Unreadable(f"can't be decoded: {str(error).partition(' for ')[0]}") from None
    return text.replace("\r\n", "\n").replace("\r", "\n")


def _parsed(text: str, file: str) -> Script:
    script = Script.parse(text, file)
    if script is None:
        raise Unreadable(_fault(text))
    return script


def _fault(text: str) -> str:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            ast.parse(text)
    except SyntaxError as error:
        return f"syntax error in line {error.lineno}: {error.msg}"
    except (ValueError, RecursionError, MemoryError) as error:
        return f"can't be parsed: {error or type(error).__name__}"
    return "can't be parsed: nested too deeply"


def _below(folder: str, inherited: tuple[tuple[str, str], ...]) -> Iterator[str]:
    patterns = (*inherited, *((folder, line) for line in _ignored(folder)))
    try:
        entries = sorted(os.scandir(folder), key=lambda entry: entry.name)
    except OSError:
        return
    for entry in entries:
        is_folder = entry.is_dir(follow_symlinks=False)
        if entry.name in SKIPPED or _matches(entry.path, is_folder, patterns):
            continue
        if is_folder:
            if not os.path.exists(os.path.join(entry.path, "pyvenv.cfg")):  # noqa: PTH110,PTH118
                yield from _below(entry.path, patterns)
        elif entry.name.endswith(SUFFIXES) and entry.is_file():
            yield entry.path.removeprefix("./")


def _ignored(folder: str) -> list[str]:
    """The patterns of the folder's `.gitignore`."""
    try:
        text = Path(folder, ".gitignore").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return []
    return [line.strip() for line in text.splitlines()
            if line.strip() and not line.startswith("#")]


def _matches(path: str, is_folder: bool, patterns: tuple[tuple[str, str], ...]) -> bool:
    ignored = False
    for base, pattern in patterns:  # the last one that matches decides
        wanted = not pattern.startswith("!")
        if _matches_one(path, is_folder, base, pattern.lstrip("!")):
            ignored = wanted
    return ignored


def _matches_one(path: str, is_folder: bool, base: str, pattern: str) -> bool:
    if pattern.endswith("/"):
        if not is_folder:
            return False
        pattern = pattern.rstrip("/")
    inside = os.path.relpath(path, base).replace(os.sep, "/")
    if "/" in pattern:
        return fnmatch.fnmatch(inside, pattern.lstrip("/").replace("**/", "*"))
    return fnmatch.fnmatch(inside.rpartition("/")[2], pattern)
