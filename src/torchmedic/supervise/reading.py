"""From a run's folder to `observed.Run`: everything the rules may ask about."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from torchmedic.logs.statuses import told_exit_codes
from torchmedic.logs.tracebacks import read_log
from torchmedic.observed import Ending, HostMemory, Process, Run, Stall
from torchmedic.signals import signal_name
from torchmedic.source.script import Script
from torchmedic.supervise.outcome import Outcome
from torchmedic.supervise.processes import process_of, signals_of, stacks_of
from torchmedic.supervise.spools import Role, Spool, read_spools


def read_run(folder: Path) -> Run:
    """The run that a folder holds."""
    return run_of(Outcome.read(folder), folder / "spool")


def run_of(outcome: Outcome, spool: Path) -> Run:
    """The run that ended so, with what its processes wrote."""
    facts, output = outcome.facts, outcome.output
    spools = [s for s in read_spools(spool) if not s.is_helper]
    return Run(
        command=tuple(facts["command"]), ending=_ending(facts),
        processes=_processes(spools, facts, output), duration_s=facts["duration_s"],
        memory=_memory(facts["memory"]), stall=_stall(facts["stall"], spools),
        output=read_log(output), signals=tuple(s for p in spools for s in signals_of(p)),
        script=Script.read,
    )


def _ending(facts: dict[str, Any]) -> Ending:
    code = os.waitstatus_to_exitcode(facts["status"])
    if code < 0:
        return Ending(None, signal_name(-code) or f"signal {-code}", facts["forwarded"])
    return Ending(code, None, facts["forwarded"])


def _processes(spools: list[Spool], facts: dict[str, Any], output: str) -> tuple[Process, ...]:
    """The main process first, the others in the order of their start."""
    codes = _exit_codes(spools, facts, output)
    peaks = facts["memory"].get("peaks", {})
    latest = {s.pid: s.name for s in spools}  # after an exec, one pid has two
    roles = _roles(spools, facts["pid"], set(latest.values()))
    alive = set(facts["left_behind"])
    built = []
    for s in spools:
        last = latest[s.pid] == s.name
        code = codes.get(s.pid) if last else _told_itself(s)
        built.append(process_of(s, roles[s.name], code, peaks.get(str(s.pid)),
                                last and s.pid in alive))
    main = _main(built)
    return tuple(sorted(built, key=lambda p: p is not main))


def _roles(spools: list[Spool], root: int, latest: set[str]) -> dict[str, Role]:
    """What each process is for: the one that trains is the main one, unless there are ranks.

    One that is not among the latest became another program (`os.execv`) before it trained.
    """
    roles: dict[str, Role] = {}
    trainers = [s for s in spools if s.trains and not _is_child(s)]
    ranks = [s for s in trainers if s.facts.get("rank") is not None]
    for spool in spools:
        if spool.first("worker"):
            roles[spool.name] = "worker"
        elif _is_child(spool):
            roles[spool.name] = "child"
        elif spool.facts.get("rank") is not None and len(ranks) > 1:
            roles[spool.name] = "rank"
        elif spool in trainers or (spool.name in latest and (
                not trainers or (spool.pid == root and len(ranks) < 2))):
            roles[spool.name] = "main"
        else:
            roles[spool.name] = "launcher"
    return roles


def _is_child(spool: Spool) -> bool:
    return spool.facts.get("via") == "fork" or spool.first("child") is not None


def _main(processes: list[Process]) -> Process | None:
    """Of several, the one that failed first; else the one that trains; else the first."""
    own = [p for p in processes if p.role in ("main", "rank")] or processes
    failed = [p for p in own if _failed(p)]
    if failed:
        return min(failed, key=lambda p: _when_failed(p))
    return max(own, key=lambda p: (p.step, bool(p.iterations), -(p.rank or 0)), default=None)


def _failed(process: Process) -> bool:
    return bool(process.fatal or any(f.how == "uncaught" for f in process.failures)
                or (process.exit_code or 0) != 0 or process.abrupt)


def _when_failed(process: Process) -> float:
    """A killed rank was last seen before the others' errors about it."""
    times = [f.time for f in process.failures if f.how == "uncaught"]
    return min(times, default=process.last_seen)


def _exit_codes(spools: list[Spool], facts: dict[str, Any], output: str) -> dict[int, int]:
    """Whatever told a process's end: the kernel, its parent, itself, a shell above it."""
    codes = told_exit_codes(output)
    for spool in spools:
        if (own := _told_itself(spool)) is not None:
            codes[spool.pid] = own
    for spool in spools:
        for event in spool.all("worker-exit"):
            codes[int(event["pid"])] = int(event["code"])
    codes.update({int(pid): code for pid, code in facts["statuses"].items()})
    codes[int(facts["pid"])] = os.waitstatus_to_exitcode(facts["status"])
    return codes


def _told_itself(spool: Spool) -> int | None:
    codes = [event["code"] for event in spool.all("ended") if event.get("code") is not None]
    return int(codes[-1]) if codes else None


def _memory(data: dict[str, Any]) -> HostMemory:
    return HostMemory(
        data["limit"], data["limit_source"], data["peak"], data["available_low"],
        data["oom_kills"], tuple(data["killed"]), tuple((t, r) for t, r in data["trend"]),
        data["largest_pid"],
    )


def _stall(data: dict[str, Any] | None, spools: list[Spool]) -> Stall | None:
    if data is None:
        return None
    marks = data["dump_marks"]
    stacks = {s.pid: stacks_of(s, marks[s.fault.name]) for s in spools if s.fault.name in marks}
    return Stall(data["after_s"], data["usual_step_s"], data["cpu_share"], stacks,
                 data["stopped"], data["resumed"])
