"""A loss or an output is kept together with the graph that made it.

## What you see
Memory grows with each batch until it runs out, although the model and the batches stay the same.
Each step takes a little longer.
## Why
A tensor that hangs on the model holds the whole graph of its batch: all activations. `total +=
loss` and `losses.append(loss)` keep every one of them.
## Fix
Keep the number: `total += loss.item()`. Keep values with `outputs.append(output.detach())`, and
evaluate under `torch.no_grad()`.
## When this is fine
When the sum or the list is itself what goes backward, as in several losses added up first.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import TYPE_CHECKING

from torchmedic import changes, wording
from torchmedic.model import Evidence, Fix, Problem, Rule, fires, quiet
from torchmedic.source.flow import Event, Frame, Trace, Value, trace_of
from torchmedic.source.flow.training import place
from torchmedic.trainings import training

if TYPE_CHECKING:
    from torchmedic.observed import Run
    from torchmedic.observed.kept import Kept
    from torchmedic.source.script import Script


def in_run(run: Run) -> Iterator[Problem]:
    """What was made before a step that is over, or what an evaluation makes more and more of."""
    for process in run.processes:
        first: dict[tuple[str | None, str | None, str], Kept] = {}
        told = set()
        for kept in process.kept:
            key = (kept.place.file, kept.place.function, kept.name)
            earlier = first.setdefault(key, kept)
            grows = kept.count > earlier.count and not kept.training
            if key not in told and (kept.older or grows):
                told.add(key)
                yield _grows(earlier, kept)


def _grows(earlier: Kept, kept: Kept) -> Problem:
    what = f"a list of {kept.count} results" if kept.kind == "list" else \
        f"a sum of {kept.count} results"
    size = f", {wording.size(kept.size)} without the graphs" if kept.kind == "list" else ""
    before = f"; it was {earlier.count} before" if earlier.count < kept.count else \
        "; the first is older than the last optimizer step"
    cure = f"append `….detach()` to `{kept.name}`" if kept.kind == "list" else \
        f"`{kept.name} += ….item()`"
    return Problem(
        f"`{kept.name}` keeps the graphs of batches that are over", where=kept.place,
        confidence="likely", evidence=(
            Evidence(f"it is {what} that hang on the model{size}{before}", "variables"),),
        fix=Fix(cure, "", "unsafe"))


def in_source(script: Script) -> Iterator[Problem]:
    trace = trace_of(script)
    for event in trace.of("keep", "append"):
        options = list(event.value.options()) if event.value else []
        if any(o.kind == "tensor" and o.graph is False for o in options):
            continue  # detached on the path where it went backward
        for value in options:
            if value.kind == "tensor" and value.graph is True and value.sources:
                loop = _outlives(event)
                if loop and not _used(trace, event, value) and _over(trace, event, value, loop):
                    yield _problem(trace, event)
                break


def _outlives(event: Event) -> Frame | None:
    """The loop in which the total or the list lives on from round to round."""
    held = event.target.loops if event.target is not None else ()
    if event.target is None or event.target.kind in ("unknown", "either"):
        return None
    inner = [frame for frame in event.loops if frame not in held and frame.name != "comprehension"]
    return inner[0] if inner and not _in_forward(event, inner[0]) else None


def _in_forward(event: Event, loop: Frame) -> bool:
    """A loop over parts of one batch, in the model itself."""
    before = event.frames[:event.frames.index(loop)]
    return any(f.kind == "call" and f.name == "forward" for f in before)


def _used(trace: Trace, event: Event, value: Value) -> bool:
    """What was kept goes backward itself."""
    made = event.more.get("made")
    ids = {made.id} if made is not None else {event.target.id} if event.target else set()
    return any(ids & o.lineage for e in trace.of("backward", "autograd", "opaque")
               for v in ([e.value] if e.value else []) for i in (v, *v.items)
               for o in i.options())


def _over(trace: Trace, event: Event, value: Value, loop: Frame) -> bool:
    """Its graph is of no more use: it went backward, or the model is being evaluated."""
    for backward in trace.inside(loop, "backward"):
        if backward.value and any(o.lineage & value.lineage for o in backward.value.options()):
            return True
    return _evaluates(trace, event, value) and not _returned(trace, event)


def _evaluates(trace: Trace, event: Event, value: Value) -> bool:
    mode = next((e for e in trace.before(event, "eval", "train")
                 if e.target and e.target.id in value.sources), None)
    return mode is not None and mode.kind == "eval" and event.grad is True


def _returned(trace: Trace, event: Event) -> bool:
    made = event.more.get("made") or event.target
    return made is not None and any(
        made.id in o.lineage or o.id == made.id for e in trace.after(event, "return")
        for o in (e.value.options() if e.value else ()) if o.graph or o.kind == "list")


def _problem(trace: Trace, event: Event) -> Problem:
    value = (event.node.value if event.kind == "keep" else event.node.args[-1])  # type: ignore
    text = ast.unparse(value)
    text = text if len(text) < 60 else "the tensor"
    what = f"adds `{text}`" if event.kind == "keep" else f"appends `{text}`"
    text = f"({text})" if isinstance(value, ast.BinOp) and text != "the tensor" else text
    cure = f"`{text}.item()` or `{text}.detach()`" if event.kind == "keep" else \
        f"`{text}.detach()`"
    return Problem(
        f"each round {what} with its whole graph to something that outlives the round",
        where=place(trace.script.file, event), confidence="likely",
        evidence=(Evidence("it still hangs on the model's parameters, so nothing of its batch "
                           "can be freed", "source"),),
        fix=Fix(f"keep {cure}", "", "safe", edits=_edits(trace, event, value)))


def _edits(trace: Trace, event: Event, value: ast.AST) -> changes.Edits:
    """Detached it stays a tensor, which whatever reads it may rely on."""
    options = event.value.options() if event.value is not None else ()
    if event.file != trace.script.file or any(o.kind != "tensor" for o in options):
        return ()
    if isinstance(value, ast.BinOp):
        return changes.wrapping(value, "(", ").detach()")
    simple = isinstance(value, (ast.Name, ast.Attribute, ast.Call, ast.Subscript))
    return changes.wrapping(value, "", ".detach()") if simple else ()


_SUM = """
optimizer.zero_grad()
loss = criterion(model(x), y)
loss.backward()
optimizer.step()
total += loss
"""
_LIST = _SUM.replace("total += loss", "losses.append(loss)")
_JOINT = """
optimizer.zero_grad()
total = 0.0
for part in (x, x + 1):
    total += criterion(model(part), y)
