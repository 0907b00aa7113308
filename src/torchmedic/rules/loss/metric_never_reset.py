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
from typing import TYPE_CHECKING

from torchmedic import changes
from torchmedic.model import Evidence, Fix, Place, Problem, Rule, fires, quiet
from torchmedic.source.paths import FUNCTIONS, inside
from torchmedic.trainings import training

if TYPE_CHECKING:
    from torchmedic.source.script import Script

Loops = (ast.For, ast.While)


def in_source(script: Script) -> Iterator[Problem]:
    text = "\n".join(script.lines)
    if "len(" not in text or "+=" not in text or "backward(" not in text:
        return
    bodies: list[ast.AST] = [script.tree, *(f.node for f in script.functions)]
    for body in bodies:
        for epochs in (n for n in inside(body) if isinstance(n, ast.For)):
            yield from _in_epochs(script, body, epochs)
    for made in (n for n in script.tree.body if isinstance(n, ast.ClassDef)):
        yield from _in_class(script, made)


def _in_class(script: Script, made: ast.ClassDef) -> Iterator[Problem]:
    """`self.total` is set in `__init__` alone, and added to in a method that is one epoch."""
    stores: dict[str, list[ast.Assign]] = {}
    for node in ast.walk(made):
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Attribute):
            stores.setdefault(ast.unparse(node.targets[0]), []).append(node)
    for method in (n for n in made.body if isinstance(n, FUNCTIONS)):
        added = {ast.unparse(n.target) for loop in inside(method) if isinstance(loop, Loops)
                 for n in inside(loop) if isinstance(n, ast.AugAssign)
                 and isinstance(n.op, ast.Add)}
        for node in inside(method):
            if not isinstance(node, ast.BinOp) or not isinstance(node.op, ast.Div):
                continue
            name = ast.unparse(node.left)
            found = stores.get(name, [])
            alone = len(found) == 1 and isinstance(found[0].value, ast.Constant)
            if alone and name in added and "len(" in ast.unparse(node.right) and not any(
                    a in ast.unparse(node.right) for a in added) and _repeated(
                    script, method.name) and script.function_at(found[0].lineno) is not None:
                yield Problem(
                    f"`{name}` goes on over all epochs, and is divided by the batches of one",
                    where=Place(file=script.file, line=found[0].lineno), confidence="likely",
                    evidence=(Evidence(f"line {node.lineno}: `{ast.unparse(node)}`; nothing sets "
                                       "it back", "source"),),
                    fix=Fix(f"`{name} = 0` at the start of `{method.name}`", "", "unsafe",
                            edits=changes.at_start(script, method, f"{name} = 0")))
                return


def _repeated(script: Script, name: str) -> bool:
    """Some loop calls the method."""
    return any(isinstance(n, ast.Call) and isinstance(n.func, ast.Attribute)
               and n.func.attr == name for loop in ast.walk(script.tree)
               if isinstance(loop, Loops) for n in ast.walk(loop))


def _in_epochs(script: Script, body: ast.AST, epochs: ast.For) -> Iterator[Problem]:
    batches = [n for n in inside(epochs) if isinstance(n, Loops)]
    added = {n.target.id: n for loop in batches for n in inside(loop)
             if isinstance(n, ast.AugAssign) and isinstance(n.op, ast.Add)
             and isinstance(n.target, ast.Name)}
    within = {id(n) for loop in batches for n in ast.walk(loop)}
    reset = _stored(epochs)
    started = {name: n for n in inside(body) if isinstance(n, ast.Assign)
               and n.lineno < epochs.lineno for name in _zeros(n)}
    for node in inside(epochs):
        if id(node) in within or not isinstance(node, ast.BinOp) or not isinstance(
                node.op, ast.Div) or not isinstance(node.left, ast.Name):
            continue
        name = node.left.id
        if name in added and name in started and name not in reset and _of_one_epoch(
                node.right, epochs, set(added)):
            yield _problem(script, name, node, started[name], epochs)
            return


def _zeros(node: ast.Assign) -> Iterator[str]:
    """Names that an assignment sets to a number: `total = 0`, `total, correct = 0.0, 0`."""
    target, value = node.targets[0], node.value
    pairs = [(target, value)]
    if isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple):
        pairs = list(zip(target.elts, value.elts, strict=False))
    for one, number in pairs:
        if isinstance(one, ast.Name) and isinstance(number, ast.Constant):
            yield one.id


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
    return Problem(
        f"`{name}` goes on over all epochs, and is divided by the batches of one",
        where=Place(file=script.file, line=start.lineno), confidence="certain",
        evidence=(Evidence(f"line {use.lineno}: `{ast.unparse(use)}` in the loop of line "
                           f"{epochs.lineno}, which never sets it back", "source"),),
        fix=Fix(f"`{name} = 0` at the start of each epoch", "", "unsafe",
                edits=changes.before(script, first.lineno, f"{name} = 0")))


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
