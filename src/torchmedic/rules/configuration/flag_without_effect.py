"""A command-line option is parsed, and nothing in the program reads it.

## What you see
Passing the option changes nothing.
## Why
Its value lies in the namespace, and no code asks for it: often a number in its place stands in the
code.
## Fix
Use `args.name` where the number stands, or remove the option.
## When this is fine
Options kept so that old command lines still work.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import TYPE_CHECKING

from torchmedic.model import Evidence, Fix, Problem, Rule, fires, quiet
from torchmedic.source.flow import Event, trace_of
from torchmedic.source.flow.training import place
from torchmedic.source.paths import FUNCTIONS, inside

if TYPE_CHECKING:
    from torchmedic.source.script import Script


def in_source(script: Script) -> Iterator[Problem]:
    if "add_argument" not in "\n".join(script.lines):
        return
    events = trace_of(script).of("argument")
    names = _namespaces(script.tree)
    if not events or not names or _escapes(script.tree, names):
        return
    read = {n.attr for n in ast.walk(script.tree) if isinstance(n, ast.Attribute)}
    read |= {n.value for n in ast.walk(script.tree) if isinstance(n, ast.Constant)
             and isinstance(n.value, str) and not n.value.startswith("-")}
    for event in events:
        flag = _destination(event)
        if flag is not None and flag not in read and event.file == script.file:
            yield Problem(
                f"nothing reads the option `{flag}`", where=place(script.file, event),
                confidence="likely",
                evidence=(Evidence(f"no `.{flag}` is in the file, and the parsed arguments go "
                                   "nowhere else", "source"),),
                fix=Fix(f"use `args.{flag}`, or remove the option", "", "unsafe"))


def _destination(event: Event) -> str | None:
    """The attribute that an option is stored in."""
    given, kwargs = event.more["args"], event.more["kwargs"]
    if "dest" in kwargs or (kwargs.get("action") is not None and (
            kwargs["action"].data in ("version", "help"))):
        return None
    texts = [a.data for a in given if a.kind == "const" and isinstance(a.data, str)]
    long = [t for t in texts if t.startswith("--")]
    return long[0].lstrip("-").replace("-", "_") if long else None


def _namespaces(tree: ast.Module) -> set[str]:
    """Names that hold what `parse_args()` gave."""
    found = set()
    makers = _makers(tree)
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign) and _parses(node.value, makers):
            found |= {t.id for t in node.targets if isinstance(t, ast.Name)}
    return found


def _makers(tree: ast.Module) -> set[str]:
    """Functions that give back what `parse_args()` gave."""
    return {f.name for f in ast.walk(tree) if isinstance(f, FUNCTIONS) and any(
        isinstance(n, ast.Return) and n.value is not None and "parse_args(" in ast.unparse(n.value)
        for n in inside(f))}


def _parses(value: ast.expr, makers: set[str]) -> bool:
    return "parse_args(" in ast.unparse(value) or (
        isinstance(value, ast.Call) and ast.unparse(value.func) in makers)


def _escapes(tree: ast.Module, names: set[str]) -> bool:
    """The parsed arguments go to where we can't see which are read."""
    parsed = sum(isinstance(n, ast.Call) and isinstance(n.func, ast.Attribute)
                 and n.func.attr in ("parse_args", "parse_known_args") for n in ast.walk(tree))
    assigned = sum(isinstance(n, ast.Assign) and "parse_args(" in ast.unparse(n.value) and
                   isinstance(n.targets[0], ast.Name) for n in ast.walk(tree))
    returned = sum(isinstance(n, ast.Return) and n.value is not None
                   and "parse_args(" in ast.unparse(n.value) for n in ast.walk(tree))
    if parsed != assigned + returned:
        return True
    owners = {id(n.value) for n in ast.walk(tree) if isinstance(n, ast.Attribute)}
    printed = {id(a) for n in ast.walk(tree) if isinstance(n, ast.Call)
               and isinstance(n.func, ast.Name) and n.func.id == "print" for a in n.args}
    return any(isinstance(n, ast.Name) and n.id in names and isinstance(n.ctx, ast.Load)
               and id(n) not in owners and id(n) not in printed for n in ast.walk(tree))


_PROGRAM = """
import argparse
import torch

parser = argparse.ArgumentParser()
parser.add_argument("--epochs", type=int, default=3)
parser.add_argument("--weight-decay", type=float, default=0.1)
args = parser.parse_args()
model = torch.nn.Linear(3, 2)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1%s)
print(args.epochs)
"""

RULE = Rule(
    name="flag-without-effect", doc=__doc__, category="code", severity="warning",
    in_source=in_source, examples=(
        fires(_PROGRAM % "", "nothing reads the option `weight_decay`", kind="source",
              line="--weight-decay", title="not read"),
        quiet(_PROGRAM % ", weight_decay=args.weight_decay", kind="source", title="read"),
        quiet(_PROGRAM % "" + "train(args)\n", kind="source", title="passed on"),
        quiet(_PROGRAM % "" + "print(vars(args))\n", kind="source", title="as a dict"),
    ),
)
