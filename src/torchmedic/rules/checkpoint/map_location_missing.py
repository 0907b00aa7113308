"""A checkpoint from a GPU is loaded where that GPU is not.

## What you see
`RuntimeError: Attempting to deserialize object on a CUDA device but torch.cuda.is_available() is
False`, or `… on CUDA device 3 but torch.cuda.device_count() is 1`.
## Why
Tensors are saved with their device and go back to it.
## Fix
`torch.load(path, map_location="cpu")`, then move the model. If a GPU should be there, torch does
not see it: look at that first.
## When this is fine
Never.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

from torchmedic import changes
from torchmedic.model import Evidence, Fix, Problem, Rule, fires, quiet
from torchmedic.remedies import raised
from torchmedic.source.flow import trace_of
from torchmedic.source.flow.training import place

if TYPE_CHECKING:
    from torchmedic.observed import Failure
    from torchmedic.source.script import Script

SOURCE_WORDS = ("load",)
WORDS = ("attempting to deserialize",)
GONE = re.compile(r"Attempting to deserialize object on (?:a )?CUDA device(?: (?P<number>\d+))?")


def in_failure(failure: Failure) -> Iterator[Problem]:
    found = GONE.search(failure.message)
    if found is None:
        return
    which = f"GPU {found['number']}" if found["number"] else "a GPU"
    yield Problem(f"the checkpoint was saved on {which} that is not here", where=failure.place,
                  evidence=(raised(failure),), fix=Fix(
                      "`torch.load(path, map_location=\"cpu\")`, then `model.to(device)`",
                      "if a GPU should be there: `nvidia-smi`, `torch.cuda.is_available()`",
                      "safe"))


def in_source(script: Script) -> Iterator[Problem]:
    """A program for GPU or CPU that loads what another run saved."""
    text = "\n".join(script.lines)
    if "torch.load" not in text or "is_available" not in text or "torch.save" in text:
        return
    for event in trace_of(script).of("load"):
        node = event.node
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "torch.load" and (
                event.file == script.file and not any(k.arg in (
                    "map_location", None) for k in node.keywords) and len(node.args) == 1):
            yield Problem(
                "the checkpoint comes back on the device it was saved on, which may not be here",
                where=place(script.file, event), severity="info", confidence="possible",
                evidence=(Evidence("the program also runs without a GPU", "source"),),
                fix=Fix("`map_location=device`, or `map_location=\"cpu\"`", "",
                        "safe" if _into_a_model(script, node) else "unsafe",
                        edits=changes.with_keyword(script, node, "map_location", '"cpu"')))


def _into_a_model(script: Script, call: ast.Call) -> bool:
    """What is loaded is copied into a model at once, wherever that is."""
    return any(isinstance(n, ast.Call) and isinstance(n.func, ast.Attribute)
               and n.func.attr == "load_state_dict" and any(a is call for a in n.args)
               for n in ast.walk(script.tree))


_LOG = """Traceback (most recent call last):
  File "fit.py", line 8, in <module>
    state = torch.load("last.pt")
RuntimeError: Attempting to deserialize object on {}. Please use torch.load with map_location.
"""
_PROGRAM = """
import torch

device = "cuda" if torch.cuda.is_available() else "cpu"
model = torch.nn.Linear(2, 3).to(device)
model.load_state_dict(torch.load("net.pt"%s))
"""

RULE = Rule(
    name="map-location-missing", doc=__doc__, category="code", in_failure=in_failure,
    in_source=in_source,
    examples=(
        fires(_LOG.format("a CUDA device but torch.cuda.is_available() is False"),
              "saved on a GPU that is not here", 'map_location="cpu"', kind="log"),
        fires(_LOG.format("CUDA device 3 but torch.cuda.device_count() is 1"), "saved on GPU 3",
              kind="log", title="number"),
        fires(_PROGRAM % "", "the device it was saved on", kind="source", line="torch.load",
              title="in source"),
        quiet(_PROGRAM % ", map_location=device", kind="source", title="mapped"),
        quiet(_LOG.replace("Attempting to deserialize object on {}", "bad file"), kind="log"),
    ),
)
