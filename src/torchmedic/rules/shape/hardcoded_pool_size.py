"""A pool takes the whole axis for one size of the data, by a fixed number, and no other.

## What you see
`Sizes of tensors must match except in dimension 1. Expected size 1 but got size 3 for tensor
number 2`, or a shape that the next layer refuses, as soon as clips, images or point clouds have
another size.
## Why
`AvgPool1d(num_points)` leaves one value only where the data has exactly `num_points` points. With
fewer it refuses or with more it leaves several, and what follows counts on one.
## Fix
`AdaptiveAvgPool1d(1)`, or `x.mean(dim=-1, keepdim=True)`: one value for every size.
## When this is fine
Where every sample has that size, by construction.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import TYPE_CHECKING

from torchmedic.misfits import replacing, worded
from torchmedic.model import Edit, Evidence, Fix, Place, Problem, Rule, fires, quiet
from torchmedic.pools import pool_before
from torchmedic.source.flow import Value, trace_of
from torchmedic.source.flow.layers import known, several

if TYPE_CHECKING:
    from torchmedic.source.script import Script


def in_source(script: Script) -> Iterator[Problem]:
    trace = trace_of(script)
    for event in trace.of("misfit", "join"):
        pool = pool_before(trace, event)
        if pool is None or pool.target is None:
            continue
        module = pool.target
        yield Problem(
            f"`{_text(module)}` leaves one value only where the size is {_kernel(module)}; here "
            f"its input is {worded(known(pool.more['args'][0]) or ())}",
            where=Place(file=module.file or pool.file,
                        line=getattr(module.node, "lineno", pool.line)),
            confidence="likely",
            evidence=(Evidence(f"line {event.line}: what it gives does not fit there", "source"),),
            fix=Fix(f"`{_adaptive(module)}` in its place", "one value for every size", "unsafe",
                    edits=_edits(module)))
        return


def _kernel(module: Value) -> str:
    return str(several(module.keyword("kernel_size", 0), int(module.name[-2]))[0])


def _adaptive(module: Value) -> str:
    return f"Adaptive{module.name}(1)"


def _text(module: Value) -> str:
    text = ast.unparse(module.node) if module.node is not None else module.name
    return text if len(text) <= 60 else module.name


def _edits(module: Value) -> tuple[Edit, ...]:
    call = module.node
    if not isinstance(call, ast.Call):
        return ()
    prefix = ast.unparse(call.func).removesuffix(module.name)
    return (replacing(call, f"{prefix}{_adaptive(module)}"),)


_FUSION = """
import torch
from torch import nn


class Fusion(nn.Module):
    def __init__(self, points):
        super().__init__()
        self.conv = nn.Conv1d(3, 16, 1)
        self.pool = nn.%s
        self.points = points

    def forward(self, x):
        x = self.conv(x)
        return torch.cat([self.pool(x), torch.zeros(x.size(0), 16, 1)], dim=1)


Fusion(1000)(torch.randn(2, 3, %d))
"""
_HEAD = """
import torch
from torch import nn

net = nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), nn.AvgPool2d(%d), nn.Flatten(),
                    nn.Linear(8, 5))
net(torch.randn(2, 3, 64, 64))
"""

RULE = Rule(
    name="hardcoded-pool-size", doc=__doc__, category="code", in_source=in_source, examples=(
        fires(_FUSION % ("AvgPool1d(points)", 3000), "leaves one value only where the size is 1000",
              "`AdaptiveAvgPool1d(1)`", kind="source", line="AvgPool1d(points)",
              title="other number of points"),
        quiet(_FUSION % ("AvgPool1d(points)", 1000), kind="source", title="that number"),
        quiet(_FUSION % ("AdaptiveAvgPool1d(1)", 3000), kind="source", title="adaptive"),
        quiet(_HEAD % 64, kind="source", title="whole image"),
    ),
)
