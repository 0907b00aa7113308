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
from typing import TYPE_CHECKING

from torchmedic import sourceloaders
from torchmedic.model import Evidence, Fix, Problem, Rule, fires, quiet
from torchmedic.remedies import raised
from torchmedic.source.flow import trace_of
from torchmedic.source.flow.training import node_place

if TYPE_CHECKING:
    from torchmedic.observed import Failure
    from torchmedic.source.script import Script

SOURCE_WORDS = ("loader", "multiprocessing")
WORDS = ("bootstrapping", "brokenpipe")
BOOTSTRAP = "before the current process has finished its bootstrapping phase"
"""Python 3.4 to 3.14"""


def in_failure(failure: Failure) -> Iterator[Problem]:
    if BOOTSTRAP in " ".join(failure.message.split()):
        yield Problem(
            "a spawned worker runs the script's training again: it stands at the top level",
            where=failure.place, evidence=(raised(failure),),
            fix=Fix("put it under `if __name__ == \"__main__\":`",
                    "or `num_workers=0`; classes and functions stay outside", "unsafe"))
    elif failure.short_type == "BrokenPipeError" and any(
            frame.function == "dump" and "reduction" in frame.file for frame in failure.frames):
        yield Problem(
            "a spawned worker ended while it was being started: mostly it ran the script's "
            "training again", where=failure.place, evidence=(raised(failure),),
            confidence="likely", fix=Fix(
                "put what starts the training under `if __name__ == \"__main__\":`",
                "`num_workers=0` shows whether the worker had another error", "unsafe"))


def in_source(script: Script) -> Iterator[Problem]:
    trace = trace_of(script)
    for loader in sourceloaders.loaders(trace):
        method = sourceloaders.start_method(script, loader)
        if method not in ("spawn", "forkserver") or not sourceloaders.workers(loader):
            continue
        for event in sourceloaders.passes(trace, loader):
            loop = event.loops[0].node
            if event.file == script.file and sourceloaders.on_import(event):
                yield Problem(
                    "a spawned worker runs the script's training again: it stands at the top level",
                    where=node_place(script.file, loader.node if loop is None else loop),
                    confidence="likely",
                    evidence=(Evidence(f"workers start with `{method}`: each imports this file",
                                       "source"),),
                    fix=Fix("put it under `if __name__ == \"__main__\":`",
                            "or `num_workers=0`; classes and functions stay outside", "unsafe"))
                return


_LOG = '''Traceback (most recent call last):
  File "train.py", line 21, in <module>
    for x, y in loader:
  File "C:\\Python311\\Lib\\multiprocessing\\spawn.py", line 138, in _check
    raise RuntimeError(%s
RuntimeError:
        An attempt has been made to start a new process before the
        current process has finished its bootstrapping phase.
'''
_PROGRAM = """
import torch
from torch.utils.data import DataLoader

torch.multiprocessing.set_start_method("spawn")
loader = DataLoader(torch.randn(8, 3), batch_size=2, num_workers=2)
%sfor x in loader:
    print(x)
"""

RULE = Rule(
    name="spawn-without-main-guard", doc=__doc__, category="code", in_failure=in_failure,
    in_source=in_source,
    examples=(
        fires(_LOG % "", "a spawned worker runs the script's training again", "__main__",
              kind="log", title="traceback"),
        fires(_PROGRAM % "", "each imports this file", kind="source", line="for x in loader",
              title="top level"),
        quiet(_PROGRAM % 'if __name__ == "__main__":\n  ', kind="source", title="guarded"),
        quiet((_PROGRAM % "").replace("num_workers=2", "num_workers=0"), kind="source",
              title="no workers"),
        fires(_LOG.partition("  File \"C:")[0] + "  File \"C:\\Python311\\Lib\\multiprocessing\\"
              "reduction.py\", line 60, in dump\n    ForkingPickler(file, protocol).dump(obj)\n"
              "BrokenPipeError: [Errno 32] Broken pipe\n", "while it was being started",
              kind="log", title="the parent's half"),
        quiet(_LOG.replace("bootstrapping", "last") % "", kind="log", title="other text"),
    ),
)
