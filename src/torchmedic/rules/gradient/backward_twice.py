"""Backward goes through a graph that an earlier backward has already freed.

## What you see
`RuntimeError: Trying to backward through the graph a second time`.
## Why
`backward()` frees what the graph saved, as soon as it is used. A second `backward()` fails on every
part of the graph that both share: the same loss twice, two losses with a common part, or a tensor
with history that was computed once before the loop and is used in each step.
## Fix
Compute the shared part again in each step, `detach()` it when it needs no gradient from there, or
add the losses and call `backward()` once. `retain_graph=True` is right only when both backward
calls belong to the same forward pass and the parameters do not change between them.
## When this is fine
Never: torch refuses to run it.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

from torchmedic import changes
from torchmedic.batches import recorded
from torchmedic.keptstate import SECOND, culprit
from torchmedic.model import Evidence, Fix, Problem, Rule, fires, quiet
from torchmedic.remedies import raised
from torchmedic.source.flow import Event, Trace, Value, trace_of
from torchmedic.source.flow.training import conditions, place, unconditional
from torchmedic.trainings import training
from torchmedic.wording import plural

if TYPE_CHECKING:
    from torchmedic.observed import Failure, Run
    from torchmedic.source.script import Script

WORDS = ("second time", "freed")


def in_failure(failure: Failure) -> Iterator[Problem]:
    if failure.how == "logged":
        yield from problems(failure)


def in_run(run: Run) -> Iterator[Problem]:
    for seen in recorded(run):
        for problem in problems(seen.failure):
            if culprit(run, seen.failure) is None:  # else `recurrent-state-kept` says more
                yield replace(problem, about=seen.about)


def in_source(script: Script) -> Iterator[Problem]:
    trace = trace_of(script)
    seen = set()
    for event in trace.of("backward"):
        value = event.value
        if value is None or value.kind != "tensor" or id(event.node) in seen:
            continue
        earlier = _freed_before(trace, event, value)
        outside = _made_outside(trace, event, value)
        if earlier is None and not outside:
            continue
        seen.add(id(event.node))
        if earlier is not None:
            message = "this backward goes through a graph that the one before has freed"
            told = f"line {earlier.line}: the first backward, through the same forward pass"
        else:
            message = "each round goes backward through a graph that was made before the loop"
            told = "the first round frees it"
        yield Problem(message, where=place(script.file, event), confidence="likely",
                      evidence=(Evidence(told, "source"),), fix=Fix(
                          "add the losses and call `backward()` once" if earlier is not None else
                          "compute it again in each round", "", "unsafe",
                          edits=_edits(trace, earlier, event) if earlier is not None else ()))


def _edits(trace: Trace, first: Event, second: Event) -> changes.Edits:
    """`(a + b).backward()` in the place of the second, when nothing but the two uses them."""
    script = trace.script
    found = [script.statement_at(e.line) for e in (first, second)]
    one, other = (getattr(getattr(e.node, "func", None), "value", None) for e in (first, second))
    plain = all(isinstance(n, ast.Name) for n in (one, other))
    between = trace.events[first.at + 1:second.at]
    if {first.file, second.file} != {script.file} or not plain or any(
            e.kind in ("step", "clear", "clip", "unscale", "opaque") for e in between) or any(
            e.more["kwargs"] or e.more.get("args") for e in (first, second)):
        return ()
    alone = all(s is not None and isinstance(s.node, ast.Expr) for s in found)
    same = alone and any(s is found[1].node  # type: ignore[union-attr]
                         for s in changes.block_of(script, found[0].node))  # type: ignore
    taken = changes.removing(script, first.line) if same else ()
    text = f"({ast.unparse(one)} + {ast.unparse(other)})"  # type: ignore[arg-type]
    return (*taken, *changes.replacing(other, text)) if taken else ()


def _freed_before(trace: Trace, event: Event, value: Value) -> Event | None:
    """An earlier backward of the same round, through a call of a layer that both go through."""
    for before in trace.before(event, "backward"):
        other = before.value
        if other is None or other.kind != "tensor" or "create_graph" in before.more["kwargs"]:
            continue
        kept = before.more["kwargs"].get("retain_graph")
        if (kept is None or (kept.kind == "const" and not kept.data)) and (
                before.loops == event.loops and conditions(before) <= conditions(event)
                and before.node is not event.node and value.roots & other.roots):
            return before
    return None


def _made_outside(trace: Trace, event: Event, value: Value) -> bool:
    """It repeats a backward through a forward pass that is not in the loop."""
    if not event.loops or "retain_graph" in event.more["kwargs"] or not unconditional(
            event, event.loops[-1]):
        return False
    loop = event.loops[-1]
    body = getattr(loop.node, "body", [])
    leaves = isinstance(body, list) and any(isinstance(s, (ast.Break, ast.Return)) for s in body)
    return not leaves and bool(value.roots) and all(
        loop not in trace.roots[root] for root in value.roots)


def problems(failure: Failure) -> Iterator[Problem]:
    if not SECOND.search(failure.message):
        return
    earlier = failure.step or 0
    yield Problem(
        _message(failure), where=failure.place, evidence=(raised(failure), *_steps(earlier)),
        fix=Fix("compute what both backward calls share again in each step, or `detach()` it",
                "two losses of one forward pass: add them and call `backward()` once", "unsafe"),
    )


def _message(failure: Failure) -> str:
    where = f" in batch {failure.batch}" if failure.batch else ""
    return f"backward{where} reaches a part of the graph that an earlier backward freed"


def _steps(count: int) -> tuple[Evidence, ...]:
    text = f"{plural(count, 'optimizer step')} went through before"
    return (Evidence(text, "steps"),) if count else ()


_PROGRAM = """
import torch

