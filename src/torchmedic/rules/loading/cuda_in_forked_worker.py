"""A forked worker touches the GPU that its parent already uses.

## What you see
`RuntimeError: Cannot re-initialize CUDA in forked subprocess. To use CUDA with multiprocessing,
you must use the 'spawn' start method`.
## Why
On Linux loader workers are forked, and CUDA does not survive a fork. The dataset (or `collate_fn`)
holds tensors on the GPU, moves samples there, or runs a model.
## Fix
Keep the dataset on the CPU (`torch.load(path, map_location="cpu")`) and move each batch in the
training loop.
## When this is fine
Never.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from torchmedic.model import Fix, Problem, Rule, fires, quiet
from torchmedic.observed import Failure
from torchmedic.remedies import raised
from torchmedic.samples import own_place

WORDS = ("forked subprocess",)
FORKED = re.compile(r"Cannot re-initialize CUDA in forked subprocess")


def in_failure(failure: Failure) -> Iterator[Problem]:
    if FORKED.search(failure.message):
        yield Problem(
            "a forked worker uses the GPU: its dataset holds tensors there or moves them there",
            where=own_place(failure), evidence=(raised(failure),), fix=Fix(
                "keep the dataset on the CPU (`map_location=\"cpu\"` where it loads tensors) and "
                "move each batch in the training loop",
                "or `num_workers=0`, or `multiprocessing_context=\"spawn\"`", "unsafe"))


_LOG = """RuntimeError: Caught RuntimeError in DataLoader worker process 0.
Original Traceback (most recent call last):
  File "/env/lib/python3.10/site-packages/torch/utils/data/_utils/fetch.py", line 51, in fetch
    data = [self.dataset[idx] for idx in possibly_batched_index]
  File "sets.py", line 7, in __getitem__
    return self.images[index].cuda()
RuntimeError: {}
"""

RULE = Rule(
    name="cuda-in-forked-worker", doc=__doc__, category="code", in_failure=in_failure,
    examples=(
        fires(_LOG.format("Cannot re-initialize CUDA in forked subprocess."),
              "a forked worker uses the GPU", 'map_location="cpu"', kind="log"),
        quiet(_LOG.format("CUDA error: out of memory"), kind="log"),
    ),
)
