"""A script starts workers with `spawn`, and its training runs again in each of them.

## What you see
`RuntimeError: An attempt has been made to start a new process before the current process has
finished its bootstrapping phase`, on Windows and macOS, or wherever the start method is `spawn` or
`forkserver`.
## Why
A worker that is spawned imports the script anew. Code at the top level of the script runs there
too, and would start workers of its own.
## Fix
Put what starts the training under `if __name__ == "__main__":`.
## When this is fine
Never: Python refuses to start the worker.
"""

from __future__ import annotations

from collections.abc import Iterator

from torchmedic.model import Fix, Problem, Rule, fires, quiet
from torchmedic.observed import Failure
from torchmedic.remedies import raised

WORDS = ("bootstrapping",)
BOOTSTRAP = "before the current process has finished its bootstrapping phase"
"""Python 3.4 to 3.14"""


def in_failure(failure: Failure) -> Iterator[Problem]:
    if BOOTSTRAP in " ".join(failure.message.split()):
        yield Problem(
            "a spawned worker runs the script's training again: it stands at the top level",
            where=failure.place, evidence=(raised(failure),),
            fix=Fix("put it under `if __name__ == \"__main__\":`",
                    "or `num_workers=0`; classes and functions stay outside", "unsafe"))


_LOG = '''Traceback (most recent call last):
  File "train.py", line 21, in <module>
    for x, y in loader:
  File "C:\\Python311\\Lib\\multiprocessing\\spawn.py", line 138, in _check
    raise RuntimeError(%s
RuntimeError:
        An attempt has been made to start a new process before the
        current process has finished its bootstrapping phase.
'''

RULE = Rule(
    name="spawn-without-main-guard", doc=__doc__, category="code", in_failure=in_failure,
    examples=(
        fires(_LOG % "", "a spawned worker runs the script's training again", "__main__",
              kind="log", title="traceback"),
        quiet(_LOG.replace("bootstrapping", "last") % "", kind="log", title="other text"),
    ),
)
