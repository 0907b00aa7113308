"""The process was ended by a signal from outside the program.

## What you see
The output stops in the middle of a line. The shell may print `Killed` or `Terminated`; the exit
code is 128 plus the signal's number: 137 for SIGKILL, 143 for SIGTERM, 129 for SIGHUP.
## Why
Somebody sent the signal: the kernel when memory ran out (that has a rule of its own), a
scheduler at the end of the job's time, a person with `kill`, a terminal that was closed, or the
program itself.
## Fix
Find the sender. For a time limit ask for more time or save checkpoints often enough; for a
closed terminal start the run under `tmux`, `nohup` or a scheduler.
## When this is fine
When you stopped the run yourself.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

from torchmedic import hostkills, logtext, toldends, wording
from torchmedic.model import Evidence, Fix, Place, Problem, Rule, fires, quiet
from torchmedic.signals import CRASHES

if TYPE_CHECKING:
    from torchmedic.observed import Log, Process, Run, SignalSent

WORDS = ("signal", "terminated", "hangup", "exit", "cancelled", "pbs", "sig", "runlimit")
# These have rules of their own: native-crash, interrupted.
ELSEWHERE = (*CRASHES, "SIGINT")
SCHEDULER = re.compile(r"CANCELLED AT .*?(?:DUE TO (?P<why>[A-Z ]+?))? ?\*\*\*"
                       r"|=>> PBS: job killed: (?P<pbs>.*)|TERM_RUNLIMIT")
FIXES = {
    "SIGHUP": Fix("start the run where no terminal can take it along: tmux, nohup or a scheduler"),
    "SIGTERM": Fix("find who ended it: a scheduler's time limit, a container that was stopped, "
                   "or a `kill`"),
    "SIGKILL": Fix("find who sent SIGKILL: the scheduler's log, the container's limits, "
                   "other users of the machine", command="dmesg -T | grep -i -E 'kill|oom'"),
}


def in_run(run: Run) -> Iterator[Problem]:
    name = run.main_signal
    if name is None and run.main is not None and run.main.abrupt:
        yield _abrupt(run, run.main)
    if name is None or name in ELSEWHERE:
        return
    place = _place(run, name)
    moment = f" {wording.batch(place)}" if place else ""
    yield Problem(
        f"the process was ended by {name}{moment}", place,
        (*_sender(run, name), *_memory(run, name), *wording.progress(run)),
        _fix(run, name), about=("ending",),
        category="code" if _sent(run, name) else "environment",
    )


def in_log(log: Log) -> Iterator[Problem]:
    """A scheduler's line, or a signal that ended it. SIGKILL is `host-out-of-memory`'s."""
    stopped = logtext.first(log, SCHEDULER)
    if stopped is not None:
        why = stopped.match["why"] or "a scheduler's order"
        yield Problem(f"the scheduler ended the job: {why.lower()}", evidence=(stopped.evidence,),
                      fix=Fix("ask for more time, or save checkpoints often enough and resume"),
                      about=logtext.about(*logtext.lasting(log)),
                      confidence="certain" if stopped.match["why"] else "likely")
        return
    ends = [end for end in toldends.ends(log) if not end.worker]
    last = next((end for end in reversed(ends) if end.signal in ("SIGTERM", "SIGHUP")), None)
    if last is None or hostkills.own_cause(log) or any(end.signal not in FIXES for end in ends) \
            or any(end.signal == "SIGKILL" for end in ends):
        return
    yield Problem(f"the process was ended by {last.signal}; the log does not say who sent it",
                  evidence=(last.hit.evidence,), confidence="likely",
                  category="environment" if last.signal == "SIGHUP" else "unknown",
                  fix=FIXES[last.signal], about=logtext.about(*logtext.lasting(log)))


def _abrupt(run: Run, main: Process) -> Problem:
    """A launcher above it kept its status to itself."""
    return Problem(
        f"the training process ended abruptly {wording.moment(main.place)}, before the end of its "
        "program", main.place,
        (Evidence("Python's own end was not reached, and nobody told its exit code", "recorder"),
         Evidence(f"the command above it ended with {run.ending.code}", "supervisor"),
         *_memory(run, "SIGKILL"), *wording.progress(run)),
        Fix("start it without the launcher or shell above it, to see its exit code"),
        about=("ending",), confidence="likely",
    )


def _place(run: Run, name: str) -> Place | None:
    """The line that sent the signal, if it is the program's own; else where it was last."""
    if run.main is None:
        return None
    sent = _sent(run, name)
    own = sent is not None and sent.sender == run.main.pid
    return run.main.place_at(sent.frames) if sent and own else run.main.place


def _sent(run: Run, name: str) -> SignalSent | None:
    """The call inside the run that sent it."""
    return next((sent for sent in reversed(run.signals)
                 if run.main and sent.signal == name and sent.reaches(run.main.pid)), None)


def _sender(run: Run, name: str) -> Iterator[Evidence]:
    sent = _sent(run, name)
    if sent is not None:
        own = run.main is not None and sent.sender == run.main.pid
        who = "the process itself" if own else f"process {sent.sender} of this run"
        yield Evidence(f"{who} sent it at {wording.at(wording.innermost_user(sent.frames))}",
                       "os.kill")
    elif run.ending.forwarded == name:
        yield Evidence(f"torchmedic received {name} from outside and passed it on", "supervisor")
    else:
        yield Evidence("no Python process of this run was seen to send it", "supervisor")


def _memory(run: Run, name: str) -> Iterator[Evidence]:
    memory = run.memory
    if name != "SIGKILL" or not memory.limit:
        return
    share = memory.peak / memory.limit
    counter = ("; the kernel counted no kill for memory" if memory.oom_kills == 0 else "")
    yield Evidence(f"memory of the run peaked at {wording.size(memory.peak)}, {share:.0%} of the "
                   f"{wording.size(memory.limit)} {memory.limit_source}{counter}", "supervisor")


def _fix(run: Run, name: str) -> Fix:
    if _sent(run, name):
        return Fix("the program sends this signal itself: look at that line")
    return FIXES.get(name, Fix(f"find who sent {name}"))


_PROGRAM = """
import os, signal, torch
from torch import nn
torch.set_num_threads(1)
loader = torch.utils.data.DataLoader(torch.randn(12, 4), batch_size=4)
net = nn.Linear(4, 2)
for number, batch in enumerate(loader):
    net(batch)
    if number == 1:
        {}
"""

RULE = Rule(
    name="killed-by-signal", doc=__doc__, category="environment", level="symptom", in_run=in_run,
    in_log=in_log,
    examples=(
        fires(_PROGRAM.format("os.kill(os.getpid(), signal.SIGKILL)"), "SIGKILL", "in batch 2",
              "the process itself sent it at train.py:10",
              line="os.kill(os.getpid(), signal.SIGKILL)"),
        fires(_PROGRAM.format("os.killpg(0, signal.SIGKILL)"), "the process itself sent it",
              line="os.killpg(0, signal.SIGKILL)", title="to its own group"),
        fires(_PROGRAM.format("os.kill(os.getpid(), signal.SIGTERM)"), "SIGTERM", "in batch 2"),
        fires("epoch 9\nslurmstepd: error: *** JOB 7 ON n1 CANCELLED AT 2024-01-01T10:00:00 DUE TO "
              "TIME LIMIT ***\n", "the scheduler ended the job: time limit", kind="log",
              title="scheduler"),
        fires("epoch 9\nSignalException: Process 7 got signal: 1\n", "ended by SIGHUP", "tmux",
              kind="log", title="terminal"),
        quiet(_PROGRAM.format("pass")),
    ),
)
