"""Paths and positions as other tools want them."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from torchmedic.source.text import source_line

if TYPE_CHECKING:
    from torchmedic.model import Edit


def relative(path: str) -> str:
    """With `/`, from the working folder where the file lies below it; else absolute."""
    full = os.path.abspath(path)  # noqa: PTH100 - links stay as they are
    inside = os.path.relpath(full, os.getcwd())  # noqa: PTH109
    outside = inside == os.pardir or inside.startswith(os.pardir + os.sep)
    return (full if outside else inside).replace(os.sep, "/")


def characters(file: str | None, line: int, column: int) -> int:
    """A column in UTF-8 bytes, from 0, as one in characters, from 1."""
    text = source_line(file, line)
    if text is None:
        return column + 1
    return len(text.encode("utf-8", "surrogatepass")[:column].decode("utf-8", "ignore")) + 1


def region(file: str | None, edit: Edit) -> dict[str, int]:
    """The range of an edit: lines and characters from 1, its end not included."""
    return {
        "startLine": edit.line, "startColumn": characters(file, edit.line, edit.column),
        "endLine": edit.end_line,
        "endColumn": characters(file, edit.end_line, edit.end_column),
    }
