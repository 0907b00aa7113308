"""A loader gives no batch at all, so the loop over it does nothing.

## What you see
The epochs pass in no time, the loss is never printed or stays at its start; the exit code is 0.
Sometimes a `ZeroDivisionError` or `UnboundLocalError` after the loop.
## Why
The dataset is empty (a wrong folder, a filter that keeps nothing), or it holds fewer samples
than one batch and `drop_last=True` drops the only one.
## Fix
Check the dataset's length; lower the batch size or leave `drop_last` off for small sets.
## When this is fine
For an optional split that may be empty.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import TYPE_CHECKING

from torchmedic import changes, sourceloaders, wording
from torchmedic.model import Evidence, Fix, Problem, Rule, Severity, fires, quiet
from torchmedic.source.flow import trace_of
from torchmedic.source.flow.training import node_place

if TYPE_CHECKING:
    from torchmedic.observed import Iteration, Run
    from torchmedic.source.flow import Value
    from torchmedic.source.script import Script


SOURCE_WORDS = ("loader",)


def in_run(run: Run) -> Iterator[Problem]:
    main = run.main
    told: set[int] = set()
    for item in main.iterations if main else ():
        if item.exhausted is not True or item.batches or item.loader.key in told:
            continue
        told.add(item.loader.key)
        yield _problem(run, item)


def _problem(run: Run, item: Iteration) -> Problem:
    loader, main = item.loader, run.main
    assert main is not None
    fewer = loader.samples and loader.batch_size and loader.samples < loader.batch_size
    if loader.drop_last and fewer:
        why = (f"{wording.plural(loader.samples or 0, 'sample')}, batch_size={loader.batch_size} "
               "and drop_last=True leave nothing")
        fix = Fix(f"lower batch_size to {loader.samples} or less, or leave drop_last off")
    elif loader.samples == 0:
        why = "the dataset is empty"
        fix = Fix(f"check the folder, the file list and the filters of `{loader.dataset}`")
    else:
        why = "the iterator ended before its first batch"
        fix = Fix("check what the dataset or the sampler yields")
    given = any(other.batches for other in main.iterations)
    worked = main.step > 0 or (given and not _trains(run, item))
    return Problem(
        f"the loader over `{loader.dataset}` gives no batch: {why}",
        main.place_at(item.started),
        (Evidence(wording.loader_text(loader), "loader"),
         Evidence(f"{wording.plural(main.step, 'optimizer step')} in the whole run", "recorder")),
        fix, about=() if worked else ("ending",), severity=_severity(run, item, worked=worked),
        category="data" if loader.samples == 0 else "code",
    )


def _severity(run: Run, item: Iteration, *, worked: bool) -> Severity:
    """Where others gave steps or batches, an optional part may be empty.

    Not one whose loop trains; and samples that `drop_last` leaves out were there to be used.
    """
    if not worked:
        return "error"
    return "info" if item.loader.samples == 0 and not _trains(run, item) else "warning"


def _trains(run: Run, item: Iteration) -> bool:
    """The loop's body calls `backward` or `step`, or something whose name tells of training."""
    frame = wording.innermost_user(item.started)
    script = run.script(frame.file) if frame else None
    loops = script.loops_around(frame.line) if script and frame else ()
    called = [node.func for loop in loops[:1] for node in ast.walk(loop.node)
              if isinstance(node, ast.Call)]
    names = [str(getattr(f, "attr", getattr(f, "id", ""))) for f in called]
    return any(name in ("backward", "step") or "train" in name for name in names)


def in_source(script: Script) -> Iterator[Problem]:
    trace = trace_of(script)
    for loader in sourceloaders.loaders(trace):
        size, last = loader.keyword("batch_size", 1), loader.keyword("drop_last", 8)
        count = sourceloaders.samples(sourceloaders.dataset(loader))
        dropped = last is not None and last.kind == "const" and last.data is True
        whole = size is not None and size.kind == "const" and type(size.data) is int
        if count is None or size is None or not dropped or not whole or count >= size.data:
            continue
        yield Problem(
            f"the loader gives no batch: {wording.plural(count, 'sample')}, "
            f"batch_size={size.data} and drop_last=True leave nothing",
            where=node_place(script.file, loader.node), confidence="likely",
            evidence=(Evidence("`drop_last=True` leaves out the last, smaller batch", "source"),),
            fix=Fix(f"lower batch_size to {count} or less, or leave drop_last off", "", "unsafe",
                    edits=_edits(script, loader)))


def _edits(script: Script, loader: Value) -> changes.Edits:
    call = loader.node
    flag = next((k.value for k in call.keywords if k.arg == "drop_last"), None) \
        if isinstance(call, ast.Call) and loader.file == script.file else None
    return changes.without_argument(script, call, flag) if flag is not None else ()


_PROGRAM = """
import torch
from torch import nn
torch.set_num_threads(1)
net = nn.Linear(4, 2)
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
data = torch.utils.data.TensorDataset(torch.randn({samples}, 4))
for (x,) in torch.utils.data.DataLoader(data, batch_size=8, drop_last=True):
    loss = net(x).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""
_VALIDATED = _PROGRAM.format(samples=0) + """
for (x,) in torch.utils.data.DataLoader(torch.utils.data.TensorDataset(torch.randn(8, 4))):
    net(x)
"""

RULE = Rule(
    name="empty-loader", doc=__doc__, category="code", in_run=in_run, in_source=in_source,
    examples=(
        fires(_PROGRAM.format(samples=5), "5 samples, batch_size=8 and drop_last=True",
              "lower batch_size to 5", line="drop_last=True"),
        fires(_PROGRAM.format(samples=0).replace("drop_last=True", "drop_last=False"),
              "the dataset is empty"),
        fires(_PROGRAM.format(samples=5), "5 samples, batch_size=8 and drop_last=True leave",
              kind="source", line="drop_last=True", title="in source"),
        quiet(_PROGRAM.format(samples=20), kind="source", title="enough in source"),
        quiet(_PROGRAM.format(samples=20)),
        fires(_VALIDATED, "the dataset is empty", line="drop_last=True",
              title="nothing to train with, but a validation"),
    ),
)
