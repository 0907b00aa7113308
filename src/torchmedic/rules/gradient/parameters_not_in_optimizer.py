"""A model takes part in the loss, but no optimizer holds its parameters.

## What you see
No error: this part of the model keeps its first, random values.
## Why
An optimizer changes the parameters that it was given when it was built. A layer that is replaced
or added later, or a second model, is not among them.
## Fix
Build the optimizer after the model is complete, from all parts:
`[*encoder.parameters(), *head.parameters()]`, or `optimizer.add_param_group(…)`.
## When this is fine
A frozen model: set `requires_grad_(False)` on it, then it is known.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from torchmedic.model import Evidence, Fix, Problem, Rule, fires, quiet
from torchmedic.source.flow import Event, Trace, Value, trace_of
from torchmedic.source.flow.training import node_place, steps_unknown
from torchmedic.source.flow.values import family
from torchmedic.trainings import MODEL, STEP, training

if TYPE_CHECKING:
    from torchmedic.observed import Run
    from torchmedic.source.script import Script

WITH = ("Linear", "LazyLinear", "Embedding", "LSTM", "GRU", "RNN", "Bilinear")


def in_run(run: Run) -> Iterator[Problem]:
    for process in run.processes:
        known = process.parameters
        if known is None or known.looked < 3 or not known.outside or len(known.roots) > 1:
            continue
        sure = bool(known.stale) or known.last
        count = known.counts["outside"]
        facts = [Evidence(f"{count} parameters get gradients and are in no optimizer that "
                          f"stepped: {', '.join(known.outside[:4])}", "parameters")]
        if known.stale:
            facts.append(Evidence(f"the optimizer holds {known.stale} tensors that are no part of "
                                  "the model any more", "parameters"))
        yield Problem(
            f"`{known.outside[0]}` is trained by no optimizer, though the loss depends on it",
            where=process.updates[0].place if process.updates else None, evidence=tuple(facts),
            severity=None if sure else "info", confidence="certain" if known.stale else "likely",
            fix=Fix("build the optimizer from the complete model", "or `requires_grad_(False)` on "
                    "what is not to be trained", "unsafe"))


def in_source(script: Script) -> Iterator[Problem]:
    trace = trace_of(script)
    optimizers = [made for made in trace.made if made.kind == "optimizer"]
    if not optimizers or any(made.data is None for made in optimizers) or steps_unknown(trace):
        return
    if any(e.value and any(o.kind == "optimizer" for i in (e.value, *e.value.items)
                           for o in i.options()) for e in trace.of("opaque")):
        return
    held = {child.id for made in optimizers for child in _held(made)} | _unregistered(trace)
    seen = set()
    for event in trace.of("forward"):
        module = event.target
        if module is not None and module.id not in held and module.id not in seen and (
                _has_parameters(module) and _trained(trace, event, optimizers)):
            seen.add(module.id)
            yield _problem(trace, module, event)


def _unregistered(trace: Trace) -> set[int]:
    """Layers in plain lists and dicts of a model: `module-not-registered` says it."""
    owners = [e.target for e in trace.of("forward") if e.target and e.target.kind == "instance"]
    plain = [v for owner in owners for v in owner.attrs.values() if v.kind in ("list", "dict")]
    return {o.id for v in plain for i in (*v.items, *v.attrs.values()) for o in i.options()}


def _held(made: Value) -> list[Value]:
    """What it was given when it was built, or later as a group."""
    first = made.attrs["*held"]
    groups = made.items[first.data:]
    return [*first.items, *(child for item in groups for child in family(item).values())]


def _has_parameters(module: Value) -> bool:
    return module.kind == "module" and (
        module.name in WITH or module.name.startswith("Conv")) and (
        module.type.startswith("torch.nn.") and not {"*frozen", "*maybe"} & set(module.attrs))


def _trained(trace: Trace, event: Event, optimizers: list[Value]) -> bool:
    """Its output goes backward in a loop where one of the optimizers steps."""
    if event.grad is not True or event.target is None or not event.loops:
        return False
    for backward in trace.after(event, "backward"):
        for loss in backward.value.options() if backward.value else ():
            through = {trace.layers.get(root) for root in loss.roots}  # not what was detached
            if event.target.id in through and loss.graph and backward.loops:
                return any(e.target in optimizers and set(e.loops) & set(backward.loops)
                           for e in trace.of("step"))
    return False


def _problem(trace: Trace, module: Value, event: Event) -> Problem:
    return Problem(
        f"no optimizer holds the parameters of this `{module.name}`, which takes part in the loss",
        where=node_place(module.file or trace.script.file, module.node), confidence="likely",
        evidence=(Evidence(f"line {event.line}: it is called there, and the loss goes backward",
                           "source"),),
        fix=Fix("build the optimizer after it, from the parameters of all parts", "", "unsafe"))


_CLASS = """
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.body, self.fc = nn.Linear(8, 16), nn.Linear(16, 5)

    def forward(self, x):
        return self.fc(self.body(x))


model = Net()
%s
"""
_MADE = """optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
criterion = nn.CrossEntropyLoss()
loader = DataLoader(TensorDataset(torch.randn(64, 8), torch.randint(0, 3, (64,))), batch_size=8)
"""
_REPLACED = "model.fc = nn.Linear(16, 3)\n"
_SECOND = "head = nn.Linear(3, 3)\n"
_USED = STEP.replace("model(x)", "head(model(x))")

_TARGET = """
wanted = torch.zeros(8, 3)
wanted[x[:, 0] > 0] = target(x[x[:, 0] > 0]).detach()
optimizer.zero_grad()
F.mse_loss(model(x), wanted).backward()
optimizer.step()
"""

RULE = Rule(
    name="parameters-not-in-optimizer", doc=__doc__, category="code", severity="warning",
    in_run=in_run, in_source=in_source, examples=(
        fires(training(setup=_CLASS % "" + _MADE + _REPLACED), "parameters of this `Linear`",
              kind="source", line="model.fc = nn.Linear(16, 3)", title="head replaced"),
        fires(training(_USED, more=_SECOND), kind="source", line="head = nn.Linear",
              title="second model"),
        fires(training(setup=_CLASS % "" + _MADE + _REPLACED), "no part of the model any more",
              line="model.fc = nn.Linear(16, 3)", title="head replaced, in a run"),
        quiet(training(setup=_CLASS % _REPLACED + _MADE), kind="source", title="replaced before"),
        quiet(training(_USED, more=_SECOND + "optimizer.add_param_group("
                       "{'params': head.parameters()})\n"), kind="source", title="added"),
        quiet(training(_USED, more=_SECOND + "head.requires_grad_(False)\n"), kind="source",
              title="frozen"),
        quiet(training(_USED + "learner.step()\n", more=_SECOND + "learner = Learner(head)\n"),
              kind="source", title="another one steps"),
        quiet(training(_TARGET, more="target = nn.Linear(8, 3)\n"), kind="source",
              title="a target network"),
        quiet(training(setup=MODEL), kind="source", title="whole"),
    ),
)
