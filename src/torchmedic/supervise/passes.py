"""The passes of one process over its loaders, from its events."""

from __future__ import annotations

from dataclasses import replace

from torchmedic.observed import Iteration, Loader
from torchmedic.probes import layout
from torchmedic.supervise.exceptions import frames_of
from torchmedic.supervise.spools import Event, Spool


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
