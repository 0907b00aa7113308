"""Training is resumed from a checkpoint with the model's weights and a fresh optimizer.

## What you see
After each restart the loss jumps and needs many steps to come back to where it was.
## Why
Adam's moments and SGD's momentum start from zero again, and the learning rate from the value in
the code: the weights alone are not the state of the training.
## Fix
Save `optimizer.state_dict()` (and the scheduler's and the scaler's) with the model's, and load
them where the model's is loaded.
## When this is fine
Fine-tuning from weights, where the training starts anew.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import TYPE_CHECKING

from torchmedic import changes
from torchmedic.model import Evidence, Fix, Problem, Rule, fires, quiet
from torchmedic.source.flow import Event, Trace, Value, trace_of
from torchmedic.source.flow.training import place

if TYPE_CHECKING:
    from torchmedic.source.script import Script

SOURCE_WORDS = ("load_state_dict",)
STATELESS = ("SGD",)
RESUMED = ("epoch", "step", "iteration", "global_step", "iter", "start_epoch", "epochs_done")


def in_source(script: Script) -> Iterator[Problem]:
    trace = trace_of(script)
    if any("load" in e.more["name"].rpartition(".")[2] for e in trace.of("opaque")):
        return  # a helper that we can't look into may load it
    for kind in ("optimizer", "scheduler"):
        made = [m for m in trace.made if m.kind == kind and _has_state(m)]
        loaded = [e for e in trace.of("load") if e.target is not None and any(
            o.kind in (kind, "unknown", "either") for o in e.target.options())]
        if not made or loaded:
            continue
        for event in trace.of("load"):
            if event.target is not None and event.target.kind in ("module", "instance") and (
                    event.file == script.file and _resumes(script, trace, event)):
                yield _problem(script, event, made[0], kind)
                return


def _has_state(made: Value) -> bool:
    """Something that a new one lacks: moments, a momentum, a count of steps."""
    if made.kind == "scheduler":
        return made.name not in ("", "LRScheduler")
    momentum = made.keyword("momentum", 2)
    return made.name not in STATELESS or momentum is not None


def _resumes(script: Script, trace: Trace, event: Event) -> bool:
    """The checkpoint gives the number of epochs done, too, and training goes on from there."""
    if not any(trace.after(event, "backward")) or not trace.of("step"):
        return False
    source = _checkpoint(event.node)
    return source is not None and any(
        isinstance(node, ast.Subscript) and ast.unparse(node.value) == source
        and isinstance(node.slice, ast.Constant) and node.slice.value in RESUMED
        for node in ast.walk(script.tree))


def _checkpoint(node: ast.AST) -> str | None:
    """`checkpoint` in `model.load_state_dict(checkpoint["model"])`."""
    given = node.args[0] if isinstance(node, ast.Call) and node.args else None
    return ast.unparse(given.value) if isinstance(given, ast.Subscript) else None


def _problem(script: Script, event: Event, made: Value, kind: str) -> Problem:
    line = getattr(made.node, "lineno", 0)
    return Problem(
        f"training resumes here with the weights, and the {kind} starts anew",
        where=place(script.file, event), confidence="certain",
        evidence=(Evidence(f"line {line}: `{made.name}` has a state; nothing in the program loads "
                           "it", "source"),),
        fix=Fix(f"save `{kind}.state_dict()` in the checkpoint, and load it beside the model's", "",
                "unsafe", edits=_edits(script, event, made)))


def _edits(script: Script, event: Event, made: Value) -> changes.Edits:
    """Where the program saves its state under a key: that is loaded."""
    name, source = changes.assigned(script, made.node), _checkpoint(event.node)
    line = getattr(made.node, "lineno", 0)
    if name is None or source is None or not changes.reaches(script, line, event.line):
        return ()
    keys = [k.value for n in ast.walk(script.tree) if isinstance(n, ast.Dict)
            for k, v in zip(n.keys, n.values, strict=True)
            if isinstance(k, ast.Constant) and isinstance(k.value, str)
            and ast.unparse(v) == f"{name}.state_dict()"]
    if len(keys) != 1:
        return ()
    return changes.after(script, event.line, f'{name}.load_state_dict({source}["{keys[0]}"])')


_PROGRAM = """
import torch
from torch import nn

model = nn.Linear(3, 1)
optimizer = torch.optim.%s
checkpoint = torch.load("last.pt")
model.load_state_dict(checkpoint["model"])
%s
for epoch in range(%s, 10):
    optimizer.zero_grad()
    model(torch.randn(4, 3)).square().mean().backward()
    optimizer.step()
    torch.save({"model": model.state_dict(), "epoch": epoch}, "last.pt")
"""
_ADAM = "Adam(model.parameters())"
_LOADED = 'optimizer.load_state_dict(checkpoint["optimizer"])'
_START = 'checkpoint["epoch"]'

_BEST = (_PROGRAM % (_ADAM, "", "0")).replace(
    'model.load_state_dict(checkpoint["model"])', "").replace(
    'checkpoint = torch.load("last.pt")', "") + """
checkpoint = torch.load("last.pt")
model.load_state_dict(checkpoint["model"])
print(checkpoint["epoch"], model(torch.ones(1, 3)))
"""

RULE = Rule(
    name="optimizer-state-not-restored", doc=__doc__, category="code", severity="warning",
    in_source=in_source, examples=(
        fires(_PROGRAM % (_ADAM, "", _START), "the optimizer starts anew", kind="source",
              line="model.load_state_dict", title="adam"),
        quiet(_PROGRAM % (_ADAM, _LOADED, _START), kind="source", title="restored"),
        quiet(_PROGRAM % (_ADAM, "", "0"), kind="source", title="only weights"),
        quiet(_BEST, kind="source", title="the best one, for the test"),
        quiet(_PROGRAM % ("SGD(model.parameters(), lr=0.1)", "", _START), kind="source",
              title="no state"),
    ),
)
