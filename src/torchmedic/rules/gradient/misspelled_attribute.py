"""An attribute or a method that torch looks for is misspelled, so setting it does nothing.

## What you see
No error: parameters that were to be frozen go on changing, or `__init__` is never called.
## Why
Python makes a new attribute of every name. `module.requires_grad = False` is such a name too: a
module has no such attribute, only its parameters and `requires_grad_` have.
## Fix
`p.requires_grad = False` for each parameter, or `module.requires_grad_(False)`; `__init__`,
`forward`.
## When this is fine
An attribute of your own with such a name.
"""

from __future__ import annotations

import ast
import difflib
from collections.abc import Iterator
from typing import TYPE_CHECKING

from torchmedic import changes
from torchmedic.model import Edit, Fix, Place, Problem, Rule, fires, quiet
from torchmedic.source.flow import trace_of
from torchmedic.source.flow.training import node_place, place
from torchmedic.source.flow.values import is_module
from torchmedic.source.paths import FUNCTIONS
from torchmedic.trainings import module

if TYPE_CHECKING:
    from torchmedic.source.flow import Event, Value
    from torchmedic.source.script import Script

METHODS = ("__init__", "forward", "__getitem__", "__len__")
SPECIAL = frozenset(name for kind in (object, int, list, dict, set) for name in dir(kind))
KNOWN = SPECIAL | {"__enter__", "__exit__", "__getitems__", "__next__", "forwards", "_forward",
                   "forward_"}


def in_source(script: Script) -> Iterator[Problem]:
    trace = trace_of(script)
    for event in trace.of("set"):
        name = event.more["name"]
        if name in ("require_grad", "requires_grads", "required_grad", "requiresgrad",
                    "require_grads", "requires_gradient"):
            edits = changes.renaming(event.node, name, "requires_grad")
            yield _problem(place(script.file, event), name, "requires_grad",
                           edits if event.file == script.file else ())
        elif name == "requires_grad" and is_module(event.target) and _is_false(event.node):
            yield Problem(
                "`requires_grad` of a module freezes nothing: only parameters have it",
                where=place(script.file, event),
                fix=Fix("`.requires_grad_(False)` on the module", "", "unsafe",
                        edits=_frozen(script, event)))
    for made in trace.classes:
        if made.data in ("module", "dataset") and isinstance(made.node, ast.ClassDef):
            for name, node in _close(made.node):
                yield _problem(node_place(made.file, node), node.name, name,
                               _renamed(script, made, node, name))


def _frozen(script: Script, event: Event) -> changes.Edits:
    node = event.node
    if event.file != script.file or not isinstance(node, ast.Assign) or len(node.targets) > 1:
        return ()
    owner = ast.get_source_segment("\n".join(script.lines), node.targets[0])
    return changes.replacing(node, f"{owner}_(False)") if owner and "\n" not in owner else ()


def _renamed(script: Script, made: Value, node: ast.FunctionDef | ast.AsyncFunctionDef,
             name: str) -> changes.Edits:
    """The name in the `def` line."""
    head = script.line(node.lineno)
    start = head.find(node.name, node.col_offset)
    called = any(isinstance(n, ast.Attribute) and n.attr == node.name
                 for n in ast.walk(script.tree))
    if made.file != script.file or start < 0 or not head.isascii() or called:
        return ()  # what calls it by this name would break
    return (Edit(node.lineno, start, node.lineno, start + len(node.name), name),)


def _is_false(node: ast.AST) -> bool:
    value = getattr(node, "value", None)
    return isinstance(value, ast.Constant) and value.value is False


def _close(holder: ast.ClassDef) -> Iterator[tuple[str, ast.FunctionDef | ast.AsyncFunctionDef]]:
    """Methods whose name is a slip away from one that the class lacks."""
    own = {node.name for node in holder.body if isinstance(node, FUNCTIONS)}
    for node in holder.body:
        if not isinstance(node, FUNCTIONS) or node.name in METHODS or node.name in KNOWN:
            continue
        near = difflib.get_close_matches(node.name, METHODS, 1, cutoff=0.86)
        slip = near and abs(len(node.name) - len(near[0])) <= 1
        if near and near[0] not in own and (slip or near[0] == "__init__"):
            yield near[0], node


def _problem(where: Place, found: str, wanted: str, edits: changes.Edits = ()) -> Problem:
    return Problem(f"`{found}` is no name that torch knows; `{wanted}` is", where=where,
                   confidence="certain", fix=Fix(f"`{wanted}`", "", "unsafe", edits=edits))


_FREEZE = "for p in model.layer.parameters():\n    p.%s = False\n"

_ORDERED = """

class Ordered(nn.Module):
    def __le__(self, other):
        return True

    def __setstate__(self, state):
        pass
"""

RULE = Rule(
    name="misspelled-attribute", doc=__doc__, category="code", severity="warning",
    in_source=in_source, examples=(
        fires(module("return self.layer(x)", more=_FREEZE % "require_grad"),
              "`require_grad` is no name that torch knows", kind="source", line="p.require_grad",
              title="parameter"),
        fires(module("return self.layer(x)", more="model.layer.requires_grad = False\n"),
              "freezes nothing", kind="source", line="requires_grad = False", title="module"),
        fires(module("return self.layer(x)").replace("__init__(self)", "___init__(self)"),
              "`__init__` is", kind="source", line="def ___init__", title="constructor"),
        fires(module("return self.layer(x)").replace("def forward", "def foward"),
              kind="source", line="def foward", title="forward"),
        quiet("from torch.utils.data import Dataset\n\n\nclass Data(Dataset):\n"
              "    def __getitems__(self, numbers):\n        return numbers\n", kind="source",
              title="several at once"),
        quiet(module("return self.layer(x)", more=_ORDERED), kind="source",
              title="comparison of models"),
        quiet(module("return self.layer(x)", more=_FREEZE % "requires_grad"), kind="source",
              title="right"),
        quiet(module("return self.layer(x)", more="model.layer.requires_grad_(False)\n"),
              kind="source", title="method"),
    ),
)
