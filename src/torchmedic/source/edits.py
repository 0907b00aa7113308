"""Changes a source text by exact edits, and keeps everything else of it."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torchmedic.model import Edit

Span = tuple[tuple[int, int], tuple[int, int]]


class Unfit(ValueError):
    """These edits can't be made in this text; the message says why."""


def applied(text: str, fixes: Iterable[Sequence[Edit]]) -> tuple[str, list[bool]]:
    """The text with each fix's edits made, or none of that fix's, and which fixes were made.

    Of fixes that touch the same place the first is made. Lines end as in the text (`\\n`).
    """
    lines = text.split("\n")
    taken: list[Span] = []
    edits: list[Edit] = []
    made = []
    for fix in fixes:
        wanted = [edit for edit in fix if edit not in edits]  # the same import, for several fixes
        spans = [_span(edit) for edit in wanted]
        free = bool(fix) and not any(_overlap(span, other) for span in spans for other in taken)
        made.append(free)
        if free:
            taken += spans
            edits += wanted
    for edit in sorted(edits, key=_span, reverse=True):
        _make(lines, edit)
    return "\n".join(lines), made


def parses(text: str) -> bool:
    """Whether Python still reads it."""
    try:
        ast.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return False
    return True


def _span(edit: Edit) -> Span:
    return (edit.line, edit.column), (edit.end_line, edit.end_column)


def _overlap(one: Span, other: Span) -> bool:
    """They share a character, or insert at the same place."""
    if one[0] == one[1] and other[0] == other[1]:
        return one[0] == other[0]
    return one[0] < other[1] and other[0] < one[1]


def _make(lines: list[str], edit: Edit) -> None:
    if not 1 <= edit.line <= edit.end_line <= len(lines):
        raise Unfit(f"line {edit.line} to {edit.end_line} of {len(lines)}")
    head = _cut(lines[edit.line - 1], edit.column)[0]
    tail = _cut(lines[edit.end_line - 1], edit.end_column)[1]
    lines[edit.line - 1:edit.end_line] = (head + edit.text + tail).split("\n")


def _cut(line: str, column: int) -> tuple[str, str]:
    """At a column in UTF-8 bytes."""
    data = line.encode("utf-8", "surrogatepass")
    if not 0 <= column <= len(data):
        raise Unfit(f"column {column} of {len(data)}")
    try:
        return data[:column].decode("utf-8"), data[column:].decode("utf-8", "surrogatepass")
    except UnicodeDecodeError:
        raise Unfit(f"column {column} is inside a character") from None


def difference(before: str, after: str, name: str) -> str:
    """The change as a unified diff, with the file's name on both sides."""
    import difflib

    lines = difflib.unified_diff(
        before.splitlines(), after.splitlines(), f"a/{name}", f"b/{name}", lineterm="", n=3)
    return "\n".join(lines)
