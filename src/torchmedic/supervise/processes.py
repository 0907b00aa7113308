"""One process of a run as rules see it, from its spool, its ring and its fault file."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

from torchmedic.logs.faulthandler import Thread, read_dumps
from torchmedic.observed import ExitCall, Frame, Process, SignalSent
from torchmedic.probes import layout
from torchmedic.supervise.exceptions import failures_of, frames_of
from torchmedic.supervise.looks import (
    backwards_of,
    kept_of,
    non_finite_of,
    parameters_of,
    updates_of,
)
from torchmedic.supervise.passes import iterations_of, loaders_of
from torchmedic.supervise.phases import phase_of
from torchmedic.supervise.rings import frame, is_user_file
from torchmedic.supervise.spools import Event, Role, Spool, built


def exits_of(spool: Spool) -> tuple[ExitCall, ...]:
    return tuple(built(spool.all("exit"), _exit_of))


def _exit_of(event: Event) -> ExitCall:
    frames = frames_of(event["frames"])
    return ExitCall(
        event["how"], event.get("code"), frames, event.get("handler"),
        phase_of(frames, event.get("phase")), event.get("epoch"), event.get("batch"),
        event.get("step"), time=float(event["time"]))


def signals_of(spool: Spool) -> tuple[SignalSent, ...]:
    return tuple(built(spool.all("signal"), lambda e: SignalSent(
        e["sender"], e["target"], e["signal"], frames_of(e["frames"]), float(e["time"]))))


def last_seen(spool: Spool) -> float:
    times = [float(event.get("time") or 0) for event in spool.events]
    return max([*times, spool.slot(layout.STACK_TIME_NS) / 1e9])


def process_of(spool: Spool, role: Role, exit_code: int | None, peak: int | None,
               alive: bool = False) -> Process:
    """Everything one process left, as rules see it."""
    facts = spool.facts
    worker = spool.first("worker")
    torch = spool.first("torch")
    path, label = spool.modules.get(spool.slot(layout.MODULE), (None, None))
    fatal, fatal_frames, thread = fatal_error(spool)
    iterations = iterations_of(spool)
    stack = tuple(frame(e, spool.library) for e in (spool.ring.stack if spool.ring else ()))
    if spool.slot(layout.SAMPLE_BATCH) != spool.slot(layout.BATCH) and iterations:
        stack = iterations[-1].started  # sampled in an earlier batch: the loop itself is certain
    fetched = spool.all("fetch")
    return Process(
        pid=spool.pid, parent=int(facts["parent"]), argv=tuple(facts["argv"]), role=role,
        executable=facts.get("executable") or "", started=float(facts["time"]),
        ended=spool.first("ended") is not None or bool(spool.slot(layout.ENDED)),
        exit_code=exit_code, rank=facts.get("rank"),
        torch=torch["version"] if torch else None, python=facts.get("python"),
        worker_index=worker["index"] if worker else None,
        phase=phase_of(fatal_frames or stack, spool.ring.phase if spool.ring else None) or "setup",
        epoch=spool.slot(layout.EPOCH) or None, batch=spool.slot(layout.BATCH) or None,
        step=spool.slot(layout.STEPS), module=path, module_class=label,
        indices=tuple(fetched[-1]["indices"]) if fetched else (),
        stack=stack,
        fatal=fatal, fatal_frames=fatal_frames, fatal_thread=thread,
        failures=failures_of(spool), loaders=tuple(loaders_of(spool).values()),
        iterations=iterations, exits=exits_of(spool), backwards=backwards_of(spool),
        updates=updates_of(spool), parameters=parameters_of(spool), kept=kept_of(spool),
        non_finite=non_finite_of(spool),
        probe_errors=tuple(f"{e.get('probe')}: {e.get('error')}"
                           for e in spool.all("probe-error")),
        peak_rss=peak, overhead_s=spool.slot(layout.OVERHEAD_NS) / 1e9,
        last_seen=last_seen(spool), alive=alive,
    )


def fatal_error(spool: Spool) -> tuple[str | None, tuple[Frame, ...], str | None]:
    """The fatal error faulthandler told, the stack of the thread that had it, and which it was."""
    for dump in reversed(read_dumps(_text(spool.fault))):
        if dump.error is None:
            continue
        for thread in dump.threads:
            if thread.current:
                name = "main" if _is_main(thread, spool) else thread.name or "thread"
                return dump.error, judged(thread.frames, spool), name
        return dump.error, (), None
    return None, (), None


def stacks_of(spool: Spool, mark: int) -> dict[str, tuple[Frame, ...]]:
    """Stacks of all threads, from the dump that begins at byte `mark` of the fault file."""
    found: dict[str, tuple[Frame, ...]] = {}
    for dump in read_dumps(_text(spool.fault, mark)):
        for number, thread in enumerate(dump.threads):
            name = "main" if _is_main(thread, spool) else thread.name or f"thread {number + 1}"
            found[name] = judged(thread.frames, spool)
    return found


def _is_main(thread: Thread, spool: Spool) -> bool:
    try:
        return int(thread.ident, 16) == spool.facts.get("main_thread")
    except (TypeError, ValueError):
        return False


def judged(frames: Iterable[Frame], spool: Spool) -> tuple[Frame, ...]:
    return tuple(replace(f, user=is_user_file(f.file, spool.library)) for f in frames
                 if "/torchmedic/probes/" not in f.file)


def _text(path: Path, start: int = 0) -> str:
    try:
        return path.read_bytes()[start:].decode("utf-8", "replace")
    except OSError:
        return ""
