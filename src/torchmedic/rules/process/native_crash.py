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
from typing import TYPE_CHECKING

from torchmedic import hostkills, logtext, toldends, wording
from torchmedic.logs.faulthandler import read_dumps
from torchmedic.model import Evidence, Fix, Place, Problem, Rule, fires, quiet
from torchmedic.signals import CRASHES

if TYPE_CHECKING:
    from torchmedic.observed import Frame, Log, Process, Run

WORDS = (
    "fault", "signal", "abort", "exit", "fatal", "bus error", "instruction", "floating point",
    "terminate",
)
# What libc, libstdc++ and CUDA print before they abort.
BUS = Fix("look at shared memory and at memory-mapped files the program reads: one that was cut "
          "short, and a full /dev/shm or disk, give a bus error", command="df -h /dev/shm .")
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


def in_log(log: Log) -> Iterator[Problem]:
    crash = next((end for end in reversed(toldends.ends(log)) if not end.worker and
                  (end.signal in CRASHES or not end.signal.startswith("SIG"))), None)
    dump = next((d for d in read_dumps(log.lines) if d.error and d.current), None)
    if hostkills.own_cause(log) or (crash is None and dump is None):
        return
    frames = dump.current.frames if dump and dump.current else ()
    what = crash.signal if crash else dump.error if dump else ""
    yield Problem(
        f"native code crashed ({what})" + ("" if frames else "; the log does not say where"),
        where=_told_place(frames), confidence="likely",
        evidence=(*((crash.hit.evidence,) if crash else ()),
                  *wording.stack_evidence(frames, "faulthandler")),
        fix=BUS if what in ("SIGBUS", "Bus error") else Fix(
            "look at the call at that line; update or reinstall the library it belongs to")
        if frames else Fix("run it again under faulthandler, which shows the Python line",
                           "then with `num_workers=0`, and watch the memory meanwhile",
                           command="python -X faulthandler …"),
        about=logtext.about(*logtext.lasting(log)), category="code" if frames else "unknown",
    )


def _told_place(frames: tuple[Frame, ...]) -> Place | None:
    frame = wording.innermost_user(frames)
    return Place(file=frame.file, line=frame.line, function=frame.function) if frame else None


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
    name="native-crash", doc=__doc__, category="code", in_run=in_run, in_log=in_log,
    examples=(
        fires(_PROGRAM.format("ctypes.string_at(0)"), "SIGSEGV", "in batch 2",
              "inside `scale` (Scale)", "in string_at", line="ctypes.string_at(0)"),
        fires(_PROGRAM.format("os.abort()"), "SIGABRT", "called os.abort() at train.py:13"),
        fires("epoch 1 step 40\nSegmentation fault (core dumped)\n", "(SIGSEGV)", "-X faulthandler",
              kind="log", title="log"),
        fires("epoch 1\n\nProcess finished with exit code -1073741819 (0xC0000005)\n",
              "(access violation)", kind="log", title="Windows"),
        fires("Fatal Python error: Segmentation fault\n\nCurrent thread 0x01 (most recent call "
              "first):\n  File \"fit.py\", line 7 in load\n", "Segmentation fault", "load",
              kind="log", title="faulthandler"),
        quiet(_PROGRAM.format("pass")),
    ),
)
