"""A checkpoint's keys or shapes are not those of the model it is loaded into.

## What you see
`RuntimeError: Error(s) in loading state_dict for ResNet`, with missing keys, unexpected keys, or
`size mismatch for fc.weight`.
## Why
The checkpoint was saved from another architecture, another version of the class, or a model with
another head. `strict=False` covers missing and unexpected keys, but not another shape.
## Fix
Build the model as it was when it was saved, then change its head. Or leave out the entries whose
shape differs, load the rest with `strict=False`, and look at what it reports as missing.
## When this is fine
Never without `strict=False`: nothing may stay unloaded by accident.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

from torchmedic.model import Evidence, Fix, Place, Problem, Rule, fires, quiet
from torchmedic.remedies import raised
from torchmedic.statedicts import Told, loading, prefix_between, read, renaming

if TYPE_CHECKING:
    from torchmedic.observed import Comparison, Differs, Failure, Weights

WORDS = ("state_dict", "loaded state dict")

OPTIMIZER = re.compile(r"loaded state dict (?:contains a parameter group that doesn't match|has a "
                       r"different number of parameter groups)")  # torch 0.2 to 2.14


def in_failure(failure: Failure) -> Iterator[Problem]:
    if OPTIMIZER.search(failure.message):
        yield Problem("the optimizer's state is of other parameters than those it has now",
                      where=failure.place, evidence=(raised(failure),), fix=Fix(
                          "give the optimizer the same parameters, in the same groups, as when it "
                          "was saved", "layers added, removed or frozen since: start with a new "
                          "optimizer and load only the model"))
        return
    told = read(failure.message)
    if told is None or prefix_between(told.missing, told.unexpected):
        return
    yield Problem(f"the checkpoint is not of this {told.model}: {_counts(told)}",
                  where=failure.place, evidence=tuple(_evidence(told)), fix=_fix(told))


def in_data(seen: Weights) -> Iterator[Problem]:
    compared = seen.comparison
    if compared is None or not compared.loaded:
        return  # `nothing-loaded`
    missing = [d for d in compared.missing if not d.key.endswith("num_batches_tracked")]
    if not (missing or compared.unexpected or compared.shapes):
        return
    told = Told(compared.model, tuple(d.key for d in missing),
                tuple(d.key for d in compared.unexpected),
                tuple((d.key, "", "") for d in compared.shapes))
    differ = (*compared.shapes, *missing, *compared.unexpected)
    reasons = dict.fromkeys(d.reason for d in differ if d.reason)
    yield Problem(
        f"the checkpoint is not of this {compared.model}: {_counts(told)}",
        where=Place(file=seen.checkpoint.file), fix=_data_fix(seen, compared, differ),
        evidence=(Evidence(f"{len(compared.matched)} tensors match", "file"),
                  *(Evidence(reason, "file") for reason in list(reasons)[:4])))


def _data_fix(seen: Weights, compared: Comparison, differ: tuple[Differs, ...]) -> Fix:
    prefix = compared.prefix
    change = renaming(prefix) if prefix else []
    names = {d.key: d.reason.split("`")[1] for d in compared.unexpected
             if d.reason.startswith("renamed")}
    if names and len(names) * 2 >= len(differ) and len(names) <= 40:
        return Fix("give these tensors the model's names, once you are sure that they are the same",
                   "shape and order agree, and nothing else shows it", "unsafe", diff=loading(
                       seen.checkpoint, *change, f"names = {names!r}",
                       "state = {names.get(k, k): v for k, v in state.items()}",
                       "model.load_state_dict(state)"))
    return Fix("build the model as it was saved; or, where the difference is meant, load what fits "
               "and train the rest", "`strict=False` alone does not cover another shape", "unsafe",
               diff=loading(
                   seen.checkpoint, *change, "own = model.state_dict()",
                   "fits = {k: v for k, v in state.items() if k in own and v.shape == "
                   "own[k].shape}", "print(model.load_state_dict(fits, strict=False))"))


def _counts(told: Told) -> str:
    parts = [f"{len(told.missing)} keys missing" if told.missing else "",
             f"{len(told.unexpected)} unexpected" if told.unexpected else "",
             f"{len(told.sizes)} of another size" if told.sizes else ""]
    return ", ".join(part for part in parts if part) or "its keys differ"


def _evidence(told: Told) -> Iterator[Evidence]:
    for name, ours, theirs in told.sizes[:3]:
        yield Evidence(f"`{name}` has {ours} in the checkpoint and {theirs} in the model",
                       "exception")
    for word, keys in (("missing", told.missing), ("unexpected", told.unexpected)):
        if keys:
            shown = ", ".join(f"`{key}`" for key in keys[:3]) + (", …" if len(keys) > 3 else "")
            yield Evidence(f"{word}: {shown}", "exception")


def _fix(told: Told) -> Fix:
    if told.sizes and not told.missing and not told.unexpected:
        return Fix("leave these entries out of the checkpoint and load the rest with "
                   "`strict=False`, or build the model with the checkpoint's sizes",
                   "`strict=False` alone does not cover another size", "unsafe")
    if inner := next((key for key in told.unexpected if key in WRAPPED), None):
        return Fix(f"load the entry that holds the weights: "
                   f"`model.load_state_dict(checkpoint[\"{inner}\"])`", "", "unsafe")
    return Fix("build the model with the class and the settings it was saved from",
               "`strict=False` would load only the keys that agree, and leave the rest random")


WRAPPED = ("state_dict", "model_state_dict", "model", "model_state", "net", "network")
_PROGRAM = """
import torch
state = torch.nn.Sequential(torch.nn.Linear(2, 3), torch.nn.Linear(3, 10)).state_dict()
net = torch.nn.Sequential(torch.nn.Linear(2, 3), torch.nn.%s)
net.load_state_dict(state)
"""
_WRITES = """
import torch

def build(classes=%d):
    return torch.nn.Sequential(torch.nn.Linear(5, 3), torch.nn.Linear(3, classes))

if __name__ == "__main__":
    torch.save({"model": build(%d).state_dict()}, "checkpoint.pt")
"""

RULE = Rule(
    name="state-dict-mismatch", doc=__doc__, category="code", in_failure=in_failure,
    in_data=in_data, examples=(
        fires(_PROGRAM % "Linear(3, 4)", "the checkpoint is not of this Sequential: 2 of another",
              "`1.weight` has (10, 3) in the checkpoint and (4, 3) in the model",
              line="load_state_dict", title="other head"),
        fires(_PROGRAM % "Bilinear(3, 3, 10, bias=False)", "1 unexpected, 1 of another size",
              title="other layer"),
        fires("RuntimeError: Error(s) in loading state_dict for Net:\n\tMissing key(s) in "
              'state_dict: "fc.weight". \n\tUnexpected key(s) in state_dict: '
              '"epoch", "model_state_dict". \n',
              "1 keys missing", 'checkpoint["model_state_dict"]', kind="log", title="whole file"),
        fires("ValueError: loaded state dict contains a parameter group that doesn't match the "
              "size of optimizer's group\n", "the optimizer's state is of other parameters",
              kind="log",
              title="optimizer"),
        fires(_WRITES % (4, 10), "2 of another size",
              "other head: 10 outputs in the checkpoint, 4 in the model", kind="checkpoint",
              title="a file with another head"),
        quiet(_WRITES % (4, 4), kind="checkpoint", title="a file of the same model"),
        quiet(_PROGRAM % "Linear(3, 10)", title="same model"),
    ),
)
