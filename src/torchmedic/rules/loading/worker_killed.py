"""A DataLoader worker was killed by a signal from outside.

## What you see
`RuntimeError: DataLoader worker (pid(s) 4711) exited unexpectedly`, or `… is killed by signal:
Killed`, raised in the parent at whatever line it was at.
## Why
Mostly the kernel or the container killed it because memory ran out (that has a rule of its
own); else a person, a scheduler or the dataset's own code sent the signal.
## Fix
Look for who sent it: the kernel log, the scheduler. If memory is tight, fewer workers or a
smaller `prefetch_factor` need less of it.
## When this is fine
When you killed it yourself.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from torchmedic import logtext, toldends, wording, workers
from torchmedic.model import Evidence, Fix, Problem, Rule, fires, quiet
from torchmedic.signals import CRASHES

if TYPE_CHECKING:
    from torchmedic.observed import Log, Process, Run

WORDS = ("worker",)


def in_run(run: Run) -> Iterator[Problem]:
    for worker in workers.ended(run):
        name = workers.ended_by(worker)
        if name is None or name in CRASHES or worker.fatal:
            continue
        if not workers.about(run, worker):
            continue  # stopped with the run, not the cause of its end
        yield Problem(
            f"{workers.name(worker)} was killed by {name} {workers.doing(worker)}",
            workers.place(run, worker),
            (*_sender(run, worker, name), *workers.evidence(run, worker),
             *wording.stack_evidence(worker.stack, "worker's last sampled stack", 4)),
            Fix("find who sent it (kernel log, scheduler); if memory is tight use fewer workers "
                "or a smaller prefetch_factor", command="dmesg -T | grep -i -E 'kill|oom'"),
            about=workers.about(run, worker),
        )
        return


def in_log(log: Log) -> Iterator[Problem]:
    for end in toldends.ends(log):
        if end.worker and end.signal not in CRASHES:
            told = logtext.said_by(log, workers.EXITED)
            yield Problem(
                f"a DataLoader worker was killed by {end.signal}",
                where=told.place if told else None, evidence=(end.hit.evidence,),
                fix=Fix("find who sent it (kernel log, scheduler)",
                        command="dmesg -T | grep -i -E 'kill|oom'"), about=logtext.about(told))
            return


def _sender(run: Run, worker: Process, name: str) -> Iterator[Evidence]:
    for sent in run.signals:
        if sent.target == worker.pid and sent.signal == name:
            who = "the worker itself" if sent.sender == worker.pid else f"process {sent.sender}"
            yield Evidence(f"{who} sent {name} at "
                           f"{wording.at(wording.innermost_user(sent.frames))}", "os.kill")
            return
    memory = run.memory
    if memory.limit:
        yield Evidence(f"memory of the run peaked at {wording.size(memory.peak)} of "
                       f"{wording.size(memory.limit)}", "supervisor")


RULE = Rule(
    name="worker-killed", doc=__doc__, category="environment", level="symptom", in_run=in_run,
    in_log=in_log,
    examples=(
        fires(workers.EXAMPLE.format("os.kill(os.getpid(), signal.SIGKILL)"), "killed by SIGKILL",
              "batch 2 (samples 4 to 7)", "the worker itself sent SIGKILL at train.py:9",
              "exit code -9"),
        fires("RuntimeError: DataLoader worker (pid 88) is killed by signal: Terminated. \n",
              "killed by SIGTERM", kind="log", title="log"),
        quiet(workers.EXAMPLE.format("pass")),
    ),
)
