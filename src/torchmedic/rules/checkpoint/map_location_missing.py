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

import re
from collections.abc import Iterator

from torchmedic.model import Fix, Problem, Rule, fires, quiet
from torchmedic.observed import Failure
from torchmedic.remedies import raised

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


_LOG = """Traceback (most recent call last):
  File "fit.py", line 8, in <module>
    state = torch.load("last.pt")
RuntimeError: Attempting to deserialize object on {}. Please use torch.load with map_location.
"""

RULE = Rule(
    name="map-location-missing", doc=__doc__, category="code", in_failure=in_failure,
    examples=(
        fires(_LOG.format("a CUDA device but torch.cuda.is_available() is False"),
              "saved on a GPU that is not here", 'map_location="cpu"', kind="log"),
        fires(_LOG.format("CUDA device 3 but torch.cuda.device_count() is 1"), "saved on GPU 3",
              kind="log", title="number"),
        quiet(_LOG.replace("Attempting to deserialize object on {}", "bad file"), kind="log"),
    ),
)
