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

import ast
import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

from torchmedic import changes
from torchmedic.losscalls import loss_of
from torchmedic.model import Evidence, Fix, Place, Problem, Rule, fires, quiet
from torchmedic.remedies import raised
from torchmedic.source.flow import trace_of
from torchmedic.source.flow.layers import known
from torchmedic.trainings import training

if TYPE_CHECKING:
    from torchmedic.observed import Failure
    from torchmedic.source.flow import Event, Value
    from torchmedic.source.flow.values import Shape
    from torchmedic.source.script import Script

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
BINARY = re.compile(r"result type Float can't be cast to the desired output type (Long|Int)"
                    r"|Found dtype (Long|Int|Double) but expected Float")
INDEXED = ("CrossEntropyLoss", "NLLLoss")
BINARIES = ("BCELoss", "BCEWithLogitsLoss")


def in_failure(failure: Failure) -> Iterator[Problem]:
    loss = loss_of(failure)
    if loss is None:
        return
    match = next((m for pattern in INDICES if (m := pattern.search(failure.message))), None)
    if match is not None:
        wrong, right, fix = f"of dtype {match[1].lower()}", "`int64` class indices", "long"
    elif BINARY.search(failure.message):
        kind = next(filter(None, BINARY.findall(failure.message)[0]))
        wrong, right, fix = f"of dtype {kind.lower()}", "float targets", "float"
    else:
        return
    name = loss if loss.startswith("the ") else f"`{loss}`"
    yield Problem(f"{name} takes {right} and gets targets {wrong}", where=failure.place,
                  evidence=(raised(failure), *_targets(failure)),
                  fix=Fix(f"`target.{fix}()` where the targets are made", "", "unsafe"))


def in_source(script: Script) -> Iterator[Problem]:
    seen = set()
    for event in trace_of(script).of("loss"):
        wanted, loss = event.more["wanted"], event.target
        if loss is None or wanted.kind != "tensor" or wanted.node is None or (
                id(event.node) in seen or any(f.kind == "branch" for f in event.frames[-1:])):
            continue
        indices = loss.name in INDEXED and wanted.dtype in ("float32", "float64", "int32") and (
            _one_each(known(event.more["input"]), known(wanted)))
        binary = loss.name in BINARIES and wanted.dtype == "int64"
        if indices or binary:
            seen.add(id(event.node))
            right, cast = ("`int64` class indices", "long") if indices else ("floats", "float")
            yield Problem(
                f"`{loss.name}` takes {right} and gets targets of dtype {wanted.dtype}",
                where=Place(file=wanted.file or event.file, line=wanted.node.lineno),
                confidence="likely",
                evidence=(Evidence(f"line {event.line}: the loss is given them", "source"),),
                fix=Fix(f"`target.{cast}()` where the targets are made", "", "unsafe",
                        edits=_edits(script, event, wanted, cast)))


def _edits(script: Script, event: Event, wanted: Value, cast: str) -> changes.Edits:
    """Behind the call that makes them."""
    if (wanted.file or event.file) != script.file or not isinstance(wanted.node, ast.Call):
        return ()
    return changes.wrapping(wanted.node, "", f".{cast}()")


def _one_each(given: Shape | None, wanted: Shape | None) -> bool:
    """One index for each sample: no probabilities of the shape of the scores."""
    if wanted is None:
        return False
    return len(wanted) == (1 if given is None else len(given) - 1)


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
_TABLE = """
import torch
from torch import nn

table = torch.randn(300, 8)
features, targets = table[:, :7], table[:, 7]%s
model = nn.Linear(7, 3)
loss = nn.CrossEntropyLoss()(model(features), targets)
"""
_BINARY = """
model = nn.Linear(8, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
criterion = nn.BCEWithLogitsLoss()
labels = torch.randint(0, 2, (64, 1))%s
loader = DataLoader(TensorDataset(torch.randn(64, 8), labels), batch_size=8)
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
    in_source=in_source,
    examples=(
        fires(_PROGRAM % ".float()", "`cross_entropy` takes `int64` class indices and gets targets "
              "of dtype float", "`target` is float32 (3,)", "`target.long()`",
              line="F.cross_entropy", title="float"),
        fires(_LOG, "gets targets of dtype int", kind="log", title="old wording"),
        fires("RuntimeError: \"nll_loss_forward_reduce_cuda_kernel_2d_index\" not implemented for "
              "'Int'\n", "`int64` class indices and gets targets of dtype int", kind="log",
              title="GPU wording"),
        fires(_LOG.replace("criterion(outputs, labels)", "loss.backward()").replace(
            "expected scalar type Long but found Int", "Found dtype Double but expected Float"
        ).replace("cross_entropy", "backward"), "float targets and gets targets of dtype double",
              kind="log", title="in backward"),
        fires(_TABLE % "", "`CrossEntropyLoss` takes `int64` class indices", "of dtype float32",
              kind="source", line="table[:, 7]", title="column of a table"),
        fires(training(setup=_BINARY % ""), "`BCEWithLogitsLoss` takes floats", kind="source",
              title="indices for a binary loss"),
        quiet(_TABLE % ".long()", kind="source", title="column as indices"),
        quiet(training(setup=_BINARY % ".float()"), kind="source", title="binary floats"),
        quiet(_PROGRAM % "", title="indices"),
        quiet(_LOG.replace("cross_entropy", "linear"), kind="log", title="no loss"),
    ),
)
