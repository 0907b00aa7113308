"""A model makes a tensor on the CPU and computes with it, while its inputs are on the GPU.

## What you see
`Expected all tensors to be on the same device` on a GPU; nothing at all on a CPU.
## Why
`torch.zeros(…)` without `device` makes a tensor on the default device. `model.to(device)` moves
parameters and buffers only, not tensors that are plain attributes.
## Fix
`torch.zeros(…, device=x.device)` in `forward`; `self.register_buffer("noise", …)` for what is kept.
## When this is fine
A program that only runs on the CPU, or that sets the default device.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

from torchmedic import changes
from torchmedic.defaultdevice import made_on
from torchmedic.model import Evidence, Fix, Problem, Rule, fires, quiet
from torchmedic.remedies import raised
from torchmedic.source.flow import Event, Trace, Value, trace_of
from torchmedic.source.flow.training import node_place, place
from torchmedic.source.paths import FUNCTIONS
from torchmedic.trainings import module

if TYPE_CHECKING:
    from torchmedic.observed import Failure
    from torchmedic.source.script import Script

MATHS = (ast.Add, ast.Sub, ast.Mult, ast.Div, ast.MatMult)

WORDS = ("on the same device",)


def in_failure(failure: Failure) -> Iterator[Problem]:
    call = made_on(failure)
    if call is not None:
        yield Problem(
            f"`{call}` makes a tensor on the CPU, and this line computes with it and one on the "
            "GPU", where=failure.place, evidence=(raised(failure),), severity="error",
            confidence="likely", fix=Fix(f"`{call}(…, device=x.device)`", "", "unsafe"))


def in_source(script: Script) -> Iterator[Problem]:
    text = "\n".join(script.lines)
    if not any(word in text for word in (".to(device", ".cuda(", ".to(self.device", ".to(args.d")):
        return
    trace = trace_of(script)
    seen: set[int] = set()
    for event in trace.of("set"):
        owner, value = event.target, event.value
        if owner is None or value is None or owner.data != "module" or owner.owner is None:
            continue
        if value.kind == "tensor" and value.type == "created" and value.shape != () and (
                "device" not in value.kwargs and event.function == "__init__"):
            line = _used(owner.owner.node, event.more["name"])
            if line and id(event.node) not in seen and not _trained(value):
                seen.add(id(event.node))
                yield _kept(script, event, line)
    yield from _made(script, trace, seen)


def _trained(value: Value) -> bool:
    return "requires_grad" in value.kwargs


def _used(holder: ast.AST | None, name: str) -> int | None:
    """The line where `forward` computes with the attribute; None where the class moves it."""
    if not isinstance(holder, ast.ClassDef):
        return None
    text = ast.unparse(holder)
    if "_apply" in text or f"self.{name} = self.{name}.to" in text:
        return None
    for method in holder.body:
        if isinstance(method, FUNCTIONS) and method.name != "__init__":
            for node in ast.walk(method):
                if isinstance(node, ast.BinOp) and isinstance(node.op, MATHS) and any(
                        ast.unparse(side) == f"self.{name}" for side in (node.left, node.right)):
                    return node.lineno
    return None


def _kept(script: Script, event: Event, line: int) -> Problem:
    name = event.more["name"]
    return Problem(
        f"`self.{name}` is a plain tensor: `model.to(device)` leaves it on the CPU",
        where=place(script.file, event), confidence="likely",
        evidence=(Evidence(f"line {line} computes with it", "source"),),
        fix=Fix(f"`self.register_buffer(\"{name}\", …)`", "", "unsafe",
                edits=_buffer(script, event, name)))


def _buffer(script: Script, event: Event, name: str) -> changes.Edits:
    """It moves with the model; checkpoints stay as they are."""
    node = event.node
    function = script.function_at(event.line)
    if event.file != script.file or not isinstance(node, ast.Assign) or len(
            node.targets) > 1 or function is None:
        return ()
    if "requires_grad" in ast.unparse(node.value):
        return ()  # a parameter is no buffer
    made = any(isinstance(n, ast.Attribute) and n.attr == "__init__" and n.lineno < node.lineno
               for n in ast.walk(function.node))
    start = changes.replacing(node, "")[:1]
    value = changes.wrapping(node.value, f'self.register_buffer("{name}", ', ", persistent=False)")
    if not made or not start or len(value) != 2 or node.lineno != node.value.lineno:
        return ()
    head = replace(value[0], line=start[0].line, column=start[0].column)
    return (head, value[1])


def _here(event: Event, made: Value) -> bool:
    """It is made in this very call of `forward`."""
    body = next(f.node for f in reversed(event.frames) if f.kind == "call")
    line = getattr(made.node, "lineno", 0)
    return bool(getattr(body, "lineno", 0) <= line <= getattr(body, "end_lineno", 0))


def _made(script: Script, trace: Trace, seen: set[int]) -> Iterator[Problem]:
    """Tensors made in `forward` and added to, or multiplied with, something of the model."""
    for event in trace.of("meet"):
        made, other = event.target, event.value
        if event.function != "forward" or made is None or other is None or not isinstance(
                made.node, ast.Call) or id(made.node) in seen or "device" in made.kwargs:
            continue
        if other.graph is not True and other.device != "moved":
            continue
        if made.shape is None and ast.unparse(made.node.func).endswith("tensor"):
            continue  # it may have no axes
        kept = next((e for e in trace.of("set") if e.value is made), None)
        if kept is not None and id(kept.node) not in seen:
            seen.add(id(kept.node))
            yield _kept(script, kept, event.line)
        elif kept is None and _here(event, made):
            seen.add(id(made.node))
            yield Problem(
                f"`{ast.unparse(made.node.func)}` makes a tensor on the default device, and "
                "the model computes with it", where=node_place(script.file, made.node),
                confidence="likely",
                evidence=(Evidence(f"line {event.line} computes with it", "source"),),
                fix=Fix("`device=x.device` for the new tensor", "", "safe",
                        edits=_placed(script, event, made)))


def _placed(script: Script, event: Event, made: Value) -> changes.Edits:
    """On the device of the tensor that it meets, where that has a name when it is made."""
    kept, line = changes.assigned(script, made.node), getattr(made.node, "lineno", 0)
    function = script.function_at(line)
    if event.file != script.file or function is None or (made.file or script.file) != script.file:
        return ()
    known = {a.arg for a in function.node.args.args[1:]} | {
        n.id for n in ast.walk(function.node) if isinstance(n, ast.Name)
        and isinstance(n.ctx, ast.Store) and n.lineno < line}
    for node in ast.walk(function.node):
        if not isinstance(node, ast.BinOp) or node.lineno != event.line:
            continue
        for one, other in ((node.left, node.right), (node.right, node.left)):
            mine = one is made.node or (kept is not None and ast.unparse(one) == kept)
            if mine and isinstance(other, ast.Name) and other.id in known:
                return changes.with_keyword(script, made.node, "device", f"{other.id}.device")
    return ()


_MOVED = "device = torch.device('cuda')\nmodel = Net().to(device)\nmodel(torch.randn(4, 8))\n"
_INIT = "self.layer = nn.Linear(8, 3)\nself.noise = torch.randn(4, 3)"
_FORWARD = "out = self.layer(x)\nout = out + torch.randn(4, 3%s)\nreturn out"

RULE = Rule(
    name="tensor-created-on-default-device", doc=__doc__, category="code", severity="warning",
    in_failure=in_failure, in_source=in_source, examples=(
        fires("Traceback (most recent call last):\n  File \"net.py\", line 9, in forward\n    "
              "return self.layer(x) + torch.zeros(4, 3)\nRuntimeError: Expected all tensors to be "
              "on the same device, but found at least two devices, cuda:0 and cpu!\n",
              "`torch.zeros` makes a tensor on the CPU", "device=x.device", kind="log",
              title="log"),
        fires(module("return self.layer(x) + self.noise", init=_INIT, more=_MOVED),
              "`self.noise` is a plain tensor", kind="source", line="self.noise = ",
              title="attribute"),
        fires(module(_FORWARD % "", more=_MOVED), "makes a tensor on the default device",
              kind="source", line="torch.randn(4, 3)", title="in forward"),
        quiet(module(_FORWARD % ", device=x.device", more=_MOVED), kind="source", title="device"),
        quiet(module(_FORWARD % ""), kind="source", title="CPU only"),
        quiet(module("return self.layer(x) + self.noise.to(x.device)", init=_INIT, more=_MOVED),
              kind="source", title="moved when used"),
        quiet(module("return self.layer(x) + self.noise", more=_MOVED, init=_INIT.replace(
              "self.noise = torch.randn(4, 3)",
              "self.register_buffer('noise', torch.randn(4, 3))")), kind="source", title="buffer"),
    ),
)
