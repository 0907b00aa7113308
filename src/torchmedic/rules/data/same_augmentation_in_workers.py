"""A data set keeps its own random generator, and each worker gets a copy in the same state.

## What you see
No error. With n workers each random augmentation comes n times, and with workers that are started
anew each epoch also in every epoch.
## Why
A worker is a copy of the process. torch gives each of them another seed for `torch`, `random` and
`numpy.random`, but knows nothing of a generator that the data set made for itself.
## Fix
Make the generator in the worker: seed it from `torch.initial_seed()` on first use, or in
`worker_init_fn`.
## When this is fine
Without workers, or when the generator only serves the constructor.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import TYPE_CHECKING

from torchmedic.model import Evidence, Fix, Problem, Rule, fires, quiet
from torchmedic.source.flow import Event, Trace, Value, trace_of
from torchmedic.source.flow.training import place
from torchmedic.source.paths import FUNCTIONS

if TYPE_CHECKING:
    from torchmedic.source.script import Script

SOURCE_WORDS = ("loader",)
MAKERS = ("numpy.random.default_rng", "numpy.random.RandomState", "random.Random",
          "torch.Generator", "numpy.random.Generator")


def in_source(script: Script) -> Iterator[Problem]:
    trace = trace_of(script)
    made = {id(e.node): e.more["name"] for e in trace.of("opaque") if e.more["name"] in MAKERS}
    seen = set()
    for event in trace.of("set"):
        maker = _maker(event, made)
        owner = event.target
        if maker and owner is not None and owner.data == "dataset" and id(event.node) not in seen:
            drawn = _drawn(owner, event.more["name"])
            if drawn and _in_workers(trace, owner):
                seen.add(id(event.node))
                yield _problem(script, event, drawn)


def _maker(event: Event, made: dict[int, str]) -> str | None:
    if event.function != "__init__":
        return None
    value = getattr(event.node, "value", None)
    calls = [n for n in ast.walk(value) if isinstance(n, ast.Call)] if value is not None else []
    seeded = next((n for n in calls if ast.unparse(n.func) == "torch.Generator"
                   or ast.unparse(n).startswith("torch.Generator(")), None)
    return next((made[id(n)] for n in calls if id(n) in made),
                "torch.Generator" if seeded is not None else None)


def _drawn(owner: Value, name: str) -> int | None:
    """The line where `__getitem__`, or a method that it calls, draws from the generator."""
    holder = owner.owner.node if owner.owner is not None else None
    if not isinstance(holder, ast.ClassDef):
        return None
    for method in holder.body:
        if isinstance(method, FUNCTIONS) and method.name != "__init__":
            for node in ast.walk(method):
                if isinstance(node, ast.Attribute) and node.attr == name:
                    return None if isinstance(node.ctx, ast.Store) else node.lineno
    return None


def _in_workers(trace: Trace, owner: Value) -> bool:
    for loader in trace.made:
        if loader.kind != "loader":
            continue
        given, workers = loader.keyword("dataset", 0), loader.kwargs.get("num_workers")
        several = workers is not None and (workers.kind != "const" or bool(workers.data))
        if given is not None and any(o is owner for o in given.options()) and several:
            return "worker_init_fn" not in loader.kwargs and "**" not in loader.kwargs
    return False


def _problem(script: Script, event: Event, drawn: int) -> Problem:
    name = event.more["name"]
    return Problem(
        f"each worker gets a copy of `self.{name}` in the same state",
        where=place(script.file, event), confidence="likely",
        evidence=(Evidence(f"line {drawn}: samples are drawn from it, in a loader with workers",
                           "source"),),
        fix=Fix(f"make `self.{name}` in the worker, from `torch.initial_seed()`", "", "unsafe"))


_PROGRAM = """
import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset


class Noisy(Dataset):
    def __init__(self):
        self.rng = np.random.default_rng(0)

    def __len__(self):
        return 8

    def __getitem__(self, i):
        return %s


def main():
    for batch in DataLoader(Noisy(), batch_size=2, num_workers=%s):
        print(batch)


main()
"""

RULE = Rule(
    name="same-augmentation-in-workers", doc=__doc__, category="data", severity="warning",
    in_source=in_source, examples=(
        fires(_PROGRAM % ("self.rng.normal(size=3)", "2"), "a copy of `self.rng`", kind="source",
              line="self.rng = ", title="own generator"),
        quiet(_PROGRAM % ("self.rng.normal(size=3)", "0"), kind="source", title="no workers"),
        quiet(_PROGRAM % ("self.rng.normal(size=3)", "2, worker_init_fn=print"), kind="source",
              title="seeded"),
        quiet(_PROGRAM % ("torch.randn(3)", "2"), kind="source", title="torch"),
    ),
)
