"""Tensors on different devices meet in one operation.

## What you see
`RuntimeError: Expected all tensors to be on the same device, but found at least two devices,
cuda:0 and cpu!`, or `Input type (torch.cuda.FloatTensor) and weight type (torch.FloatTensor)
should be the same`.
## Why
The model or the batch was not moved, a tensor was made inside `forward` on the default device, or
layers are kept in a plain list, which `model.to(device)` does not see.
## Fix
Move the one that stayed behind: `inputs.to(device)`, `model.to(device)`; make new tensors with
`device=x.device`; keep layers in `nn.ModuleList` and constants in `register_buffer`.
## When this is fine
A 0-dimensional CPU tensor may meet tensors on any device.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from torchmedic.model import Fix, Problem, Rule, fires, quiet
from torchmedic.observed import Failure
from torchmedic.remedies import held, raised

WORDS = ("device", "input type", "backend", "same device")
TWO = re.compile(r"Expected all tensors to be on the same device, but (?:found at least two "
                 r"devices, (?P<a>[\w:]+) and (?P<b>[\w:]+)!|got \w+ is on (?P<c>[\w:]+), "
                 r"different from other tensors on (?P<d>[\w:]+))")  # torch 1.5 to 2.14
TYPES = re.compile(r"Input type \((?P<input>[\w.:]+)\) and (?:weight|bias) type "
                   r"\((?P<weight>[\w.:]+)\) should be the same")
OLD = re.compile(r"Expected object of (?:backend|device type) (?P<a>\w+) but got (?:backend|device "
                 r"type) (?P<b>\w+)|Input and (?:hidden|parameter) tensors are not at the same "
                 r"device", re.IGNORECASE)  # torch 0.4 to 1.4


def in_failure(failure: Failure) -> Iterator[Problem]:
    told = _judged(failure.message)
    if told is not None:
        message, fix = told
        yield Problem(message, where=failure.place, evidence=(raised(failure), *held(failure)),
                      fix=fix)


def _judged(text: str) -> tuple[str, Fix] | None:
    if (found := TWO.search(text)) is not None:
        one, other = found["a"] or found["c"], found["b"] or found["d"]
        if "cpu" in (one, other):
            return f"tensors on {one} and {other} meet in one operation", Fix(
                "move the one on the CPU: `.to(device)`; tensors made in `forward` get "
                "`device=x.device`, constants `register_buffer`", "", "unsafe")
        return f"tensors on {one} and {other} meet in one operation", Fix(
            "use one device for the whole model, or move the tensor between its parts", "",
            "unsafe")
    if (found := TYPES.search(text)) is not None:
        inputs, weights = ("cuda" in found[name] for name in ("input", "weight"))
        if inputs == weights:
            return None  # another dtype, not another device
        if inputs:
            return "the input is on the GPU and the layer's weight on the CPU", Fix(
                "`model.to(device)` before training; layers in a plain list need `nn.ModuleList`",
                "", "unsafe")
        return "the layer's weight is on the GPU and its input on the CPU", Fix(
            "`inputs = inputs.to(device)` in the loop", "", "unsafe")
    if OLD.search(text):
        return "tensors on different devices meet in one operation", Fix(
            "`.to(device)` for model and batch", "", "unsafe")
    return None


def _log(message: str) -> str:
    return ('Traceback (most recent call last):\n  File "train.py", line 4, in step\n'
            f"    y = net(x)\nRuntimeError: {message}\n")


_SAME = "Expected all tensors to be on the same device, but found at least two devices, "

RULE = Rule(
    name="tensor-on-wrong-device", doc=__doc__, category="code", in_failure=in_failure,
    examples=(
        fires(_log(_SAME + "cuda:0 and cpu!"), "tensors on cuda:0 and cpu meet",
              "move the one on the CPU", kind="log", title="two devices"),
        fires(_log(_SAME + "cuda:2 and cuda:0!"), "tensors on cuda:2 and cuda:0 meet",
              "one device for the whole model", kind="log", title="two cards"),
        fires(_log("Input type (torch.cuda.FloatTensor) and weight type (torch.FloatTensor) should "
                   "be the same"), "the layer's weight on the CPU", "nn.ModuleList", kind="log",
              title="model not moved"),
        fires(_log("Input type (torch.FloatTensor) and weight type (torch.cuda.FloatTensor) should "
                   "be the same"), "its input on the CPU", kind="log", title="batch not moved"),
        quiet(_log("Input type (double) and bias type (float) should be the same"), kind="log",
              title="dtypes"),
    ),
)
