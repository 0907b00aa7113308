"""Ranks waited for each other until the time was up.

## What you see
`Watchdog caught collective operation timeout: WorkNCCL(SeqNum=…, OpType=ALLREDUCE, …) ran for
1800123 milliseconds before timing out`, or gloo's `Timed out waiting 1800000ms`.
## Why
A collective needs every rank. One rank is elsewhere: it crashed, still loads or saves, validates
alone, had fewer batches, or took another branch. The ranks that report the timeout are those that
waited.
## Fix
Find the rank that is missing or differs: its own traceback, or its stack while it waits
(`py-spy dump --pid`). A longer timeout only helps where a rank is really only slow.
## When this is fine
When a rank was stopped on purpose.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

from torchmedic import logtext
from torchmedic.model import Evidence, Fix, Problem, Rule, fires, quiet

if TYPE_CHECKING:
    from torchmedic.logtext import Hit
    from torchmedic.observed import Log

WORDS = ("monitoredbarrier", "watchdog", "timed out", "timeout", "mismatch between collectives")
WATCHDOG = re.compile(
    r"(?:[Rr]ank (?P<rank>\d+)\b.*?)?Watchdog caught collective operation timeout: "
    r"WorkNCCL\((?:SeqNum=(?P<seq>\d+), )?OpType=(?P<op>\w+)(?P<rest>.*)")
SIZE = re.compile(r"NumelIn=(\d+)")
LIMIT = re.compile(r"Timeout\(ms\)=(\d+)")
OTHER = re.compile(r"Timed out waiting \d+ms for (?:recv|send)|Timed out after \d+ seconds waiting"
                   r"|Socket Timeout|wait timeout after \d+ms|DistStoreError: Timed out"
                   r"|watchdog got stuck for \d+ seconds|heartbeat monitor timed out"
                   r"|failed to pass monitoredBarrier"
                   r"|monitoredBarrier.*(?:timed out|failed)")
MISMATCH = re.compile(r"[Dd]etected mismatch between collectives on ranks")


def in_log(log: Log) -> Iterator[Problem]:
    seen = list(logtext.hits(log, WATCHDOG))
    other = logtext.first(log, OTHER)
    if mismatch := logtext.first(log, MISMATCH):
        yield _mismatched(log, mismatch)
    elif seen or other:
        hits = seen or [hit for hit in (other,) if hit]
        yield Problem(
            _message(seen), evidence=(hits[0].evidence, *_ranks(seen)), about=_about(log),
            confidence="likely", category="unknown", fix=Fix(
                "find the rank that is elsewhere: its own traceback above, or its stack while the "
                "others wait", "TORCH_NCCL_TRACE_BUFFER_SIZE=2000 and TORCH_NCCL_DUMP_ON_TIMEOUT=1 "
                "record each rank's last collectives", command="py-spy dump --pid PID_OF_RANK"))


def _mismatched(log: Log, hit: Hit) -> Problem:
    return Problem("ranks called different collectives: one took another path through the program",
                   evidence=(hit.evidence,), about=_about(log), category="code", fix=Fix(
                       "let every rank make the same collective calls in the same order",
                       "look for `if rank == 0:` and uneven data around collective calls"))


def _message(seen: list[Hit]) -> str:
    ranks = sorted({int(hit.match["rank"]) for hit in seen if hit.match["rank"]})
    who = f"rank{'s' * (len(ranks) > 1)} {', '.join(map(str, ranks))}" if ranks else "a rank"
    op = f" in {seen[0].match['op']}" if seen else ""
    limit = LIMIT.search(seen[0].match["rest"]) if seen else None
    after = f" for {int(limit[1]) // 1000} s" if limit else ""
    return (f"{who} waited{after}{op} for a rank that did not come; the log does not say where "
            "that rank was")


def _ranks(seen: list[Hit]) -> Iterator[Evidence]:
    """Where the ranks differ."""
    last: dict[str, str] = {}
    for hit in seen:
        if hit.match["rank"] and hit.match["seq"]:
            size = SIZE.search(hit.match["rest"])
            last[hit.match["rank"]] = f"{hit.match['op']} number {hit.match['seq']}" + (
                f" of {size[1]} elements" if size else "")
    if len(set(last.values())) > 1:
        told = "; ".join(f"rank {rank} in {what}" for rank, what in sorted(last.items())[:6])
        yield Evidence(f"{told}: they are not at the same call", f"log:{seen[0].number}")


def _about(log: Log) -> tuple[str, ...]:
    reports = [f for f in logtext.lasting(log) if re.search(
        r"NCCL|[Tt]ime|collective|ChildFailed|Connection|terminated", f"{f.type} {f.message}")]
    return logtext.about(*reports)


_LOG = ("[rank{0}]:[E ProcessGroupNCCL.cpp:607] [Rank {0}] Watchdog caught collective operation "
        "timeout: WorkNCCL(SeqNum={1}, OpType={2}, NumelIn=1, NumelOut=1, Timeout(ms)=600000) ran "
        "for 600041 milliseconds before timing out.\n")

RULE = Rule(
    name="collective-timeout", doc=__doc__, category="unknown", level="symptom", in_log=in_log,
    examples=(
        fires(_LOG.format(0, 88, "ALLREDUCE") + _LOG.format(2, 87, "BROADCAST"),
              "ranks 0, 2 waited for 600 s in ALLREDUCE", "not at the same call",
              "py-spy", kind="log", title="watchdog"),
        fires("RuntimeError: [gloo/transport/tcp/unbound_buffer.cc:81] Timed out waiting 1800000ms "
              "for recv operation to complete\n", "for a rank that did not come", kind="log",
              title="gloo"),
        quiet("epoch 1: waiting for data, timeout 1800 s\nepoch 1 loss 0.5\n", kind="log"),
    ),
)
