"""The targets of a loss have another dtype than it takes: class indices must be `int64`.

## What you see
`RuntimeError: expected scalar type Long but found Int`, or `expected target dtype to be Long or
Byte, but got Float`.
## Why
`cross_entropy` and `nll_loss` take class indices as `int64`. A column of a float table, NumPy's
`int32` and labels scaled with the inputs have another dtype. `binary_cross_entropy` is the other
way round: it takes targets of the predictions' float dtype.
## Fix
`target.long()` where the target is made, or `target.float()` for a binary loss.
## When this is fine
`cross_entropy` takes float targets of the predictions' shape: probabilities of each class.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from torchmedic.model import Evidence, Fix, Problem, Rule, fires, quiet
from torchmedic.observed import Failure
from torchmedic.remedies import raised

WORDS = ("type", "not implemented for")
INDICES = (
    # torch 2.12 and newer
    re.compile(r"expected target dtype to be Long or Byte, but got (\w+)"),
    # torch 1.5 to 2.11
    re.compile(r"expected scalar type Long but found (\w+)"),
    re.compile(r"\"nll_loss\S*\" not implemented for '(\w+)'"),
    # torch 0.4 to 1.4
    re.compile(r"Expected object of (?:scalar )?type (?:torch\.)?Long(?:Tensor)? but got "
               r"(?:scalar )?type (?:torch\.)?(\w+?)(?:Tensor)? for argument #2 'target'"),
)
BINARY = re.compile(r"result type Float can't be cast to the desired output type Long"
                    r"|Found dtype Long but expected Float")
LOSSES = ("cross_entropy", "nll_loss", "nll_loss_nd", "binary_cross_entropy",
          "binary_cross_entropy_with_logits", "mse_loss", "l1_loss", "smooth_l1_loss")


def in_failure(failure: Failure) -> Iterator[Problem]:
    loss = next((f.function for f in reversed(failure.frames)
                 if not f.user and f.function in LOSSES), None)
    if loss is None:
        return
    match = next((m for pattern in INDICES if (m := pattern.search(failure.message))), None)
    if match is not None:
        wrong, right, fix = f"of dtype {match[1].lower()}", "`int64` class indices", "long"
    elif BINARY.search(failure.message):
        wrong, right, fix = "of dtype long", "float targets", "float"
    else:
        return
    yield Problem(f"`{loss}` takes {right} and gets targets {wrong}", where=failure.place,
                  evidence=(raised(failure), *_targets(failure)),
                  fix=Fix(f"`target.{fix}()` where the targets are made", "", "unsafe"))


def _targets(failure: Failure) -> tuple[Evidence, ...]:
    for frame in reversed(failure.frames):
        value = frame.values.get("target")
        if value is not None and value.dtype:
            return (Evidence(f"`target` is {value.dtype} {value.shape}", "frame"),)
    return ()


_PROGRAM = """
import torch
from torch.nn import functional as F
torch.set_num_threads(1)
targets = torch.tensor([0, 2, 1])%s
F.cross_entropy(torch.zeros(3, 3), targets)
"""
_LOG = '''Traceback (most recent call last):
  File "train.py", line 27, in train_model
    loss = criterion(outputs, labels)
  File "/usr/lib/python3/dist-packages/torch/nn/functional.py", line 2824, in cross_entropy
    return torch._C._nn.cross_entropy_loss(input, target, weight)
RuntimeError: expected scalar type Long but found Int
'''

RULE = Rule(
    name="target-dtype", doc=__doc__, category="code", in_failure=in_failure,
    examples=(
        fires(_PROGRAM % ".float()", "`cross_entropy` takes `int64` class indices and gets targets "
              "of dtype float", "`target` is float32 (3,)", "`target.long()`",
              line="F.cross_entropy", title="float"),
        fires(_LOG, "gets targets of dtype int", kind="log", title="old wording"),
        quiet(_PROGRAM % "", title="indices"),
        quiet(_LOG.replace("cross_entropy", "linear"), kind="log", title="no loss"),
    ),
)
