"""Two tensors whose subtraction pairs each value of one with each of the other."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING, Any

from torchmedic.source.flow.layers import known

if TYPE_CHECKING:
    from torchmedic.source.flow.trace import Frame
    from torchmedic.source.flow.values import Value


def fresh(value: Value) -> Value | None:
    """The call that made a tensor on the default device, also when it was scaled since."""
    if value.type == "created":
        return None if value.device or value.shape == () else value
    if value.type in ("Mult", "Add", "Sub", "Div") and len(value.args) == 2:
        made = [fresh(part) for part in value.args if part.kind != "const"]
        return made[0] if made and None not in made else None
    return None


def pairs_all(left: Value, right: Value) -> bool:
    """A column (N, 1) against a row (N), where N is the same or not known to differ."""
    one, other = known(left), known(right)
    if one is None or other is None or {len(one), len(other)} != {1, 2}:
        return False
    column, row = (one, other) if len(one) == 2 else (other, one)
    return column[1] == 1 and column[0] != 1 and row[0] == column[0] and row[0] != 1


def site(frames: tuple[Frame, ...], names: dict[str, Value], *values: Value) -> ast.AST | None:
    """The call that passed all of these values to the function that we are in."""
    frame = next((f for f in reversed(frames) if f.kind == "call"), None)
    arguments: Any = getattr(frame.node, "args", None) if frame else None
    if frame is None or arguments is None:
        return None
    passed = {names[a.arg].id for a in arguments.args if a.arg in names}
    return frame.site if all(value.id in passed for value in values) else None
