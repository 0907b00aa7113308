"""One process of a run, from its spool, its ring and its fault file."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal, cast

from torchmedic.logs.faulthandler import Thread, read_dumps
from torchmedic.observed import (
    ExitCall,
    Failure,
    Frame,
    Iteration,
    Loader,
    Output,
    Process,
    SignalSent,
    Value,
)
from torchmedic.probes import layout
from torchmedic.supervise.rings import Ring, frame, is_user_file, read_events, read_ring

Role = Literal["main", "worker", "rank", "child", "launcher"]
Event = Mapping[str, Any]
IDENTITY = ("pid", "parent", "argv", "time")
HELPERS = ("multiprocessing.resource_tracker", "multiprocessing.forkserver")


@dataclass(slots=True)
class Spool:
    """What one process wrote."""

    name: str
    events: list[Event]
    ring: Ring | None
    fault: Path
    by_kind: dict[str, list[Event]] = field(default_factory=dict)

    @classmethod
    def read(cls, path: Path) -> Spool | None:
        """None when the process never told who it was."""
        ring = read_ring(path.with_suffix(".ring"))
        events: list[Event] = list(read_events(path, ring.reserve if ring else b""))
        spool = cls(path.stem, events, ring, path.with_suffix(".fault"))
        for event in events:
            spool.by_kind.setdefault(event["kind"], []).append(event)
        whole = all(name in (spool.first("process") or {}) for name in IDENTITY)
        return spool if whole else None

    def all(self, kind: str) -> list[Event]:
        return self.by_kind.get(kind, [])

    def first(self, kind: str) -> Event | None:
        return next(iter(self.all(kind)), None)

    @property
    def facts(self) -> Event:
        return self.all("process")[0]

    @property
    def pid(self) -> int:
        return int(self.facts["pid"])

    @property
    def library(self) -> tuple[str, ...]:
        return tuple(self.facts.get("library") or ())

    @property
    def is_helper(self) -> bool:
        """A process that multiprocessing keeps for itself."""
        if self.first("child") or self.first("worker"):
            return False  # What a fork server forks has its arguments.
        return any(name in argument for argument in self.facts["argv"] for name in HELPERS)

    @property
    def trains(self) -> bool:
        return bool(self.ring and any(self.ring.progress)) and not self.first("worker")

    def slot(self, number: int) -> int:
        return self.ring.slots[number] if self.ring else 0

    @property
    def modules(self) -> dict[int, tuple[str, str]]:
        return {number: (path, label) for event in self.all("modules")
                for number, path, label in event["modules"]}


def read_spools(folder: Path) -> list[Spool]:
    """All processes that told something, in the order in which they started."""
    found = (Spool.read(path) for path in sorted(folder.glob("*.events")))
    return sorted((s for s in found if s is not None), key=lambda s: float(s.facts["time"]))


def value_of(data: Mapping[str, Any]) -> Value:
    known = {name: data[name] for name in (
        "type", "text", "number", "dtype", "device", "requires_grad", "minimum", "maximum",
        "nans", "attributes") if data.get(name) is not None}
    shape = data.get("shape")
    return Value(kind=str(data.get("kind", "object")),
                 shape=None if shape is None else tuple(shape), **known)


def frame_of(data: Mapping[str, Any]) -> Frame:
    values = {name: value_of(item) for name, item in (data.get("values") or {}).items()}
    return Frame(str(data["file"]), int(data["line"]), str(data["function"]), bool(data["user"]),
                 data.get("module"), data.get("module_class"), values)


def frames_of(items: Iterable[Mapping[str, Any]] | None) -> tuple[Frame, ...]:
    return tuple(frame_of(item) for item in items or ())


def failure_of(event: Event, key: str, spool: Spool) -> Failure:
    frames = frames_of(event.get("outer")) + frames_of(event.get("frames"))
    during = event.get("during")
    return Failure(
        key=key, type=event["type"], message=event["message"], how=event["how"], frames=frames,
        phase=event.get("phase"), epoch=event.get("epoch"), batch=event.get("batch"),
        step=event.get("step"), pid=spool.pid, rank=spool.facts.get("rank"),
        time=float(event["time"]), thread=event.get("thread"),
        outputs=tuple(Output(p, c, tuple(s)) for p, c, s in event.get("outputs", ())),
        indices=tuple(event.get("indices") or ()), bases=tuple(event.get("bases") or ()),
        during=None if during is None else _earlier(during, key + "/during", event, spool),
    )


def _earlier(data: Mapping[str, Any], key: str, event: Event, spool: Spool) -> Failure:
    merged = {**event, "outer": None, "during": None, **data}
    earlier = failure_of(merged, key, spool)
    return replace(earlier, frames=_callers(earlier, event) + earlier.frames)


def _callers(earlier: Failure, event: Event) -> tuple[Frame, ...]:
    """The calls that led to the `try` in which it was caught; its own traceback begins there."""
    if not earlier.frames:
        return ()
    first = earlier.frames[0]
    later = frames_of(event.get("outer")) + frames_of(event.get("frames"))
    for number, call in enumerate(later):
        if (call.file, call.function) == (first.file, first.function):
            return later[:number]
    return ()


def failures_of(spool: Spool) -> tuple[Failure, ...]:
    """Each exception once: what passed a watched call and then ended the process is one."""
    final = [failure_of(e, f"{spool.name}:{n}", spool)
             for n, e in enumerate(spool.all("failure")) if e["how"] != "seen"]
    found = []
    for number, event in enumerate(e for e in spool.all("failure") if e["how"] == "seen"):
        failure = failure_of(event, f"{spool.name}:seen{number}", spool)
        twin = next((f for f in final if same_exception(f, failure)), None)
        if twin is not None:
            final[final.index(twin)] = _joined(twin, failure)
        elif not any(same_exception(e, failure) for f in final for e in _chain(f)):
            found.append(_with_outcome(failure, event, spool))
    return (*found, *final)


def _chain(failure: Failure) -> Iterator[Failure]:
    while failure.during is not None:
        failure = failure.during
        yield failure


def same_exception(one: Failure, other: Failure) -> bool:
    last_one, last_other = one.frames[-1:], other.frames[-1:]
    return (one.type == other.type and one.message == other.message
            and [(f.file, f.line) for f in last_one] == [(f.file, f.line) for f in last_other])


def _joined(final: Failure, seen: Failure) -> Failure:
    """What ended the process, with what was known when it passed the watched call."""
    values = {(f.file, f.function): f.values for f in final.frames if f.values}
    frames = tuple(f if f.values else replace(f, values=values.get((f.file, f.function), {}))
                   for f in seen.frames)
    return replace(seen, key=final.key, how=final.how, frames=frames, during=final.during,
                   time=final.time, thread=final.thread)


def _with_outcome(failure: Failure, event: Event, spool: Spool) -> Failure:
    number = event["failure"]
    after = next((e for e in spool.all("failure-after") if e["failure"] == number), None)
    count = max((int(e["count"]) for e in spool.all("failure-again")
                 if e["where"] == event.get("where")), default=1)
    if spool.first("worker"):
        return replace(failure, how="worker", count=count)  # raised again in the parent
    return replace(failure, swallowed=True, count=count,
                   steps_after=None if after is None else int(after["steps"]))


def loaders_of(spool: Spool) -> dict[int, Loader]:
    return {
        int(e["loader"]): Loader(
            key=int(e["loader"]), batches=e["batches"], batch_size=e["batch_size"],
            samples=e["samples"], drop_last=e["drop_last"], workers=e["workers"],
            dataset=e["dataset"], sampler=e.get("sampler", ""),
            start_method=e.get("start_method"), timeout=e.get("timeout") or 0.0)
        for e in spool.all("loader")
    }


def iterations_of(spool: Spool) -> tuple[Iteration, ...]:
    """Passes over loaders, in the order in which they began."""
    loaders = loaders_of(spool)
    passes: dict[tuple[int, int], Iteration] = {}
    for event in spool.events:
        if event["kind"] not in ("pass", "pass-ended", "pass-open"):
            continue
        key = (int(event["loader"]), int(event["epoch"]))
        old = passes.get(key) or Iteration(loaders[key[0]], key[1], 0, None,
                                           time=float(event["time"]))
        passes[key] = _told(old, event)
    return tuple(_last_batch(item, spool) for item in passes.values())


def _told(old: Iteration, event: Event) -> Iteration:
    if event["kind"] == "pass":
        return replace(old, started=frames_of(event["frames"]), by=event["by"])
    exhausted = event.get("exhausted") if event["kind"] == "pass-ended" else None
    return replace(old, batches=int(event["batches"]), exhausted=exhausted,
                   steps=int(event["steps"]), by=event.get("by") or old.by,
                   ended=float(event["time"]) if event["kind"] == "pass-ended" else None,
                   left=frames_of(event.get("frames")))


def _last_batch(item: Iteration, spool: Spool) -> Iteration:
    """A killed process could not tell how far it got: its ring does."""
    current = (spool.slot(layout.LOADER), spool.slot(layout.EPOCH))
    if item.exhausted is None and not item.batches and current == (item.loader.key, item.epoch):
        return replace(item, batches=max(0, spool.slot(layout.BATCH) - 1))
    return item


def exits_of(spool: Spool) -> tuple[ExitCall, ...]:
    return tuple(
        ExitCall(e["how"], e.get("code"), frames_of(e["frames"]), e.get("handler"),
                 e.get("phase"), e.get("epoch"), e.get("batch"), e.get("step"),
                 time=float(e["time"]))
        for e in spool.all("exit")
    )


def signals_of(spool: Spool) -> tuple[SignalSent, ...]:
    return tuple(SignalSent(e["sender"], e["target"], e["signal"], frames_of(e["frames"]))
                 for e in spool.all("signal"))


def last_seen(spool: Spool) -> float:
    times = [float(event["time"]) for event in spool.events]
    return max([*times, spool.slot(layout.STACK_TIME_NS) / 1e9])


def process_of(spool: Spool, role: Role, exit_code: int | None, peak: int | None,
               alive: bool = False) -> Process:
    """Everything one process left, as rules see it."""
    facts = spool.facts
    worker = spool.first("worker")
    torch = spool.first("torch")
    path, label = spool.modules.get(spool.slot(layout.MODULE), (None, None))
    fatal, fatal_frames, thread = fatal_error(spool)
    fetched = spool.all("fetch")
    return Process(
        pid=spool.pid, parent=int(facts["parent"]), argv=tuple(facts["argv"]), role=role,
        executable=facts.get("executable") or "", started=float(facts["time"]),
        ended=spool.first("ended") is not None or bool(spool.slot(layout.ENDED)),
        exit_code=exit_code, rank=facts.get("rank"),
        torch=torch["version"] if torch else None, python=facts.get("python"),
        worker_index=worker["index"] if worker else None,
        phase=cast(Any, spool.ring.phase if spool.ring else "setup"),
        epoch=spool.slot(layout.EPOCH) or None, batch=spool.slot(layout.BATCH) or None,
        step=spool.slot(layout.STEPS), module=path, module_class=label,
        indices=tuple(fetched[-1]["indices"]) if fetched else (),
        stack=tuple(frame(e, spool.library) for e in (spool.ring.stack if spool.ring else ())),
        fatal=fatal, fatal_frames=fatal_frames, fatal_thread=thread,
        failures=failures_of(spool), loaders=tuple(loaders_of(spool).values()),
        iterations=iterations_of(spool), exits=exits_of(spool),
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
