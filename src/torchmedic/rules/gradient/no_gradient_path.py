"""Backward starts from a tensor that no parameter takes part in.

## What you see
`RuntimeError: element 0 of tensors does not require grad and does not have a grad_fn`; with
mixed precision `AssertionError: No inf checks were recorded for this optimizer`.
## Why
The loss has no graph: it was computed under `torch.no_grad()`, from a tensor that was detached or
made anew (`torch.tensor(x)`, `.item()`, `.numpy()`, `argmax`), or every parameter is frozen. With
reentrant checkpointing the graph is lost when no input of the block requires a gradient.
## Fix
Follow the loss back to where the graph ends, and keep it: no `detach`, no `no_grad` around the
training pass, at least one parameter with `requires_grad=True`.
## When this is fine
Never: there is nothing to compute.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

from torchmedic.model import Evidence, Fix, Problem, Rule, fires, quiet
from torchmedic.remedies import raised

if TYPE_CHECKING:
    from torchmedic.observed import Failure

WORDS = ("require grad", "inf checks", "used in the graph")
NO_GRAPH = re.compile(r"element \d+ of (?:tensors|variables)(?: tuple)? does not require grad")
"""torch 0.2 to 2.14"""
NO_GRADIENTS = re.compile(r"No inf checks were recorded for this optimizer")
"""GradScaler, torch 1.6 to 2.14"""

UNUSED = re.compile(r"One of the differentiated (?:Tensors|Variables) (?:appears to not have been "
                    r"used in the graph|does not require grad)")
"""torch.autograd.grad, torch 0.3 to 2.14"""


def in_failure(failure: Failure) -> Iterator[Problem]:
    if UNUSED.search(failure.message):
        yield Problem(
            "a gradient is asked for with respect to a tensor that takes no part in the output",
            where=failure.place, evidence=(raised(failure),),
            fix=Fix("let the output depend on it: it may be a copy, detached, or made after the "
                    "forward pass", "`allow_unused=True` gives None where that is meant"))
    if NO_GRADIENTS.search(failure.message):
        yield Problem(
            "no parameter of this optimizer has a gradient: they take no part in the loss that was "
            "scaled", where=failure.place, evidence=(raised(failure),),
            fix=Fix("let the optimizer's parameters take part in that loss: look for `no_grad`, "
                    "`detach`, or an optimizer made of another model's parameters",
                    "`scaler.scale(loss).backward()` comes before `scaler.step(optimizer)`"))
    if not NO_GRAPH.search(failure.message):
        return
    checkpoint = any("checkpoint" in frame.file for frame in failure.frames if not frame.user)
    fix = Fix("`use_reentrant=False` for the checkpoint, or `requires_grad_()` on its input", "",
              "unsafe") if checkpoint else Fix(
        "keep the graph from the parameters to the loss: look for `no_grad`, `detach`, `.item()`, "
        "`torch.tensor(…)` and frozen parameters on the way")
    yield Problem("backward starts from a tensor that no parameter takes part in",
                  where=failure.place, evidence=(raised(failure), *_without(failure)), fix=fix)


def _without(failure: Failure) -> tuple[Evidence, ...]:
    frame = failure.user_frame
    names = [f"`{name}`" for name, value in frame.values.items()
             if value.kind == "tensor" and value.requires_grad is False] if frame else []
    text = f"no graph: {', '.join(names[:6])}"
    return (Evidence(text, "frame"),) if names else ()


_PROGRAM = """
import torch
torch.set_num_threads(1)
net = torch.nn.Linear(3, 1)
loss = net(torch.zeros(2, 3)).mean()%s
loss.backward()
"""

RULE = Rule(
    name="no-gradient-path", doc=__doc__, category="code", in_failure=in_failure,
    examples=(
        fires(_PROGRAM % ".detach()", "backward starts from a tensor that no parameter takes part",
              "no graph: `loss`", line="loss.backward()", title="detached"),
        fires("Traceback (most recent call last):\n  File \"fit.py\", line 9, in step\n"
              "    scaler.step(optimizer)\nAssertionError: No inf checks were recorded for this "
              "optimizer.\n", "no parameter of this optimizer has a gradient", kind="log",
              title="scaler"),
        fires("RuntimeError: One of the differentiated Tensors appears to not have been used in "
              "the graph. Set allow_unused=True if this is the desired behavior.\n",
              "takes no part in the output", kind="log", title="grad"),
        quiet(_PROGRAM % "", title="graph kept"),
    ),
)
