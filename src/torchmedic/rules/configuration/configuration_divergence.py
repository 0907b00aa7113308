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
from typing import TYPE_CHECKING

from torchmedic import changes
from torchmedic.model import Evidence, Fix, Place, Problem, Rule, fires, quiet
from torchmedic.settings import fields_of, private, reads
from torchmedic.source.flow import trace_of
from torchmedic.source.paths import FUNCTIONS

if TYPE_CHECKING:
    from torchmedic.source.flow import Value
    from torchmedic.source.script import Script

PARAMETER = "the parameter"
SAME = {"p": ("dropout", "dropout_rate", "drop_rate", "drop_prob", "p_drop"),
        "lr": ("lr", "learning_rate", "base_lr"), "weight_decay": ("weight_decay", "wd"),
        "momentum": ("momentum",), "batch_size": ("batch_size", "bs"),
        "num_workers": ("num_workers", "workers")}
KINDS = ("optimizer", "loader", "module")
DROPOUT = "torch.nn.Dropout"


def in_source(script: Script) -> Iterator[Problem]:
    seen = set()
    for event in trace_of(script).of("make"):
        made = event.target
        if made is None or made.kind not in KINDS or event.file != script.file:
            continue
        function = script.function_at(event.line)
        body: ast.AST = function.node if function else script.tree
        if made.kind == "module" and not made.type.startswith(DROPOUT):
            continue
        given = dict(made.kwargs)
        if made.kind == "module" and made.args:
            given["p"] = made.args[0]
        elif made.kind == "loader" and len(made.args) > 1:
            given["batch_size"] = made.args[1]
        for name, value in given.items():
            written = value.kind == "const" and isinstance(value.data, (int, float))
            direct = written and getattr(value.node, "lineno", 0) == event.line
            wanted = SAME.get(name, ())
            local = _unread(body, wanted) if direct else None
            unread = local or (_setting(script, wanted) if direct else None)
            if unread is not None and (event.line, name) not in seen:
                seen.add((event.line, name))
                yield _problem(script, event.line, name, value, unread,
                               function.name if function else None, local)


def _unread(body: ast.AST, names: tuple[str, ...]) -> tuple[str, int, str] | None:
    """(name, line, where it is from) of a setting that is stored here and never read."""
    stored: dict[str, tuple[int, str]] = {}
    read: set[str] = set()
    if isinstance(body, FUNCTIONS):
        arguments = body.args
        stored = {a.arg: (a.lineno, PARAMETER) for a in (*arguments.args, *arguments.kwonlyargs)}
    for node in ast.walk(body):
        if isinstance(node, ast.Assign) and len(node.targets) == 1 and isinstance(
                node.targets[0], ast.Name) and isinstance(node.value, (ast.Subscript,
                                                                       ast.Attribute)):
            stored[node.targets[0].id] = node.lineno, ast.unparse(node.value)
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load):
            read.add(node.id)
    return next(((n, *stored[n]) for n in names if n in stored and n not in read), None)


def _setting(script: Script, names: tuple[str, ...]) -> tuple[str, int, str] | None:
    """A field of the program's configuration that nothing in the file reads."""
    fields = {name: (line, holder) for name, line, holder in fields_of(script.tree)}
    wanted = [n for n in names if n in fields]
    if not wanted or not private(script.tree, {holder for _, holder in fields.values()}):
        return None
    read = reads(script.tree)
    return next(((n, *fields[n]) for n in wanted if n not in read), None)


def _problem(script: Script, line: int, name: str, given: Value, unread: tuple[str, int, str],
             function: str | None, local: tuple[str, int, str] | None) -> Problem:
    variable, at, source = unread
    value = given.data
    whole = source == PARAMETER
    of = f"{source} `{variable}`" if whole else f"`{variable}` of `{source}`"
    return Problem(
        f"`{name}={value}` is written in the call, and {of} is not used",
        where=Place(file=script.file, line=line, function=function), confidence="certain",
        evidence=(Evidence(f"line {at}: `{variable}` is set there; nothing reads it", "source"),),
        fix=Fix(f"`{name}={variable}`" if whole or "[" in source or "." in source else
                f"read `{variable}` of `{source}` in its place", "", "unsafe",
                edits=changes.replacing(given.node, variable) if local and at < line else ()))


_PROGRAM = """
import torch
from torch import nn


def build(cfg):
    model = nn.Linear(3, 2)
    lr = cfg["lr"]
    return torch.optim.Adam(model.parameters(), lr=%s)
"""
_CONFIG = """
import torch
from torch.utils.data import DataLoader

config = {"lr": 0.1, "batch_size": 64}
loader = DataLoader(torch.zeros(8, 2), batch_size=%s)
model = torch.nn.Linear(2, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=config["lr"])
"""
_NET = """
from torch import nn


class Net(nn.Module):
    def __init__(self, dropout=0.1):
        super().__init__()
        self.drop = nn.Dropout(%s)
"""

RULE = Rule(
    name="configuration-divergence", doc=__doc__, category="code", severity="warning",
    in_source=in_source, examples=(
        fires(_PROGRAM % "1e-5", "`lr` of `cfg['lr']` is not used", "`lr=lr`", kind="source",
              line="lr=1e-5", title="number in the call"),
        fires(_CONFIG % "16", "`batch_size` of `config` is not used", kind="source",
              line="batch_size=16", title="in a dict"),
        fires(_NET % "0.5", "the parameter `dropout` is not used", kind="source",
              line="nn.Dropout(0.5)", title="parameter"),
        quiet(_CONFIG % 'config["batch_size"]', kind="source", title="dict is read"),
        quiet(_NET % "dropout", kind="source", title="parameter is read"),
        quiet(_PROGRAM % "lr", kind="source", title="used"),
        quiet((_PROGRAM % "1e-5").replace('    lr = cfg["lr"]\n', ""), kind="source",
              title="no setting"),
    ),
)
