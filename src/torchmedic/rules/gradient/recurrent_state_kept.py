"""A recurrent state goes from batch to batch together with the graph that made it.

## What you see
`RuntimeError: Trying to backward through the graph a second time`, always in the second batch,
with a `loss.backward()` that looks right. With `retain_graph=True` instead: each step is slower
and takes more memory than the one before, or an error about an in-place operation.
## Why
The state that comes out of an `LSTM`, `GRU` or `RNN` is a result of the batch, with its graph. Fed
into the next batch it joins the two graphs, so backward runs on into the first one, whose saved
tensors are already freed.
## Fix
Detach the state between batches: `hidden = hidden.detach()`, for an LSTM
`state = tuple(part.detach() for part in state)`. If the batches are independent samples, pass no
state at all.
## When this is fine
Carrying the state over several chunks of one sequence, with a single backward over all of them.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import TYPE_CHECKING

from torchmedic import changes
from torchmedic.batches import recorded
from torchmedic.keptstate import SECOND, culprit
from torchmedic.model import Confidence, Evidence, Fix, Place, Problem, Rule, fires, quiet
from torchmedic.remedies import raised
from torchmedic.source.recurrent import Kept, kept_states

if TYPE_CHECKING:
    from torchmedic.observed import Failure, Run
    from torchmedic.source.script import Script


def in_run(run: Run) -> Iterator[Problem]:
    for seen in recorded(run):
        failure = seen.failure
        if SECOND.search(failure.message) and (found := culprit(run, failure)):
            script, kept = found
            yield _problem(script, kept, _confidence(failure), about=seen.about,
                           evidence=(raised(failure), *_batches(failure)), failure=failure)


def in_source(script: Script) -> Iterator[Problem]:
    if not any(".backward(" in line for line in script.lines):
        return  # only where the same file trains with it
    for kept in kept_states(script):
        if kept.layer and not kept.reset:
            yield _problem(script, kept, "likely")


def _problem(script: Script, kept: Kept, confidence: Confidence, about: tuple[str, ...] = (),
             evidence: tuple[Evidence, ...] = (), failure: Failure | None = None) -> Problem:
    line = Evidence(f"line {kept.line}: `{kept.name}` goes into `{kept.call}` and is replaced by "
                    "what comes out, with no `detach()` between batches", "source")
    return Problem(
        f"`{kept.name}` carries the graph of the batch before into the next one",
        where=_place(script, kept, failure), evidence=(*evidence, line), about=about,
        confidence=confidence, fix=_fix(script, kept),
    )


def _place(script: Script, kept: Kept, failure: Failure | None) -> Place:
    function = script.function_at(kept.line)
    moment = failure.place if failure else Place()
    return Place(file=script.file, line=kept.line, function=function.name if function else None,
                 phase=moment.phase, epoch=moment.epoch, step=moment.step, batch=moment.batch,
                 rank=moment.rank, pid=moment.pid)


def _confidence(failure: Failure) -> Confidence:
    first = failure.batch == 1 and not failure.step
    return "possible" if first else "certain" if failure.batch or failure.step else "likely"


def _batches(failure: Failure) -> tuple[Evidence, ...]:
    if not failure.step:
        return ()
    return (Evidence(f"backward went through {failure.step} time{'s' * (failure.step > 1)}, then "
                     "failed in the next batch", "batches"),)


def _fix(script: Script, kept: Kept) -> Fix:
    name = kept.name
    one, two = f"{name} = {name}.detach()", f"{name} = tuple(part.detach() for part in {name})"
    if kept.layer and not kept.layer.startswith("LSTM"):
        title = f"`{one}` after the step"
    elif kept.layer:
        title = f"`{two}` after the step"
    else:
        title = f"detach it after the step: `{two}` for an LSTM, `{one}` for a GRU or RNN"
    text = two if kept.layer and kept.layer.startswith("LSTM") else one
    return Fix(title, "or pass no state, when batches are independent samples", "unsafe",
               edits=_edits(script, kept, text) if kept.layer else ())


def _edits(script: Script, kept: Kept, text: str) -> changes.Edits:
    """Behind the last `step()` or `backward()` of the block where the state is replaced."""
    if kept.node is None or "." in kept.name:
        return ()
    block = changes.block_of(script, kept.node)
    calls = [s.lineno for s in block if isinstance(s, ast.Expr) and isinstance(s.value, ast.Call)
             and isinstance(s.value.func, ast.Attribute)
             and s.value.func.attr in ("step", "backward") and s.lineno > kept.line]
    return changes.after(script, calls[-1], text) if calls else ()


_LOOP = """
import torch
from torch import nn

torch.set_num_threads(1)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.rnn = nn.GRU(3, 5, batch_first=True)

    def forward(self, x, hidden):
        out, hidden = self.rnn(x, hidden)
        return out.mean(), hidden


net = Net()
optimizer = torch.optim.SGD(net.parameters(), 0.1)
hidden = None
for _ in range(3):
    optimizer.zero_grad()
    loss, hidden = net(torch.randn(4, 2, 3), hidden)%s
    loss.backward()
    optimizer.step()
"""
_OBJECT = """
import torch
from torch import nn

torch.set_num_threads(1)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.rnn = nn.LSTM(3, 5, batch_first=True)
        self.state = None

    def forward(self, x):
        out, (hidden, cell) = self.rnn(x, self.state)
        self.state = %s
        return out.mean()


net = Net()
optimizer = torch.optim.SGD(net.parameters(), 0.1)
for _ in range(3):
    optimizer.zero_grad()
    net(torch.randn(4, 2, 3)).backward()
    optimizer.step()
"""
_CHUNKS = """
import torch

rnn = torch.nn.GRU(3, 5)
for _ in range(2):
    hidden, total = None, 0.0
    for chunk in torch.randn(3, 2, 4, 3):
        out, hidden = rnn(chunk, hidden)
        total = total + out.mean()
    total.backward()
"""

RULE = Rule(
    name="recurrent-state-kept", doc=__doc__, category="code", in_run=in_run, in_source=in_source,
    examples=(
        fires(_LOOP % "", "`hidden` carries the graph of the batch before into the next one",
              "backward went through 1 time", "`hidden = hidden.detach()` after the step",
              line="loss, hidden = net(", title="loop variable"),
        fires(_OBJECT % "hidden, cell", "`self.state` carries the graph",
              "tuple(part.detach() for part in self.state)", line="self.rnn(x, self.state)",
              title="attribute"),
        fires(_LOOP % "", "`hidden` carries the graph", kind="source", title="loop in source",
              line="loss, hidden = net("),
        fires(_OBJECT % "(hidden, cell)", kind="source", title="attribute in source",
              line="self.rnn(x, self.state)"),
        quiet(_LOOP % "\n    hidden = hidden.detach()", title="detached"),
        quiet(_LOOP % "\n    hidden.detach_()", title="detached in place"),
        quiet(_OBJECT % "hidden.detach(), cell.detach()", title="detached attribute"),
        quiet(_CHUNKS, title="chunks of one sequence"),
        quiet(_CHUNKS, kind="source", title="chunks in source"),
    ),
)
