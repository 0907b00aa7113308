"""The samples of a batch have different sizes, so they can't be stacked.

## What you see
`RuntimeError: stack expects each tensor to be equal size, but got [3, 16, 32, 32] at entry 0 and
[3, 12, 32, 32] at entry 1`, from the loader; with workers also `Trying to resize storage that is
not resizable`.
## Why
The default `collate_fn` stacks the samples of a batch into one tensor, which needs equal sizes.
Images and clips of several resolutions, and sequences of several lengths, do not have them.
## Fix
Bring each sample to one size in the dataset (resize, crop, a fixed number of frames), or pad the
batch in a `collate_fn` of your own.
## When this is fine
Never: the batch can't be made. With `batch_size=1` it does not show.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

from torchmedic.model import Evidence, Fix, Problem, Rule, fires, quiet
from torchmedic.remedies import raised
from torchmedic.samples import batch_facts, own_place
from torchmedic.shapes import Shape, numbers, written

if TYPE_CHECKING:
    from torchmedic.observed import Failure

WORDS = (
    "stack expects", "sizes of tensors", "equal size", "resize storage", "expected sequence",
    "inhomogeneous", "unable to create tensor",
)
# torch 1.5 to 2.14
STACK = re.compile(r"stack expects each tensor to be equal size, but got (\[[\d, ]*\]) at entry "
                   r"(\d+) and (\[[\d, ]*\]) at entry (\d+)")
OTHER = re.compile(
    r"Sizes of tensors must match except in dimension 0\. Got (\d+) and (\d+)"  # torch 1.0 to 1.4
    r"|each element in list of batch should be of equal size"  # lists: torch 1.5 to 2.14
    r"|Trying to resize storage that is not resizable"  # in a worker: torch 1.13 to 2.14
)
# torch.tensor of lists, NumPy 1.24 and newer, transformers
ROWS = re.compile(r"expected sequence of length \d+ at dim \d+ \(got \d+\)|inhomogeneous shape"
                  r"|Unable to create tensor, you should probably activate")

ANY = Fix("bring each sample to one size in the dataset, or pad in a `collate_fn`")
Pair = tuple[tuple[int, Shape], tuple[int, Shape]]
"""(entry in the batch, size) of two samples."""


def in_failure(failure: Failure) -> Iterator[Problem]:
    if ROWS.search(failure.message):
        yield Problem("the rows that are made into one tensor have different lengths",
                      where=own_place(failure), evidence=(raised(failure),), fix=Fix(
                          "pad or cut the rows to one length before: `pad_sequence`, or a "
                          "tokenizer's `padding=True, truncation=True`"))
        return
    if failure.frames and not _in_collate(failure):
        return
    match = STACK.search(failure.message)
    if match is None and not (failure.frames and OTHER.search(failure.message)):
        return
    pair = _told(match) if match else _seen(failure)
    message = "the samples of a batch have different sizes"
    evidence: tuple[Evidence, ...] = ()
    if pair is not None:
        message += f": {written(pair[0][1])} and {written(pair[1][1])}"
        evidence = _entries(failure, pair)
    yield Problem(message, where=own_place(failure),
                  fix=_fix(pair[0][1], pair[1][1]) if pair else ANY,
                  evidence=(raised(failure), *evidence, *batch_facts(failure)))


def _told(match: re.Match[str]) -> Pair:
    return (int(match[2]), numbers(match[1])), (int(match[4]), numbers(match[3]))


def _seen(failure: Failure) -> Pair | None:
    """The first two sizes that differ in the list that `collate` was given."""
    frame = failure.innermost("collate_tensor_fn") or failure.innermost("default_collate")
    value = frame.values.get("batch") if frame else None
    shapes = [numbers(found) for found in re.findall(r"\(([\d, ]*)\)", value.text if value else "")]
    other = next((at for at, shape in enumerate(shapes) if shape != shapes[0]), None)
    return None if other is None else ((0, shapes[0]), (other, shapes[other]))


def _in_collate(failure: Failure) -> bool:
    return any("collate" in frame.function or frame.file.replace("\\", "/").endswith(
        "_utils/collate.py") for frame in failure.frames)


def _entries(failure: Failure, pair: Pair) -> tuple[Evidence, ...]:
    """Indices of the two samples in the dataset."""
    if any(entry >= len(failure.indices) for entry, _ in pair):
        return ()
    told = [f"sample {failure.indices[entry]} has {written(shape)}" for entry, shape in pair]
    return (Evidence(", ".join(told), "loader"),)


def _fix(one: Shape, other: Shape) -> Fix:
    if len(one) != len(other):
        return ANY
    axes = [at for at, (a, b) in enumerate(zip(one, other, strict=True)) if a != b]
    if sorted(one) == sorted(other):
        return Fix("bring the axes of every sample into one order",
                   f"{written(one)} and {written(other)} are the same lengths in another order")
    if axes == [0]:
        return Fix("pad the samples of a batch: a `collate_fn` with "
                   "`torch.nn.utils.rnn.pad_sequence(samples, batch_first=True)`",
                   "or cut every sample to one length in the dataset", "unsafe")
    if len(one) >= 3 and min(axes) == len(one) - 3:
        return Fix("take the same number of frames or slices from every sample in the dataset", "",
                   "unsafe")
    if len(one) >= 3 and min(axes) >= len(one) - 2:
        return Fix("resize or crop every sample to one height and width in the dataset", "",
                   "unsafe")
    return ANY


_PROGRAM = """
import torch
from torch.utils.data import DataLoader, Dataset

