"""An exception ended a thread, and the process went on without it.

## What you see
`Exception in thread Thread-1` somewhere in the output, then silence from that part: no more
prefetched batches, no more checkpoints, a queue that stays empty. The exit code may be 0.
## Why
An exception ends only the thread it happens in.
## Fix
Mend the cause, and let the main thread know: join the thread and check, or use
`concurrent.futures` and ask the result.
## When this is fine
When the thread's work does not matter to the result.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from torchmedic import wording
from torchmedic.model import Fix, Problem, Rule, fires, quiet
from torchmedic.remedies import raised

if TYPE_CHECKING:
    from torchmedic.observed import Failure

WORDS = ("thread",)


def in_failure(failure: Failure) -> Iterator[Problem]:
    if failure.how != "thread":
        return
    name = f"`{failure.thread}`" if failure.thread else "a thread"
    yield Problem(
        f"`{failure.short_type}` ended thread {name}, and the process went on without it",
        failure.place,
        (raised(failure), *wording.stack_evidence(failure.frames, "exception")),
        Fix("mend the exception; join the thread, or ask its future for the result, so that the "
            "main thread stops with it"),
    )


_PROGRAM = """
import threading, torch
torch.set_num_threads(1)
def prefetch():
    rows = torch.randn(3, 4)
    rows[{}]
thread = threading.Thread(target=prefetch, name="prefetch")
thread.start()
thread.join()
"""

RULE = Rule(
    name="thread-exception", doc=__doc__, category="code", level="symptom", in_failure=in_failure,
    examples=(
        fires(_PROGRAM.format(5), "`IndexError` ended thread `prefetch`", line="rows[5]"),
        quiet(_PROGRAM.format(1)),
    ),
)
