"""The passes of one process over its loaders, from its events."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace

from torchmedic.observed import Calls, Iteration, Loader, Mode
from torchmedic.probes import layout
from torchmedic.supervise.exceptions import frames_of
from torchmedic.supervise.spools import Event, Spool, built

Way = tuple[int, bool, bool]


def modes_of(spool: Spool) -> dict[Way, Mode]:
    """The ways in which models were called, by module's number, training and gradients."""
    names = spool.modules
    return dict(built(spool.all("mode"), lambda event: _mode_of(event, names)))


def _mode_of(event: Event, names: dict[int, tuple[str, str]]) -> tuple[Way, Mode]:
    number, training, grad = int(event["module"]), bool(event["training"]), bool(event["grad"])
    counts = {name: int(event[name]) for name in (
        "norms", "norms_training", "drops", "drops_training", "parameters")}
    return (number, training, grad), Mode(
        names.get(number, ("", ""))[0], event["type"], training, grad,
        frames_of(event["frames"]), **counts, epoch=event.get("epoch"),
        batch=event.get("batch"), step=int(event.get("step") or 0))


def _calls(told: Iterable[list[int]], modes: dict[Way, Mode]) -> Iterator[Calls]:
    for number, training, grad, count in told:
        mode = modes.get((number, bool(training), bool(grad)))
        if mode is not None:
            yield Calls(mode, count)


def loaders_of(spool: Spool) -> dict[int, Loader]:
    return {loader.key: loader for loader in built(spool.all("loader"), _loader_of)}


def _loader_of(event: Event) -> Loader:
    return Loader(
        key=int(event["loader"]), batches=event["batches"], batch_size=event["batch_size"],
        samples=event["samples"], drop_last=event["drop_last"], workers=event["workers"],
        dataset=event["dataset"], sampler=event.get("sampler", ""),
        start_method=event.get("start_method"), timeout=event.get("timeout") or 0.0)


def iterations_of(spool: Spool) -> tuple[Iteration, ...]:
    """Passes over loaders, in the order in which they began."""
    loaders = loaders_of(spool)
    modes = modes_of(spool)
    passes: dict[tuple[int, int], Iteration] = {}

    def take(event: Event) -> None:
        key = (int(event["loader"]), int(event["epoch"]))
        old = passes.get(key) or Iteration(loaders[key[0]], key[1], 0, None,
                                           time=float(event["time"]))
        passes[key] = _told(old, event, modes)

    told = (e for e in spool.events if e["kind"] in ("pass", "pass-ended", "pass-open"))
    for _ in built(told, take):
        pass
    key = (spool.slot(layout.LOADER), spool.slot(layout.EPOCH))
    if key not in passes and key[0] in loaders and not spool.first("ended"):
        # One of thousands, not told before the process was killed.
        passes[key] = Iteration(loaders[key[0]], key[1], 0, None)
    return tuple(_last_batch(item, spool) for item in passes.values())


def _told(old: Iteration, event: Event, modes: dict[Way, Mode]) -> Iteration:
    if event["kind"] == "pass":
        return replace(old, started=frames_of(event["frames"]), by=event["by"])
    exhausted = event.get("exhausted") if event["kind"] == "pass-ended" else None
    return replace(old, batches=int(event["batches"]), exhausted=exhausted,
                   steps=int(event["steps"]), by=event.get("by") or old.by,
                   backwards=int(event.get("backwards") or 0),
                   calls=tuple(_calls(event.get("calls") or (), modes)),
                   ended=float(event["time"]) if event["kind"] == "pass-ended" else None,
                   left=frames_of(event.get("frames")))


def _last_batch(item: Iteration, spool: Spool) -> Iteration:
    """A killed process could not tell how far it got: its ring does."""
    current = (spool.slot(layout.LOADER), spool.slot(layout.EPOCH))
    if item.exhausted is None and not item.batches and current == (item.loader.key, item.epoch):
        return replace(item, batches=max(0, spool.slot(layout.BATCH) - 1))
    return item
