"""Where the arguments of a call stand in the text, with the brackets and commas round them."""

from __future__ import annotations

import ast
import io
import tokenize
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torchmedic.source.script import Script

Spot = tuple[int, int]
"""A line from 1, and a column in UTF-8 bytes: as `ast` counts."""

IGNORED = (tokenize.NL, tokenize.NEWLINE, tokenize.COMMENT, tokenize.INDENT, tokenize.DEDENT,
           tokenize.ENDMARKER)


@dataclass(slots=True)
class Argument:
    """node: the value. start, end: with its name and its own brackets, without its comma."""

    node: ast.expr
    start: Spot
    end: Spot


def arguments(script: Script, call: ast.Call) -> tuple[list[Argument], Spot] | None:
    """The arguments in the order of the text, and the closing bracket; None when in doubt."""
    text = ast.get_source_segment("\n".join(script.lines), call)
    if text is None or call.end_lineno is None:
        return None
    parts = _parts(text)
    nodes = sorted((*call.args, *(k.value for k in call.keywords)), key=_start)
    if parts is None or len(parts) != len(nodes):
        return None
    head = script.line(call.lineno).encode("utf-8", "surrogatepass")[:call.col_offset]
    rows = text.split("\n")

    def spot(row: int, column: int) -> Spot:
        size = len(rows[row - 1][:column].encode("utf-8", "surrogatepass"))
        return call.lineno + row - 1, size + (len(head) if row == 1 else 0)

    found = [Argument(node, spot(*start), spot(*end))
             for node, (start, end) in zip(nodes, parts, strict=True)]
    return found, (call.end_lineno, (call.end_col_offset or 1) - 1)


def _start(node: ast.expr) -> Spot:
    return node.lineno, node.col_offset


def _parts(text: str) -> list[tuple[Spot, Spot]] | None:
    """From the first to the last word of each argument; rows from 1, columns in characters."""
    try:
        words = [w for w in tokenize.generate_tokens(io.StringIO(text).readline)
                 if w.type not in IGNORED]
    except (tokenize.TokenError, SyntaxError):
        return None
    depth, began = 0, _last_opened(words)
    parts: list[tuple[Spot, Spot]] = []
    part: list[tokenize.TokenInfo] = []
    for word in words[began + 1:-1]:
        depth += _deeper(word)
        if word.type == tokenize.OP and word.string == "," and depth == 0:
            parts.append((part[0].start, part[-1].end))
            part = []
        else:
            part.append(word)
    return [*parts, (part[0].start, part[-1].end)] if part else parts


def _last_opened(words: list[tokenize.TokenInfo]) -> int:
    """The bracket that the last word closes."""
    depth = 0
    for at in range(len(words) - 1, -1, -1):
        depth -= _deeper(words[at])
        if depth == 0:
            return at
    return 0


def _deeper(word: tokenize.TokenInfo) -> int:
    if word.type != tokenize.OP:
        return 0
    return (word.string in ("(", "[", "{")) - (word.string in (")", "]", "}"))
