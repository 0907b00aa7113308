"""Somebody interrupted the run.

## What you see
`KeyboardInterrupt`, or nothing at all when the program handles the signal itself; exit code 130,
or 0 where the handler ends the program as if all were well.
## Why
Ctrl-C, or a SIGINT from a scheduler or another program.
## Fix
None is needed if you did it. A handler should save a checkpoint and then end with a code other
than 0, so that nobody takes the run for a finished one.
## When this is fine
Whenever you pressed Ctrl-C yourself.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from torchmedic import logtext, wording
from torchmedic.model import Evidence, Fix, Problem, Rule, fires, quiet

if TYPE_CHECKING:
    from torchmedic.observed import ExitCall, Failure, Log, Process, Run

WORDS = ("keyboardinterrupt",)


def in_run(run: Run) -> Iterator[Problem]:
    main = run.main
    if main is None:
        return
    handled = next((c for c in main.exits if c.handler_of), None)
    error = next((f for f in main.failures
                  if f.how == "uncaught" and f.short_type == "KeyboardInterrupt"), None)
    if handled is not None:
        yield _handled(run, main, handled)
    elif error is not None or run.main_signal == "SIGINT":
        yield _interrupted(run, main, error)


def in_log(log: Log) -> Iterator[Problem]:
    told = logtext.lasting(log)
    bare = next((n for n, line in enumerate(log.lines, 1) if line.strip() == "KeyboardInterrupt"),
                None)
    last = told[-1] if told and told[-1].short_type == "KeyboardInterrupt" else None
    if last is not None or (bare is not None and not told):
        yield Problem(
            "the run was interrupted", last.place if last else None,
            (Evidence("KeyboardInterrupt", f"log:{last.line_number if last else bare}"),),
            about=logtext.about(last), severity="warning")


def _handled(run: Run, main: Process, call: ExitCall) -> Problem:
    where = main.place_at(call.frames)
    code = "0: it looks finished" if run.ending.code == 0 else str(run.ending.code)
    return Problem(
        f"{call.handler_of} interrupted the run {wording.batch(where)}, and the program's own "
        f"handler ended it with code {code}", where,
        (Evidence(f"the handler called {call.how} at "
                  f"{wording.at(wording.innermost_user(call.frames))}", call.how),
         *wording.stack_evidence(call.frames, call.how), *wording.progress(run)),
        Fix("let the handler end with a code other than 0, such as 130")
        if run.ending.code == 0 else None, about=("ending",),
        severity="warning",
    )


def _interrupted(run: Run, main: Process, error: Failure | None) -> Problem:
    place = error.place if error else main.place
    about = ("ending", *((f"failure:{error.key}",) if error else ()))
    return Problem(
        f"the run was interrupted {wording.moment(place)}", place,
        (Evidence(_sender(run), "supervisor"), *wording.progress(run)),
        about=about, severity="warning",
    )


def _sender(run: Run) -> str:
    if run.stall is not None and run.stall.stopped:
        return "torchmedic sent SIGINT, because the run did not move (--hang-stop)"
    if run.ending.forwarded == "SIGINT":
        return "torchmedic received SIGINT and passed it on"
    return "SIGINT came from the terminal, or from outside"


_PROGRAM = """
import os, signal, sys, torch
from torch import nn
torch.set_num_threads(1)
net = nn.Linear(4, 2)
{}
for number, batch in enumerate(torch.utils.data.DataLoader(torch.randn(12, 4), batch_size=4)):
    net(batch)
    if number == 1:
        {}
"""

RULE = Rule(
    name="interrupted", doc=__doc__, category="environment", level="symptom", in_run=in_run,
    in_log=in_log,
    examples=(
        fires(_PROGRAM.format("", "signal.raise_signal(signal.SIGINT)"), "in batch 2"),
        fires(_PROGRAM.format(
            "def bye(number, frame):\n    sys.exit(0)\nsignal.signal(signal.SIGINT, bye)",
            "signal.raise_signal(signal.SIGINT)"), "the program's own handler", "looks finished"),
        fires(_PROGRAM.format(
            "def bye(number, frame):\n    sys.exit(130)\nsignal.signal(signal.SIGINT, bye)",
            "signal.raise_signal(signal.SIGINT)"), "handler ended it with code 130"),
        fires("epoch 1\nTraceback (most recent call last):\n  File \"fit.py\", line 3, in step\n"
              "    go()\nKeyboardInterrupt\n", "the run was interrupted", kind="log", title="log"),
        quiet(_PROGRAM.format("", "pass")),
    ),
)
