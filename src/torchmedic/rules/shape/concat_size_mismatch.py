"""Tensors that are joined by `cat` differ in another axis than the one they are joined on.

## What you see
`RuntimeError: Sizes of tensors must match except in dimension 1. Expected size 70 but got size 71
for tensor number 1 in the list`.
## Why
All axes but one must agree. In a network with a way down and a way up the sizes differ by one when
a pooling rounds an odd size down: the input is not divisible by 2 for each pooling. In a network
with several branches one of them was pooled or cut to a fixed length.
## Fix
Bring one tensor to the other's size (`F.interpolate(x, size=skip.shape[2:])`), or pad the input to
a multiple of 2 to the power of the number of poolings.
## When this is fine
Never: torch refuses to join them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

from torchmedic.misfits import is_expected, worded
from torchmedic.model import Evidence, Fix, Problem, Rule, fires, quiet
from torchmedic.pools import pool_before
from torchmedic.remedies import held, raised
from torchmedic.source.flow import trace_of
from torchmedic.source.flow.layers import number
from torchmedic.source.flow.training import place
from torchmedic.source.flow.views import clashing

if TYPE_CHECKING:
    from torchmedic.observed import Failure
    from torchmedic.source.script import Script

SIZES = (
    # torch 1.10 to 2.14
    re.compile(r"Sizes of tensors must match except in dimension (\d+)\. Expected size (\d+) but "
               r"got size (\d+) for tensor number \d+"),
    # torch 0.4 to 1.9
    re.compile(r"Sizes of tensors must match except in dimension (\d+)\. Got (\d+) and (\d+)"),
)
AXES = re.compile(r"Tensors must have same number of dimensions: got (\d+) and (\d+)")


def in_failure(failure: Failure) -> Iterator[Problem]:
    if any("collate" in frame.function for frame in failure.frames):
        return  # a batch that can't be stacked
    match = next((m for pattern in SIZES if (m := pattern.search(failure.message))), None)
    if match is not None:
        axis, one, other = (int(number) for number in match.groups())
        message = (f"`cat` along axis {axis} joins tensors of sizes {one} and {other} in another "
                   "axis")
        fix = _fix(one, other)
    elif (axes := AXES.search(failure.message)) is not None:
        message = f"`cat` joins tensors of {axes[1]} and {axes[2]} axes"
        fix = Fix("`unsqueeze` or `flatten` one of them first", "", "unsafe")
    else:
        return
    yield Problem(message, where=failure.place, fix=fix,
                  evidence=(raised(failure), *held(failure)))


def in_source(script: Script) -> Iterator[Problem]:
    seen = set()
    trace = trace_of(script)
    for event in trace.of("join"):
        clash = clashing(event.value, number(event.more["axis"]))
        if event.more["name"] == "stack" or clash is None or id(event.node) in seen or any(
                f.kind == "branch" for f in event.frames[-1:]):
            continue
        if is_expected(script, event) or pool_before(trace, event) is not None:
            continue  # `hardcoded-pool-size` says it
        seen.add(id(event.node))
        at, first, second = clash
        yield Problem(
            f"`{event.more['name']}` along axis {number(event.more['axis'])} joins tensors of "
            f"sizes {first[at]} and {second[at]} in another axis",
            where=place(script.file, event), confidence="likely",
            fix=_fix(first[at] or 0, second[at] or 0),
            evidence=(Evidence(f"they are {worded(first)} and {worded(second)}", "source"),))


def _fix(one: int, other: int) -> Fix:
    if abs(one - other) == 1:
        return Fix("bring one to the size of the other: `F.interpolate(x, size=skip.shape[2:])`",
                   f"{max(one, other)} was halved and doubled again, which rounds down: or pad the "
                   "input to a multiple of 2 for each pooling", "unsafe")
    if min(one, other) == 1:
        return Fix(f"repeat the tensor of size 1: `x.expand(…)` to {max(one, other)}",
                   "unless the size 1 comes from a pooling with a fixed kernel", "unsafe")
    return Fix("bring both to one size before they are joined", "", "unsafe")


_PROGRAM = """
import torch
from torch.nn import functional as F

skip = torch.zeros(1, 2, %d, 8)
x = F.interpolate(F.max_pool2d(skip, 2), scale_factor=2)
torch.cat([skip, x], 1)
"""
_UP = """
import torch
from torch import nn

down = nn.Conv2d(3, 8, 3, stride=2, padding=1)
up = nn.ConvTranspose2d(8, 8, 2, stride=2)
x = torch.randn(2, 3, %d, 32)
torch.cat([x, up(down(x))], dim=1)
"""
_LOG = '''Traceback (most recent call last):
  File "attention_unet.py", line 271, in forward
    up = torch.cat((skip, up), dim=1)
RuntimeError: Sizes of tensors must match except in dimension 2. Got 70 and 71 (The offending \
index is 0)
'''

RULE = Rule(
    name="concat-size-mismatch", doc=__doc__, category="code", in_failure=in_failure,
    in_source=in_source, examples=(
        fires(_PROGRAM % 7, "`cat` along axis 1 joins tensors of sizes 7 and 6",
              "`skip` (1, 2, 7, 8), `x` (1, 2, 6, 8)", "F.interpolate(x, size=skip.shape[2:])",
              line="torch.cat(", title="odd size"),
        fires("import torch\ntorch.cat([torch.zeros(2, 3), torch.zeros(2, 3, 1)], 1)\n",
              "`cat` joins tensors of 2 and 3 axes", title="axes"),
        fires("import torch\ntorch.cat([torch.zeros(1, 3), torch.zeros(4, 3)], 1)\n",
              "sizes 1 and 4", "expand", title="size one"),
        fires(_LOG, "joins tensors of sizes 70 and 71", kind="log", title="old wording"),
        fires(_UP % 33, "sizes 33 and 34 in another axis", "they are (2, 3, 33, 32)", kind="source",
              line="torch.cat", title="odd size in source"),
        quiet(_UP % 32, kind="source", title="even size in source"),
        quiet(_PROGRAM % 8, title="even size"),
    ),
)