torch.set_num_threads(1)
SIZES = %s


class Samples(Dataset):
    def __len__(self):
        return len(SIZES)

    def __getitem__(self, index):
        return torch.zeros(SIZES[index]), index


def batch(samples):
    x, y = zip(*samples)
    return torch.nn.utils.rnn.pad_sequence(x), torch.tensor(y)


if __name__ == "__main__":
    for x, y in DataLoader(Samples(), batch_size=2, %s):
        pass
"""
_SEQUENCES = "[(7,), (7,), (5,), (9,)]"
_IMAGES = "[(3, 8, 8), (3, 8, 8), (3, 8, 8), (3, 8, 6)]"

RULE = Rule(
    name="ragged-batch", doc=__doc__, category="data", in_failure=in_failure,
    examples=(
        fires("ValueError: expected sequence of length 12 at dim 1 (got 15)\n",
              "rows that are made into one tensor have different lengths", "pad_sequence",
              kind="log", title="lists of numbers"),
        fires(_PROGRAM % (_IMAGES, "num_workers=1"), "sizes: (3, 8, 8) and (3, 8, 6)",
              "sample 2 has (3, 8, 8), sample 3 has (3, 8, 6)", "resize or crop",
              line="for x, y in", title="images in a worker"),
        fires(_PROGRAM % (_SEQUENCES, "num_workers=0"), "sizes: (5,) and (9,)",
              "batch 2 holds samples 2, 3", "pad_sequence", line="for x, y in", title="sequences"),
        fires(_PROGRAM % ("[(2, 3, 4), (2, 4, 3)]", "num_workers=0"), "in another order",
              title="axes exchanged"),
        fires(_PROGRAM % ("[(3, 4, 2, 2), (3, 5, 2, 2)]", "num_workers=0"),
              "the same number of frames", title="clips"),
        fires((_PROGRAM % ("[2, 3]", "num_workers=0")).replace(
                  "torch.zeros(SIZES[index])", "[0] * SIZES[index]"),
              "the samples of a batch have different sizes",
              "bring each sample to one size", title="lists"),
        quiet(_PROGRAM % (_SEQUENCES, "collate_fn=batch"), title="padded"),
        quiet("import torch\nx = [torch.zeros(2), torch.zeros(3)]\ntorch.stack(x)\n",
              title="not in a loader", exit_code=1),
    ),
)
