"""Changes a source text by exact edits, and keeps everything else of it."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from itertools import combinations
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torchmedic.model import Edit

Span = tuple[tuple[int, int], tuple[int, int]]
LINE_END = re.compile(r"\r\n|\r|\n")


class Unfit(ValueError):
    """These edits can't be made in this text; the message says why."""


def applied(text: str, fixes: Iterable[Sequence[Edit]]) -> tuple[str, list[bool]]:
    """The text with each fix's edits made, or none of that fix's, and which fixes were made."""
    edits, made = compatible(fixes)
    return edited(text, edits), made


def compatible(fixes: Iterable[Sequence[Edit]]) -> tuple[list[Edit], list[bool]]:
    """The edits that can be made together: of fixes that touch one place the first is made."""
    taken: list[Edit] = []
    made = []
    for fix in fixes:
        wanted = [edit for edit in fix if edit not in taken]  # the same import, for several fixes
        pairs = [(one, other) for one in wanted for other in taken]
        free = bool(fix) and not any(_overlap(one, other)
                                     for one, other in (*pairs, *combinations(wanted, 2)))
        made.append(free)
        if free:
            taken += wanted
    return taken, made


def edited(text: str, edits: Iterable[Edit]) -> str:
    """The text with these edits made. Every line keeps its own end; new ones get their
    neighbour's."""
    starts = [0, *(match.end() for match in LINE_END.finditer(text))]
    for edit in sorted(edits, key=_span, reverse=True):
        start = _offset(text, starts, edit.line, edit.column)
        end = _offset(text, starts, edit.end_line, edit.end_column)
        if end < start:
            raise Unfit(f"line {edit.line} ends before it starts")
        near = LINE_END.search(text, start) or LINE_END.search(text)
        new = edit.text.replace("\n", near.group()) if near else edit.text
        text = text[:start] + new + text[end:]
    return text


def unified(text: str) -> str:
    """With `\\n` at the end of each line, as edits and findings count them."""
    return LINE_END.sub("\n", text)


def _span(edit: Edit) -> Span:
    return (edit.line, edit.column), (edit.end_line, edit.end_column)


def _overlap(one: Edit, other: Edit) -> bool:
    """They share a character, or insert at the same place."""
    (start, end), (first, last) = _span(one), _span(other)
    if start == end and first == last:
        return start == first
    return start < last and first < end


def _offset(text: str, starts: Sequence[int], line: int, column: int) -> int:
    """Where a column in UTF-8 bytes is in the text."""
    if not 1 <= line <= len(starts):
        raise Unfit(f"line {line} of {len(starts)}")
    stop = starts[line] if line < len(starts) else len(text)
    data = text[starts[line - 1]:stop].rstrip("\r\n").encode("utf-8", "surrogatepass")
    if not 0 <= column <= len(data):
        raise Unfit(f"column {column} of {len(data)}")
    try:
        return starts[line - 1] + len(data[:column].decode("utf-8", "surrogatepass"))
    except UnicodeDecodeError:
        raise Unfit(f"column {column} is inside a character") from None


def difference(before: str, after: str, name: str) -> str:
    """The change as a unified diff that `patch` and `git apply` take."""
    import difflib

    shown = name.lstrip("/")
    lines = difflib.unified_diff(_lines(before), _lines(after), f"a/{shown}", f"b/{shown}",
                                 lineterm="\n", n=3)
    return "".join(line if line.endswith("\n") else f"{line}\n\\ No newline at end of file\n"
                   for line in lines)


def _lines(text: str) -> list[str]:
    return re.findall(r"[^\n]*\n|[^\n]+", text)
