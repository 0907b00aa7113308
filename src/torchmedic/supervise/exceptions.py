"""The exceptions of one process, each once, from its events."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from itertools import count
from typing import Any

from torchmedic.observed import Failure, Frame, Output, Value
from torchmedic.supervise.phases import phase_of
from torchmedic.supervise.spools import Event, Spool, built


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
        phase=phase_of(frames, event.get("phase")), epoch=event.get("epoch"),
        batch=event.get("batch"), step=event.get("step"), loader=event.get("loader"),
        pid=spool.pid,
        rank=spool.facts.get("rank"), time=float(event["time"]), thread=event.get("thread"),
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
    numbers = count(1)

    def read(event: Event) -> tuple[Event, Failure]:
        return event, failure_of(event, f"{spool.name}:{next(numbers)}", spool)

    told = list(built(spool.all("failure"), read))
    final = [failure for _, failure in told if failure.how != "seen"]
    found = []
    for event, failure in told:
        if failure.how != "seen":
            continue
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
