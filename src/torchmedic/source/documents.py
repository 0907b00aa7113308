"""A file of source as fixes change it: Python text, or a notebook whose cells hold it."""

from __future__ import annotations

import tokenize
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from torchmedic.source import edits as editing
from torchmedic.source import notebooks

if TYPE_CHECKING:
    from torchmedic.model import Edit


class Document(Protocol):
    """What both can do."""

    @property
    def source(self) -> str:
        """The Python in it, with `\\n` at the end of each line."""

    @property
    def raw(self) -> str:
        """The file's text, every character of it."""

    def edited(self, edits: Iterable[Edit]) -> Document:
        """With these edits of `source` made; raises `Unfit` where one can't be."""


@dataclass(frozen=True, slots=True)
class Text:
    """A Python file."""

    raw: str

    @property
    def source(self) -> str:
        return editing.unified(self.raw)

    def edited(self, edits: Iterable[Edit]) -> Text:
        return Text(editing.edited(self.raw, edits))


@dataclass(frozen=True, slots=True)
class Notebook:
    """The cells of a notebook; all else of its JSON text stays as it is."""

    raw: str

    @property
    def source(self) -> str:
        return notebooks.source(self.raw)

    def edited(self, edits: Iterable[Edit]) -> Notebook:
        places = notebooks.places(self.raw)
        lines = self.source.split("\n")
        codes = notebooks.codes(self.raw)
        wanted: dict[int, list[Edit]] = {}
        for edit in edits:
            cell, local = _in_cell(edit, places)
            own = codes[cell].split("\n")
            for row in range(local.line, local.end_line + 1):
                if own[row - 1] != lines[edit.line - 1 + row - local.line]:
                    raise editing.Unfit("a magic is no Python")
            wanted.setdefault(cell, []).append(local)
        changed = {cell: editing.edited(codes[cell], todo) for cell, todo in wanted.items()}
        return Notebook(notebooks.with_codes(self.raw, changed))


def _in_cell(edit: Edit, places: Sequence[tuple[int, int]]) -> tuple[int, Edit]:
    """The cell of an edit, and the edit in the lines of that cell."""
    if not 1 <= edit.line <= edit.end_line <= len(places):
        raise editing.Unfit("it is in no cell")
    cell, line = places[edit.line - 1]
    last, end_line = places[edit.end_line - 1]
    if cell != last:
        raise editing.Unfit("it goes over the end of a cell")
    return cell, replace(edit, line=line, end_line=end_line)


def read(file: str) -> tuple[Document, bytes, str]:
    """(the document, its bytes, their encoding). Raises OSError, SyntaxError and ValueError."""
    data = Path(file).read_bytes()
    if file.endswith(".ipynb"):
        encoding = "utf-8-sig" if data.startswith(b"\xef\xbb\xbf") else "utf-8"
    else:
        encoding = tokenize.detect_encoding(BytesIO(data).readline)[0]
    text = data.decode(encoding)
    if text.encode(encoding) != data:
        raise ValueError(f"its {encoding} can't be written back as it is")
    return (Notebook(text) if file.endswith(".ipynb") else Text(text)), data, encoding
