"""Changes one text in a JSON document and leaves every other character as it is."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from json.decoder import scanstring  # type: ignore[attr-defined]

SPACE = re.compile(r"[ \t\r\n]*")
PLAIN = re.compile(r"[^\s,\]}]+")
Path = Sequence[str | int]


def span(text: str, path: Path) -> tuple[int, int]:
    """Where the value at a path begins and ends. The text must be valid JSON."""
    at = _skip(text, 0)
    for step in path:
        spans = dict(_members(text, at))
        at = spans[step][0]
    return at, _end(text, at)


def with_text(text: str, path: Path, new: str) -> str:
    """The document with a text at a path, which holds one, or a list of its lines."""
    start, end = span(text, path)
    if text[start] == "[":
        return text[:start] + _as_lines(text, start, end, new) + text[end:]
    return text[:start] + _written(new, text) + text[end:]


def _as_lines(text: str, start: int, end: int, new: str) -> str:
    """A list of lines, set as the list that was there."""
    spots = [spot for _, spot in _members(text, start)]
    known = {scanstring(text, one + 1)[0]: text[one:last] for one, last in spots}
    lines = re.findall(r"[^\n]*\n|[^\n]+", new)
    words = [known.get(line) or _written(line, text) for line in lines]
    if not spots:
        return "[" + ", ".join(words) + "]"
    lead, tail = text[start + 1:spots[0][0]], text[spots[-1][1]:end]
    gap = text[spots[0][1]:spots[1][0]] if len(spots) > 1 else f",{lead}"
    return f"[{lead}{gap.join(words)}{tail}"


def _written(value: str, text: str) -> str:
    """With escapes for what is no ASCII, where the document is written so."""
    escapes = text.isascii() and re.search(r"\\u(?!00[01])[0-9a-fA-F]{4}", text) is not None
    return json.dumps(value, ensure_ascii=escapes)


def _members(text: str, at: int) -> list[tuple[str | int, tuple[int, int]]]:
    """(key or index, where its value begins and ends) of an object or a list."""
    found: list[tuple[str | int, tuple[int, int]]] = []
    closing = "}" if text[at] == "{" else "]"
    at = _skip(text, at + 1)
    while text[at] != closing:
        key: str | int = len(found)
        if closing == "}":
            key, at = scanstring(text, at + 1)
            at = _skip(text, _skip(text, at) + 1)
        end = _end(text, at)
        found.append((key, (at, end)))
        at = _skip(text, end)
        if text[at] == ",":
            at = _skip(text, at + 1)
    return found


def _end(text: str, at: int) -> int:
    if text[at] == '"':
        return int(scanstring(text, at + 1)[1])
    if text[at] in "{[":
        members = _members(text, at)
        last = members[-1][1][1] if members else at + 1
        return _skip(text, last) + 1
    match = PLAIN.match(text, at)
    assert match is not None
    return match.end()


def _skip(text: str, at: int) -> int:
    match = SPACE.match(text, at)
    assert match is not None
    return match.end()
