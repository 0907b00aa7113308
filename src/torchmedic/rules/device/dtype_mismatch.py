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

import ast
import re
from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

from torchmedic import changes
from torchmedic.losscalls import loss_of
from torchmedic.model import Evidence, Fix, Place, Problem, Rule, fires, quiet
from torchmedic.remedies import raised
from torchmedic.shapes import named
from torchmedic.source.flow import trace_of

if TYPE_CHECKING:
    from torchmedic.observed import Failure
    from torchmedic.source.flow import Value
    from torchmedic.source.script import Script

WORDS = (
    "dtype", "scalar type", "input type", "fp16", "not implemented for", "used as indices",
    "floating types", "numpy.object_", "support float64",
)
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
    re.compile(r"found input tensor with (?P<got>\w+) and parameter tensor with (?P<want>\w+)"),
    re.compile(r"RNN input dtype \((?P<got>[\w.]+)\) does not match weight dtype "
               r"\((?P<want>[\w.]+)\)"),
    # torch 1.0 to 1.7
    re.compile(r"Expected object of scalar type (?P<want>\w+) but got scalar type (?P<got>\w+)"),
)
INDEXED = ("cross_entropy", "nll_loss", "nll_loss_nd")
FLOATS = ("float16", "bfloat16", "Half", "BFloat16")
HALF = "Attempting to unscale FP16 gradients"
MISSING = re.compile(r"\"(?!nll_loss)(?P<op>\w+)\" not implemented for '(?P<type>\w+)'")
INDEX = re.compile(r"scalar types: Long, Int; but got (?P<got>[\w.]+)|used as indices must be long"
                   r"|Expected dtype int(?:32/int)?64 for index|expected type torch\.LongTensor")
DIFFER = re.compile(r"have the same dtype|same dtype, but got|to be equal to src\.dtype"
                    r"|source and destination dtypes match")
MEAN = re.compile(r"(?:mean|std)\(\): could not infer output dtype|Can only calculate the mean of "
                  r"floating types")
OBJECTS = "np.ndarray of type numpy.object_"


def in_failure(failure: Failure) -> Iterator[Problem]:
    pair = list(_of_two(failure))
    yield from pair or _of_one(failure)


def _of_two(failure: Failure) -> Iterator[Problem]:
    if HALF in failure.message:
        yield Problem("the parameters are float16, and GradScaler scales only float32 parameters",
                      where=failure.place, evidence=(raised(failure),), fix=Fix(
                          "keep the trained parameters in float32 and let autocast choose float16",
                          "`model.float()`, or bfloat16 without a scaler", "unsafe"))
    match = next((m for pattern in PAIRS if (m := pattern.search(failure.message))), None)
    if match is None:
        return
    got, want = _dtype(match["got"]), _dtype(match["want"])
    loss = loss_of(failure)
    if loss in INDEXED or (loss and want == "int64"):
        return  # `target-dtype`
    if got == want or ("cuda" in match["got"]) != ("cuda" in match["want"]):
        return  # another device, not another dtype
    yield Problem(
        f"{named(failure, 'layer')} is {want} and gets {got}", where=failure.place,
        evidence=(raised(failure), *_dtypes(failure)), fix=_fix(got, want),
    )


def _of_one(failure: Failure) -> Iterator[Problem]:
    """Wordings that name one dtype, or none."""
    text = failure.message
    message, fix = "", Fix("one dtype for both: `x.to(y.dtype)` where the data enters", "",
                           "unsafe")
    if (found := MISSING.search(text)) is not None:
        got = _dtype(found["type"])
        message = f"`{found['op']}` has no form for {got}"
        if got in FLOATS:
            message += ", mostly because it runs on the CPU"
            fix = Fix("float32 on the CPU (`model.float()`), or move model and data to the GPU",
                      "", "unsafe")
        else:
            fix = Fix("`x.float()` where the data enters; a loss takes the predictions first", "",
                      "unsafe")
    elif INDEX.search(text):
        message = "a tensor of indices is not int64"
        fix = Fix("`index.long()` where it is made", "", "unsafe")
    elif MEAN.search(text):
        message, fix = "the mean of integers is asked for", Fix("`x.float().mean()`", "", "unsafe")
    elif DIFFER.search(text):
        message = "tensors of different dtypes meet in one operation"
    elif "support float64" in text:
        message = "the Apple GPU has no float64, and a float64 tensor is moved to it"
        fix = Fix("`x.float()` before it is moved: `torch.from_numpy` keeps NumPy's dtype", "",
                  "unsafe")
    elif OBJECTS in text:
        yield Problem("the array holds Python objects, not numbers", where=failure.place,
                      evidence=(raised(failure),), confidence="likely", category="data", fix=Fix(
                          "make it of one number type and one shape: look for rows of different "
                          "lengths, texts and missing values"))
        return
    if message:
        yield Problem(message, where=failure.place, evidence=(raised(failure), *_dtypes(failure)),
                      fix=fix)


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
                fix=replace(_fix(value.dtype, "float32"), edits=_edits(script, value)))


def _edits(script: Script, value: Value) -> changes.Edits:
    """`.float()` behind the call that makes it."""
    if (value.file or script.file) != script.file or not isinstance(value.node, ast.Call):
        return ()
    return changes.wrapping(value.node, "", ".float()")


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
        fires('RuntimeError: "addmm_impl_cpu_" not implemented for \'Half\'\n',
              "has no form for float16", "`model.float()`", kind="log", title="half on the CPU"),
        fires("RuntimeError: Expected tensor for argument #1 'indices' to have one of the "
              "following scalar types: Long, Int; but got torch.FloatTensor instead\n",
              "is not int64", "`index.long()`", kind="log", title="indices"),
        fires("ValueError: RNN input dtype (torch.float64) does not match weight dtype "
              "(torch.float32).\n", "is float32 and gets float64", kind="log", title="recurrent"),
        fires("TypeError: can't convert np.ndarray of type numpy.object_.\n", "Python objects",
              kind="log", title="objects"),
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
