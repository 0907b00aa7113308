"""A model keeps layers or parameters where torch does not look for them.

## What you see
No error, but these layers do not learn, are not moved to the GPU and are missing in the
checkpoint; or `cannot assign module before Module.__init__() call`.
## Why
`nn.Module` registers what is assigned to an attribute of its own: a layer or an `nn.Parameter`. It
does not look into lists and dicts, and a plain tensor is only a tensor.
## Fix
`nn.ModuleList([...])`, `nn.ModuleDict({...})`, `nn.Parameter(tensor)`, `register_buffer`; first of
all `super().__init__()`.
## When this is fine
A list that hides a model on purpose, such as a teacher that must not be saved.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import lru_cache
from typing import TYPE_CHECKING

from torchmedic import changes
from torchmedic.model import Evidence, Fix, Problem, Rule, fires, quiet
from torchmedic.source.flow import Event, Trace, Value, trace_of
from torchmedic.source.flow.training import place
from torchmedic.source.flow.values import is_module
from torchmedic.trainings import module

if TYPE_CHECKING:
    from torchmedic.observed import Run
    from torchmedic.source.script import Script

BARE = ("ReLU", "Tanh", "Sigmoid", "Softmax", "Dropout", "Identity", "GELU", "Flatten")


def in_run(run: Run) -> Iterator[Problem]:
    for process in run.processes:
        for item in process.parameters.unregistered if process.parameters else ():
            if item.held or not item.graded:
                continue
            what = f"`{item.attribute}` of `{item.owner}`"
            if item.kind == "tensor":
                message = f"{what} gets gradients, but is a plain tensor: no optimizer trains it"
                cure = f"`self.{item.attribute} = nn.Parameter(…)`"
            else:
                message = (f"the {item.modules} modules in {what} get gradients, but are in a "
                           f"plain {item.kind}: no optimizer trains them")
                cure = f"`nn.Module{'Dict' if item.kind == 'dict' else 'List'}(…)`"
            yield Problem(message, evidence=(
                Evidence(f"`{item.name}` is not among the model's parameters", "parameters"),),
                where=process.updates[0].place if process.updates else None,
                fix=Fix(cure, "", "unsafe"))

METHODS = {
    "ModuleList": ("append", "extend", "insert", "parameters"),
    "ModuleDict": ("items", "keys", "values", "pop", "clear", "update", "parameters"),
}


def in_source(script: Script) -> Iterator[Problem]:
    trace = trace_of(script)
    seen = set()
    for event in trace.of("set"):
        owner, value = event.target, event.value
        if owner is None or value is None or owner.kind != "instance" or owner.data != "module":
            continue
        found = _problem(trace, event, owner, value)
        if found is not None and id(event.node) not in seen:
            seen.add(id(event.node))
            yield found


def _problem(trace: Trace, event: Event, owner: Value, value: Value) -> Problem | None:
    name = f"self.{event.more['name']}"
    if _before_init(trace, event, owner, value):
        return _said(trace, event, f"`{name}` is set before `super().__init__()`",
                     "`super().__init__()` as the first line of `__init__`",
                     _constructed(trace, event, owner))
    if value.kind in ("list", "dict") and _layers(value, owner) and not _registered(
            trace, event, value):
        kind = "ModuleList" if value.kind == "list" else "ModuleDict"
        return _said(trace, event, f"the layers in `{name}` are in a plain {value.kind}: the model "
                     "does not know them", f"`nn.{kind}(…)`", _wrapped(trace, event, kind))
    if value.kind == "tensor" and value.type == "created" and (
            "requires_grad" in value.kwargs and value.kwargs["requires_grad"].data is True) and (
            not any(name in ast.unparse(m.node) for m in trace.made
                    if m.kind == "optimizer" and isinstance(m.node, ast.Call))):
        return _said(trace, event, f"`{name}` is a plain tensor: the model does not know it as a "
                     "parameter", "`nn.Parameter(…)`", _parameter(trace, event))
    return None


def _wrapped(trace: Trace, event: Event, kind: str) -> changes.Edits:
    """Round a literal or a comprehension, by the name that the file has for `torch.nn`."""
    value = getattr(event.node, "value", None)
    literal = (ast.List, ast.ListComp) if kind == "ModuleList" else (ast.Dict,)
    torch_nn = changes.name_of(trace.script, "torch.nn")
    if event.file != trace.script.file or not isinstance(value, literal) or torch_nn is None or (
            _lacking(trace.script, event, kind)):
        return ()
    if isinstance(value, ast.Dict) and not all(
            isinstance(k, ast.Constant) and isinstance(k.value, str) and "." not in k.value
            and k.value not in dir(dict) for k in value.keys):
        return ()  # only such keys name modules
    return changes.wrapping(value, f"{torch_nn}.{kind}(", ")")


def _lacking(script: Script, event: Event, kind: str) -> bool:
    """The file calls a method of it that only the plain container has."""
    name = f"self.{event.more['name']}"
    return any(isinstance(n, ast.Attribute) and n.attr not in METHODS[kind]
               and ast.unparse(n.value) == name for n in ast.walk(script.tree))


def _parameter(trace: Trace, event: Event) -> changes.Edits:
    """Round the call that makes it, without its own `requires_grad`."""
    call, torch_nn = getattr(event.node, "value", None), changes.name_of(trace.script, "torch.nn")
    if event.file != trace.script.file or not isinstance(call, ast.Call) or torch_nn is None:
        return ()
    flag = next((k.value for k in call.keywords if k.arg == "requires_grad"), None)
    left_out = changes.without_argument(trace.script, call, flag)
    wrapped = changes.wrapping(call, f"{torch_nn}.Parameter(", ")")
    return (*wrapped, *left_out) if left_out else ()


def _constructed(trace: Trace, event: Event, owner: Value) -> changes.Edits:
    """Before all else where `__init__` calls no base constructor; else the call moves up."""
    holder = owner.owner.node if owner.owner is not None else None
    if event.file != trace.script.file or not isinstance(holder, ast.ClassDef):
        return ()
    init = next((n for n in holder.body if isinstance(n, ast.FunctionDef)
                 and n.name == "__init__"), None)
    if init is None:
        return ()
    late = next((n for n in init.body if isinstance(n, ast.Expr)
                 and ".__init__(" in ast.unparse(n)), None)
    if late is not None:
        return changes.moving(trace.script, late.lineno, event.line)
    if ".__init__(" in ast.unparse(init):
        return ()  # somewhere deeper
    return changes.at_start(trace.script, init, "super().__init__()")


def _said(trace: Trace, event: Event, message: str, cure: str,
          edits: changes.Edits = ()) -> Problem:
    return Problem(
        message, where=place(trace.script.file, event), confidence="likely",
        evidence=(Evidence("`parameters()`, `to()` and `state_dict()` leave it out", "source"),),
        fix=Fix(cure, "", "unsafe", edits=edits))


def _before_init(trace: Trace, event: Event, owner: Value, value: Value) -> bool:
    """In a class that derives from `nn.Module` directly, before the base's constructor."""
    made = is_module(value) and (value.kind == "instance" or value.type.startswith("torch.nn."))
    if event.function != "__init__" or not (made or value.type == "parameter"):
        return False  # plain values may come before
    bases = [b.type for b in owner.owner.items] if owner.owner else []
    if bases not in (["torch.nn.Module"], ["torch.nn.modules.Module"]):
        return False
    calls = [f for f in event.frames if f.kind == "call" and f.value is owner]
    if len(calls) != 1 or any(line < event.line for line in _base_calls(calls[0].node)):
        return False
    return not any(e.target is owner for e in trace.before(event, "super"))


