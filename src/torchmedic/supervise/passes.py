"""The passes of one process over its loaders, from its events."""

from __future__ import annotations

from dataclasses import replace

from torchmedic.observed import Iteration, Loader
from torchmedic.probes import layout
from torchmedic.supervise.exceptions import frames_of
from torchmedic.supervise.spools import Event, Spool, built


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
    passes: dict[tuple[int, int], Iteration] = {}

    def take(event: Event) -> None:
        key = (int(event["loader"]), int(event["epoch"]))
        old = passes.get(key) or Iteration(loaders[key[0]], key[1], 0, None,
                                           time=float(event["time"]))
        passes[key] = _told(old, event)

    told = (e for e in spool.events if e["kind"] in ("pass", "pass-ended", "pass-open"))
    for _ in built(told, take):
        pass
    key = (spool.slot(layout.LOADER), spool.slot(layout.EPOCH))
    if key not in passes and key[0] in loaders and not spool.first("ended"):
        # One of thousands, not told before the process was killed.
        passes[key] = Iteration(loaders[key[0]], key[1], 0, None)
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
