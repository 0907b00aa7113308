"""Notebooks as source: the code cells in their order, and where each line stands."""

from __future__ import annotations

import json
from collections.abc import Iterator

MAGIC = ("%", "!", "?")


def source(text: str) -> str:
    """The code of all cells, magics as `pass`. Raises ValueError when it is no notebook."""
    return "\n".join(line for _, _, line in _lines(text)) + "\n"


def places(text: str) -> list[tuple[int, int]]:
    """For each line of `source`: its cell and its line there, both from 1."""
    return [(cell, line) for cell, line, _ in _lines(text)]


def codes(text: str) -> dict[int, str]:
    """The code of each code cell as it is, by the number of the cell."""
    return dict(_codes(text))


def with_codes(text: str, changed: dict[int, str]) -> str:
    """The notebook with other code in some cells, and every other character as it was."""
    from torchmedic.source import jsontext

    spots = []
    data = json.loads(text)
    for number, cell in enumerate(_cells_of(data), 1):
        if number in changed:
            key = "source" if "source" in cell else "input"
            spots.append((_path(data, cell, key), changed[number]))
    for path, code in sorted(spots, key=lambda spot: jsontext.span(text, spot[0]), reverse=True):
        text = jsontext.with_text(text, path, code)
    return text


def _path(data: object, cell: object, key: str) -> tuple[str | int, ...]:
    """How to get from the whole notebook to a cell's code."""
    assert isinstance(data, dict)
    sheets: list[tuple[tuple[str | int, ...], list[object]]]
    sheets = [(("cells",), data.get("cells") or [])]
    sheets += [(("worksheets", n, "cells"), sheet.get("cells", []))
               for n, sheet in enumerate(data.get("worksheets") or ())]
    return next((*path, at, key) for path, held in sheets for at, one in enumerate(held)
                if one is cell)


def _lines(text: str) -> list[tuple[int, int, str]]:
    found: list[tuple[int, int, str]] = []
    for number, code in _codes(text):
        foreign = code.lstrip().startswith("%%") and not code.lstrip().startswith(
            ("%%time", "%%capture"))
        for at, line in enumerate(code.split("\n"), 1):
            found.append((number, at, "" if foreign else _plain(line)))
    return found


def _codes(text: str) -> Iterator[tuple[int, str]]:
    for number, cell in enumerate(_cells_of(json.loads(text)), 1):
        if cell.get("cell_type") == "code":
            code = cell.get("source", cell.get("input", ""))
            yield number, "".join(map(str, code)) if isinstance(code, list) else str(code)


def _cells_of(data: object) -> list[dict[str, object]]:
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
