"""A recurrent layer gets another number of features for each step than its `input_size`.

## What you see
`RuntimeError: input.size(-1) must be equal to input_size. Expected 256, got 4096`, in the first
batch, or in the first one whose images or clips have another resolution.
## Why
`nn.LSTM`, `nn.GRU` and `nn.RNN` read the last axis as features, and it must have `input_size`
values. A feature map flattened for each step has channels × height × width of them, not channels.
## Fix
Pool each step's map to 1×1 (`x.mean(dim=(-2, -1))` or `adaptive_avg_pool`), and the number of
features is the number of channels for every resolution. Or set `input_size` to the number the
layer gets, when the resolution never changes.
## When this is fine
Never: torch refuses to run the layer.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

from torchmedic.misfits import misfits
from torchmedic.model import Evidence, Fix, Problem, Rule, fires, quiet
from torchmedic.remedies import gave, raised
from torchmedic.shapes import (
    fitted_before,
    flattened_from,
    named,
    product_of,
)
from torchmedic.wording import plural

if TYPE_CHECKING:
    from torchmedic.observed import Failure, Frame
    from torchmedic.source.script import Script

SIZES = (
    # nn.RNN, nn.LSTM, nn.GRU: torch 0.4 to 2.14
    re.compile(r"input\.size\(-1\) must be equal to input_size\. "
               r"Expected (?P<expected>\d+), got (?P<got>\d+)"),
    # their cells: torch 0.4 to 2.14
    re.compile(r"input has inconsistent input_size: got (?P<got>\d+),? expected (?P<expected>\d+)"),
)


def in_failure(failure: Failure) -> Iterator[Problem]:
    match = next((m for pattern in SIZES if (m := pattern.search(failure.message))), None)
    if match is None:
        return
    expected, got = int(match["expected"]), int(match["got"])
    source = flattened_from(got, failure.outputs, _steps(failure.module_frame))
    product, evidence = "", [raised(failure)]
    if source is not None:
        output, (channels, *sides) = source
        product = f" = {product_of(channels, sides)}"
        evidence += gave(output)
    varies = fitted_before(failure)
    if varies:
        evidence.append(Evidence(_earlier(failure, expected), "batches"))
    yield Problem(
        f"{named(failure, 'recurrent layer')} expects {expected} features and gets {got}{product}",
        where=failure.place, evidence=tuple(evidence),
        fix=_fix(failure, expected, got, source is not None, varies),
    )


def in_source(script: Script) -> Iterator[Problem]:
    for seen in misfits(script, "LSTM", "GRU", "RNN"):
        got = seen.wrong.got
        pool = ", or pool each step's map to 1×1 before the layer, such as `x.mean(dim=(-2, -1))`"
        yield Problem(
            f"`{seen.text}` expects {seen.wrong.expected} features and gets {got}{seen.product}",
            where=seen.place, evidence=(seen.evidence,), confidence="likely",
            fix=Fix(f"`input_size={got}`{pool if seen.product else ''}", "", "unsafe",
                    edits=seen.edits("input_size", 0)))


def _steps(frame: Frame | None) -> int | None:
    """Length of the sequence, where the layer's own frame shows its input."""
    value = frame.values.get("input") if frame else None
    own = frame.values.get("self") if frame else None
    if value is None or value.shape is None or len(value.shape) != 3 or own is None:
        return None
    return value.shape[1 if own.attributes.get("batch_first") else 0]


def _earlier(failure: Failure, expected: int) -> str:
    done = plural(failure.step, "optimizer step") if failure.step else "the batches before"
    return f"{done} went through with {expected} features: their number changes with the data"


