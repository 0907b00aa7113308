"""Paths and positions as other tools want them."""

from __future__ import annotations

import os
from functools import lru_cache
from typing import TYPE_CHECKING

from torchmedic.source.text import read_text, source_line

if TYPE_CHECKING:
    from torchmedic.model import Edit, Place

NOTEBOOK = ".ipynb"


def relative(path: str) -> str:
    """With `/`, from the working folder where the file lies below it; else absolute."""
    full = os.path.abspath(path)  # noqa: PTH100 - links stay as they are
    inside = os.path.relpath(full, os.getcwd())  # noqa: PTH109
    outside = inside == os.pardir or inside.startswith(os.pardir + os.sep)
    return (full if outside else inside).replace(os.sep, "/")


def line_in_file(where: Place) -> int | None:
    """The line as an editor counts it; of a notebook there is none, it counts by cells."""
    return None if where.file and where.file.endswith(NOTEBOOK) else where.line


def cell(where: Place) -> tuple[int, int] | None:
    """Of a place in a notebook: the number of the cell, and the line in it."""
    if not where.file or not where.line or not where.file.endswith(NOTEBOOK):
        return None
    found = _cells(read_text(where.file) or "")
    return found[where.line - 1] if where.line <= len(found) else None


@lru_cache(8)
def _cells(text: str) -> list[tuple[int, int]]:
    from torchmedic.source import notebooks

    try:
        return notebooks.places(text)
    except (ValueError, RecursionError):
        return []


def spot(where: Place) -> str:
    """What follows the name of the file: `:12`, `:12:5`, `:cell 3:2:5`."""
    if not where.line:
        return ""
    at = cell(where)
    text = f":{where.line}" if at is None else f":cell {at[0]}:{at[1]}"
    first = column(where)
    return text if first is None else f"{text}:{first}"


def column(where: Place) -> int | None:
    """In characters, from 1."""
    if where.column is None or not where.line:
        return None
    return characters(where.file, where.line, where.column)


def characters(file: str | None, line: int, offset: int) -> int:
    """A column in UTF-8 bytes, from 0, as one in characters, from 1."""
    text = source_line(file, line)
    if text is None:
        return offset + 1
    return len(text.encode("utf-8", "surrogatepass")[:offset].decode("utf-8", "ignore")) + 1


def region(file: str | None, edit: Edit) -> dict[str, int]:
    """The range of an edit: lines and characters from 1, its end not included."""
    return {
        "startLine": edit.line, "startColumn": characters(file, edit.line, edit.column),
        "endLine": edit.end_line,
        "endColumn": characters(file, edit.end_line, edit.end_column),
    }
