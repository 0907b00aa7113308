"""What a log says about a process that was killed for the host's memory."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

from torchmedic import logtext, toldends
from torchmedic.failures import only_reports
from torchmedic.model import Evidence, Fix, Problem, fires, quiet
from torchmedic.workers import EXITED

if TYPE_CHECKING:
    from torchmedic.logtext import Hit
    from torchmedic.observed import Failure, Log

KERNEL = re.compile(
    r"oom[-_]kill(?!er\b)|[Oo]ut of memory: Kill|Memory cgroup out of memory|OOMKilled"
    r"|cgroup out-of-memory handler|OUT_OF_MEMORY|oom-kill event"
    r"|Exceeded (?:job|step) memory limit|node running low on memory|exceeded memory limit"
    r"|MemoryLimitExceeded|task \d+: Out Of Memory|TERM_MEMLIMIT|job killed: v?p?v?mem \S+ exceeded"
    r"|systemd-oomd\S* Killed|earlyoom\S* (?:sending SIG|low memory)"
    r"|ran out[- ]of[- ]memory and exited|use an instance type with more memory"
    r"|crashed after using all available RAM|ran out of memory \(RAM\)")
FIX = Fix("use fewer workers or processes, hold less of the dataset in memory, or give the job "
          "more memory", "a smaller GPU batch is no cure where data piles up on the host; `--mem` "
          "for Slurm, `--memory` for Docker", command="dmesg -T | grep -i -E 'oom|killed process'")


def in_log(log: Log) -> Iterator[Problem]:
    if any(f.short_type == "MemoryError" for f in log.failures):
        return
    killed = [end for end in toldends.ends(log) if end.signal == "SIGKILL"]
    proof = logtext.first(log, KERNEL)
    if proof is not None:
        yield _problem(log, "host memory ran out: the kernel or the scheduler killed the process "
                       "for it", proof, True)
    elif killed and not own_cause(log):
        who = "a DataLoader worker" if killed[-1].worker else "the process"
        yield _problem(log, f"{who} got SIGKILL, mostly the kernel's when host memory runs out",
                       killed[-1].hit, False)


def own_cause(log: Log) -> Failure | None:
    """An exception that is more than the report of another process's end."""
    return next((f for f in logtext.lasting(log)
                 if not only_reports(f) and not EXITED.search(f.message)
                 and f.short_type not in ("KeyboardInterrupt", "SystemExit", "SignalException")),
                None)


def _problem(log: Log, how: str, hit: Hit, proven: bool) -> Problem:
    reports = [f for f in logtext.lasting(log) if only_reports(f) or EXITED.search(f.message)]
    proof = () if proven else (Evidence(
        "the log has no line of the kernel about it: `dmesg` tells", ""),)
    return Problem(how, where=reports[-1].place if reports else None,
                   evidence=(hit.evidence, *proof), fix=FIX, about=logtext.about(*reports),
                   confidence="certain" if proven else "likely")


EXAMPLES = (
    fires("epoch 3 step 900\nslurmstepd: error: Detected 1 oom_kill event in StepId=77.0. Some of "
          "the step tasks have been OOM Killed.\nsrun: error: node3: task 0: Out Of Memory\n",
          "the kernel or the scheduler killed", "--mem", kind="log", title="scheduler"),
    fires("epoch 3 step 900\ntrain.sh: line 4: 1412 Killed                  python fit.py\n",
          "the process got SIGKILL", "dmesg", kind="log", title="shell"),
    fires("epoch 4\nTERM_MEMLIMIT: job killed after reaching LSF memory usage limit.\n",
          "the kernel or the scheduler killed", kind="log", title="memory limit of a job"),
    fires("systemd-oomd[801]: Killed /user.slice/session-2.scope due to memory pressure\n",
          "the kernel or the scheduler killed", kind="log", title="systemd"),
    fires("[12345.6] Memory cgroup out of memory: Killed process 1412 (python) total-vm:9kB\n",
          "killed the process for it", kind="log", title="kernel"),
    quiet("Traceback (most recent call last):\n  File \"fit.py\", line 3, in <module>\n    f()\n"
          "ValueError: no data\nERROR: failed (exitcode: -9) local_rank: 1 (pid: 12)\n",
          kind="log", title="stopped after another's failure"),
)
