"""The loss is the sum over the batch, so that the steps grow with the batch size.

## What you see
A learning rate that works elsewhere makes the loss jump; after a change of the batch size another
one is needed; the last, smaller batch of an epoch makes smaller steps.
## Why
With `reduction="sum"` the gradient of a batch of 64 is 64 times that of the mean.
## Fix
`reduction="mean"`, which is the default, or divide by the number of samples.
## When this is fine
With optimizers that divide by the size of the gradients, such as Adam, and where the learning rate
was chosen for the sum.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import TYPE_CHECKING

from torchmedic import changes
from torchmedic.model import Evidence, Fix, Problem, Rule, fires, quiet
from torchmedic.source.flow import Event, Trace, Value, trace_of
from torchmedic.source.flow.training import place, updates
from torchmedic.trainings import training

if TYPE_CHECKING:
    from torchmedic.source.script import Script


def in_source(script: Script) -> Iterator[Problem]:
    trace = trace_of(script)
    seen = set()
    for update in updates(trace):
        optimizer = update.step.target
        if optimizer is None or optimizer.name != "SGD" or update.backward.value is None:
            continue
        if trace.inside(update.loop, "clip"):
            continue
        for part in _terms(update.backward.value):
            made = _summed(trace, part)
            if made is not None and id(made.node) not in seen:
                seen.add(id(made.node))
                yield _problem(trace, made, update.step)


def _terms(value: Value) -> Iterator[Value]:
    """The losses that are added up, as long as nothing divides them."""
    if value.type in ("Add", "scaled"):
        for part in value.args:
            yield from _terms(part)
    elif value.type == "loss":
        yield value


def _summed(trace: Trace, loss: Value) -> Event | None:
    reduction = loss.owner.kwargs.get("reduction") if loss.owner is not None else None
    if reduction is None or reduction.kind != "const" or reduction.data != "sum":
        return None
    return next((e for e in trace.of("loss") if e.value is loss), None)


def _edits(trace: Trace, event: Event) -> changes.Edits:
    """`"mean"` in the place of `"sum"`, where no other loss is computed with it."""
    made, script = event.target, trace.script
    shared = sum(e.target is made for e in trace.of("loss")) > 1
    if made is None or shared or {event.file, made.file or script.file} != {script.file}:
        return ()
    call = made.node
    if not isinstance(call, ast.Call):
        return ()
    return changes.replacing(next((k.value for k in call.keywords if k.arg == "reduction"), None),
                             '"mean"')


def _problem(trace: Trace, event: Event, step: Event) -> Problem:
    name = event.target.name if event.target is not None else "the loss"
    return Problem(
        f"`{name}` adds up the losses of all samples: the steps grow with the batch size",
        where=place(trace.script.file, event), confidence="likely",
        evidence=(Evidence(f"`reduction=\"sum\"`, and `SGD` takes the step as it is (line "
                           f"{step.line})", "source"),),
        fix=Fix("leave `reduction` at \"mean\", or divide by `len(x)`", "", "unsafe",
                edits=_edits(trace, event)))


_SUM = """
optimizer.zero_grad()
loss = F.mse_loss(model(x), y, reduction="sum")%s
loss.backward()
optimizer.step()
"""
_SETUP = """
model = nn.Linear(8, 1)
optimizer = torch.optim.%s(model.parameters(), lr=0.01)
loader = DataLoader(TensorDataset(torch.randn(64, 8), torch.randn(64, 1)), batch_size=8)
"""

RULE = Rule(
    name="loss-sum-scales-with-batch", doc=__doc__, category="code", severity="warning",
    in_source=in_source, examples=(
        fires(training(_SUM % "", setup=_SETUP % "SGD"), "the steps grow with the batch size",
              kind="source", line="F.mse_loss", title="sum"),
        quiet(training(_SUM % " / len(x)", setup=_SETUP % "SGD"), kind="source", title="divided"),
        quiet(training(_SUM % "", setup=_SETUP % "Adam"), kind="source", title="adam"),
        quiet(training(), kind="source", title="mean"),
    ),
)
