"""A loader's workers start with `spawn`, and something of the dataset can't be pickled.

## What you see
`AttributeError: Can't pickle local object 'main.<locals>.transform'`, `Can't get attribute`, or
`TypeError: cannot pickle '_io.TextIOWrapper' object`, when the loader's iteration begins; often
together with `EOFError: Ran out of input` of the worker.
## Why
With `spawn` and `forkserver` (Windows and macOS, and Linux from Python 3.14) each worker gets a
pickled copy of the dataset, the `collate_fn` and the `worker_init_fn`. Lambdas, functions inside
functions, open files, database handles and locks have no pickle.
## Fix
Define the function at the top of a module, open files on first use in the worker, or use
`num_workers=0`.
## When this is fine
Never: the workers can't start.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from torchmedic.model import Fix, Problem, Rule, fires, quiet
from torchmedic.observed import Failure
from torchmedic.remedies import raised

WORDS = ("pickle", "local object")
LOCAL = re.compile(r"(?:Can't|Can.t|cannot) (?:pickle|get) local object '?(?:<function )?"
                   r"(?P<name>[\w.<>]+)|Can't pickle <function (?P<function>[\w.<>]+)",
                   re.IGNORECASE)
OBJECT = re.compile(r"(?:cannot|can't) pickle '?(?P<type>[\w.]+)'? objects?", re.IGNORECASE)


def in_failure(failure: Failure) -> Iterator[Problem]:
    if not any("dataloader.py" in f.file or "DataLoader" in f.function or _spawns(f.file)
               for f in failure.frames if not f.user):
        return
    if (found := LOCAL.search(failure.message)) is not None:
        name = (found["name"] or found["function"]).rpartition(".")[2]
        what = "a lambda" if name == "<lambda>" else f"the local function `{name}`"
        fix = Fix("define it with `def` at the top of a module", "or `num_workers=0`", "unsafe")
    elif (found := OBJECT.search(failure.message)) is not None:
        what = f"an object of type `{found['type']}`"
        fix = Fix("make it on first use inside `__getitem__`, not in `__init__`",
                  "or `num_workers=0`", "unsafe")
    else:
        return
    yield Problem(f"a worker can't get {what}: it has no pickle", where=failure.place,
                  evidence=(raised(failure),), fix=fix)


def _spawns(file: str) -> bool:
    return "multiprocessing" in file and ("popen_spawn" in file or "reduction" in file)


_PROGRAM = """
import torch
from torch.utils.data import DataLoader, Dataset

torch.set_num_threads(1)


class Samples(Dataset):
    def __init__(self):
        self.change = %s

    def __len__(self):
        return 2

    def __getitem__(self, index):
        return torch.zeros(2)


if __name__ == "__main__":
    for x in DataLoader(Samples(), num_workers=1, multiprocessing_context="spawn"):
        pass
"""

RULE = Rule(
    name="unpicklable-worker-state", doc=__doc__, category="code", in_failure=in_failure,
    examples=(
        fires(_PROGRAM % "lambda x: x", "a worker can't get a lambda: it has no pickle",
              "`def` at the top of a module", line="DataLoader(", title="lambda"),
        fires(_PROGRAM % "open(__file__)", "an object of type `_io.TextIOWrapper`",
              "inside `__getitem__`", title="open file"),
        quiet(_PROGRAM % "None", title="plain"),
    ),
)
