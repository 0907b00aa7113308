"""Leaves out an operation between a model and its loss: a layer at the end, or a call."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from torchmedic import changes

if TYPE_CHECKING:
    from torchmedic.source.flow.losses import Given
    from torchmedic.source.script import Script

FUNCTIONS = ("F", "torch", "functional", "nn.functional", "torch.nn.functional", "torch.special")


def without(script: Script, given: Given) -> changes.Edits:
    """The edits; none where the operation's place is no simple one."""
    node = given.node
    if given.file not in (None, "", script.file) or not isinstance(node, ast.Call):
        return ()
    holder = next((n for n in ast.walk(script.tree) if isinstance(n, ast.Call)
                   and node in n.args), None)
    if holder is not None and ast.unparse(holder.func).endswith("Sequential"):
        return changes.without_argument(script, holder, node)
    if not isinstance(node.func, ast.Attribute):
        return ()
    owner = ast.unparse(node.func.value)
    if owner in FUNCTIONS:
        inner = node.args[0] if node.args else None
    elif isinstance(node.func.value, (ast.Name, ast.Call, ast.Subscript)):
        inner = node.func.value  # `scores.softmax(1)`
    else:
        return ()
    if inner is None or isinstance(inner, ast.Starred):
        return ()
    return changes.replacing(node, ast.unparse(inner))
