"""A setting is read into a variable and not used, while the call it is for has a number instead.

## What you see
Changing the learning rate in the configuration changes nothing.
## Why
The optimizer is built with a number in the code; the variable beside it is never read.
## Fix
Use the variable in the call.
## When this is fine
A variable that is kept for a later version of the code.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from torchmedic.model import Evidence, Fix, Place, Problem, Rule, fires, quiet
from torchmedic.source.flow import trace_of
from torchmedic.source.script import Script

SAME = {"lr": ("lr", "learning_rate", "base_lr"), "weight_decay": ("weight_decay", "wd"),
        "momentum": ("momentum",), "batch_size": ("batch_size", "bs"),
        "num_workers": ("num_workers", "workers")}
KINDS = ("optimizer", "loader")


def in_source(script: Script) -> Iterator[Problem]:
    seen = set()
    for event in trace_of(script).of("make"):
        made = event.target
        if made is None or made.kind not in KINDS or event.file != script.file:
            continue
        function = script.function_at(event.line)
        body: ast.AST = function.node if function else script.tree
        for name, value in made.kwargs.items():
            written = value.kind == "const" and isinstance(value.data, (int, float))
            direct = written and getattr(value.node, "lineno", 0) == event.line
            unread = _unread(body, SAME.get(name, ())) if direct else None
            if unread is not None and (event.line, name) not in seen:
                seen.add((event.line, name))
                yield _problem(script, event.line, name, value.data, unread,
                               function.name if function else None)


def _unread(body: ast.AST, names: tuple[str, ...]) -> tuple[str, int, str] | None:
    """(name, line, where it is from) of a setting that is stored here and never read."""
    stored: dict[str, tuple[int, str]] = {}
    read: set[str] = set()
    for node in ast.walk(body):
        if isinstance(node, ast.Assign) and len(node.targets) == 1 and isinstance(
                node.targets[0], ast.Name) and isinstance(node.value, (ast.Subscript,
                                                                       ast.Attribute)):
            stored[node.targets[0].id] = node.lineno, ast.unparse(node.value)
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load):
            read.add(node.id)
    return next(((n, *stored[n]) for n in names if n in stored and n not in read), None)


def _problem(script: Script, line: int, name: str, value: object, unread: tuple[str, int, str],
             function: str | None) -> Problem:
    variable, at, source = unread
    return Problem(
        f"`{name}={value}` is written in the call, and `{variable}` from `{source}` is not used",
        where=Place(file=script.file, line=line, function=function), confidence="certain",
        evidence=(Evidence(f"line {at}: `{variable} = {source}`; nothing reads it", "source"),),
        fix=Fix(f"`{name}={variable}`", "", "unsafe"))


_PROGRAM = """
import torch
from torch import nn


def build(cfg):
    model = nn.Linear(3, 2)
    lr = cfg["lr"]
    return torch.optim.Adam(model.parameters(), lr=%s)
"""

RULE = Rule(
    name="configuration-divergence", doc=__doc__, category="code", severity="warning",
    in_source=in_source, examples=(
        fires(_PROGRAM % "1e-5", "`lr` from `cfg['lr']` is not used", "`lr=lr`", kind="source",
              line="lr=1e-5", title="number in the call"),
        quiet(_PROGRAM % "lr", kind="source", title="used"),
        quiet((_PROGRAM % "1e-5").replace('    lr = cfg["lr"]\n', ""), kind="source",
              title="no setting"),
    ),
)
