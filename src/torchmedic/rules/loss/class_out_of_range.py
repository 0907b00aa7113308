"""A class index is as large as the number of classes, or larger, or negative.

## What you see
On the CPU `IndexError: Target 3 is out of bounds` from the loss, or `IndexError: index out of range
in self` from an embedding. On a GPU only `CUDA error: device-side assert triggered`, somewhere
later.
## Why
Indices count from 0: with 3 classes they are 0, 1 and 2. Labels that count from 1, a class for the
background, an ignored label such as 255, or tokens added to a vocabulary are beyond the end.
## Fix
Make the last layer or the embedding as large as the largest index plus 1, or map the labels to
0 … classes - 1; name a label to skip with `ignore_index=`.
## When this is fine
Never: torch refuses.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

from torchmedic.model import Evidence, Fix, Problem, Rule, fires, quiet
from torchmedic.remedies import raised
from torchmedic.shapes import named

if TYPE_CHECKING:
    from torchmedic.observed import Failure, Value

WORDS = ("out of bounds", "out of range", "n_classes", "class values")
TARGET = re.compile(r"Target (-?\d+) is out of bounds")  # torch 1.3 to 2.14
OLD = re.compile(r"Assertion `(?:cur_target|t) >= 0 && (?:cur_target|t) < n_classes' failed"
                 r"|Class values must be (?P<how>smaller than num_classes|non-negative)")
"""torch 0.4 to 1.2; `one_hot` of every version"""
# torch 1.5 to 2.14 | 1.0 to 1.4
LOOKUP = re.compile(r"^index out of range in self|index out of range: Tried to access index "
                    r"(?P<index>-?\d+) out of table with (?P<last>\d+) rows")
EMBEDDING = "embedding"


def in_failure(failure: Failure) -> Iterator[Problem]:
    target = TARGET.search(failure.message)
    if target is not None:
        yield Problem(f"the loss gets class {target[1]}, which the predictions do not have",
                      where=failure.place, evidence=(raised(failure), *_range(failure, "target")),
                      fix=_fix(int(target[1])))
    elif OLD.search(failure.message):
        yield Problem("a class index is negative, or not smaller than the number of classes",
                      where=failure.place, evidence=(raised(failure),), fix=Fix(
                          "as many classes as the largest label plus 1, or labels that count from "
                          "0", "a label to skip: `ignore_index=`", "unsafe"))
    elif (told := LOOKUP.search(failure.message)) is not None and (told["index"] or any(
            frame.function == EMBEDDING for frame in failure.frames if not frame.user)):
        yield Problem(f"{named(failure, 'lookup table')} gets an index beyond its last row",
                      where=failure.place, fix=Fix(
                          "make the embedding as large as the largest index plus 1",
                          "after adding tokens: `resize_token_embeddings(len(tokenizer))`",
                          "unsafe"),
                      evidence=(raised(failure), *_range(failure, "input")))


def _value(failure: Failure, name: str) -> Value | None:
    found = [f.values[name] for f in failure.frames if not f.user and name in f.values]
    return next((v for v in reversed(found) if v.maximum is not None), None)


def _range(failure: Failure, name: str) -> tuple[Evidence, ...]:
    value = _value(failure, name)
    sizes = [f.values[other].shape for f in failure.frames for other in ("input", "weight")
             if name == "target" and other == "input" and not f.user and other in f.values]
    facts = [f"indices go from {value.minimum:g} to {value.maximum:g}"] if value is not None and (
        value.minimum is not None and value.maximum is not None) else []
    facts += [f"the predictions have {size[1]} classes" for size in sizes[-1:]
              if size is not None and len(size) > 1]
    return (Evidence(", ".join(facts), "frame"),) if facts else ()


def _fix(target: int) -> Fix:
    if target < 0 or target == 255:
        return Fix(f"`ignore_index={target}` in the loss, if {target} marks what is to be skipped",
                   "else map the labels to 0 … classes - 1", "unsafe")
    return Fix(f"{target + 1} or more outputs in the last layer, or labels that count from 0",
               "a label to skip: `ignore_index=`", "unsafe")


_LOSS = """
import torch
torch.set_num_threads(1)
y = torch.tensor([0, 2, %d])
torch.nn.CrossEntropyLoss()(torch.zeros(3, 3), y)
"""
_EMBEDDING = "import torch\nwords = torch.nn.Embedding(4, 2)\nwords(torch.tensor([1, %d]))\n"

RULE = Rule(
    name="class-out-of-range", doc=__doc__, category="data", in_failure=in_failure,
    examples=(
        fires(_LOSS % 3, "the loss gets class 3, which the predictions do not have",
              "indices go from 0 to 3, the predictions have 3 classes", "4 or more outputs",
              line="CrossEntropyLoss", title="one too many"),
        fires(_LOSS % -1, "class -1", "ignore_index=-1", title="ignored label"),
        fires(_EMBEDDING % 4, "Embedding gets an index beyond its last row",
              "indices go from 1 to 4", title="embedding"),
        fires("RuntimeError: index out of range: Tried to access index 30522 out of table with "
              "30521 rows.\n", "an index beyond its last row", kind="log", title="old wording"),
        fires("RuntimeError: Class values must be smaller than num_classes.\n",
              "not smaller than the number of classes", kind="log", title="one hot"),
        quiet(_LOSS % 1, title="in range"),
        quiet(_EMBEDDING % 3, title="last row"),
    ),
)
