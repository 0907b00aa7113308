"""Which files a check reads, and why one can't be read."""

from __future__ import annotations

import ast
import os
import tokenize
import warnings
from collections.abc import Callable, Iterator, Sequence
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


def found(paths: Sequence[str],
          left_out: Callable[[str], bool] = lambda _path: False) -> Iterator[str]:
    """Every file below the paths, each once, sorted; a file that is named is always read.

    left_out: whether a file or folder inside a folder is passed over.
    """
    seen: set[str] = set()
    for path in paths:
        for file in ([path] if not Path(path).is_dir() else _below(path, _above(path), left_out)):
            key = os.path.realpath(file)
            if key not in seen:
                seen.add(key)
                yield file


def read(file: str) -> Script:
    """The script in a file or a notebook. Raises `Unreadable`."""
    return parsed(content(file), file)


def content(file: str) -> bytes:
    """The bytes of a file, of a very large or endless one their beginning. Raises `Unreadable`."""
    try:
        with open(file, "rb") as stream:
            return stream.read(LARGEST + 1)
    except (OSError, ValueError) as error:
        raise Unreadable(getattr(error, "strerror", None) or str(error)) from None


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


class _Ignored:
    """The `.gitignore` files from the root of the repository down to a folder."""

    def __init__(self, base: str, lines: list[str], outer: _Ignored | None) -> None:
        import pathspec

        self._base, self._outer = base, outer
        self._spec = pathspec.GitIgnoreSpec.from_lines(lines)

    def matches(self, path: str, is_folder: bool) -> bool:
        """What the innermost file says that says anything counts, as in git."""
        inside = os.path.relpath(path, self._base).replace(os.sep, "/")
        told = self._spec.check_file(inside + "/" if is_folder else inside).include
        if told is None:
            return self._outer is not None and self._outer.matches(path, is_folder)
        return told


def _above(folder: str) -> _Ignored | None:
    """What the folders above say, as far as they belong to the same repository."""
    chain = [os.path.abspath(folder)]  # noqa: PTH100 - links stay as they are
    while not os.path.exists(os.path.join(chain[-1], ".git")):  # noqa: PTH110,PTH118
        above = os.path.dirname(chain[-1])  # noqa: PTH120
        if above == chain[-1]:
            return None  # in no repository
        chain.append(above)
    known: _Ignored | None = None
    for place in reversed(chain[1:]):
        known = _with(place, known)
    return known


def _with(folder: str, outer: _Ignored | None) -> _Ignored | None:
    try:
        text = Path(folder, ".gitignore").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return outer
    return _Ignored(folder, text.splitlines(), outer)


def _below(folder: str, outer: _Ignored | None,
           left_out: Callable[[str], bool]) -> Iterator[str]:
    ignored = _with(folder, outer)
    try:
        entries = sorted(os.scandir(folder), key=lambda entry: entry.name)
    except OSError:
        return
    for entry in entries:
        is_folder = entry.is_dir(follow_symlinks=False)
        if not is_folder and not entry.name.endswith(SUFFIXES):
            continue
        if entry.name in SKIPPED or left_out(entry.path) or (
                ignored and ignored.matches(entry.path, is_folder)):
            continue
        if is_folder:
            if not os.path.exists(os.path.join(entry.path, "pyvenv.cfg")):  # noqa: PTH110,PTH118
                yield from _below(entry.path, ignored, left_out)
        elif entry.is_file():
            yield entry.path.removeprefix("./")