torch.set_num_threads(1)
net = torch.nn.Linear(3, 1)
scale = torch.nn.Parameter(torch.ones(3))
optimizer = torch.optim.SGD([*net.parameters(), scale], 0.1)
weights = scale.exp()
for _ in range(2):
    optimizer.zero_grad()
    %s
    loss = (net(torch.randn(4, 3)) * weights).sum()
    loss.backward(%s)
    optimizer.step()
"""
_LOG = '''Traceback (most recent call last):
  File "main.py", line 28, in step
    loss2.backward()
  File "/opt/conda/lib/python3.6/site-packages/torch/tensor.py", line 118, in backward
    torch.autograd.backward(self, gradient, retain_graph, create_graph)
RuntimeError: Trying to backward through the graph a second time, but the buffers have already \
been freed. Specify retain_graph=True when calling backward the first time.
'''
_TWO = """
optimizer.zero_grad()
scores = model(x)
first, second = criterion(scores, y), scores.square().mean()
first.backward(%s)
second.backward()
optimizer.step()
"""
_ONCE = "scores, labels = model(torch.randn(4, 8)), torch.tensor([0, 1, 2, 0])\n"
_GAN = """
fake = model(x)
critic = nn.Linear(3, 1)
optimizer.zero_grad()
critic(fake.detach()).mean().backward()
critic(fake).mean().backward()
optimizer.step()
"""

RULE = Rule(
    name="backward-twice", doc=__doc__, category="code", in_failure=in_failure, in_run=in_run,
    in_source=in_source,
    examples=(
        fires(_PROGRAM % ("pass", ""), "reaches a part of the graph that an earlier backward freed",
              "1 optimizer step went through before", line="loss.backward()",
              title="computed before the loop"),
        fires("import torch\nx = torch.ones(2, requires_grad=True)\nloss = x.exp().sum()\n"
              "loss.backward()\nloss.backward()\n",
              "reaches a part of the graph that an earlier backward freed", title="same loss"),
        fires(_PROGRAM % ("weights = scale.exp()", "") + "    if _: loss.backward()\n",
              "reaches a part of the graph that an earlier backward freed",
              line="if _: loss.backward()", title="twice within the second step"),
        fires(_LOG, "that an earlier backward freed", kind="log", title="old wording"),
        fires(training(_TWO % ""), "a graph that the one before has freed", kind="source",
              line="second.backward()", title="two losses of one forward"),
        fires(training("optimizer.zero_grad()\nloss = criterion(scores, labels)\nloss.backward()\n"
                       "optimizer.step()\n", more=_ONCE), "made before the loop", kind="source",
              line="loss.backward()", title="one forward for all rounds"),
        quiet(training(_TWO % "retain_graph=True"), kind="source", title="retained in source"),
        quiet(training(_GAN), kind="source", title="detached for the first"),
        quiet(_PROGRAM % ("weights = scale.exp()", ""), title="computed in each step"),
        quiet("import torch\nx = torch.ones(2, requires_grad=True)\nloss = x.exp().sum()\n"
              "loss.backward(retain_graph=True)\nloss.backward()\n", title="graph retained"),
    ),
)
