"""A GPU kernel ran longer than the driver of a card with a display allows.

## What you see
`CUDA error: the launch timed out and was terminated`; on Windows the screen may go black for a
moment.
## Why
A card that also shows a desktop may not be busy with one kernel for more than some seconds: Windows
(TDR, 2 s) and X stop it. A kernel over very large tensors, or a slow or shared card, takes longer.
## Fix
Run on a card without a display, raise the limit of Windows (`TdrDelay`), or give single operations
less work.
## When this is fine
Never: the process has lost its GPU.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from torchmedic.model import Fix, Problem, Rule, fires, quiet
from torchmedic.remedies import raised

if TYPE_CHECKING:
    from torchmedic.observed import Failure

WORDS = ("launch timed out",)


def in_failure(failure: Failure) -> Iterator[Problem]:
    if "launch timed out" in failure.message:
        yield Problem(
            "the driver stopped a GPU kernel that took too long, as it does on a card with a "
            "display; the line shown may be a later one", where=failure.place,
            evidence=(raised(failure),), fix=Fix(
                "use a card without a display, or raise the limit of the driver (`TdrDelay` of "
                "Windows)", "or give single operations less work: smaller inputs",
                command="nvidia-smi"))


_LOG = """Traceback (most recent call last):
  File "fit.py", line 12, in <module>
    loss.backward()
RuntimeError: CUDA error: {}
"""

RULE = Rule(
    name="kernel-timeout", doc=__doc__, category="environment", in_failure=in_failure,
    examples=(
        fires(_LOG.format("the launch timed out and was terminated"), "took too long", "TdrDelay",
              kind="log", title="log"),
        quiet(_LOG.format("an illegal memory access was encountered"), kind="log", title="other"),
    ),
)
