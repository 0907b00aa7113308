"""A linear layer gets another number of features than its `in_features`.

## What you see
`RuntimeError: mat1 and mat2 shapes cannot be multiplied (64x8192 and 512x10)`.
## Why
`nn.Linear` reads the last axis as features, and it must have `in_features` values. After a
flattened feature map that is channels × height × width, which changes with the resolution of the
input. A map that was not flattened offers its width instead.
## Fix
Set `in_features` to the number the layer gets, or put `AdaptiveAvgPool2d(1)` before the flattening,
so that the number of features is the number of channels for every resolution.
## When this is fine
Never: torch refuses to run the layer.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from math import prod
from typing import TYPE_CHECKING

from torchmedic.misfits import misfits, worded
from torchmedic.model import Evidence, Fix, Problem, Rule, fires, quiet
from torchmedic.pools import pool_before
from torchmedic.remedies import gave, held, pooled, raised
from torchmedic.shapes import (
    Shape,
    fitted_before,
    flattened_from,
    inside,
    named,
    product_of,
    written,
)
from torchmedic.source.flow import trace_of
from torchmedic.source.flow.layers import known, number, times
from torchmedic.source.flow.training import place

if TYPE_CHECKING:
    from torchmedic.observed import Failure
    from torchmedic.source.script import Script

SIZES = (
    # torch 1.8 to 2.14
    re.compile(r"mat1 and mat2 shapes cannot be multiplied \(\d+x(\d+) and (\d+)x(\d+)\)"),
    # torch 0.4 to 1.7
    re.compile(r"size mismatch, m1: \[\d+ x (\d+)\], m2: \[(\d+) x (\d+)\]"),
)


def in_failure(failure: Failure) -> Iterator[Problem]:
    match = next((m for pattern in SIZES if (m := pattern.search(failure.message))), None)
    if match is None or not inside(failure, "linear.py", "linear"):
        return
    got, expected, outputs = int(match[1]), int(match[2]), int(match[3])
    name = named(failure, "linear layer")
    whole = _not_flattened(failure, expected)
    source = None if whole else flattened_from(got, failure.outputs)
    product = f" = {product_of(source[1][0], source[1][1:])}" if source else ""
    seen = (Evidence(f"its input is {written(whole)}", "frame"),) if whole else held(failure)
    yield Problem(
        f"{name} expects {expected} features and gets {got}{product}", where=failure.place,
        evidence=(raised(failure), *(gave(source[0]) if source else seen)),
        fix=_fix(failure, got, expected, outputs, whole, source is not None),
    )


def in_source(script: Script) -> Iterator[Problem]:
    for seen in misfits(script, "Linear"):
        if pool_before(trace_of(script), seen.event) is not None:
            continue  # `hardcoded-pool-size` says it
        got, expected = seen.wrong.got, seen.wrong.expected
        pool = f", or {pooled(len(seen.factors) - 1)}" if seen.factors else ""
        yield Problem(
            f"`{seen.text}` expects {expected} features and gets {got}{seen.product}",
            where=seen.place, evidence=(seen.evidence,), confidence="likely",
            fix=Fix(f"`in_features={got}`{pool}", "", "unsafe",
                    edits=seen.edits("in_features", 0)))
    yield from _views(script)


def _views(script: Script) -> Iterator[Problem]:
    """`x.view(-1, 400)` of maps that have another number of values each."""
    trace = trace_of(script)
    seen = set()
    for event in trace.of("view"):
        shape, args = known(event.target), event.more["args"]
        if event.more["name"] not in ("view", "reshape") or len(args) != 2 or not shape or (
                shape[0] is not None or len(shape) < 3 or id(event.node) in seen):
            continue
        size, got = number(args[1]), times(shape[1:])
        inner = any(f.kind == "branch" for f in event.frames[-2:])
        rows = any(size == times(shape[at:]) for at in range(1, len(shape)))  # of more samples
        if number(args[0]) == -1 and size and size > 0 and got and not rows and not inner:
            seen.add(id(event.node))
            product = " × ".join(map(str, shape[1:]))
            yield Problem(
                f"the view makes rows of {size}, and each sample has {got} = {product}",
                where=place(script.file, event), confidence="likely",
                evidence=(Evidence(f"it is {worded(shape)} before the view", "source"),),
                fix=Fix(f"`x.flatten(1)`, and `in_features={got}` in the layer after it", "",
                        "unsafe"))


def _not_flattened(failure: Failure, expected: int) -> Shape | None:
    """The input's shape, when flattening it would give the number that is expected."""
    for frame in reversed(failure.frames):
        value = frame.values.get("input")
        if value is not None and value.shape is not None and len(value.shape) > 2:
            return value.shape if prod(value.shape[1:]) == expected else None
    return None


