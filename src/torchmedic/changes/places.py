"""Where things stand in a script: lines from 1, columns in UTF-8 bytes."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from torchmedic.model import Edit

if TYPE_CHECKING:
    from torchmedic.source.arguments import Spot
    from torchmedic.source.script import Script

Edits = tuple[Edit, ...]


def text_between(script: Script, start: Spot, end: Spot) -> str:
    """What stands between two places."""
    lines = [line.encode("utf-8", "surrogatepass") for line in script.lines[start[0] - 1:end[0]]]
    if lines:
        lines[-1] = lines[-1][:end[1]]
        lines[0] = lines[0][start[1]:]
    return b"\n".join(lines).decode("utf-8", "replace")


def span(node: ast.AST) -> tuple[Spot, Spot]:
    start = (getattr(node, "lineno", 0), getattr(node, "col_offset", 0))
    return start, (getattr(node, "end_lineno", 0) or 0, getattr(node, "end_col_offset", 0) or 0)
