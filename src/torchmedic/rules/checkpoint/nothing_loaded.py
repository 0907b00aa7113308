"""Weights are read from a checkpoint, and none of them reaches the model.

## What you see
No error. The accuracy of the loaded model is that of guessing; fine-tuning is no better than
training from scratch.
## Why
`strict=False` accepts a checkpoint of which no key fits, such as one saved from `DataParallel`,
where each key begins with `module.`. `model.state_dict().update(…)` changes a dict and not the
model. A model made anew after the loading has fresh weights.
## Fix
`load_state_dict` with `strict=True`, or look at what it returns: `missing_keys` must not be all of
them.
## When this is fine
Never.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import TYPE_CHECKING

from torchmedic import changes
from torchmedic.model import Evidence, Fix, Place, Problem, Rule, fires, quiet
from torchmedic.source.flow import Trace, trace_of
from torchmedic.source.flow.training import node_place, place
from torchmedic.wrapped import prefixes

if TYPE_CHECKING:
    from torchmedic.observed import Weights
    from torchmedic.source.flow import Event
    from torchmedic.source.script import Script


def in_source(script: Script) -> Iterator[Problem]:
    text = "\n".join(script.lines)
    if "state_dict" not in text:
        return
    yield from _of_other_keys(script, trace_of(script))
    yield from _into_a_dict(script)


def in_data(seen: Weights) -> Iterator[Problem]:
    compared = seen.comparison
    if compared is None or compared.loaded or not (compared.missing or compared.shapes):
        return  # a prefix has a rule of its own
    theirs = next((f"`{d.key}`" for d in compared.unexpected), "no key")
    ours = next((f"`{d.key}`" for d in (*compared.missing, *compared.shapes)), "no key")
    yield Problem(
        f"no tensor of the checkpoint fits {compared.model}", severity="error",
        where=Place(file=seen.checkpoint.file),
        evidence=(Evidence(f"the checkpoint has {theirs}, the model {ours}; "
                           f"{len(compared.shapes)} names agree, and no shape", "file"),),
        fix=Fix("build the model with the class and the settings it was saved from",
                "`strict=False` would load nothing without a word"))


def _of_other_keys(script: Script, trace: Trace) -> Iterator[Problem]:
    for saved, loaded, prefix, on_file in prefixes(trace):
        if not _loosely(loaded.node):
            continue
        whose = "checkpoint" if on_file else "model"
        yield Problem(
            f"no key of the checkpoint fits: the {whose}'s begin with `{prefix}`",
            where=place(script.file, loaded), confidence="likely",
            evidence=(Evidence(f"line {saved.line}: saved from the other; `strict=False` hides it",
                               "source"),),
            fix=Fix(f"save and load `model.{prefix}state_dict()`" if on_file else
                    f"load into `model.{prefix.rstrip('.')}`", "", "unsafe",
                    edits=_edits(script, saved if on_file else loaded, prefix, on_file)))


def _edits(script: Script, event: Event, prefix: str, on_file: bool) -> changes.Edits:
    """The part of the wrapper that has the model's own names."""
    method = "state_dict" if on_file else "load_state_dict"
    found = changes.of_part(event.node, method, prefix.rstrip("."))
    return found if event.file == script.file else ()


def _loosely(node: ast.AST) -> bool:
    return isinstance(node, ast.Call) and any(
        isinstance(v, ast.Constant) and v.value is False
        for v in (*node.args[1:2], *(k.value for k in node.keywords if k.arg == "strict")))


def _into_a_dict(script: Script) -> Iterator[Problem]:
    """`model.state_dict().update(weights)`."""
    for node in ast.walk(script.tree):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Call):
            called = node.value.func
            if isinstance(called, ast.Attribute) and called.attr == "update" and (
                    ast.unparse(called.value).endswith(".state_dict()")):
                inner = ast.unparse(called.value)
                yield Problem(
                    f"`{inner}.update(…)` changes a dict and not the model",
                    where=node_place(script.file, node), confidence="certain",
                    evidence=(Evidence("the dict is thrown away after this line", "source"),),
                    fix=Fix(f"keep the dict, update it, and give it to "
                            f"`{inner.removesuffix('state_dict()')}load_state_dict`", "", "unsafe",
                            edits=_loading(script, node.value, called)))


def _loading(script: Script, call: ast.Call, called: ast.Attribute) -> changes.Edits:
    """What the lines mean: the keys that are given are loaded, the others stay."""
    owner = called.value.func if isinstance(called.value, ast.Call) else None
    if len(call.args) != 1 or call.keywords or not isinstance(owner, ast.Attribute):
        return ()
    return (*changes.replacing(called, f"{ast.unparse(owner.value)}.load_state_dict"),
            *changes.with_keyword(script, call, "strict", "False"))


_PROGRAM = """
import torch
from torch import nn

outer = nn.DataParallel(nn.Linear(2, 3))
torch.save(outer.state_dict(), "net.pt")
model = nn.Linear(2, 3)
%s
"""
_WRITES = """
import torch
from torch import nn

def build():
    return nn.Sequential(nn.Linear(2, 3))

if __name__ == "__main__":
    torch.save(nn.%s.state_dict(), "checkpoint.pt")
"""

RULE = Rule(
    name="nothing-loaded", doc=__doc__, category="code", severity="warning",
    in_source=in_source, in_data=in_data, examples=(
        fires(_PROGRAM % 'model.load_state_dict(torch.load("net.pt"), strict=False)',
              "no key of the checkpoint fits", "`module.`", kind="source",
              line="load_state_dict", title="prefix"),
        fires((_PROGRAM % 'model.state_dict().update(torch.load("net.pt"))').replace(
            "outer.state", "outer.module.state"), "changes a dict", kind="source", line="update(",
              title="updated dict"),
        quiet((_PROGRAM % 'model.load_state_dict(torch.load("net.pt"), strict=False)').replace(
            "outer.state", "outer.module.state"), kind="source", title="inner model saved"),
        fires(_WRITES % "LSTM(7, 5)", "no tensor of the checkpoint fits Sequential",
              kind="checkpoint", title="a file of another model"),
        quiet(_WRITES % "Sequential(nn.Linear(2, 3))", kind="checkpoint", title="a file that fits"),
        quiet(_PROGRAM % 'state = model.state_dict()\nstate.update(torch.load("net.pt"))\n'
              "model.load_state_dict(state)", kind="source", title="kept dict"),
    ),
)
