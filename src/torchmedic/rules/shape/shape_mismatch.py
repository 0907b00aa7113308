"""The sizes of tensors do not fit together in an operation.

## What you see
`The size of tensor a (3) must match the size of tensor b (4) at non-singleton dimension 1`,
`shape '[8, 3600]' is invalid for input of size 18000`, `Expected input batch_size (4) to match
target batch_size (5)`, or another error about sizes.
## Why
One of the tensors does not have the size that the code assumes. Often it is a size written as a
number, and the data has another: the last, smaller batch, another resolution, another number of
classes.
## Fix
Compare the sizes of the tensors on that line with what you expect, and follow the one that is
wrong to where it is made. Take sizes from the tensors (`x.size(0)`, `-1`), not from constants.
## When this is fine
Never: torch refuses to run the operation.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from math import prod
from typing import TYPE_CHECKING

from torchmedic.model import Fix, Problem, Rule, fires, quiet
from torchmedic.remedies import held, raised
from torchmedic.shapes import Shape, inside, written

if TYPE_CHECKING:
    from torchmedic.observed import Failure

# Wordings of torch 0.4 to 2.14. What a more specific rule reads is not here.
BROADCAST = re.compile(r"The size of tensor a \((?P<a>\d+)\) must match the size of tensor b "
                       r"\((?P<b>\d+)\) at non-singleton dimension (?P<axis>\d+)")
VIEW = re.compile(r"shape '\[(?P<shape>[-\d, ]+)\]' is invalid for input of size (?P<size>\d+)")
MATRICES = re.compile(r"mat1 and mat2 shapes cannot be multiplied|size mismatch, m1: \["
                      r"|mat1 dim 1 must match mat2 dim 0")
WIDENED = re.compile(r"output with shape \[(?P<a>[\d, ]*)\] doesn't match the broadcast shape "
                     r"\[(?P<b>[\d, ]*)\]")
SAMPLES = re.compile(r"Expected input batch_size \((\d+)\) to match target batch_size \((\d+)\)")
STACK = re.compile(r"stack expects each tensor to be equal size")
OTHER = re.compile(
    r"The expanded size of the tensor|Target size \(.*\) must be the same as input size"
    r"|Using a target size .* that is different to the input size|multi-target not supported"
    r"|size mismatch, got|Expected size for first two dimensions of batch2|batch1 and batch2"
    r"|Expected batch2_sizes|view size is not compatible with input tensor's size"
    r"|einsum\(\): |split_with_sizes expects|The shape of the mask .* does not match"
    r"|shape mismatch: (?:indexing|value) tensor|not broadcastable|must be broadcastable"
    r"|expected \S*D (?:or \S*D )?input \(got|input to conv\dd, but got input of size"
    r"|Expected \d-dimensional input for|unflatten: Provided sizes|Padding size should be less"
    r"|inconsistent tensor size|Size does not match at dimension|expecting embedding dimension"
    r"|For (?:un)?batched \d-D input|more than 1 spatial element|number of dimensions in the tensor"
    r"|Dimension out of range \(expected|must match the existing size|inconsistent hidden_size"
    r"|input must have \d dimensions, got|shape of the \dD attn_mask is"
    r"|only batches of spatial targets supported|pixel_\w*shuffle expects"
    r"|Input and output sizes should be greater than 0"
    r"|operands could not be broadcast|all input arrays must have the same shape"  # NumPy
)


def in_failure(failure: Failure) -> Iterator[Problem]:
    told = _judged(failure)
    if told is None:
        return
    message, fix = told
    yield Problem(message, where=failure.place, confidence="likely", fix=fix,
                  evidence=(raised(failure), *held(failure)))


def _judged(failure: Failure) -> tuple[str, Fix] | None:
    text = failure.message
    if (found := BROADCAST.search(text)) is not None:
        return (f"two tensors have sizes {found['a']} and {found['b']} on axis {found['axis']}, "
                "and neither is 1", _plain())
    if (found := VIEW.search(text)) is not None:
        return _view(numbers_signed(found["shape"]), int(found["size"]))
    if (found := SAMPLES.search(text)) is not None:
        return (f"the loss gets {found[1]} predictions for {found[2]} targets", _plain(
            "a `view` or `reshape` before the loss has mixed batch and other axes, most often"))
    if MATRICES.search(text) and not inside(failure, "linear.py", "linear"):
        return "two matrices do not fit: the columns of the first are not the rows of the second", \
            _plain()
    if STACK.search(text) and not any("collate" in f.function for f in failure.frames):
        return "`stack` gets tensors of different sizes", _plain()
    if (found := WIDENED.search(text)) is not None:
        return (f"a tensor of shape ({found['a']}) can't hold a result of shape ({found['b']})",
                _plain("a grey image under `Normalize` for three channels? `.convert(\"RGB\")` "
                       "where it is opened, or one mean and one deviation"))
    if OTHER.search(text):
        return f"sizes do not fit: {_first_sentence(text)}", _plain()
    return None


def numbers_signed(text: str) -> Shape:
    return tuple(int(found) for found in re.findall(r"-?\d+", text))


def _view(shape: Shape, size: int) -> tuple[str, Fix]:
    fixed = prod(shape[1:]) if all(side > 0 for side in shape[1:]) else 0
    message = f"a tensor of {size} values can't have the shape {written(shape)}"
    if fixed and shape[0] > 0 and size % fixed == 0:
        return (f"{message}: with {', '.join(map(str, shape[1:]))} it has {size // fixed} rows, "
                f"not {shape[0]}",
                Fix("take the first size from the tensor: `x.size(0)` in place of the number "
                    f"{shape[0]}", "", "unsafe"))
    return message, _plain("the resolution or the number of channels is another than the "
                           "shape assumes")


def _first_sentence(text: str) -> str:
    first = text.strip().partition("\n")[0].partition(". ")[0].rstrip(".")
    return first[:1].lower() + first[1:160]


def _plain(detail: str = "") -> Fix:
    return Fix("print the shapes on this line and follow the wrong one to where it is made",
               detail)


_HARD_CODED = """
import torch
from torch.utils.data import DataLoader, TensorDataset
torch.set_num_threads(1)
net = torch.nn.Linear(6, 2)
for x, in DataLoader(TensorDataset(torch.randn(7, 2, 3)), batch_size=4):
    net(x.view(%s, 6))
