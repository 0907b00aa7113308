"""Notebooks as source: the code cells in their order, and where each line stands."""

from __future__ import annotations

import json

MAGIC = ("%", "!", "?")


def source(text: str) -> str:
    """The code of all cells, magics as `pass`. Raises ValueError when it is no notebook."""
    return "\n".join(line for _, _, line in _lines(text)) + "\n"


def places(text: str) -> list[tuple[int, int]]:
    """For each line of `source`: its cell and its line there, both from 1."""
    return [(cell, line) for cell, line, _ in _lines(text)]


def _lines(text: str) -> list[tuple[int, int, str]]:
    found: list[tuple[int, int, str]] = []
    for number, cell in enumerate(_cells(text), 1):
        if cell.get("cell_type") != "code":
            continue
        code = cell.get("source", cell.get("input", ""))
        code = "".join(map(str, code)) if isinstance(code, list) else str(code)
        foreign = code.lstrip().startswith("%%") and not code.lstrip().startswith(
            ("%%time", "%%capture"))
        for at, line in enumerate(code.split("\n"), 1):
            found.append((number, at, "" if foreign else _plain(line)))
    return found


def _cells(text: str) -> list[dict[str, object]]:
    data = json.loads(text)
    if not isinstance(data, dict):
        raise ValueError("it holds no cells")
    cells = data.get("cells")
    if cells is None:  # before version 4
        cells = [cell for sheet in data.get("worksheets", ()) for cell in sheet.get("cells", ())]
    return [cell for cell in cells if isinstance(cell, dict)]


def _plain(line: str) -> str:
    """A magic or a shell line is no Python: an empty statement with its indentation."""
    bare = line.lstrip()
    if bare.startswith(MAGIC):
        return line[:len(line) - len(bare)] + "pass"
    return line
