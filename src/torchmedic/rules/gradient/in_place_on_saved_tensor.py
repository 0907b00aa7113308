"""A tensor that backward needs was changed in place after the forward pass used it.

## What you see
`RuntimeError: one of the variables needed for gradient computation has been modified by an inplace
operation`.
## Why
Many operations keep their input or output for backward: `sigmoid`, `exp`, `relu` their output,
multiplication both inputs. `x += y`, `x[0] = …`, `x.add_()` and `inplace=True` overwrite it. An
`optimizer.step()` between forward and backward overwrites the parameters in the same way.
## Fix
Write the operation out of place: `x = x + y`. With two losses, call both `backward()` before the
first `step()`.
## When this is fine
Never: the gradient would be wrong, and torch refuses.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

from torchmedic import changes
from torchmedic.model import Evidence, Fix, Problem, Rule, fires, quiet
from torchmedic.remedies import raised
from torchmedic.shapes import numbers, written
from torchmedic.source.flow import Event, trace_of
from torchmedic.source.flow.training import function_of, place
from torchmedic.source.flow.values import is_module
from torchmedic.trainings import module
from torchmedic.wording import plural

if TYPE_CHECKING:
    from torchmedic.observed import Failure
    from torchmedic.source.flow import Value
    from torchmedic.source.script import Script

WORDS = ("inplace", "in-place", "graph interior")
# torch 1.0 to 2.14; the part in brackets from 1.2 on
CHANGED = re.compile(
    r"one of the variables needed for gradient computation has been modified by an inplace "
    r"operation(?:: \[[\w.]*?(?P<type>\w*Tensor) \[(?P<shape>[\d, ]*)\]\](?:, which is output "
    r"(?P<output>\d+) of (?P<made>\w+))?,? is at version (?P<now>\d+); expected version "
    r"(?P<then>\d+))?")


LEAF = re.compile(r"a (?P<view>view of a )?leaf Variable that requires grad .*in-place operation"
                  r"|leaf variable has been moved into the graph interior")  # torch 0.4 to 2.14
VIEW = re.compile(r"Output \d+ of (?P<made>\w+) is a view .*modified inplace"
                  r"|view was created .*modified inplace", re.DOTALL)
RECORDED = re.compile(r"requires_grad|grad_enabled|inference_mode|\btraining\b")
SAVED = ("sigmoid", "tanh", "softmax", "log_softmax", "relu")
KEPT = ("exp", "sqrt", "rsqrt", "reciprocal")
"""Operations that keep their output for backward."""


def in_source(script: Script) -> Iterator[Problem]:
    seen = set()
    for event in trace_of(script).of("keep", "inplace", "item"):
        old, node = event.target, event.node
        if old is None or old.kind != "tensor" or old.graph is not True or id(node) in seen:
            continue
        operation = old.act if old.act in SAVED else old.type if old.type in KEPT else ""
        direct = old.type in KEPT or (
            getattr(old.node, "lineno", 0) == getattr(old.act_node, "lineno", 1))
        if operation and direct and (event.kind != "keep" or isinstance(
                node, ast.AugAssign)) and _trained(event) and _sure(event, old, operation) and (
                not _asks(script, event)):
            seen.add(id(node))
            name = event.more.get("name") or ast.unparse(_changed(node))
            yield Problem(
                f"`{ast.unparse(node)}` changes a tensor that backward needs",
                where=place(script.file, event), confidence="likely",
                evidence=(Evidence(f"`{name}` is the output of `{operation}`, which keeps it",
                                   "source"),),
                fix=Fix(f"write it out of place: `{name} = {name} + …`" if event.kind == "keep"
                        else f"work on `{name}.clone()`, or write it out of place", "", "unsafe",
                        edits=_edits(script, event)))


def _edits(script: Script, event: Event) -> changes.Edits:
    """`h += y` as `h = h + y`, and `h.mul_(y)` as `h = h.mul(y)`."""
    statement = script.statement_at(event.line)
    node = statement.node if statement is not None else None
    if event.file != script.file:
        return ()
    if isinstance(node, ast.AugAssign) and isinstance(node.target, ast.Name):
        return changes.out_of_place(script, node)
    call = node.value if isinstance(node, ast.Expr) else None
    if call is not event.node or not isinstance(call, ast.Call) or not isinstance(
            call.func, ast.Attribute) or not isinstance(call.func.value, ast.Name):
        return ()
    name, method = call.func.value.id, call.func.attr
    if not method.endswith("_") or method.endswith("__"):
        return ()
    return (*changes.wrapping(call.func.value, f"{name} = ", "")[:1],
            *changes.renaming(call, method, method.rstrip("_")))


def _trained(event: Event) -> bool:
    """Part of a model, not of what is done with its output afterwards."""
    call = next((f for f in reversed(event.frames) if f.kind == "call"), None)
    return call is None or is_module(call.value)


def _sure(event: Event, old: Value, operation: str) -> bool:
    """No condition of the function decides which operation made it."""
    made = old.act_node if old.act in SAVED else old.node
    called = ast.unparse(made.func).lower() if isinstance(made, ast.Call) else operation
    call = next((at for at in range(len(event.frames) - 1, -1, -1)
                 if event.frames[at].kind == "call"), -1)
    return operation in called or not any(f.kind == "branch" for f in event.frames[call + 1:])


def _asks(script: Script, event: Event) -> bool:
    """The function has a way of its own for when gradients are recorded."""
    function = function_of(script, event)
    return function is not None and any(
        isinstance(n, (ast.If, ast.IfExp)) and RECORDED.search(ast.unparse(n.test))
        for n in ast.walk(function.node))


def _changed(node: ast.AST) -> ast.AST:
    """What is changed: `h` in `h[0] = 1`, `h *= 2` and `h.mul_(2)`."""
    if isinstance(node, ast.Assign):
        target = node.targets[0]
        return target.value if isinstance(target, ast.Subscript) else target
    if isinstance(node, ast.AugAssign):
        return node.target
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
        return node.func.value
    return node


def in_failure(failure: Failure) -> Iterator[Problem]:
    match = CHANGED.search(failure.message)
    if match is None:
        yield from _refused(failure)
        return
    shape = f" {written(numbers(match['shape']))}" if match["shape"] is not None else ""
    made = match["made"] or ""
    parameter = made in ("AsStridedBackward0", "TBackward", "TBackward0")
    changes = int(match["now"]) - int(match["then"]) if match["now"] else 0
    versions = (Evidence(f"it was changed {plural(changes, 'time')} after the forward pass used "
                         "it", "exception"),) if changes else ()
    now = (Evidence(f"torch now names it the output of `{made}`: what made it, or the in-place "
                    "operation itself", "exception"),) if made else ()
    yield Problem(f"a tensor{shape} that backward needs was changed in place", where=failure.place,
                  evidence=(raised(failure), *versions, *now), fix=_fix(parameter))


def _refused(failure: Failure) -> Iterator[Problem]:
    """What torch refuses at once: a parameter, or one of several views."""
    if LEAF.search(failure.message):
        yield Problem("a parameter is changed in place while gradients are recorded",
                      where=failure.place, evidence=(raised(failure),), fix=Fix(
                          "under `torch.no_grad()` for an initialisation or update by hand; on a "
                          "copy (`x.clone()`) where it is part of the forward pass", "", "unsafe"))
    elif VIEW.search(failure.message):
        yield Problem("a view that an operation gave is changed in place", where=failure.place,
                      evidence=(raised(failure),), fix=Fix(
                          "write the change out of place: `x = x + y`, or `x.clone()` first", "",
                          "unsafe"))


def _fix(parameter: bool) -> Fix:
    find = ("`torch.autograd.set_detect_anomaly(True)` names the line of the forward pass that "
            "made it")
    if parameter:
        return Fix("call every `backward()` before the first `optimizer.step()`; elsewhere write "
                   "`x = x + y` in place of `x += y`", find, "unsafe")
    return Fix("write the change out of place: `x = x + y` in place of `x += y`, no "
               "`inplace=True` on it", find, "unsafe")


_PROGRAM = """
import torch
torch.set_num_threads(1)
layer = torch.nn.Linear(3, 3)
x = torch.zeros(2, 3)
gate = torch.sigmoid(layer(x))
%s
gate.sum().backward()
"""

_CHOICE = """
def best(scores):
    chances = torch.sigmoid(scores)
    chances[chances < 0.5] = 0
    return chances.topk(2)