total.backward()
optimizer.step()
"""
_VALIDATION = """
model.eval()
outputs = []
for x, y in loader:
    outputs.append(model(x))
print(torch.cat(outputs).argmax(1))
model.train()
"""
_DETACHED = """
optimizer.zero_grad()
loss = criterion(model(x), y)
if learns:
    loss.backward()
    loss = loss.detach()
losses.append(loss)
optimizer.step()
"""
_COUNTED = """
optimizer.zero_grad()
loss, count = wrapped(x, y)
loss.backward()
optimizer.step()
samples += count
"""
_HELPER = """
def both(out, y):
    one = F.mse_loss(out, out * 0)
    one /= 2.0
    one = one + criterion(out, y)
    return one
"""
_GUARDED = _VALIDATION.replace("for x", "torch.set_grad_enabled(False)\nfor x")

_SIMILAR = """
similarity = nn.CosineSimilarity()
similarity.eval()
near = []
for x, y in loader:
    near.append(similarity(x, x + 1))
"""
_PARTS = """
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.teacher = nn.Linear(8, 3)
        self.teacher.eval()

    def forward(self, x):
        base, found = self.teacher(x), []
        for factor in (1.0, 2.0):
            found.append(base * factor)
        return torch.stack(found).argmax(0)


net = Net()
"""

RULE = Rule(
    name="graph-kept-alive", doc=__doc__, category="memory", severity="warning",
    in_run=in_run, in_source=in_source, examples=(
        fires(training(_SUM, before="total = 0.0"), "adds `loss` with its whole graph",
              "`loss.item()`", kind="source", line="total += loss", title="sum"),
        fires(training(_SUM.replace("+= loss", "= total + loss"), before="total = 0.0"),
              kind="source", line="total = total + loss", title="sum written out"),
        fires(training(_LIST, more="losses = []\n"), "`loss.detach()`", kind="source",
              line="losses.append(loss)", title="list"),
        fires(training(after=_VALIDATION), kind="source", line="outputs.append", title="outputs"),
        fires(training(_SUM, before="total = 0.0"), "a sum of", line="total += loss",
              title="sum, in a run"),
        quiet(training(_JOINT), title="summed before backward, in a run"),
        quiet(training(_SUM.replace("+= loss", "+= loss.item()"), before="total = 0.0"),
              kind="source", title="number"),
        quiet(training(_LIST.replace("(loss)", "(loss.detach())"), more="losses = []\n"),
              kind="source", title="detached"),
        quiet(training(_DETACHED, more="losses, learns = [], True\n"), kind="source",
              title="detached where it went backward"),
        quiet(training(_COUNTED, before="samples = 0", more="wrapped = nn.DataParallel(model)\n"),
              kind="source", title="a number beside the loss"),
        quiet(training(_SUM.replace("criterion(model(x), y)", "both(model(x), y)").replace(
            "total += loss", ""), more=_HELPER), kind="source", title="a loss in two parts"),
        quiet(training(after=_SIMILAR), kind="source", title="a layer without parameters"),
        quiet(training("net(x)", more=_PARTS), kind="source", title="parts of one batch"),
        quiet(training(_JOINT), kind="source", title="summed before backward"),
        quiet(training(after=_GUARDED), kind="source", title="without gradients"),
    ),
)
