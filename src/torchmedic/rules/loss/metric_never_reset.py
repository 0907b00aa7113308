"""A sum of losses goes on over all epochs and is divided by the batches of one.

## What you see
The printed loss grows from epoch to epoch while the model learns.
## Why
The sum is set to zero once, before the loop over the epochs, and divided by `len(loader)` at the
end of each. In the third epoch it holds the losses of three.
## Fix
Set the sum to zero at the start of each epoch.
## When this is fine
A mean over the whole training, with a divisor that grows too.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from torchmedic.model import Edit, Evidence, Fix, Place, Problem, Rule, fires, quiet
from torchmedic.source.paths import inside
from torchmedic.source.script import Script
from torchmedic.trainings import training

Loops = (ast.For, ast.While)


def in_source(script: Script) -> Iterator[Problem]:
    if "torch" not in "\n".join(script.lines):
        return
    bodies: list[ast.AST] = [script.tree, *(f.node for f in script.functions)]
    for body in bodies:
        for epochs in (n for n in inside(body) if isinstance(n, ast.For)):
            yield from _in_epochs(script, body, epochs)


def _in_epochs(script: Script, body: ast.AST, epochs: ast.For) -> Iterator[Problem]:
    batches = [n for n in inside(epochs) if isinstance(n, Loops)]
    added = {n.target.id: n for loop in batches for n in inside(loop)
             if isinstance(n, ast.AugAssign) and isinstance(n.op, ast.Add)
             and isinstance(n.target, ast.Name)}
    within = {id(n) for loop in batches for n in ast.walk(loop)}
    reset = _stored(epochs)
    started = {n.targets[0].id: n for n in inside(body) if isinstance(n, ast.Assign)
               and isinstance(n.targets[0], ast.Name) and isinstance(n.value, ast.Constant)
               and n.lineno < epochs.lineno}
    for node in inside(epochs):
        if id(node) in within or not isinstance(node, ast.BinOp) or not isinstance(
                node.op, ast.Div) or not isinstance(node.left, ast.Name):
            continue
        name = node.left.id
        if name in added and name in started and name not in reset and _of_one_epoch(
                node.right, epochs, set(added)):
            yield _problem(script, name, node, started[name], epochs)
            return


def _stored(loop: ast.For) -> set[str]:
    """Names that the loop sets to something, other than by adding to them."""
    found = {n.id for n in inside(loop) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}
    only_added = {n.target.id for n in inside(loop) if isinstance(n, ast.AugAssign)
                  and isinstance(n.target, ast.Name)}
    plain = {t.id for n in inside(loop) if isinstance(n, (ast.Assign, ast.AnnAssign))
             for t in ast.walk(n) if isinstance(t, ast.Name) and isinstance(t.ctx, ast.Store)}
    return (found - only_added) | plain


def _of_one_epoch(divisor: ast.expr, epochs: ast.For, added: set[str]) -> bool:
    """`len(loader)`: it neither grows with the epochs nor counts along."""
    names = {n.id for n in ast.walk(divisor) if isinstance(n, ast.Name)}
    targets = {n.id for n in ast.walk(epochs.target) if isinstance(n, ast.Name)}
    return "len(" in ast.unparse(divisor) and not names & (added | targets)


def _problem(script: Script, name: str, use: ast.BinOp, start: ast.Assign,
             epochs: ast.For) -> Problem:
    first = epochs.body[0]
    text = f"{ast.unparse(start)}\n{' ' * first.col_offset}"
    at = first.lineno, first.col_offset
    return Problem(
        f"`{name}` goes on over all epochs, and is divided by the batches of one",
        where=Place(file=script.file, line=start.lineno), confidence="certain",
        evidence=(Evidence(f"line {use.lineno}: `{ast.unparse(use)}` in the loop of line "
                           f"{epochs.lineno}, which never sets it back", "source"),),
        fix=Fix(f"`{ast.unparse(start)}` at the start of each epoch", "", "unsafe",
                edits=(Edit(*at, *at, text),)))


_SUM = """
optimizer.zero_grad()
loss = criterion(model(x), y)
loss.backward()
optimizer.step()
total += loss.item()
"""
_SHOWN = "print(total / len(loader))"

RULE = Rule(
    name="metric-never-reset", doc=__doc__, category="code", severity="warning",
    in_source=in_source, examples=(
        fires(training(_SUM, more="total = 0.0\n", after=_SHOWN), "goes on over all epochs",
              kind="source", line="total = 0.0", title="set once"),
        quiet(training(_SUM, before="total = 0.0", after=_SHOWN), kind="source",
              title="set for each epoch"),
        quiet(training(_SUM + "count += 1\n", more="total = 0.0\ncount = 0\n",
                       after="print(total / count)"), kind="source", title="counted along"),
        quiet(training(_SUM, more="total = 0.0\n",
                       after="print(total / (len(loader) * (epoch + 1)))"), kind="source",
              title="mean of all epochs"),
    ),
)
