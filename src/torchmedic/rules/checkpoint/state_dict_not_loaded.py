"""`model.state_dict(x)` where `model.load_state_dict(x)` was meant: nothing is loaded.

## What you see
The model is as good as an untrained one, although the checkpoint was read; or a warning that
positional arguments of `state_dict` are deprecated.
## Why
`state_dict(destination)` copies the model's weights into what it is given.
## Fix
`model.load_state_dict(…)`.
## When this is fine
With an empty dict that is to receive the weights.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import TYPE_CHECKING

from torchmedic import changes
from torchmedic.model import Fix, Problem, Rule, fires, quiet
from torchmedic.source.flow import trace_of
from torchmedic.source.flow.training import place, written

if TYPE_CHECKING:
    from torchmedic.source.script import Script

SOURCE_WORDS = ("state_dict",)
READ = ("checkpoint", "load", "state")


def in_source(script: Script) -> Iterator[Problem]:
    for event in trace_of(script).of("state"):
        args = event.more["args"]
        if args and _was_read(args[0].type, event.node):
            yield Problem(
                f"`{written(event)}.state_dict(…)` loads nothing: it writes into what it is given",
                where=place(script.file, event),
                fix=Fix(f"`{written(event)}.load_state_dict(…)`", "", "unsafe",
                        edits=changes.renaming(event.node, "state_dict", "load_state_dict")
                        if event.file == script.file else ()))


def _was_read(kind: str, node: ast.AST) -> bool:
    first = node.args[0] if isinstance(node, ast.Call) and node.args else None
    if isinstance(first, ast.Subscript):
        first = first.value
    text = ast.unparse(first).lower() if first is not None else ""
    return kind == "checkpoint" or "torch.load" in text or "ckpt" in text or "checkpoint" in text


_PROGRAM = """
import torch
from torch import nn

model = nn.Linear(3, 2)
weights = torch.load("best.pt", weights_only=True)
model.%s
model.eval()
"""

RULE = Rule(
    name="state-dict-not-loaded", doc=__doc__, category="code", severity="warning",
    in_source=in_source, examples=(
        fires(_PROGRAM % "state_dict(weights)", "`model.state_dict(…)` loads nothing",
              kind="source", line="model.state_dict(", title="variable"),
        fires(_PROGRAM % "state_dict(torch.load('best.pt'))", kind="source",
              line="model.state_dict(", title="direct"),
        quiet(_PROGRAM % "load_state_dict(weights)", kind="source", title="loaded"),
        quiet(_PROGRAM % "state_dict()", kind="source", title="read"),
    ),
)
