"""A model's class gives one of `nn.Module`'s own names another meaning.

## What you see
`TypeError: train() missing 1 required positional argument` from `model.eval()`, or another torch
call that fails far from its cause.
## Why
`nn.Module` calls its own methods: `eval()` calls `train(False)`, `to()` calls `_apply`,
optimizers call `parameters()`. A method or an attribute of the same name takes their place.
## Fix
Give the method or the attribute another name, such as `fit` or `train_batch`.
## When this is fine
A method that takes the same arguments and calls `super()`.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

from torchmedic.model import Fix, Place, Problem, Rule, fires, quiet
from torchmedic.remedies import raised
from torchmedic.source.flow import Event, Value, trace_of
from torchmedic.source.paths import FUNCTIONS
from torchmedic.trainings import module

if TYPE_CHECKING:
    from torchmedic.observed import Failure
    from torchmedic.source.script import Script

ALLOWED = {"train": 1, "eval": 0, "parameters": 1, "modules": 0, "children": 0, "buffers": 1,
           "named_parameters": 0, "zero_grad": 1, "apply": 1}
"""Method of `nn.Module` → how many arguments torch itself passes at most."""

WORDS = ("object is not callable",)
NOT_CALLABLE = re.compile(r"'(?P<type>\w+)' object is not callable")
CALLED = re.compile(r"\.(?P<name>" + "|".join(ALLOWED) + r"|forward|to|cuda|state_dict)\(")


def in_failure(failure: Failure) -> Iterator[Problem]:
    """An attribute of the method's name: what is called is a number, a tensor, a list."""
    frame = failure.frames[-1] if failure.frames else None
    told = NOT_CALLABLE.search(failure.message)
    called = CALLED.findall((frame.text if frame else None) or "")
    if told is None or len(called) != 1 or told["type"] in ("NoneType", "module"):
        return
    yield Problem(
        f"`{called[0]}` of the model is a {told['type']} and no method: an attribute has taken its "
        "name", where=failure.place, evidence=(raised(failure),), confidence="likely",
        severity="error", fix=Fix(f"give the attribute `self.{called[0]} = …` another name", "",
                                  "unsafe"))


def in_source(script: Script) -> Iterator[Problem]:
    trace = trace_of(script)
    for made in trace.classes:
        if made.data == "module" and isinstance(made.node, ast.ClassDef):
            own = {n.name for n in made.node.body if isinstance(n, FUNCTIONS)}
            for node in made.node.body:
                if isinstance(node, FUNCTIONS) and _refuses(node) and not (
                        node.name == "train" and "eval" in own):  # it has switches of its own
                    yield _problem(made, node, node.name, "method")
    for event in trace.of("set"):
        owner, name = event.target, event.more["name"]
        plain = event.value is not None and (
            event.value.kind in ("const", "list", "dict", "tensor") or _is_flag(event))
        if owner is not None and owner.kind == "instance" and owner.data == "module" and (
                name in ALLOWED and plain):
            yield _problem(owner, event.node, name, "attribute")


def _is_flag(event: Event) -> bool:
    """`self.train = train`: an argument of `__init__` of that name."""
    given = getattr(event.node, "value", None)
    return event.function == "__init__" and isinstance(given, ast.Name) and (
        given.id == event.more["name"] and given.id in ("train", "eval"))


def _refuses(node: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    """torch's own call of this method would fail."""
    if node.name not in ALLOWED or any("overload" in ast.unparse(d) for d in node.decorator_list):
        return False  # the method itself follows
    arguments = node.args
    listed = [*arguments.posonlyargs, *arguments.args][1:]
    needed = len(listed) - len(arguments.defaults)
    needed += sum(default is None for default in arguments.kw_defaults)
    passed = ALLOWED[node.name] if node.name in ("train", "apply") else 0
    too_few = node.name == "train" and not listed and arguments.vararg is None
    return needed > passed or too_few


def _problem(made: Value, node: ast.AST, name: str, what: str) -> Problem:
    why = "`eval()` calls `train(False)`" if name == "train" else "torch calls it itself"
    return Problem(
        f"the {what} `{name}` takes the place of `nn.Module.{name}`: {why}",
        where=Place(file=made.file, line=getattr(node, "lineno", None)), confidence="certain",
        fix=Fix(f"give the {what} another name", "", "unsafe"))


_TRAIN = "\n\n    def train(self, %s):\n        return %s\n"


def _class(method: str) -> str:
    return module("return self.layer(x)").replace("\n\nmodel =", f"{method}\n\nmodel =")


RULE = Rule(
    name="module-method-shadowed", doc=__doc__, category="code", severity="warning",
    in_failure=in_failure, in_source=in_source, examples=(
        fires("Traceback (most recent call last):\n  File \"fit.py\", line 9, in <module>\n"
              "    net.train()\nTypeError: 'bool' object is not callable\n",
              "`train` of the model is a bool and no method", "another name", kind="log",
              title="called"),
        fires(_class(_TRAIN % ("inputs, target", "self(inputs) - target")),
              "the method `train` takes the place of `nn.Module.train`", kind="source",
              line="def train(", title="train"),
        fires(module("return self.layer(x)",
                     init="self.layer = nn.Linear(3, 2)\nself.parameters = {}"),
              kind="source", line="self.parameters", title="attribute"),
        quiet(_class(_TRAIN % ("mode=True", "super().train(mode)")), kind="source",
              title="same arguments"),
        quiet(_class("\n\n    def train(self):\n        self.layer.train()\n"
                     "\n    def eval(self):\n        self.layer.eval()\n"), kind="source",
              title="both switches of its own"),
        quiet(_class(_TRAIN.replace("train", "fit") % ("inputs", "self(inputs)")), kind="source",
              title="other name"),
    ),
)
