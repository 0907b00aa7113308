"""A layer is made for another number of channels than its input has.

## What you see
`RuntimeError: Given groups=1, weight of size [16, 3, 7, 7], expected input[3, 1, 32, 32] to have 3
channels, but got 1 channels instead`; from a normalisation layer `running_mean should contain 64
elements not 32`.
## Why
Convolution and normalisation read axis 1 as channels. The number is wrong when the layer before
gives another one, when images are gray, RGB or RGBA, or when the channels are on another axis.
## Fix
Set the layer's number of channels to what it gets; or convert the images; or bring the channels to
axis 1 with `permute`.
## When this is fine
Never: torch refuses to run the layer.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

from torchmedic.misfits import Seen, misfits, worded
from torchmedic.model import Fix, Place, Problem, Rule, fires, quiet
from torchmedic.remedies import gave, held, raised
from torchmedic.shapes import Shape, named, numbers, written
from torchmedic.source.flow import Trace, trace_of

if TYPE_CHECKING:
    from torchmedic.observed import Failure
    from torchmedic.source.script import Script

CONVOLUTION = re.compile(  # torch 0.4 to 2.14; 0.4 to 1.0 print weight[16, 3, 7, 7], so expected
    r"expected input\s?\[(?P<input>[\d, ]+)\] to have (?P<expected>\d+) channels, "
    r"but got (?P<got>\d+) channels")
BATCH_NORM = re.compile(r"running_mean should contain (?P<got>\d+) elements not (?P<expected>\d+)")
LAYER_NORM = re.compile(r"normalized_shape=\[(?P<expected>\d+)\], expected input with shape .*"
                        r"input of size\s?\[(?P<input>[\d, ]+)\]")
GROUP_NORM = re.compile(r"number of channels in input, but got weight of shape \[(?P<expected>\d+)"
                        r"\] and input of shape \[(?P<input>[\d, ]+)\]")


def in_failure(failure: Failure) -> Iterator[Problem]:
    patterns = (CONVOLUTION, BATCH_NORM, LAYER_NORM, GROUP_NORM)
    match = next((m for pattern in patterns if (m := pattern.search(failure.message))), None)
    if match is None:
        return
    told = match.groupdict()
    shape = numbers(told.get("input") or "")
    axis = -1 if match.re is LAYER_NORM else 1
    expected, got = int(told["expected"]), int(told.get("got") or shape[axis])
    unit = "features" if match.re is LAYER_NORM else "channels"
    name = named(failure, "layer")
    before = gave(failure.outputs[-1]) if failure.outputs and not shape else ()
    yield Problem(
        f"{name} expects {expected} {unit} and gets {got}"
        + (f": its input is {written(shape)}" if shape else ""),
        where=failure.place, fix=_fix(expected, got, shape, unit),
        evidence=(raised(failure), *before, *held(failure)),
    )


def in_source(script: Script) -> Iterator[Problem]:
    for seen in misfits(script, "Conv", "BatchNorm", "GroupNorm"):
        expected, got, shape = seen.wrong.expected, seen.wrong.got, seen.wrong.shape
        sizes = tuple(size or 0 for size in shape)
        name = "num_features" if seen.module.name.startswith("Batch") else "in_channels"
        at = int(seen.module.name.startswith("Group"))
        inserted = _inserted(trace_of(script), seen)
        edits = () if inserted else seen.edits("num_channels" if at else name, at)
        fix = _fix(expected, got, sizes, "channels")
        edits = edits if fix.title.startswith("make the layer") else ()
        yield Problem(
            f"`{seen.text}` expects {expected} channels and gets {got}: its input is "
            f"{worded(shape)}", where=inserted or seen.place, evidence=(seen.evidence,),
            fix=Fix(fix.title, fix.detail, "unsafe", edits=edits), confidence="likely")


def _inserted(trace: Trace, seen: Seen) -> Place | None:
    """Where an axis of length 1 was put in the place of the channels."""
    value = seen.event.value
    if value is None or seen.wrong.got != 1:
        return None
    for view in trace.before(seen.event, "view"):
        if view.more["name"].startswith("unsqueeze") and view.value is not None and (
                view.value.id in value.lineage):
            return Place(file=view.file, line=view.line)
    return None


def _fix(expected: int, got: int, shape: Shape, unit: str) -> Fix:
    images = len(shape) >= 4 and unit == "channels"
    if images and shape[-1] == expected != shape[1]:
        order = (0, len(shape) - 1, *range(1, len(shape) - 1))
        return Fix(f"`x.permute({', '.join(map(str, order))})` before the layer",
                   f"the last axis has {expected}: the channels come last here", "unsafe")
    if images and shape[0] == expected and got == 1:
        return Fix("`unsqueeze(0)` for the batch axis, in place of `unsqueeze(1)`",
                   f"axis 0 has {expected}: the batch axis is missing or in the wrong place",
                   "unsafe")
    if (expected, got) in ((3, 1), (3, 4), (1, 3)):
        mode = "L" if expected == 1 else "RGB"
        return Fix(f"convert the images in the dataset (PIL: `image.convert(\"{mode}\")`), or make "
                   f"the layer for {got} channels", "", "unsafe")
    return Fix(f"make the layer for {got} {unit}, or the layer before it give {expected}", "",
               "unsafe")


_LOG = '''Traceback (most recent call last):
  File "net.py", line 15, in forward
    x = self.conv1(x)
  File "/usr/lib/python3/dist-packages/torch/nn/modules/conv.py", line 301, in forward
    self.padding, self.dilation, self.groups)
RuntimeError: Given groups=1, weight[64, 3, 7, 7], so expected input[16, 4, 224, 224] to have 3 \
channels, but got 4 channels instead
'''


def _program(layer_made: str, *shape: int) -> str:
    return (f"import torch\nlayer = torch.nn.{layer_made}\nx = torch.zeros{shape}\n"
            "layer(x)\n")


RULE = Rule(
    name="channel-mismatch", doc=__doc__, category="code", in_failure=in_failure,
    in_source=in_source,
    examples=(
        fires(_program("Conv2d(3, 4, 3)", 2, 5, 8, 8),
              "Conv2d expects 3 channels and gets 5: its input is (2, 5, 8, 8)",
              "make the layer for 5 channels", line="layer(x)", title="convolution"),
        fires(_program("Conv2d(3, 4, 3)", 2, 8, 9, 3), "`x.permute(0, 3, 1, 2)`",
              title="channels last"),
        fires(_program("Conv2d(3, 4, 3)", 3, 1, 8, 8), "`unsqueeze(0)`", title="batch axis"),
        fires(_program("BatchNorm2d(3)", 1, 4, 2, 2), "BatchNorm2d expects 3 channels and gets 4",
              title="batch norm"),
        fires(_program("LayerNorm(4)", 2, 5), "LayerNorm expects 4 features and gets 5",
              title="layer norm"),
        fires(_program("GroupNorm(2, 4)", 2, 6, 2), "GroupNorm expects 4 channels and gets 6",
              title="group norm"),
        fires(_LOG, "layer `self.conv1` expects 3 channels and gets 4", 'convert("RGB")',
              kind="log", title="old wording"),
        fires(_program("Conv2d(3, 4, 3)", 2, 5, 8, 8), "its input is (2, 5, 8, 8)", kind="source",
              line="Conv2d(3, 4, 3)", title="in source"),
        fires(_program("Sequential(torch.nn.Conv2d(3, 8, 3), torch.nn.BatchNorm2d(4))",
                       2, 3, 9, 9),
              "`torch.nn.BatchNorm2d(4)` expects 4 channels and gets 8", kind="source",
              title="layer after layer"),
        fires(_program("Conv2d(3, 4, 3)", 3, 8, 8).replace("layer(x)", "layer(x.unsqueeze(1))"),
              "`unsqueeze(0)`", kind="source", line="unsqueeze(1)", title="batch axis in source"),
        quiet(_program("Conv2d(3, 4, 3)", 3, 8, 8), kind="source", title="one image"),
        quiet(_program("Conv2d(3, 4, 3)", 2, 3, 8, 8), title="fits"),
        quiet(_program("Conv2d(3, 4, 3)", 2, 3, 2, 2), title="too small", exit_code=1),
    ),
)
