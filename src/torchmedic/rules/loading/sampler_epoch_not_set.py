"""A `DistributedSampler` shuffles each epoch the same way: nothing calls `set_epoch`.

## What you see
No error. Every epoch sees the batches in the same order, on each rank the same samples.
## Why
The sampler seeds its shuffle with the epoch's number, so that all ranks agree. It does not count
epochs by itself.
## Fix
`sampler.set_epoch(epoch)` at the start of each epoch.
## When this is fine
With `shuffle=False`, or with a single epoch.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import TYPE_CHECKING

from torchmedic import changes
from torchmedic.model import Fix, Problem, Rule, fires, quiet
from torchmedic.source.flow import Trace, Value, trace_of
from torchmedic.source.flow.training import node_place
from torchmedic.trainings import training

if TYPE_CHECKING:
    from torchmedic.source.flow import Frame
    from torchmedic.source.script import Script


WRAPPERS = ("enumerate", "tqdm", "tqdm.tqdm")
SOURCE_WORDS = ("distributedsampler",)


def in_source(script: Script) -> Iterator[Problem]:
    trace = trace_of(script)
    for made in trace.made:
        if made.kind != "sampler" or made.name != "DistributedSampler" or not _shuffles(made) or (
                trace.of("set_epoch")):
            continue
        loops = _epochs(trace, made)
        if loops:
            yield Problem(
                "this `DistributedSampler` gives the same order in each epoch",
                where=node_place(made.file or script.file, made.node), confidence="certain",
                fix=Fix("`sampler.set_epoch(epoch)` at the start of each epoch", "", "unsafe",
                        edits=_edits(script, *loops)))


def _shuffles(made: Value) -> bool:
    flag = made.keyword("shuffle", 3)
    return flag is None or (flag.kind == "const" and flag.data is True)


def _edits(script: Script, epochs: Frame, batches: Frame) -> changes.Edits:
    """Right before the loop over the batches, by the names of the two loops."""
    outer, inner = epochs.node, batches.node
    if not isinstance(outer, ast.For) or not isinstance(inner, ast.For) or (
            {epochs.file, batches.file} != {script.file}) or not isinstance(outer.target, ast.Name):
        return ()
    over = inner.iter
    while isinstance(over, ast.Call) and ast.unparse(over.func) in WRAPPERS and over.args:
        over = over.args[0]
    if not isinstance(over, (ast.Name, ast.Attribute)) or inner not in outer.body or (
            "range(" not in ast.unparse(outer.iter)):
        return ()
    return changes.before(script, inner.lineno,
                          f"{ast.unparse(over)}.sampler.set_epoch({outer.target.id})")


def _epochs(trace: Trace, made: Value) -> tuple[Frame, Frame] | None:
    """The loops over epochs and batches in which the loader with this sampler trains."""
    for event in trace.of("backward"):
        loops = event.loops
        for at, loop in enumerate(loops):
            over = loop.value
            while over is not None and over.owner is not None and over.kind == "enumerate":
                over = over.owner
            given = over.keyword("sampler", 3) if over is not None else None
            if at and given is not None and any(o is made for o in given.options()):
                return loops[at - 1], loop
    return None


_SAMPLER = """
from torch.utils.data.distributed import DistributedSampler
dataset = TensorDataset(torch.randn(64, 8), torch.randint(0, 3, (64,)))
sampler = DistributedSampler(dataset%s)
loader = DataLoader(dataset, batch_size=8, sampler=sampler)
"""

RULE = Rule(
    name="sampler-epoch-not-set", doc=__doc__, category="data", severity="warning",
    in_source=in_source, examples=(
        fires(training(more=_SAMPLER % ""), "the same order in each epoch", kind="source",
              line="DistributedSampler(dataset", title="not set"),
        quiet(training(more=_SAMPLER % "", before="sampler.set_epoch(epoch)"), kind="source",
              title="set"),
        quiet(training(more=_SAMPLER % ", shuffle=False"), kind="source", title="no shuffle"),
    ),
)
