"""Gradients of several batches are added up, and nothing divides them by their number.

## What you see
Training with accumulation behaves as with a learning rate that is k times as large.
## Why
`backward()` adds. A loss is the mean of its batch, so k batches give k times the mean.
## Fix
`(loss / k).backward()`.
## When this is fine
A loss with `reduction="sum"`, or a learning rate chosen for it. Adam's step does not depend on the
scale of the gradients.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import TYPE_CHECKING

from torchmedic import changes
from torchmedic.model import Evidence, Fix, Problem, Rule, Severity, fires, quiet
from torchmedic.source.flow import Frame, Value, trace_of
from torchmedic.source.flow.training import Update, place, unconditional, updates
from torchmedic.trainings import training

if TYPE_CHECKING:
    from torchmedic.source.flow import Event
    from torchmedic.source.script import Script

SCALED = ("Div", "Mult", "opaque", "sum", "scaled", "FloorDiv")


def in_source(script: Script) -> Iterator[Problem]:
    for update in updates(trace_of(script)):
        branch = _accumulates(update)
        value = update.backward.value
        if branch is None or value is None or not _plain(value, 0) or _divides(update, branch):
            continue
        adam = "Adam" in (update.step.target.type if update.step.target else "")
        severity: Severity = "info" if adam else "warning"
        yield Problem(
            "the losses of several batches are added up and not divided by their number",
            where=place(script.file, update.backward), confidence="likely", severity=severity,
            evidence=(Evidence(f"line {update.step.line} steps only when "
                               f"`{ast.unparse(branch.node.test)}`", "source"),),  # type: ignore
            fix=Fix("divide the loss by the number of batches before `backward()`", "", "unsafe",
                    edits=_edits(script, update.backward, branch)))


def _divides(update: Update, branch: Frame) -> bool:
    """Something in the loop is divided by the k of the condition, if only where it is not 1."""
    counts = {ast.unparse(n.right) for n in ast.walk(branch.node.test)  # type: ignore[union-attr]
              if isinstance(n, ast.BinOp) and isinstance(n.op, ast.Mod)}
    for node in ast.walk(update.loop.node or ast.Pass()):
        if isinstance(node, (ast.BinOp, ast.AugAssign)) and isinstance(node.op, ast.Div):
            by = node.right if isinstance(node, ast.BinOp) else node.value
            if ast.unparse(by) in counts:
                return True
    return False


def _edits(script: Script, backward: Event, branch: Frame) -> changes.Edits:
    """`(loss / k).backward()`, with the k of the condition."""
    found = [n.right for n in ast.walk(branch.node.test)  # type: ignore[union-attr]
             if isinstance(n, ast.BinOp) and isinstance(n.op, ast.Mod)]
    call = backward.node
    if backward.file != script.file or len(found) != 1 or not isinstance(call, ast.Call):
        return ()
    plain = isinstance(found[0], (ast.Name, ast.Attribute, ast.Constant))
    loss = call.func.value if isinstance(call.func, ast.Attribute) else None
    if not plain or loss is None or branch.file != script.file:
        return ()
    by = f" / {ast.unparse(found[0])}"
    if isinstance(loss, ast.Call):  # `scaler.scale(loss)`
        scaled = loss.args[0] if len(loss.args) == 1 and not loss.keywords else None
        return changes.wrapping(scaled, "", by) if isinstance(scaled, ast.Name) else ()
    return changes.wrapping(loss, "(", f"{by})") if isinstance(loss, ast.Name) else ()


def _accumulates(update: Update) -> Frame | None:
    """The condition under which every k-th round steps, while each goes backward."""
    if update.loop is not update.backward.loops[-1] or not isinstance(
            update.backward.node, ast.Call):
        return None
    owner = getattr(update.backward.node, "func", None)
    direct = update.backward.target is None and isinstance(owner, ast.Attribute)
    return update.step.periodic(update.loop) if direct and unconditional(
        update.backward, update.loop) else None


def _plain(value: Value, depth: int) -> bool:
    """A loss of torch with the mean as its reduction, as it came out of it."""
    if value.kind != "tensor" or value.type != "loss" or value.owner is None:
        return value.type == "scaled" and bool(value.args) and depth < 2 and _plain(
            value.args[0], depth + 1)
    return bool(value.owner.name) and "reduction" not in value.owner.kwargs


_BATCH = """
loss = criterion(model(x), y)
%s.backward()
if (i + 1) % 4 == 0:
    optimizer.step()
    optimizer.zero_grad()
"""

_SOME = """
loss = criterion(model(x), y)
if every > 1:
    loss = loss / every
loss.backward()
if (i + 1) % every == 0:
    optimizer.step()
    optimizer.zero_grad()
"""

RULE = Rule(
    name="accumulation-not-averaged", doc=__doc__, category="code", severity="warning",
    in_source=in_source, examples=(
        fires(training(_BATCH.replace("%s", "loss"), index=True), "not divided by their number",
              kind="source", line="loss.backward()", title="not divided"),
        quiet(training(_SOME, index=True, more="every = 1\n"), kind="source",
              title="divided where it matters"),
        quiet(training(_BATCH.replace("%s", "(loss / 4)"), index=True), kind="source",
              title="divided"),
        quiet(training(_BATCH.replace("%s", "loss").replace("model(x), y)", "model(x), y) / 4"),
                       index=True), kind="source", title="divided before"),
        quiet(training(), kind="source", title="no accumulation"),
    ),
)