"""

RULE = Rule(
    name="in-place-on-saved-tensor", doc=__doc__, category="code", in_failure=in_failure,
    in_source=in_source, examples=(
        fires(module("g = torch.sigmoid(self.layer(x))\ng += 1\nreturn g"),
              "`g += 1` changes a tensor", kind="source", line="g += 1", title="in source"),
        quiet(module("g = torch.sigmoid(self.layer(x))\ng = g + 1\nreturn g"), kind="source",
              title="out of place in source"),
        quiet(module("g = torch.sigmoid(self.layer(x))\nif not g.requires_grad:\n"
                     "    g.mul_(2)\nreturn g"), kind="source", title="no gradients there"),
        quiet(module("return best(self.layer(x))", more=_CHOICE), kind="source",
              title="what is done with an output"),
        quiet(module("g = self.act(self.layer(x))\nif self.gate:\n    g.mul_(x[:, :3])\nreturn g",
                     init="self.layer, self.act = nn.Linear(8, 3), nn.Sigmoid()\n"
                     "self.gate = None"), kind="source", title="an activation of several"),
        quiet(module("g = self.layer(x)\ng += x.sum()\nreturn g"), kind="source",
              title="output that nothing keeps"),
        fires(_PROGRAM % "gate += x", "a tensor (2, 3) that backward needs was changed in place",
              "it was changed 1 time", "`x = x + y` in place of `x += y`", line="backward()",
              title="gate"),
        fires("import torch\nw = torch.ones(3, requires_grad=True)\nw += 1\n",
              "a parameter is changed in place", "torch.no_grad()", line="w += 1", title="leaf"),
        fires("RuntimeError: Output 0 of SplitBackward is a view and is being modified inplace.\n",
              "a view that an operation gave", kind="log", title="one of several views"),
        quiet(_PROGRAM % "gate = gate + x", title="out of place"),
    ),
)
