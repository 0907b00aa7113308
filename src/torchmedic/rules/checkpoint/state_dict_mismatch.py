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

from collections.abc import Iterator

from torchmedic.model import Evidence, Fix, Problem, Rule, fires, quiet
from torchmedic.observed import Failure
from torchmedic.statedicts import Told, prefix_between, read

WORDS = ("loading state_dict",)


def in_failure(failure: Failure) -> Iterator[Problem]:
    told = read(failure.message)
    if told is None or prefix_between(told.missing, told.unexpected):
        return
    yield Problem(f"the checkpoint is not of this {told.model}: {_counts(told)}",
                  where=failure.place, evidence=tuple(_evidence(told)), fix=_fix(told))


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
    return Fix("build the model with the class and the settings it was saved from",
               "`strict=False` would load only the keys that agree, and leave the rest random")


_PROGRAM = """
import torch
state = torch.nn.Sequential(torch.nn.Linear(2, 3), torch.nn.Linear(3, 10)).state_dict()
net = torch.nn.Sequential(torch.nn.Linear(2, 3), torch.nn.%s)
net.load_state_dict(state)
"""

RULE = Rule(
    name="state-dict-mismatch", doc=__doc__, category="code", in_failure=in_failure,
    examples=(
        fires(_PROGRAM % "Linear(3, 4)", "the checkpoint is not of this Sequential: 2 of another",
              "`1.weight` has (10, 3) in the checkpoint and (4, 3) in the model",
              line="load_state_dict", title="other head"),
        fires(_PROGRAM % "Bilinear(3, 3, 10, bias=False)", "1 unexpected, 1 of another size",
              title="other layer"),
        quiet(_PROGRAM % "Linear(3, 10)", title="same model"),
    ),
)
