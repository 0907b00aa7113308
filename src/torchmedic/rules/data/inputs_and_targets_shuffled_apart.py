"""Inputs and targets are shuffled with two different permutations.

## What you see
The loss does not fall below that of guessing: the pairs are torn apart.
## Why
Each `randperm` and each `shuffle` draws an order of its own.
## Fix
One permutation for both: `order = torch.randperm(n)`, then `x[order]` and `y[order]`.
## When this is fine
A permutation test, or mixing samples on purpose.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from itertools import pairwise
from typing import TYPE_CHECKING

from torchmedic import changes
from torchmedic.model import Evidence, Fix, Place, Problem, Rule, fires, quiet
from torchmedic.source.flow import Value, trace_of
from torchmedic.source.paths import inside

if TYPE_CHECKING:
    from torchmedic.source.script import Script

PERMUTED = ("torch.randperm", "np.random.permutation", "numpy.random.permutation")
SHUFFLES = ("random.shuffle", "np.random.shuffle", "numpy.random.shuffle")


def in_source(script: Script) -> Iterator[Problem]:
    if not any(word in "\n".join(script.lines) for word in ("shuffle", "perm")):
        return
    for body in [script.tree.body, *(f.node.body for f in script.functions)]:
        for first, second in pairwise(body):
            one, other = _shuffled(first), _shuffled(second)
            if one and other and one != other and _paired(script.tree, one, other):
                yield Problem(
                    f"`{one}` and `{other}` are shuffled apart: each in an order of its own",
                    where=Place(file=script.file, line=second.lineno), confidence="likely",
                    evidence=(Evidence("they are used as pairs afterwards", "source"),),
                    fix=Fix("one permutation for both", "", "unsafe",
                            edits=_edits(script, first, second)))
    for holder in (script.tree, *(f.node for f in script.functions)):
        yield from _one_only(script, holder)
    yield from _two_loaders(script)


def _edits(script: Script, first: ast.stmt, second: ast.stmt) -> changes.Edits:
    """A name for the first permutation, used by both."""
    keys = [s.value.slice for s in (first, second)
            if isinstance(s, ast.Assign) and isinstance(s.value, ast.Subscript)]
    taken = {n.id for n in ast.walk(script.tree) if isinstance(n, ast.Name)}
    if len(keys) != 2 or "order" in taken:
        return ()
    made = changes.before(script, first.lineno, f"order = {ast.unparse(keys[0])}")
    uses = [edit for key in keys for edit in changes.replacing(key, "order")]
    return (*made, *uses) if made else ()


def _one_only(script: Script, body: ast.AST) -> Iterator[Problem]:
    """One of a pair is shuffled in its place, and the other is not."""
    mixed = {ast.unparse(n.args[0]): n for n in inside(body) if isinstance(n, ast.Call)
             and ast.unparse(n.func) in SHUFFLES and len(n.args) == 1}
    if len(mixed) != 1:
        return
    name, call = next(iter(mixed.items()))
    for node in inside(body):
        if isinstance(node, ast.Call) and ast.unparse(node.func).rpartition(".")[2] == (
                "TensorDataset") and node.lineno > call.lineno and len(node.args) > 1:
            holds = [name in {ast.unparse(n) for n in ast.walk(a)} for a in node.args]
            if any(holds) and not all(holds) and not _derived(
                    body, name, call.lineno, node.lineno):
                yield Problem(
                    f"`{name}` is shuffled, and what it is paired with is not",
                    where=Place(file=script.file, line=call.lineno), confidence="likely",
                    evidence=(Evidence(f"line {node.lineno}: they are used as pairs", "source"),),
                    fix=Fix("one permutation for both", "", "unsafe"))
                return


def _derived(body: ast.AST, name: str, line: int, before: int) -> bool:
    """After the shuffling something is made of it, which may be the other of the pair."""
    return any(isinstance(n, ast.Assign) and line < n.lineno < before and name in {
        ast.unparse(p) for p in ast.walk(n.value)} for n in inside(body))


def _two_loaders(script: Script) -> Iterator[Problem]:
    """`zip` of two loaders that shuffle, each in its own order, whose batches meet in a loss."""
    for event in trace_of(script).of("loss"):
        for loop in event.loops:
            over = loop.value
            parts = over.items if over is not None and over.kind == "zip" else []
            mixed = [p for p in parts if p.kind == "loader" and _shuffles(p)]
            if len(mixed) > 1 and len(mixed) == len(parts) == 2 and all(
                    (held := p.keyword("dataset", 0)) is not None and held.kind == "tensor"
                    for p in mixed):
                yield Problem(
                    "inputs and targets come from two loaders that shuffle apart",
                    where=Place(file=event.file, line=getattr(loop.node, "lineno", event.line)),
                    confidence="likely",
                    evidence=(Evidence(f"line {event.line}: they are used as pairs", "source"),),
                    fix=Fix("one loader over `TensorDataset(inputs, targets)`", "", "unsafe"))
                return


def _shuffles(loader: Value) -> bool:
    given = loader.keyword("shuffle", 2)
    return given is not None and given.kind == "const" and given.data is True and (
        "generator" not in loader.kwargs)


def _shuffled(node: ast.stmt) -> str | None:
    """What a statement shuffles: `x = x[torch.randperm(n)]` or `random.shuffle(x)`."""
    if isinstance(node, ast.Expr) and isinstance(node.value, ast.Call):
        call = node.value
        if ast.unparse(call.func) in SHUFFLES and len(call.args) == 1:
            return ast.unparse(call.args[0])
    if isinstance(node, ast.Assign) and isinstance(node.value, ast.Subscript):
        key = node.value.slice
        if isinstance(key, ast.Call) and ast.unparse(key.func) in PERMUTED and (
                len(node.targets) == 1 and "generator" not in ast.unparse(key)):
            return ast.unparse(node.targets[0])
    return None


def _paired(tree: ast.Module, one: str, other: str) -> bool:
    """Both go into one data set, one `zip` or one call of a loss."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and len(node.args) > 1:
            given = {ast.unparse(a) for a in node.args}
            if {one, other} <= given:
                return True
    return False


_PROGRAM = """
import random
import torch
from torch.utils.data import TensorDataset

x, y = torch.randn(9, 3), torch.randn(9)
%s
%s
data = TensorDataset(x, y)
"""

RULE = Rule(
    name="inputs-and-targets-shuffled-apart", doc=__doc__, category="data", severity="warning",
    in_source=in_source, examples=(
        fires(_PROGRAM % ("x = x[torch.randperm(9)]", "y = y[torch.randperm(9)]"),
              "`x` and `y` are shuffled apart", kind="source", line="y = y[", title="permutations"),
        fires(_PROGRAM % ("random.shuffle(x)", "random.shuffle(y)"), kind="source",
              line="random.shuffle(y)", title="shuffles"),
        quiet(_PROGRAM % ("order = torch.randperm(9)", "x, y = x[order], y[order]"),
              kind="source", title="one order"),
    ),
)