"""
_LOG = '''Traceback (most recent call last):
  File "train.py", line 12, in <module>
    loss = criterion(output, target)
ValueError: Expected input batch_size (32) to match target batch_size (8).
'''

RULE = Rule(
    name="shape-mismatch", doc=__doc__, category="code", in_failure=in_failure,
    examples=(
        fires("import torch\na, b = torch.zeros(2, 3), torch.zeros(2, 4)\na + b\n",
              "two tensors have sizes 3 and 4 on axis 1", "`a` (2, 3), `b` (2, 4)", line="a + b",
              title="broadcast"),
        fires(_HARD_CODED % 4, "a tensor of 18 values can't have the shape (4, 6)",
              "it has 3 rows, not 4", "`x.size(0)`", line="x.view(4, 6)", title="fixed batch"),
        fires("import torch\ntorch.zeros(5, 3).view(2, -1, 4)\n",
              "can't have the shape (2, -1, 4)", title="view"),
        fires("import torch\ntorch.zeros(2, 3) @ torch.zeros(4, 2)\n", "two matrices do not fit",
              title="matrices"),
        fires("import torch\ntorch.stack([torch.zeros(2), torch.zeros(3)])\n",
              "`stack` gets tensors of different sizes", title="stack"),
        fires("import torch\ntorch.zeros(2, 3).expand(4, 3)\n",
              "sizes do not fit: the expanded size of the tensor (4)", title="other"),
        fires("RuntimeError: output with shape [1, 28, 28] doesn't match the broadcast shape "
              "[3, 28, 28]\n", "can't hold a result of shape (3, 28, 28)", "grey image", kind="log",
              title="grey image"),
        fires(_LOG, "the loss gets 32 predictions for 8 targets", kind="log", title="targets"),
        quiet(_HARD_CODED % "x.size(0)", title="size of the batch"),
        quiet("import torch\ntorch.zeros(2, 1) + torch.zeros(1, 4)\n", title="broadcast"),
    ),
)
