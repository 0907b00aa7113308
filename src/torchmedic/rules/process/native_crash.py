"""Native code crashed: a segmentation fault, an abort, a bus error or an arithmetic fault.

## What you see
`Segmentation fault (core dumped)`, `Aborted`, `Bus error` or nothing at all; the exit code is
139, 134, 135 or 136. Python prints no traceback, because it was not asked.
## Why
C or C++ code below Python did something illegal: an extension built for another version, a
library used from two threads, an index checked nowhere, memory that ran out inside a library.
## Fix
The line shown is the last Python line before the native call. Update or reinstall the library
called there; try that call alone with the same input.
## When this is fine
Never. A crash while the interpreter is ending, after all work is done, costs nothing but looks.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from torchmedic import wording
from torchmedic.model import Evidence, Fix, Problem, Rule, fires, quiet
from torchmedic.observed import Process, Run
from torchmedic.signals import CRASHES

# What libc, libstdc++ and CUDA print before they abort.
LAST_WORDS = re.compile(
    r"terminate called|what\(\):|free\(\): |malloc\(\)|double free|corrupted|stack smashing|"
    r"Assertion .* failed|CUDA error|Fatal Python error"
)


def in_run(run: Run) -> Iterator[Problem]:
    name = run.main_signal
    main = run.main
    if main is None or name not in CRASHES:
        return
    place = main.place
    inside = f" inside `{main.module}` ({main.module_class})" if main.module else ""
    thread = "" if main.fatal_thread in (None, "main") else ", in a thread that is not the main one"
    yield Problem(
        f"native code crashed with {name} ({CRASHES[name]}) {wording.batch(place)}{inside}{thread}",
        place,
        (*_aborted(main), *wording.stack_evidence(main.fatal_frames, "faulthandler"),
         *_last_words(run), *wording.progress(run)),
        _fix(main), about=("ending",),
    )


def _aborted(main: Process) -> Iterator[Evidence]:
    for call in main.exits:
        if call.how == "os.abort":
            frame = wording.innermost_user(call.frames)
            yield Evidence(f"the program called os.abort() at {wording.at(frame)}", "os.abort")


def _last_words(run: Run) -> Iterator[Evidence]:
    for line in run.output.lines[-60:]:
        if LAST_WORDS.search(line):
            yield Evidence(line.strip()[:200], "stderr")


def _fix(main: Process) -> Fix:
    inner = main.fatal_frames[-1] if main.fatal_frames else None
    if inner is None:
        return Fix("run the same command with `python -X faulthandler` to see the Python stack")
    called = wording.innermost_user(main.fatal_frames)
    if called is not inner and called is not None:
        return Fix(f"look at what `{inner.function}` is given at {wording.at(called)}; if that is "
                   "right, update or reinstall the library it belongs to")
    return Fix(f"try the call at {wording.at(inner)} alone with the same input; update or "
               "reinstall the library it belongs to")


_PROGRAM = """
import ctypes, os, torch
from torch import nn
torch.set_num_threads(1)

class Scale(nn.Module):
    def __init__(self):
        super().__init__()
        self.seen = 0
    def forward(self, x):
        self.seen += 1
        if self.seen == 2:
            {}
        return x / 255

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.scale = Scale()
        self.head = nn.Linear(4, 2)
    def forward(self, x):
        return self.head(self.scale(x))

net = Net()
for batch in torch.utils.data.DataLoader(torch.randn(12, 4), batch_size=4):
    net(batch)
"""

RULE = Rule(
    name="native-crash", doc=__doc__, category="code", in_run=in_run,
    examples=(
        fires(_PROGRAM.format("ctypes.string_at(0)"), "SIGSEGV", "in batch 2",
              "inside `scale` (Scale)", "in string_at", line="ctypes.string_at(0)"),
        fires(_PROGRAM.format("os.abort()"), "SIGABRT", "called os.abort() at train.py:13"),
        quiet(_PROGRAM.format("pass")),
    ),
)
