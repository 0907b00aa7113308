"""All keys of a checkpoint carry a prefix that the model's keys lack, or the other way round.

## What you see
`Error(s) in loading state_dict`, with `Missing key(s)` and `Unexpected key(s)` that are the same
names but for `module.`, `_orig_mod.` or `model.` in front.
## Why
`DataParallel` and `DistributedDataParallel` put `module.` before every key, `torch.compile`
`_orig_mod.`, a wrapper its attribute's name. The checkpoint was saved from the wrapped model and is
loaded into the bare one, or the reverse.
## Fix
Save `model.module.state_dict()`; for a checkpoint that exists, take the prefix off its keys.
## When this is fine
Never. With `strict=False` there is no error, and nothing is loaded.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

from torchmedic import changes
from torchmedic.model import Evidence, Fix, Place, Problem, Rule, fires, quiet
from torchmedic.source.flow import trace_of
from torchmedic.source.flow.training import place
from torchmedic.statedicts import loading, prefix_between, read, renaming
from torchmedic.wrapped import prefixes

if TYPE_CHECKING:
    from torchmedic.observed import Failure, Weights
    from torchmedic.source.flow import Event
    from torchmedic.source.script import Script

WORDS = ("state_dict",)


def in_failure(failure: Failure) -> Iterator[Problem]:
    told = read(failure.message)
    found = prefix_between(told.missing, told.unexpected) if told else None
    if told is None or found is None:
        return
    prefix, on_file = found
    yield Problem(
        f"the {'checkpoint' if on_file else 'model'}'s keys begin with `{prefix}`, the "
        f"{'model' if on_file else 'checkpoint'}'s do not",
        where=failure.place, fix=_fix(prefix, on_file),
        evidence=(Evidence(f"`{told.unexpected[0]}` in the checkpoint" + (
            f", `{told.missing[0]}` in {told.model}" if told.missing else ""), "exception"),),
    )


def in_source(script: Script) -> Iterator[Problem]:
    if "load_state_dict" not in "\n".join(script.lines):
        return
    for saved, loaded, prefix, on_file in prefixes(trace_of(script)):
        if "strict" in ast.unparse(loaded.node):
            continue  # no error: `nothing-loaded` says it
        yield Problem(
            f"the {'checkpoint' if on_file else 'model'}'s keys begin with `{prefix}`, the "
            f"{'model' if on_file else 'checkpoint'}'s do not",
            where=place(script.file, saved if on_file else loaded), confidence="likely",
            evidence=(Evidence(f"line {loaded.line}: loaded into "
                               f"{'the bare model' if on_file else 'the wrapper'}", "source"),),
            fix=replace(
                Fix(f"save `model.{prefix}state_dict()`", "", "unsafe") if on_file else
                _fix(prefix, on_file), edits=_edits(script, saved, loaded, prefix, on_file)))


def _edits(script: Script, saved: Event, loaded: Event, prefix: str,
           on_file: bool) -> changes.Edits:
    """The part of the wrapper that has the model's own names is saved, or loaded into."""
    event, method = (saved, "state_dict") if on_file else (loaded, "load_state_dict")
    found = changes.of_part(event.node, method, prefix.rstrip("."))
    return found if event.file == script.file else ()


def in_data(seen: Weights) -> Iterator[Problem]:
    compared = seen.comparison
    if compared is None or compared.prefix is None or not compared.loaded:
        return
    prefix, (old, new) = compared.prefix, (compared.prefix.removed, compared.prefix.added)
    message = (f"the checkpoint's keys begin with `{old}`, the model's with `{new}`" if old and new
               else f"the checkpoint's keys begin with `{old}`, the model's do not" if old
               else f"the model's keys begin with `{new}`, the checkpoint's do not" if new else "")
    if prefix.inside:
        owner, other = ("checkpoint", "model") if any(
            part in key for key in compared.names for part in prefix.inside) else (
            "model", "checkpoint")
        message = message or (f"the {owner}'s keys hold `{'`, `'.join(prefix.inside)}`, "
                              f"the {other}'s do not")
    fits = len(compared.matched)
    yield Problem(
        message, where=Place(file=seen.checkpoint.file),
        evidence=(Evidence(f"{compared.plain} tensors fit by name and shape as the file is, {fits} "
                           "with the prefix changed; `strict=False` would not say so", "file"),),
        fix=Fix("change the prefix before `load_state_dict`, or `torchmedic.load_matching(model, "
                f"{seen.checkpoint.file!r})`", "", "unsafe", diff=loading(
                    seen.checkpoint, *renaming(prefix), "model.load_state_dict(state)")))


def _fix(prefix: str, on_file: bool) -> Fix:
    if on_file:
        return Fix(f"`state = {{key.removeprefix(\"{prefix}\"): value for key, value in "
                   "state.items()}` before `load_state_dict`",
                   f"and save `model.{prefix}state_dict()` from now on", "unsafe")
    return Fix(f"load into the inner model: `model.{prefix}load_state_dict(state)`", "", "unsafe")


_PROGRAM = """
import torch
net = torch.nn.Sequential(torch.nn.Linear(2, 3), torch.nn.Linear(3, 1))
outer = torch.nn.DataParallel(net)
%s
"""
_WRITES = """
import torch

def build():
    return torch.nn.Sequential(torch.nn.Linear(4, 2), torch.nn.Linear(2, 3), torch.nn.Linear(3, 3))

if __name__ == "__main__":
    torch.save(%s, "checkpoint.pt")
"""
_SAVED = """
torch.save(outer.state_dict(), "net.pt")
bare = torch.nn.Sequential(torch.nn.Linear(2, 3), torch.nn.Linear(3, 1))
bare.load_state_dict(torch.load("net.pt"))
"""

RULE = Rule(
    name="state-dict-prefix", doc=__doc__, category="code", in_failure=in_failure,
    in_source=in_source, in_data=in_data,
    examples=(
        fires(_PROGRAM % "net.load_state_dict(outer.state_dict())",
              "the checkpoint's keys begin with `module.`, the model's do not",
              'removeprefix("module.")', line="load_state_dict", title="wrapped when saved"),
        fires(_PROGRAM % "outer.load_state_dict(net.state_dict())",
              "the model's keys begin with `module.`, the checkpoint's do not",
              "`model.module.load_state_dict(state)`", title="wrapped when loaded"),
        fires("KeyError: 'unexpected key \"module.conv1.weight\" in state_dict'\n",
              "the checkpoint's keys begin with `module.`", kind="log", title="old wording"),
        fires(_PROGRAM % _SAVED, "the checkpoint's keys begin with `module.`", kind="source",
              line="torch.save", title="saved from the wrapper"),
        quiet(_PROGRAM % _SAVED.replace("outer.", "outer.module."), kind="source",
              title="saved from inside"),
        fires(_WRITES % "{f'module.{k}': v for k, v in build().state_dict().items()}",
              "the checkpoint's keys begin with `module.`", "6 with the prefix changed",
              kind="checkpoint", title="a file with a prefix"),
        fires(_WRITES % "{k.replace('1.', '1._orig_mod.'): v for k, v in "
              "build().state_dict().items()}", "the checkpoint's keys hold `_orig_mod`",
              kind="checkpoint", title="one layer compiled"),
        quiet(_WRITES % "build().state_dict()", kind="checkpoint", title="a file without"),
        quiet(_WRITES % "{'a.weight': torch.ones(3, 2), 'b.weight': torch.ones(9, 9)}",
              kind="checkpoint", title="a size by chance"),
        quiet(_PROGRAM % "net.load_state_dict(outer.module.state_dict())", title="inner model"),
    ),
)
