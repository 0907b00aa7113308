"""Batch normalisation in training mode gets one value per channel, which has no variance.

## What you see
`ValueError: Expected more than 1 value per channel when training, got input size
torch.Size([1, 512])`, often only at the end of an epoch.
## Why
In training mode a channel is normalised by the mean and variance over batch, height and width.
With one sample, and a feature map of 1×1 or none, there is a single value. The last batch of a
loader has one sample when the number of samples leaves 1 after division by the batch size.
## Fix
`DataLoader(…, drop_last=True)` for training. For validation and prediction call `model.eval()`:
the running statistics are used then, and one sample is enough.
## When this is fine
Never: torch refuses to run the layer.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

from torchmedic import changes, sourceloaders
from torchmedic.batches import is_last, last_batch, matchers, rest_of
from torchmedic.model import Evidence, Fix, Problem, Rule, fires, quiet
from torchmedic.remedies import drop_last, raised
from torchmedic.shapes import layer, numbers, written
from torchmedic.source.flow import Event, Trace, Value, trace_of
from torchmedic.source.flow.layers import known, number
from torchmedic.source.flow.training import node_place
from torchmedic.wording import plural

if TYPE_CHECKING:
    from torchmedic.observed import Failure, Loader
    from torchmedic.source.script import Script

WORDS = ("more than 1 value per channel",)
# torch 0.3 printed `size [1, 512]`; 0.4 to 2.14 print `size torch.Size([1, 512])`
SINGLE = re.compile(r"Expected more than 1 value per channel when training, got input size "
                    r"(?:torch\.Size\()?\[(?P<size>[\d, ]+)\]")
EVAL = "if this pass is validation or prediction, call `model.eval()` before it"


def problems(failure: Failure, loader: Loader | None) -> Iterator[Problem]:
    match = SINGLE.search(failure.message)
    if match is None:
        return
    size = numbers(match["size"])
    last = last_batch(loader, failure)
    which = "the last batch" if last else f"batch {failure.batch}" if failure.batch else "a batch"
    yield Problem(
        f"{layer(failure.module_frame, 'batch normalisation')} gets one value per channel: "
        f"{which} has a single sample and its input is {written(size)}",
        where=failure.place, fix=_fix(failure, loader),
        evidence=(raised(failure), *((Evidence(last, "loader"),) if last else ())),
    )


def _fix(failure: Failure, loader: Loader | None) -> Fix:
    if loader is None:
        return drop_last(EVAL)
    if rest_of(loader) == 1 and is_last(loader, failure):
        return drop_last(f"{plural(loader.samples or 0, 'sample')} in batches of "
                         f"{loader.batch_size} leave 1; {EVAL}")
    if loader.batch_size == 1:
        return Fix("a batch size of 2 or more for training", EVAL, "unsafe")
    return Fix("give the layer more than one value per channel: a larger batch, or a feature map "
               "larger than 1×1", EVAL)


def in_source(script: Script) -> Iterator[Problem]:
    """A last batch of one sample, or batches of one, through `BatchNorm1d` in training."""
    trace = trace_of(script)
    for loader in sourceloaders.loaders(trace):
        size, count = _sizes(loader)
        if size is None or (size != 1 and (count is None or count % size != 1)):
            continue
        for event in trace.of("forward"):
            if event.target is None or event.target.name != "BatchNorm1d" or not event.more["args"]:
                continue
            shape = known(event.more["args"][0])
            if shape is not None and len(shape) == 2 and _trained(trace, event, loader):
                yield _single(script, loader, size, count, getattr(event.target.node, "lineno", 0))
                break


def _sizes(loader: Value) -> tuple[int | None, int | None]:
    """Batch size and number of samples; nothing where the last batch is left out."""
    given = loader.keyword("batch_size", 1)
    size = 1 if given is None else number(given)
    kept = not any(k in loader.kwargs for k in ("drop_last", "batch_sampler", "sampler", "**"))
    return (size if kept else None), sourceloaders.samples(sourceloaders.dataset(loader))


def _trained(trace: Trace, event: Event, loader: Value) -> bool:
    """The layer runs in a loop over this loader that goes backward, and not after `eval()`."""
    over = [f for f in event.loops if f.value is not None and (
        f.value is loader or f.value.owner is loader)]
    return bool(over) and bool(trace.inside(over[-1], "backward"))


def _single(script: Script, loader: Value, size: int, count: int | None, line: int) -> Problem:
    what = "every batch has a single sample" if size == 1 else (
        f"the last batch has a single sample: {count} samples in batches of {size} leave 1")
    return Problem(
        f"`BatchNorm1d` gets one value per channel: {what}",
        where=node_place(script.file, loader.node), confidence="likely",
        evidence=(Evidence(f"line {line}: `BatchNorm1d` can't normalize one value", "source"),),
        fix=Fix("a batch size of 2 or more for training", EVAL, "unsafe") if size == 1 else
        replace(drop_last(EVAL), edits=_edits(script, loader)))


def _edits(script: Script, loader: Value) -> changes.Edits:
    call = loader.node
    if not isinstance(call, ast.Call) or len(call.args) > 8 or loader.file != script.file:
        return ()
    return changes.with_keyword(script, call, "drop_last", "True")


_PROGRAM = """
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.set_num_threads(1)
net = nn.Sequential(nn.Linear(3, 5), nn.BatchNorm1d(5), nn.Linear(5, 1))
optimizer = torch.optim.SGD(net.parameters(), 0.1)
for x, in DataLoader(TensorDataset(torch.randn(9, 3)), %s):
    optimizer.zero_grad()
    net(x).mean().backward()
    optimizer.step()
"""
_LOG = '''Traceback (most recent call last):
  File "train.py", line 61, in train
    output = model(images)
  File "/usr/lib/python3/dist-packages/torch/nn/functional.py", line 1693, in batch_norm
    raise ValueError('Expected more than 1 value per channel when training, got input size {}')
ValueError: Expected more than 1 value per channel when training, got input size [1, 512, 1, 1]
'''

in_failure, in_run = matchers(problems)
RULE = Rule(
    name="batchnorm-single-value", doc=__doc__, category="code", in_failure=in_failure,
    in_run=in_run, in_source=in_source,
    examples=(
        fires(_PROGRAM % "batch_size=4", "BatchNorm1d `1` gets one value per channel",
              "the last batch has a single sample", "9 samples in batches of 4 leave 1",
              "drop_last=True", line="net(x)", title="last batch"),
        fires(_PROGRAM % "batch_size=1", "batch 1 has a single sample and its input is (1, 5)",
              "a batch size of 2 or more", title="batch size 1"),
        fires(_LOG, "batch normalisation gets one value per channel", "(1, 512, 1, 1)",
              "drop_last=True", kind="log", title="old wording"),
        fires(_PROGRAM % "batch_size=4", "9 samples in batches of 4 leave 1", kind="source",
              line="DataLoader", title="last batch in source"),
        fires(_PROGRAM % "batch_size=1", "every batch has a single sample", kind="source",
              title="batches of one in source"),
        quiet(_PROGRAM % "batch_size=3", kind="source", title="no rest in source"),
        quiet(_PROGRAM % "batch_size=4, drop_last=True", title="last batch dropped"),
        quiet(_PROGRAM % "batch_size=3", title="no rest"),
        quiet("import torch\nnet = torch.nn.BatchNorm1d(5).eval()\nnet(torch.zeros(1, 5))\n",
              title="evaluation"),
    ),
)
