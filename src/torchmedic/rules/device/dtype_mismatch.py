"""Tensors of different dtypes meet in an operation that takes one.

## What you see
`mat1 and mat2 must have the same dtype, but got Double and Float`, `Input type (double) and bias
type (float) should be the same`, `expected scalar type Float but found Double`.
## Why
NumPy's floats are `float64`, torch's layers `float32`; integers come from labels and raw images;
half-precision weights meet `float32` inputs outside autocast.
## Fix
`x.float()` where the data enters, or `torch.autocast` around forward and loss for half precision.
## When this is fine
Never: torch refuses to run the operation.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from torchmedic.model import Evidence, Fix, Place, Problem, Rule, fires, quiet
from torchmedic.observed import Failure
from torchmedic.remedies import raised
from torchmedic.shapes import named
from torchmedic.source.flow import trace_of
from torchmedic.source.script import Script

WORDS = ("dtype", "scalar type", "input type", "fp16")
NAMES = {"double": "float64", "float": "float32", "half": "float16", "c10::half": "float16",
         "c10::bfloat16": "bfloat16", "long": "int64", "int": "int32", "byte": "uint8",
         "long int": "int64", "unsigned char": "uint8", "char": "int8"}
PAIRS = (
    # torch 1.13 to 2.14
    re.compile(r"mat1 and mat2 must have the same dtype, but got (?P<got>\w+) and (?P<want>\w+)"),
    re.compile(r"expected m\w+ and m\w+ to have the same dtype, but got: (?P<got>[\w: ]+) != "
               r"(?P<want>[\w:]+)"),
    # torch 1.8 to 2.14
    re.compile(r"Input type \((?P<got>[\w: .]+)\) and (?:weight|bias) type \((?P<want>[\w: .]+)\) "
               r"should be the same"),
    re.compile(r"expected scalar type (?P<want>\w+) but found (?P<got>\w+)"),
    # torch 1.0 to 1.7
    re.compile(r"Expected object of scalar type (?P<want>\w+) but got scalar type (?P<got>\w+)"),
)
LOSSES = ("cross_entropy", "nll_loss", "nll_loss_nd")


HALF = "Attempting to unscale FP16 gradients"


def in_failure(failure: Failure) -> Iterator[Problem]:
    if HALF in failure.message:
        yield Problem("the parameters are float16, and GradScaler scales only float32 parameters",
                      where=failure.place, evidence=(raised(failure),), fix=Fix(
                          "keep the trained parameters in float32 and let autocast choose float16",
                          "`model.float()`, or bfloat16 without a scaler", "unsafe"))
    match = next((m for pattern in PAIRS if (m := pattern.search(failure.message))), None)
    if match is None or any(frame.function in LOSSES for frame in failure.frames):
        return
    got, want = _dtype(match["got"]), _dtype(match["want"])
    if got == want or ("cuda" in match["got"]) != ("cuda" in match["want"]):
        return  # another device, not another dtype
    yield Problem(
        f"{named(failure, 'layer')} is {want} and gets {got}", where=failure.place,
        evidence=(raised(failure), *_dtypes(failure)), fix=_fix(got, want),
    )


def in_source(script: Script) -> Iterator[Problem]:
    text = "\n".join(script.lines)
    if any(word in text for word in ("set_default_dtype", "set_default_tensor", ".double()",
                                     "float64", "autocast")):
        return  # some of the program is meant to be of another type
    seen = set()
    for event in trace_of(script).of("dtype"):
        module, value = event.target, event.value
        if module is not None and value is not None and value.node is not None and (
                value.file, value.node.lineno) not in seen:  # type: ignore[attr-defined]
            line = value.node.lineno  # type: ignore[attr-defined]
            seen.add((value.file, line))
            yield Problem(
                f"`{module.name}` is float32 and gets {value.dtype}",
                where=Place(file=value.file or event.file, line=line), confidence="likely",
                evidence=(Evidence(f"line {event.line}: the layer is called with it", "source"),),
                fix=_fix(value.dtype, "float32"))


def _dtype(text: str) -> str:
    plain = text.strip().lower().removeprefix("torch.").removeprefix("cuda.")
    plain = plain.removesuffix("tensor")
    return NAMES.get(plain, plain)


def _dtypes(failure: Failure) -> tuple[Evidence, ...]:
    frame = failure.user_frame
    told = [f"`{name}` {value.dtype}" for name, value in frame.values.items()
            if value.kind == "tensor"] if frame else []
    return (Evidence(f"on this line: {', '.join(told[:6])}", "frame"),) if told else ()


def _fix(got: str, want: str) -> Fix:
    half = ("float16", "bfloat16")
    if got in half or want in half:
        return Fix("`torch.autocast` around forward and loss, or one dtype for model and data", "",
                   "unsafe")
    if want == "float32":
        return Fix("`x.float()` where the data enters: `torch.from_numpy` keeps NumPy's dtype", "",
                   "unsafe")
    return Fix(f"`x.to(torch.{want})` where the data enters", "", "unsafe")


_PROGRAM = """
import torch
torch.set_num_threads(1)
net = torch.nn.%s
x = torch.zeros(%s, dtype=torch.%s)
net(x)
"""
_ARRAY = """
import numpy as np
import torch
from torch import nn

data = np.random.randn(64, 8)
x = torch.from_numpy(data)%s
print(nn.Linear(8, 2)(x))
"""

RULE = Rule(
    name="dtype-mismatch", doc=__doc__, category="code", in_failure=in_failure,
    in_source=in_source,
    examples=(
        fires(_PROGRAM % ("Linear(3, 2)", "4, 3", "double"), "Linear is float32 and gets float64",
              "`x` float64", "`x.float()`", line="net(x)", title="double"),
        fires(_PROGRAM % ("Conv2d(1, 2, 3)", "1, 1, 4, 4", "half"),
              "Conv2d is float32 and gets float16", "autocast", title="half"),
        fires("ValueError: Attempting to unscale FP16 gradients.\n", "the parameters are float16",
              kind="log", title="scaler"),
        fires(_ARRAY % "", "`Linear` is float32 and gets float64", "`x.float()`", kind="source",
              line="torch.from_numpy", title="array of numpy"),
        quiet(_ARRAY % ".float()", kind="source", title="array made float"),
        quiet(_ARRAY.replace("(64, 8)", "(64, 8).astype(np.float32)") % "", kind="source",
              title="array of float32"),
        quiet(_PROGRAM % ("Linear(3, 2)", "4, 3", "float"), title="same dtype"),
    ),
)
