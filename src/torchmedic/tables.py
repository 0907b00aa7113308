"""Plain tables for terminals: columns as wide as they must be, the last one wrapped."""

from __future__ import annotations

import textwrap
import unicodedata
from collections.abc import Iterable, Sequence

from torchmedic.report.escape import one_line

LEAST = 30
"""Less room than this for the last column, and it goes below the others."""


def table(rows: Iterable[Sequence[str]], width: int) -> str:
    """Rows of equal length as lines of at most `width` cells, where words allow it."""
    clean = [[one_line(cell) for cell in row] for row in rows]
    if not clean:
        return ""
    columns = len(clean[0]) - 1
    wide = [max(cells(row[i]) for row in clean) for i in range(columns)]
    start = sum(wide) + 2 * columns
    below = width - start < LEAST
    lines = []
    for row in clean:
        head = "  ".join(pad(row[i], wide[i]) for i in range(columns))
        indent = 4 if below else start
        last = textwrap.wrap(row[-1], max(LEAST, width - indent)) or [""]
        lines.extend([head, " " * indent + last[0]] if below else [f"{head}  {last[0]}"])
        lines.extend(" " * indent + line for line in last[1:])
    return "\n".join(line.rstrip() for line in lines) + "\n"


def pad(text: str, width: int) -> str:
    return text + " " * (width - cells(text))


def cells(text: str) -> int:
    """Columns of a terminal that a text takes."""
    if text.isascii():
        return len(text)
    return sum(2 if unicodedata.east_asian_width(c) in "WF" else
               0 if unicodedata.combining(c) else 1 for c in text)