def _fix(failure: Failure, got: int, expected: int, outputs: int, whole: Shape | None,
         flattened: bool) -> Fix:
    if whole:
        return Fix("`x.flatten(1)` before the layer", f"it gives {expected} features", "unsafe")
    if flattened and fitted_before(failure):
        return Fix(pooled(2), "earlier batches fitted: no fixed `in_features` fits every "
                              "resolution", "unsafe")
    size = f"`Linear({got}, {outputs})`"
    if flattened:
        return Fix(f"{size}, or {pooled(2)}", "the first keeps the resolution fixed, the second "
                                              "takes any", "unsafe")
    return Fix(f"{size}, or give it the {expected} features it expects", "", "unsafe")


_NET = """
import torch
from torch import nn

torch.set_num_threads(1)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(3, 4, 3, padding=1)
        self.fc = nn.Linear(%d, 10)

    def forward(self, x):
        x = self.conv(x)
        return self.fc(%s)


Net()(torch.zeros(2, 3, 8, 8))
"""
_CNN = """
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(3, 16, 5), nn.ReLU(), nn.MaxPool2d(2),
            nn.Conv2d(16, 32, 5), nn.ReLU(), nn.MaxPool2d(2))
        self.head = nn.Sequential(
            nn.Linear(%d, 120), nn.ReLU(),%s)

    def forward(self, x):
        x = self.body(x)
        return self.head(x.view(x.size(0), -1))


def main():
    model = Net()
    for x, y in DataLoader(TensorDataset(torch.randn(20, 3, 32, 32), torch.arange(20))):
        model(x)


main()
"""
_REPEATED = """
import torch
from torch import nn

size, layers, width = 32, [], 3
for out in (8, 16):
    layers += [nn.Conv2d(width, out, 3, padding=1), nn.MaxPool2d(2)]
    width, size = out, size // 2
model = nn.Sequential(*layers, nn.Flatten(), nn.Linear(16 * 8 * 8, 10))
model(torch.randn(2, 3, 32, 32))
"""
_LOG = '''Traceback (most recent call last):
  File "model.py", line 15, in forward
    x = self.fc1(x)
  File "/usr/lib/python3/dist-packages/torch/nn/modules/linear.py", line 92, in forward
    return F.linear(input, self.weight, self.bias)
RuntimeError: size mismatch, m1: [64 x 8192], m2: [512 x 10] at /pytorch/aten/src/TH/generic
'''

RULE = Rule(
    name="linear-in-features", doc=__doc__, category="code", in_failure=in_failure,
    in_source=in_source,
    examples=(
        fires(_NET % (16, "x.flatten(1)"),
              "Linear `fc` expects 16 features and gets 256 = 4 channels × 8 × 8",
              "Conv2d `conv` gave (2, 4, 8, 8)", "`Linear(256, 10)`", "AdaptiveAvgPool2d(1)",
              line="self.fc(x.flatten(1))", title="flattened map"),
        fires(_NET % (256, "x"), "Linear `fc` expects 256 features and gets 8",
              "its input is (2, 4, 8, 8)", "`x.flatten(1)`", title="not flattened"),
        fires("import torch\nfc = torch.nn.Linear(3, 2)\nx = torch.zeros(4, 5)\nfc(x)\n",
              "Linear expects 3 features and gets 5", "`x` (4, 5)", title="plain"),
        fires(_LOG, "linear layer `self.fc1` expects 512 features and gets 8192",
              "`Linear(8192, 10)`", kind="log", title="old wording"),
        fires(_NET % (16, "x.flatten(1)"),
              "`nn.Linear(16, 10)` expects 16 features and gets 256 = 4 × 8 × 8",
              "`in_features=256`", kind="source", line="nn.Linear(16", title="in source"),
        fires(_CNN % (512, ""), "gets 800 = 32 × 5 × 5", "its input is (N, 800)", kind="source",
              line="nn.Linear(512, 120)", title="through pools"),
        fires(_CNN % (800, "\n            nn.Linear(100, 10),"),
              "expects 100 features and gets 120", kind="source", line="nn.Linear(100, 10)",
              title="layer after layer"),
        quiet(_CNN % (800, ""), kind="source", title="in source fits"),
        quiet(_REPEATED, kind="source", title="made in a loop"),
        quiet(_NET % (256, "x.flatten(1)"), title="fits"),
        quiet("import torch\ntorch.zeros(2, 3) @ torch.zeros(4, 2)\n", title="no layer",
              exit_code=1),
    ),
)