@lru_cache(maxsize=1024)
def _base_calls(node: ast.AST | None) -> tuple[int, ...]:
    """The lines on which a function names some `__init__`, not in what it defines itself."""
    left: list[ast.AST] = list(getattr(node, "body", []))
    found = []
    while left:
        part = left.pop()
        if isinstance(part, (ast.FunctionDef, ast.ClassDef)):
            continue
        if isinstance(part, ast.Attribute) and part.attr == "__init__":
            found.append(part.lineno)
        left.extend(ast.iter_child_nodes(part))
    return tuple(found)


def _layers(value: Value, owner: Value) -> bool:
    """Layers with parameters that were made for this list."""
    held = [o for i in (*value.items, *value.attrs.values()) for o in i.options()]
    made = [o for o in held if is_module(o) and o.kind != "criterion" and o.name not in BARE
            and (o.kind == "instance" or o.type.startswith("torch.nn."))]
    if any(o is owner for o in held):
        return False  # no module can hold itself: the list is for something else
    return bool(made) and len(made) == len(held) and all(_inside(o, value) for o in made)


def _inside(layer: Value, value: Value) -> bool:
    first, last = getattr(value.node, "lineno", 0), getattr(value.node, "end_lineno", 0)
    empty = isinstance(value.node, (ast.List, ast.Dict)) and first == last
    return bool(first <= getattr(layer.node, "lineno", 0) <= last) or (
        empty and value.data == "comprehension")


