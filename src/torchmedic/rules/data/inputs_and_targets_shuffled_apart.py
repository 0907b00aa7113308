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

from torchmedic.model import Evidence, Fix, Place, Problem, Rule, fires, quiet
from torchmedic.source.script import Script

PERMUTED = ("torch.randperm", "np.random.permutation", "numpy.random.permutation")
SHUFFLES = ("random.shuffle", "np.random.shuffle", "numpy.random.shuffle")


def in_source(script: Script) -> Iterator[Problem]:
    for body in [script.tree.body, *(f.node.body for f in script.functions)]:
        for first, second in pairwise(body):
            one, other = _shuffled(first), _shuffled(second)
            if one and other and one != other and _paired(script.tree, one, other):
                yield Problem(
                    f"`{one}` and `{other}` are shuffled apart: each in an order of its own",
                    where=Place(file=script.file, line=second.lineno), confidence="likely",
                    evidence=(Evidence("they are used as pairs afterwards", "source"),),
                    fix=Fix("one permutation for both", "", "unsafe"))


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
