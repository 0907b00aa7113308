"""Reads source text as tolerantly as it can: a report or a rule must never die of a file."""

from __future__ import annotations

import io
import os
import stat
import tokenize
from functools import lru_cache

LARGEST = 4 * 1024 * 1024
"""No hand-written module is larger; generated ones tell nothing."""

_cache: dict[str, tuple[tuple[int, int], str | None]] = {}


def file_stamp(path: str) -> tuple[int, int] | None:
    """(modification time, size) of a regular file; None for everything else."""
    try:
        status = os.stat(path)  # noqa: PTH116 - a path may hold anything, also a null byte
    except (OSError, ValueError):
        return None
    if not stat.S_ISREG(status.st_mode):  # a pipe or a device would block
        return None
    return status.st_mtime_ns, status.st_size


def read_text(path: str) -> str | None:
    """The text with `\\n` line ends, or None when the file can't be read."""
    stamp = file_stamp(path)
    if stamp is None or stamp[1] > LARGEST:
        return None
    known = _cache.get(path)
    if known is None or known[0] != stamp:
        known = _cache[path] = (stamp, _decoded(path))
    return known[1]


def forget(most: int) -> None:
    """Keeps the texts of so many files, the latest."""
    for path in list(_cache)[:-most]:
        del _cache[path]


def _decoded(path: str) -> str | None:
    try:
        with open(path, "rb") as file:
            data = file.read()
    except OSError:
        return None
    return decode(data)


def decode(data: bytes) -> str:
    """Source bytes as text by their own declaration, else Latin-1, which never fails."""
    try:
        encoding = tokenize.detect_encoding(io.BytesIO(data).readline)[0]
        text = data.decode(encoding)
    except (SyntaxError, UnicodeDecodeError, LookupError):
        text = data.decode("latin-1")
    return text.replace("\r\n", "\n").replace("\r", "\n")


@lru_cache(8)
def _code(text: str) -> str | None:
    """The code cells of a notebook, one after the other."""
    from torchmedic.source import notebooks

    try:
        return notebooks.source(text)
    except (ValueError, RecursionError):
        return None


def source_line(path: str | None, number: int | None) -> str | None:
    """One line without its end, or None when it is not there; of a notebook, of its code."""
    if not path or not number or number < 1:
        return None
    text = read_text(path)
    if text is not None and path.endswith(".ipynb"):
        text = _code(text)
    if text is None:
        return None
    lines = text.split("\n")
    return lines[number - 1] if number <= len(lines) else None
