"""One rank failed, and the launcher stopped the others.

## What you see
`ChildFailedError`, `Sending process 4711 closing signal SIGTERM`, `exitcode: 1`, and tracebacks
of several ranks mixed in one stream.
## Why
One rank raised or was killed; the others then waited for it or were stopped. Only the first
failure is the cause.
## Fix
Mend the first rank's failure. Decorating `main` with torch's `@record` makes the launcher print
it.
## When this is fine
Never.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

from torchmedic import hostkills, logtext, wording
from torchmedic.model import Evidence, Fix, Problem, Rule, fires, quiet
from torchmedic.remedies import raised
from torchmedic.signals import signal_name

if TYPE_CHECKING:
    from torchmedic.observed import Failure, Log, Process, Run

WORDS = ("childfailederror", "root cause", "gloo")
ROOT = re.compile(r"Root Cause \(first observed failure\)")
GLOO = re.compile(r"gloo/transport/.*(?:Connection (?:reset|closed) by peer|Broken pipe)")
RANK = re.compile(r"^\s*rank\s*: (?P<rank>\d+)")
CODE = re.compile(r"exitcode\s*: ?(?P<code>-?\d+)")


def in_failure(failure: Failure) -> Iterator[Problem]:
    """gloo, torch's own transport between CPUs, on a rank that was left alone."""
    if GLOO.search(failure.message):
        yield Problem(
            "another rank ended or became unreachable: this one only lost its connection",
            where=failure.place, evidence=(raised(failure),), category="unknown",
            confidence="possible", fix=Fix(
                "look for the first traceback of any other rank, or for its kill by the kernel",
                "`torchrun --log-dir logs --redirects 3` keeps each rank's output"))


def in_log(log: Log) -> Iterator[Problem]:
    """The launcher's summary, where the failed rank's own traceback is missing."""
    root, code = logtext.first(log, ROOT), logtext.first(log, CODE)
    failed = [f for f in logtext.lasting(log) if f.short_type == "ChildFailedError"]
    if hostkills.own_cause(log) or not (failed or root) or code is None:
        return
    rank = next((hit.match["rank"] for hit in logtext.hits(log, RANK)
                 if root and hit.number > root.number), None)
    number = int(code.match["code"])
    how = signal_name(-number) if number < 0 else f"exit code {number}"
    yield Problem(
        f"rank {rank or '?'} failed first, with {how}; its own traceback is not in this log",
        evidence=(code.evidence,), category="unknown", confidence="likely",
        fix=Fix("look for the first traceback above, or in the ranks' own logs",
                "`torchrun --log-dir logs --redirects 3` keeps each rank's output; `@record` above "
                "`main` puts the traceback into the summary"),
        about=logtext.about(*failed))


def in_run(run: Run) -> Iterator[Problem]:
    ranks = [p for p in run.processes if p.rank is not None and p.role in ("main", "rank")]
    first = run.main
    if len(ranks) < 2 or first is None or first.rank is None or not _failed(run, first):
        return
    failure = next((f for f in first.failures if f.how == "uncaught"), None)
    how = (f"`{failure.short_type}`" if failure else _signal(first) or f"code {first.exit_code}")
    place = failure.place if failure else first.place
    others = [p.rank for p in ranks if p is not first]
    yield Problem(
        f"rank {first.rank} of {len(ranks)} failed first, with {how}", place,
        (Evidence(f"the launcher stopped the other ranks ({', '.join(map(str, others))})",
                  "recorder"), *wording.progress(run, first)),
        Fix("mend what ended this rank; the other ranks' errors only follow"),
        about=("ending", *((f"failure:{failure.key}",) if failure else ())),
    )


def _failed(run: Run, process: Process) -> bool:
    return (run.ending.code != 0) and (
        any(f.how == "uncaught" for f in process.failures) or bool(_signal(process))
        or (process.exit_code or 0) > 0)


def _signal(process: Process) -> str | None:
    code = process.exit_code
    return signal_name(-code) if code is not None and code < 0 else None


_PROGRAM = """
import os, subprocess, sys
if "RANK" not in os.environ:
    command = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2",
               "--master-port", "{port}", __file__]
    sys.exit(subprocess.run(command).returncode)
import torch
torch.set_num_threads(1)
torch.distributed.init_process_group("gloo")
rank = torch.distributed.get_rank()
net = torch.nn.Linear(4, 2)
for x in torch.utils.data.DataLoader(torch.randn(12, 4), batch_size=4):
    {body}
    torch.distributed.barrier()
torch.distributed.destroy_process_group()
"""

RULE = Rule(
    name="rank-failed", doc=__doc__, category="code", level="symptom",
    in_failure=in_failure, in_run=in_run, in_log=in_log,
    examples=(
        fires(_PROGRAM.format(port=29517, body="net(x) if rank == 0 else {}['lr']"),
              "rank 1 of 2 failed first, with `KeyError`"),
        fires("torch.distributed.elastic.multiprocessing.errors.ChildFailedError:\nRoot Cause "
              "(first observed failure):\n[0]:\n  rank      : 3 (local_rank: 3)\n"
              "  exitcode  : 1 (pid: 9)\n",
              "rank 3 failed first, with exit code 1", "@record", kind="log", title="summary"),
        quiet(_PROGRAM.format(port=29518, body="net(x)")),
    ),
)