def _registered(trace: Trace, event: Event, value: Value) -> bool:
    """Some other line gives the same layers to the model, or puts a container in its place."""
    held = {o.id for i in (*value.items, *value.attrs.values()) for o in i.options()}
    for other in trace.events:
        if other.kind == "register" and other.target is event.target:
            return True
        if other is not event and other.kind in ("set", "make", "opaque"):
            new = other.value if other.kind != "make" else other.target
            again = other.kind == "set" and other.more["name"] == event.more["name"] and (
                other.target is event.target)
            if again or (new is not None and new.kind != value.kind and any(
                    o.id in held for i in new.items for o in i.options())):
                return True
    return False


_LIST = "self.layers = [nn.Linear(8, 8) for _ in range(3)]"
_LOOP = "for layer in self.layers:\n    x = layer(x)\nreturn x"
_NO_INIT = module("return self.layer(x)").replace("        super().__init__()\n", "")
_TENSOR = "self.scale = torch.ones(8, requires_grad=True)"

_SIZED = """
from torch import nn


class Inner(nn.Module):
    def __init__(self, width):
        self.width = width
        super().__init__()
        self.layer = nn.Linear(width, 3)


class Outer(nn.Module):
    def __init__(self, d_model):
        super().__init__()
        self.inner = Inner(d_model)
"""

RULE = Rule(
    name="module-not-registered", doc=__doc__, category="code", severity="warning",
    in_run=in_run, in_source=in_source, examples=(
        fires(module(_LOOP, init=_LIST), "are in a plain list", "`nn.ModuleList(…)`",
              kind="source", line="self.layers = [", title="list"),
        fires(module("return self.layers['a'](x)", init="self.layers = {'a': nn.Linear(8, 3)}"),
              "`nn.ModuleDict(…)`", kind="source", line="self.layers = {", title="dict"),
        fires(module("return self.scale * x", init=_TENSOR), "`nn.Parameter(…)`", kind="source",
              line="self.scale", title="tensor"),
        fires(_NO_INIT, "before `super().__init__()`", kind="source", line="self.layer =",
              title="no init"),
        quiet(module(_LOOP, init=_LIST.replace("[nn", "nn.ModuleList([nn").replace("]", "])")),
              kind="source", title="module list"),
        quiet(module(_LOOP, init=_LIST + "\nself.all = nn.ModuleList(self.layers)"),
              kind="source", title="registered too"),
        quiet(module(_LOOP, init=_LIST.replace("self.layers", "layers")
                     + "\nself.layers = nn.Sequential(*layers)"), kind="source",
              title="local list"),
        quiet(module(_LOOP, init=_LIST + "\nfor i, layer in enumerate(self.layers):\n"
                     "    self.add_module(str(i), layer)"), kind="source", title="added"),
        quiet(module("return self.steps[0](x)", init="self.body = nn.Linear(8, 3)\n"
                     "self.steps = []\nself.steps.append(nn.Sequential(self.body))\n"
                     "self.steps.append(self)"), kind="source", title="with itself in it"),
        quiet(_SIZED, kind="source", title="a plain value first"),
        quiet(module("return self.scale * x", init=_TENSOR
                     + "\nself.optimizer = torch.optim.Adam([self.scale])"), kind="source",
              title="with an optimizer of its own"),
        quiet(module("return self.teacher[0](x)", init="self.teacher = [torch.load('t.pt')]"),
              kind="source", title="hidden"),
    ),
)
