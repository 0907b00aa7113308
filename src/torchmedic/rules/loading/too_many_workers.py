"""A loader has more workers than the machine has processor cores.

## What you see
`This DataLoader will create 32 worker processes in total. Our suggested max number of worker in
current system is 8`. Loading is no faster than with fewer workers, memory fills, and each epoch
takes long to start.
## Why
Each worker is a process with its own copy of the dataset object and its own batches in advance.
Beyond the number of cores they only wait for each other.
## Fix
About half as many workers as cores.
## When this is fine
Workers that mostly wait for a network or a slow disk.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

from torchmedic import logtext, sourceloaders
from torchmedic.model import Evidence, Fix, Problem, Rule, fires, quiet
from torchmedic.source.flow import trace_of
from torchmedic.source.flow.training import node_place

if TYPE_CHECKING:
    from torchmedic.observed import Log
    from torchmedic.source.script import Script

SOURCE_WORDS = ("loader",)
WORDS = ("suggested max number of worker",)
# torch 1.7 to 2.14
TOLD = re.compile(r"will create (?P<asked>\d+) worker processes in total\. Our suggested max "
                  r"number of workers? in current system is (?P<most>\d+)")
FEW = 8
"""A number that the machine that trains will have, whatever this one has."""


def in_log(log: Log) -> Iterator[Problem]:
    hit = logtext.first(log, TOLD)
    if hit is not None:
        asked, most = int(hit.match["asked"]), int(hit.match["most"])
        yield Problem(f"the loader has {asked} workers, and the machine {_cores(most)}",
                      evidence=(hit.evidence,), fix=_fix(most), severity="info")


def in_source(script: Script) -> Iterator[Problem]:
    cores = sourceloaders.cores()
    for loader in sourceloaders.loaders(trace_of(script)):
        given = loader.keyword("num_workers", 5)
        text = ast.unparse(given.node) if given is not None and given.node is not None else ""
        every = text in ("os.cpu_count()", "multiprocessing.cpu_count()", "mp.cpu_count()")
        asked = cores if every else sourceloaders.workers(loader)
        if every or asked > max(cores, FEW):
            yield Problem(
                "the loader has a worker for every core: none is left for the training" if every
                else f"the loader has {asked} workers, and this machine {_cores(cores)}",
                where=node_place(script.file, loader.node), severity="info",
                confidence="possible", fix=_fix(cores),
                evidence=(Evidence(f"`num_workers={text or asked}`", "source"),))


def _cores(count: int) -> str:
    return f"{count} core{'' if count == 1 else 's'}"


def _fix(cores: int) -> Fix:
    return Fix(f"`num_workers={max(1, cores // 2)}`: about half the cores", "", "unsafe")


_SOURCE = """
import os
import torch
from torch.utils.data import DataLoader, TensorDataset

loader = DataLoader(TensorDataset(torch.zeros(8, 2)), batch_size=2, num_workers=%s)
"""
_LOG = ("UserWarning: This DataLoader will create 32 worker processes in total. Our suggested max "
        "number of worker in current system is 8, which is smaller than what this DataLoader is "
        "going to create.\n")

RULE = Rule(
    name="too-many-workers", doc=__doc__, category="code", severity="warning", in_log=in_log,
    in_source=in_source, examples=(
        fires(_LOG, "32 workers, and the machine 8 cores", "`num_workers=4`", kind="log"),
        fires(_SOURCE % "1000", "the loader has 1000 workers", kind="source",
              line="num_workers=1000", title="many"),
        fires(_SOURCE % "os.cpu_count()", "a worker for every core", kind="source",
              title="every core"),
        quiet(_SOURCE % "2", kind="source", title="few"),
        quiet(_SOURCE % "os.cpu_count() // 2", kind="source", title="half"),
        quiet(_LOG.replace("create 32 worker processes", "wait"), kind="log", title="other text"),
    ),
)
