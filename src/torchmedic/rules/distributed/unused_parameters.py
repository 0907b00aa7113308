"""DistributedDataParallel waits for a gradient that does not come, or comes twice.

## What you see
`RuntimeError: Expected to have finished reduction in the prior iteration before starting a new
one`, with the indices of the parameters; or `Expected to mark a variable ready only once`.
## Why
DDP reduces a gradient for every parameter in every step. A layer that takes no part in the loss
gives none; a layer whose backward runs twice (reentrant checkpointing, a shared layer) gives two.
## Fix
None: remove the layer, or use its output, or `find_unused_parameters=True`. Two: checkpointing
with `use_reentrant=False`, or `static_graph=True`.
## When this is fine
Never; `find_unused_parameters=True` costs a walk over the graph in each step.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

from torchmedic.model import Evidence, Fix, Problem, Rule, fires, quiet
from torchmedic.remedies import raised

if TYPE_CHECKING:
    from torchmedic.observed import Failure

WORDS = ("finished reduction", "ready only once")
NONE = re.compile(r"Expected to have finished reduction in the prior iteration")
TWICE = re.compile(r"Expected to mark a variable ready only once")
WHICH = re.compile(r"did not receive grad for rank (\d+): ?([\d, ]+)")
NAMES = re.compile(r"did not receive grad for rank \d+: ?([A-Za-z_][^\n\]]*)")


def in_failure(failure: Failure) -> Iterator[Problem]:
    text = " ".join(failure.message.split())
    if NONE.search(text):
        yield Problem(
            "DDP waits for the gradients of parameters that take no part in the loss",
            where=failure.place, evidence=(raised(failure), *_which(text)), fix=Fix(
                "let every layer take part in the loss or remove it; otherwise "
                "`DistributedDataParallel(…, find_unused_parameters=True)`",
                "TORCH_DISTRIBUTED_DEBUG=DETAIL makes the message name them"))
    elif TWICE.search(text):
        yield Problem(
            "DDP gets the gradient of one parameter twice in a step",
            where=failure.place, evidence=(raised(failure),), fix=Fix(
                "`use_reentrant=False` for checkpointing, or `static_graph=True`; one forward and "
                "one backward per step through the wrapped model",
                "`find_unused_parameters=True` causes this together with reentrant checkpointing"))


def _which(text: str) -> tuple[Evidence, ...]:
    if found := NAMES.search(text):
        return (Evidence(f"without a gradient: {found[1][:160].strip()}", "exception"),)
    if found := WHICH.search(text):
        listed = ", ".join(found[2].replace(",", " ").split()[:12])
        return (Evidence(f"parameters without a gradient on rank {found[1]}: {listed} (in the "
                         "order of `model.parameters()`)", "exception"),)
    return ()


_LOG = """Traceback (most recent call last):
  File "fit.py", line 30, in <module>
    y = net(x)
RuntimeError: {}
"""

RULE = Rule(
    name="unused-parameters", doc=__doc__, category="code", in_failure=in_failure,
    examples=(
        fires(_LOG.format("Expected to have finished reduction in the prior iteration before "
                          "starting a new one.\nParameter indices which did not receive grad for "
                          "rank 1: 6 7"),
              "take no part in the loss", "on rank 1: 6, 7", "find_unused_parameters=True",
              kind="log", title="none"),
        fires(_LOG.format("Expected to mark a variable ready only once."), "twice in a step",
              "use_reentrant=False", kind="log", title="twice"),
        quiet("[W reducer.cpp:1300] Warning: find_unused_parameters=True was specified in DDP "
              "constructor, but did not find any unused parameters in the forward pass.\n",
              kind="log", title="a warning about overhead"),
    ),
)