def _fix(failure: Failure, expected: int, got: int, flattened: bool, varies: bool) -> Fix:
    pool = "pool each step's map to 1×1 before the layer, such as `x.mean(dim=(-2, -1))`"
    if varies and flattened:
        return Fix(pool, f"no fixed `input_size` fits every batch; pooled, each step has "
                         f"{expected} features for every resolution", "unsafe")
    if varies:
        return Fix("bring every sample to one size before it reaches the model",
                   "no fixed `input_size` fits every batch")
    if flattened:
        return Fix(f"`input_size={got}`, or {pool}",
                   f"with `input_size={got}` every clip or image must keep this resolution; "
                   f"pooled, the layer keeps `input_size={expected}` and takes any", "unsafe")
    return Fix(f"`input_size={got}`, or a `Linear({got}, {expected})` before the layer", "",
               "unsafe")


_NET = """
import torch
from torch import nn

torch.set_num_threads(1)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv4 = nn.Conv3d(3, 8, 3, padding=1)
        self.lstm = nn.%s

    def forward(self, x):
        x = self.conv4(x).permute(0, 2, 1, 3, 4)%s
        out, _ = self.lstm(x)
        return out[:, -1].mean()


net = Net()
optimizer = torch.optim.SGD(net.parameters(), 0.1)
for side in (4, 8):
    optimizer.zero_grad()
    net(torch.randn(2, 3, 2, side, side)).backward()
    optimizer.step()
"""
_LOG = '''Traceback (most recent call last):
  File "main.py", line 71, in <module>
    out = model(ids)
  File "/opt/conda/lib/python3.8/site-packages/torch/nn/modules/module.py", line 727, in _call_impl
    result = self.forward(*input, **kwargs)
  File "/home/me/model.py", line 13, in forward
    out, _ = self.lstm(emb)
  File "/opt/conda/lib/python3.8/site-packages/torch/nn/modules/rnn.py", line 204, in check_input
    self.input_size, input.size(-1)))
RuntimeError: input.size(-1) must be equal to input_size. Expected 1024, got 768
'''
_CELL = """
import torch
cell = torch.nn.LSTMCell(4, 5)
cell(torch.zeros(2, 6))
"""

RULE = Rule(
    name="recurrent-input-size", doc=__doc__, category="code", in_failure=in_failure,
    in_source=in_source,
    examples=(
        fires(_NET % ("LSTM(8, 5, batch_first=True)", ".flatten(2)"),
              "LSTM `lstm` expects 8 features and gets 128 = 8 channels × 4 × 4",
              "Conv3d `conv4` gave (2, 8, 2, 4, 4)", "`input_size=128`, or pool",
              line="out, _ = self.lstm(x)", title="flattened map"),
        fires(_NET % ("GRU(128, 5, batch_first=True)", ".flatten(2)"),
              "GRU `lstm` expects 128 features and gets 512 = 8 channels × 8 × 8",
              "1 optimizer step went through", "no fixed `input_size` fits every batch",
              line="out, _ = self.lstm(x)", title="resolution changes"),
        fires(_CELL, "LSTMCell expects 4 features and gets 6", "`input_size=6`",
              line="cell(torch.zeros(2, 6))", title="cell"),
        fires(_LOG, "recurrent layer `self.lstm` expects 1024 features and gets 768",
              "Linear(768, 1024)", kind="log", title="traceback"),
        fires(_NET.replace("side, side", "4, 4") % ("LSTM(8, 5, batch_first=True)", ".flatten(2)"),
              "expects 8 features and gets 128 = 8 × 4 × 4", "`input_size=128`, or pool",
              kind="source", line="nn.LSTM", title="in source"),
        quiet(_NET.replace("side, side", "4, 4") % (
            "LSTM(8, 5, batch_first=True)", ".mean(dim=(3, 4))"), kind="source",
            title="pooled in source"),
        quiet(_NET % ("LSTM(8, 5, batch_first=True)", ".mean(dim=(3, 4))"), title="pooled"),
        quiet(_LOG.replace("input.size(-1) must be equal to input_size. Expected 1024, got 768",
                           "mat1 and mat2 shapes cannot be multiplied (4x768 and 1024x10)"),
              kind="log", title="linear layer"),
    ),
)
