"""The loss does not hang on the model: something on the way took it out of the graph.

## What you see
`element 0 of tensors does not require grad`, or no error at all and a model that never changes.
## Why
`detach`, `.data`, `item`, `numpy`, `argmax`, a comparison and `torch.tensor(x)` give values
without a graph. `round`, `floor` and `sign` keep it, but their gradient is zero everywhere.
## Fix
Compute the loss from the model's own output. For rounded values use a loss on the unrounded ones.
## When this is fine
For metrics, targets and everything else that does not go backward.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from torchmedic.model import Evidence, Fix, Place, Problem, Rule, fires, quiet
from torchmedic.observed import Process, Run
from torchmedic.source.flow import Event, trace_of
from torchmedic.source.script import Script
from torchmedic.trainings import STEP, training

FLAT = ("Floor", "Ceil", "Round", "Sign", "Trunc", "Fix")


def in_run(run: Run) -> Iterator[Problem]:
    for process in run.processes:
        yield from _flat(process)
        known = process.parameters
        if known is not None and known.detached and known.looked >= 5:
            names = ", ".join(f"`{name}`" for name in known.detached[:3])
            yield Problem(
                f"{names}: called in training and held by an optimizer, but no backward reaches "
                "them", where=process.updates[0].place, confidence="likely", severity="info",
                evidence=(Evidence(f"no gradient in any of the {known.looked} steps looked at",
                                   "parameters"),),
                fix=Fix("look for `detach()`, `.data`, `no_grad` or an unused result behind it"))


def _flat(process: Process) -> Iterator[Problem]:
    """Every gradient is exactly zero, and the graph holds an operation that makes it so."""
    seen = [u for u in process.updates if u.zero is not None and u.graded]
    if len(seen) < 3 or any(u.zero != u.graded for u in seen):
        return
    for backward in process.backwards:
        flat = next((node for node in backward.way if node.operation in FLAT), None)
        if flat is not None:
            name = flat.operation.lower()
            yield Problem(
                f"all gradients are zero: the loss goes through `{name}`, which has none but zero",
                where=backward.place, evidence=(
                    Evidence(f"{seen[0].graded} of {seen[0].graded} gradients are zero in each of "
                             f"the {len(seen)} steps looked at", "gradients"),
                    Evidence(f"{flat.name} in the graph of step {backward.step + 1}", "graph")),
                fix=Fix(f"compute the loss without `{name}`", "", "unsafe"))
            return


def in_source(script: Script) -> Iterator[Problem]:
    seen = set()
    for event in trace_of(script).of("backward"):
        options = list(event.value.options()) if event.value is not None else []
        if len(options) != 1 or event.grad is not True:
            continue
        loss = options[0]
        alone = loss.kind == "tensor" and loss.graph is False and loss.cut and loss.sources
        if alone and id(loss.cut_node) not in seen:
            seen.add(id(loss.cut_node))
            yield _problem(event, loss.cut, loss.cut_node, loss.cut_file or script.file)


def _problem(event: Event, how: str, node: ast.AST | None, file: str) -> Problem:
    text = ast.unparse(node) if node is not None else how
    text = text if len(text) < 60 else how
    flat = how in ("floor", "ceil", "round", "sign", "trunc")
    effect = "has no gradient but zero" if flat else "gives values without a graph"
    return Problem(
        f"`{text}` {effect}, and the loss is computed from it alone",
        where=Place(file=file, line=getattr(node, "lineno", event.line)), confidence="likely",
        evidence=(Evidence(f"line {event.line}: this loss goes backward", "source"),),
        fix=Fix("compute the loss from the model's own output", "", "unsafe"))


def _with(change: str, more: str = "") -> str:
    return training(STEP.replace("loss = criterion(model(x), y)", change) + more)


RULE = Rule(
    name="detached-from-graph", doc=__doc__, category="code", severity="warning",
    in_run=in_run, in_source=in_source, examples=(
        fires(_with("pred = model(x).argmax(1)\nloss = F.mse_loss(pred.float(), y.float())"),
              "`model(x).argmax(1)` gives values without a graph", kind="source",
              line="argmax", title="argmax"),
        fires(_with("loss = F.mse_loss(torch.round(model(x)), y)"), "no gradient but zero",
              kind="source", line="torch.round", title="round"),
        fires(_with("loss = criterion(model(x), y)\nloss = torch.tensor(loss.item(), "
                    "requires_grad=True)"), kind="source", title="new tensor"),
        quiet(_with("loss = criterion(model(x), y)", "hits = (model(x).argmax(1) == y).sum()"),
              kind="source", title="for a metric"),
        quiet(_with("loss = F.mse_loss(model(x), model(x).detach())"), kind="source",
              title="detached target"),
        quiet(_with("p = model(x)\nloss = ((p > 0) * p).mean()"), kind="source", title="mask"),
    ),
)
