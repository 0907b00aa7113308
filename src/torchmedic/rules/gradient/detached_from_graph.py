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
from typing import TYPE_CHECKING

from torchmedic.model import Evidence, Fix, Place, Problem, Rule, fires, quiet
from torchmedic.source.flow import Event, Frame, trace_of
from torchmedic.source.flow.training import place
from torchmedic.trainings import MODEL, STEP, module, training

if TYPE_CHECKING:
    from torchmedic.observed import Process, Run
    from torchmedic.source.script import Script

LAYERS = ("Linear", "Conv", "LSTM", "GRU", "RNN", "Embedding", "Bilinear")
CUTTING = ("detach", "detach_", "data", "numpy", "item", "tolist")
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
    yield from _behind(script)


def _behind(script: Script) -> Iterator[Problem]:
    """Layers that an optimizer holds, and whose output is cut off before every loss."""
    trace = trace_of(script)
    backwards = [e for e in trace.of("backward") if e.loops]
    losses = [o for e in backwards for o in (e.value.options() if e.value is not None else ())]
    if not losses or any(o.kind != "tensor" or o.graph is not True for o in losses) or trace.of(
            "autograd"):
        return
    reached = {trace.layers[root] for loss in losses for root in loss.roots}
    sources = frozenset().union(*(loss.sources for loss in losses))
    held = {child.id for made in trace.made if made.kind == "optimizer"
            for child in made.attrs["*held"].items}
    for event in trace.of("forward"):
        layer = event.target
        if layer is None or layer.kind != "module" or not layer.name.startswith(LAYERS) or (
                layer.id in reached or layer.id not in held & sources or event.value is None):
            continue
        if {"*frozen", "*maybe"} & set(layer.attrs):
            continue
        if event.grad is False and event.loops and not _read_only(event):
            yield _without(script, event)
            return
        ids = {o.id for o in event.value.options()}
        cut = next((e for e in trace.after(event, "cut") if e.target is not None
                    and ids & e.target.lineage and e.more["how"] in CUTTING), None)
        if cut is not None and event.grad is True and event.loops:
            yield Problem(
                f"`{ast.unparse(cut.node)}` cuts off the graph: no loss reaches the "
                f"`{layer.name}` before it", where=place(script.file, cut), confidence="likely",
                evidence=(Evidence(f"line {getattr(layer.node, 'lineno', event.line)}: the layer "
                                   "is held by an optimizer and gets no gradient", "source"),),
                fix=Fix("leave it out, or give the layer to no optimizer", "", "unsafe"))
            return


def _read_only(event: Event) -> bool:
    """It is called without gradients because the whole model is: nothing there trains."""
    return not any(f.kind == "with" for f in _in_forward(event))


def _in_forward(event: Event) -> tuple[Frame, ...]:
    """The frames inside the innermost `forward`."""
    for at in range(len(event.frames) - 1, -1, -1):
        if event.frames[at].kind == "call":
            return event.frames[at:] if event.frames[at].name == "forward" else ()
    return ()


def _without(script: Script, event: Event) -> Problem:
    name = event.target.name if event.target is not None else "layer"
    line = getattr(event.target.node, "lineno", event.line) if event.target else event.line
    return Problem(
        f"the `{name}` is called without gradients in `forward`: no loss reaches it",
        where=place(script.file, event), confidence="likely",
        evidence=(Evidence(f"line {line}: an optimizer holds it, and it never gets a gradient",
                           "source"),),
        fix=Fix("leave out `no_grad`, or give the layer to no optimizer", "", "unsafe"))


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

_PARTS = module("h = self.layer(x)%s\nreturn self.head(h)",
                "self.layer, self.head = nn.Linear(8, 5), nn.Linear(5, 3)",
                MODEL.partition("optimizer")[1] + MODEL.partition("optimizer")[2]
                + "for x, y in loader:\n    optimizer.zero_grad()\n"
                  "    criterion(model(x), y).backward()\n    optimizer.step()\n")

_LEAF = """
wanted = torch.randn(8, 3).requires_grad_()
loss = (wanted.chunk(2)[0] * model(x).detach().chunk(2)[0]).sum()
loss.backward()
"""
_LATER = """
import torch
from torch import nn


class Agent:
    def __init__(self):
        self.factor = None
        self.policy = nn.Linear(3, 2)

    def begin(self):
        self.factor = torch.zeros(1, requires_grad=True)
        self.optimizer = torch.optim.Adam([self.factor])

    def learn(self, states):
        for state in states:
            chances = self.policy(state)
            loss = (self.factor * (chances - 1.0).detach()).mean()
            self.optimizer.zero_grad()
            loss.backward()
            self.optimizer.step()
"""

RULE = Rule(
    name="detached-from-graph", doc=__doc__, category="code", severity="warning",
    in_run=in_run, in_source=in_source, examples=(
        fires(_PARTS % ".detach()", "no loss reaches the `Linear` before it", kind="source",
              line=".detach()", title="in forward"),
        quiet(training(_LEAF), kind="source", title="a leaf of its own"),
        quiet(_LATER, kind="source", title="a factor that is set later"),
        quiet(_PARTS % "", kind="source", title="whole graph"),
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
