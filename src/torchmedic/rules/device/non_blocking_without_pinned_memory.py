"""A batch is moved with `non_blocking=True`, and its memory is not pinned.

## What you see
No error. Moving a batch takes as long as without `non_blocking`, and the GPU waits for it.
## Why
The GPU can copy by itself only from memory that is pinned to its place. Of any other memory the
CPU has to make a pinned copy first, and waits while it does.
## Fix
`DataLoader(…, pin_memory=True)`.
## When this is fine
When the program runs on the CPU: then both options do nothing.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import TYPE_CHECKING

from torchmedic import changes
from torchmedic.model import Evidence, Fix, Place, Problem, Rule, fires, quiet
from torchmedic.source.flow import Trace, Value, trace_of
from torchmedic.source.paths import FUNCTIONS
from torchmedic.trainings import MODEL, training

if TYPE_CHECKING:
    from torchmedic.source.script import Script


SOURCE_WORDS = ("non_blocking",)


def in_source(script: Script) -> Iterator[Problem]:
    if "non_blocking" not in "\n".join(script.lines):
        return
    calls = [n for n in ast.walk(script.tree) if isinstance(n, ast.Call) and _moves(n)]
    loader = _loader(script, trace_of(script))
    if not calls or loader is None or _stays(script, loader, calls[0]):
        return
    call = calls[0]
    surely = "cuda" in ast.unparse(call)
    function = script.function_at(call.lineno)
    line = getattr(loader.node, "lineno", 0)
    yield Problem(
        "`non_blocking=True` has no effect: the loader does not pin its batches",
        where=Place(file=script.file, line=call.lineno,
                    function=function.name if function else None),
        severity="warning" if surely else "info", confidence="certain" if surely else "likely",
        evidence=(Evidence(f"line {line}: `DataLoader` without `pin_memory=True`", "source"),),
        fix=Fix("`pin_memory=True` in the loader", "", "safe", edits=changes.with_keyword(
            script, loader.node, "pin_memory", "True")))


def _moves(node: ast.Call) -> bool:
    return isinstance(node.func, ast.Attribute) and (
        node.func.attr in ("to", "cuda")) and any(
        k.arg == "non_blocking" and isinstance(k.value, ast.Constant) and k.value.value is True
        for k in node.keywords)


def _loader(script: Script, trace: Trace) -> Value | None:
    """A loader of this file, where none of its loaders pins, and nothing else does."""
    loaders = [made for made in trace.made if made.kind == "loader"]
    pinned = any(made.type != "torch.utils.data.DataLoader" or made.file != script.file
                 or "**" in made.kwargs or _pins(made.kwargs.get("pin_memory"))
                 for made in loaders)
    by_hand = any(isinstance(n, ast.Attribute) and n.attr == "pin_memory"
                  for n in ast.walk(script.tree)) or any(
        isinstance(n, FUNCTIONS) and n.name == "pin_memory" for n in ast.walk(script.tree))
    return loaders[0] if loaders and not pinned and not by_hand else None


def _stays(script: Script, loader: Value, move: ast.Call) -> bool:
    """The loader is gone through in a function of its own, and never leaves it."""
    line = getattr(loader.node, "lineno", 0)
    function = script.function_at(line)
    if function is None or function == script.function_at(move.lineno):
        return False
    names = {t.id for n in ast.walk(function.node) if isinstance(n, ast.Assign)
             and n.value is loader.node for t in n.targets if isinstance(t, ast.Name)}
    gone = {id(n.iter) for n in ast.walk(function.node)
            if isinstance(n, (ast.For, ast.comprehension))}
    return bool(names) and all(
        id(n) in gone for n in ast.walk(function.node)
        if isinstance(n, ast.Name) and n.id in names and isinstance(n.ctx, ast.Load))


def _pins(given: Value | None) -> bool:
    return given is not None and not (given.kind == "const" and given.data is False)


_MOVE = """
x, y = x.cuda(non_blocking=True), y.cuda(non_blocking=True)
optimizer.zero_grad()
loss = criterion(model(x), y)
loss.backward()
optimizer.step()
"""
_CUDA = MODEL + "model.cuda()\n"
_PINNED = _CUDA.replace("batch_size=8", "batch_size=8, pin_memory=True")

_ELSEWHERE = """
import torch
from torch.utils.data import DataLoader


def everything(data):
    loader = DataLoader(data, batch_size=64)
    return torch.cat([part for part in loader])


class Ahead:
    def __init__(self, loader):
        self.rounds = iter(loader)

    def take(self):
        return next(self.rounds).cuda(non_blocking=True)
"""

RULE = Rule(
    name="non-blocking-without-pinned-memory", doc=__doc__, category="code", severity="warning",
    in_source=in_source, examples=(
        fires(training(_MOVE, setup=_CUDA), "does not pin its batches", "`pin_memory=True`",
              kind="source", line="x.cuda(non_blocking=True)", title="not pinned"),
        fires(training(_MOVE.replace("cuda(", "to(device, "), setup=_CUDA, more=(
            "device = torch.device('cuda' if torch.cuda.is_available() else 'cpu')\n")),
            kind="source", title="maybe on the cpu"),
        quiet(training(_MOVE, setup=_PINNED), kind="source", title="pinned"),
        quiet(_ELSEWHERE, kind="source", title="another loader"),
        quiet(training(_MOVE.replace("non_blocking=True", ""), setup=_CUDA), kind="source",
              title="blocking"),
    ),
)
