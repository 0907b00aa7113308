"""A recurrent layer gets a hidden state whose size does not fit the batch or the layer.

## What you see
`RuntimeError: Expected hidden[0] size (1, 3, 512), got [1, 4, 512]`, often only in the last batch
of an epoch.
## Why
A hidden state has the size (layers × directions, batch, hidden size). A state kept from the batch
before, or made for a fixed batch size, has a row for each sample of another batch. The last batch
of a loader is smaller when the batch size does not divide the number of samples.
## Fix
Begin each batch with a fresh state: leave the state argument out, and torch makes zeros of the
right size. If samples really continue from batch to batch, use `drop_last=True`, so that every
batch has the same number of them.
## When this is fine
Never: torch refuses to run the layer.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

from torchmedic.batches import last_batch, matchers
from torchmedic.model import Evidence, Fix, Problem, Rule, fires, quiet
from torchmedic.remedies import raised
from torchmedic.shapes import Shape, named, numbers, written
from torchmedic.wording import plural

if TYPE_CHECKING:
    from torchmedic.observed import Failure, Loader

# nn.LSTM names hidden[0] and hidden[1]; nn.GRU and nn.RNN say hidden. Torch 0.4 to 2.14; the size
# it got is in round brackets up to 1.7.
WHOLE = re.compile(r"Expected hidden(?:\[\d\])? size \((?P<expected>[\d, ]+)\), "
                   r"got [\[(](?P<got>[\d, ]+)[\])]")
CELL = re.compile(r"Input batch size (?P<expected>\d+) doesn't match hidden\S* batch size "
                  r"(?P<got>\d+)")
FRESH = "begin each batch with a fresh state: call the layer without one"


def problems(failure: Failure, loader: Loader | None) -> Iterator[Problem]:
    match = WHOLE.search(failure.message) or CELL.search(failure.message)
    if match is None:
        return
    expected, got = numbers(match["expected"]), numbers(match["got"])
    name = named(failure, "recurrent layer")
    message, fix = _judged(name, failure, expected, got)
    last = last_batch(loader, failure)
    evidence = (raised(failure), *((Evidence(last, "loader"),) if last else ()))
    yield Problem(message, where=failure.place, evidence=evidence, fix=fix)


def _judged(name: str, failure: Failure, expected: Shape, got: Shape) -> tuple[str, Fix]:
    batch = len(expected) - 2 if len(expected) > 1 else 0
    differs = [at for at, (e, g) in enumerate(zip(expected, got, strict=False)) if e != g]
    if len(expected) != len(got) or differs != [batch]:
        return (f"{name} expects a hidden state of size {written(expected)} and gets "
                f"{written(got)}", Fix(f"give it a state of size {written(expected)}, or none"))
    samples, rows = expected[batch], got[batch]
    if (read := _wrong_axis(failure, samples, rows)) is not None:
        return (f"{name} reads axis 1 of its input {written(read)} as the batch, and its hidden "
                f"state is for {plural(rows, 'sample')}",
                Fix("`batch_first=True` for this layer", "the input's first axis is the batch",
                    "unsafe"))
    return (f"{name} gets a hidden state for {plural(rows, 'sample')} with a batch of {samples}",
            Fix(FRESH, "if samples continue from batch to batch, `drop_last=True` in the "
                       f"DataLoader keeps every batch at {rows}", "unsafe"))


def _wrong_axis(failure: Failure, samples: int, rows: int) -> Shape | None:
    """The input's shape, when the state fits its first axis and the layer reads the second."""
    frame = failure.module_frame
    own, value = (frame.values.get(n) if frame else None for n in ("self", "input"))
    for outer in failure.frames:
        if outer.module == (frame.module if frame else None) and "input" in outer.values:
            own, value = outer.values.get("self"), outer.values["input"]
    if own is None or value is None or value.shape is None or own.attributes.get("batch_first"):
        return None
    return value.shape if value.shape[:2] == (rows, samples) else None


_KEPT = """
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.set_num_threads(1)


class Net(nn.Module):
    state = None

    def __init__(self):
        super().__init__()
        self.rnn = nn.LSTM(3, 5, batch_first=%s)

    def forward(self, x):
        out, (hidden, cell) = self.rnn(x, self.state)
        self.state = %s
        return out.mean()


net = Net()
optimizer = torch.optim.SGD(net.parameters(), 0.1)
for x, in DataLoader(TensorDataset(torch.randn(11, 2, 3)), batch_size=4):
    optimizer.zero_grad()
    net(x).backward()
    optimizer.step()
"""
_FIXED = """
import torch
rnn = torch.nn.GRU(3, 5%s)
rnn(torch.zeros(4, 6, 3), torch.zeros(%s))
"""
_LOG = '''Traceback (most recent call last):
  File "train.py", line 40, in <module>
    out, hidden = model(x, hidden)
  File "/home/me/net.py", line 18, in forward
    out, hidden = self.lstm(x, hidden)
  File "/opt/conda/lib/python3.7/site-packages/torch/nn/modules/rnn.py", line 179, in check_hidden
    raise RuntimeError(msg.format(expected_hidden_size, tuple(hx.size())))
RuntimeError: Expected hidden[0] size (2, 20, 128), got (2, 64, 128)
'''

in_failure, in_run = matchers(problems)
RULE = Rule(
    name="hidden-state-size", doc=__doc__, category="code", in_failure=in_failure, in_run=in_run,
    examples=(
        fires(_KEPT % ("True", "hidden.detach(), cell.detach()"),
              "LSTM `rnn` gets a hidden state for 4 samples with a batch of 3",
              "batch 3 is the last one: 11 samples in batches of 4 leave 3", "drop_last=True",
              line="self.rnn(x, self.state)", title="smaller last batch"),
        fires(_FIXED % ("", "1, 4, 5"), "reads axis 1 of its input (4, 6, 3) as the batch",
              "batch_first=True", line="rnn(torch.zeros(4", title="batch first"),
        fires(_FIXED % ("", "2, 6, 5"), "expects a hidden state of size (1, 6, 5) and gets "
              "(2, 6, 5)", title="other axis"),
        fires("import torch\ncell = torch.nn.GRUCell(3, 5)\n"
              "cell(torch.zeros(2, 3), torch.zeros(4, 5))\n",
              "GRUCell gets a hidden state for 4 samples with a batch of 2", title="cell"),
        fires(_LOG, "recurrent layer `self.lstm` gets a hidden state for 64 samples with a "
              "batch of 20", kind="log", title="traceback"),
        quiet(_KEPT % ("True", "None"), title="fresh state"),
        quiet(_FIXED % (", batch_first=True", "1, 4, 5"), title="fits"),
    ),
)
