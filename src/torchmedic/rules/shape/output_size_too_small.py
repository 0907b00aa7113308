"""A pooling or convolution would leave nothing: its input is smaller than its kernel.

## What you see
`RuntimeError: Given input size: (256x1x4x4). Calculated output size: (256x0x2x2). Output size is
too small`, or `Kernel size can't be greater than actual input size`.
## Why
Each pooling and each stride divides height, width or the number of frames. Small images and short
clips are used up before the last of them.
## Fix
Larger or longer samples, one pooling or stride less, or, for a pooling over the whole map, an
adaptive one, which takes any size.
## When this is fine
Never: torch refuses to run the layer.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

from torchmedic.model import Evidence, Fix, Problem, Rule, fires, quiet
from torchmedic.remedies import held, raised
from torchmedic.shapes import named, numbers, written

if TYPE_CHECKING:
    from torchmedic.observed import Failure

POOL = re.compile(r"Given input size: \((?P<input>[\dx]+)\)\. Calculated output size: "
                  r"\((?P<output>[-\dx]+)\)\. Output size is too small")  # torch 0.3 to 2.14
KERNEL = re.compile(r"Calculated padded input size per channel: \((?P<input>[\d x]+)\)\. Kernel "
                    r"size: \((?P<kernel>[\d x]+)\)\. Kernel size can't")  # torch 0.4 to 2.14


def in_failure(failure: Failure) -> Iterator[Problem]:
    match = POOL.search(failure.message) or KERNEL.search(failure.message)
    if match is None:
        return
    size = numbers(match["input"])
    name = named(failure, "layer")
    what = (f"{name} would give an output of size 0: its input is {written(size)}"
            if match.re is POOL else
            f"{name} has a kernel of {written(numbers(match['kernel']))} for a padded input of "
            f"{written(size)}")
    yield Problem(what, where=failure.place, fix=_fix(failure),
                  evidence=(raised(failure), *_settings(failure), *held(failure)))


def _settings(failure: Failure) -> tuple[Evidence, ...]:
    for frame in reversed(failure.frames):
        own = frame.values.get("self")
        if own is not None and own.kind == "module" and own.text:
            return (Evidence(f"{own.type}({own.text})", "module"),)
    return ()


def _fix(failure: Failure) -> Fix:
    frame = failure.module_frame
    kind = (frame.module_class if frame else None) or ""
    if re.fullmatch(r"AvgPool[123]d", kind) or "avg_pool" in str(failure.frames[-1:]):
        axes = kind[-2] if kind else "1"
        return Fix(f"`adaptive_avg_pool{axes}d(x, 1)`: it pools any size",
                   "or samples as large as the layer was made for", "unsafe")
    return Fix("larger or longer samples, or one pooling or stride less before this layer", "",
               "unsafe")


def _program(made: str, *shape: int) -> str:
    return f"import torch\nlayer = torch.nn.{made}\nx = torch.zeros{shape}\nlayer(x)\n"


_LOG = '''Traceback (most recent call last):
  File "net.py", line 15, in forward
    x = self.pool4(x)
RuntimeError: Given input size: (512x1x1). Calculated output size: (512x0x0). Output size is too \
small at /pytorch/aten/src/THNN/generic/SpatialDilatedMaxPooling.c:67
'''

RULE = Rule(
    name="output-size-too-small", doc=__doc__, category="code", in_failure=in_failure,
    examples=(
        fires(_program("MaxPool3d(2)", 1, 3, 1, 4, 4),
              "MaxPool3d would give an output of size 0: its input is (3, 1, 4, 4)",
              "kernel_size=2", "one pooling or stride less", line="layer(x)", title="pooling"),
        fires(_program("Conv2d(3, 4, 5)", 1, 3, 2, 2),
              "Conv2d has a kernel of (5, 5) for a padded input of (2, 2)", title="convolution"),
        fires(_program("AvgPool1d(8)", 1, 3, 4), "AvgPool1d would give an output of size 0",
              "adaptive_avg_pool1d(x, 1)", title="pooling of all points"),
        fires(_LOG, "layer `self.pool4` would give an output of size 0", kind="log",
              title="old wording"),
        quiet(_program("MaxPool3d(2)", 1, 3, 2, 4, 4), title="fits"),
    ),
)
