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

import ast
import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

from torchmedic import sourceloaders
from torchmedic.model import Evidence, Fix, Problem, Rule, fires, quiet
from torchmedic.remedies import raised
from torchmedic.source.flow import Value, trace_of
from torchmedic.source.flow.training import node_place

if TYPE_CHECKING:
    from torchmedic.observed import Failure
    from torchmedic.source.script import Script

SOURCE_WORDS = ("loader",)
WORDS = ("pickle", "local object", "ran out of input", "can't get attribute")
LOCAL = re.compile(r"(?:Can't|Can.t|cannot) (?:pickle|get) local object '?(?:<function )?"
                   r"(?P<name>[\w.<>]+)|Can't pickle <function (?P<function>[\w.<>]+)",
                   re.IGNORECASE)
ATTRIBUTE = re.compile(r"Can't get attribute '(?P<name>\w+)' on <module '__(?:mp_)?main__'")
OBJECT = re.compile(r"(?:cannot|can't) pickle '?(?P<type>[\w.]+)'? objects?"
                    r"|(?P<kind>[\w.]+) objects? (?:cannot|can't) be pickled", re.IGNORECASE)

OPENING = ("open", "h5py.File", "lmdb.open", "sqlite3.connect", "threading.Lock", "io.open",
           "zipfile.ZipFile")


def in_failure(failure: Failure) -> Iterator[Problem]:
    if "Ran out of input" in failure.message and _starts(failure):
        yield Problem("a child process got nothing to start with: its parent failed while it "
                      "packed the data", where=failure.place, evidence=(raised(failure),),
                      confidence="likely", fix=Fix(
                          "look for the parent's own traceback: mostly something has no pickle",
                          "or the parent ended"))
        return
    if (found := ATTRIBUTE.search(failure.message)) is not None and _starts(failure):
        yield Problem(f"a spawned worker does not find `{found['name']}` of the main program",
                      where=failure.place, evidence=(raised(failure),), fix=Fix(
                          f"define `{found['name']}` at the top of a module of its own and import "
                          "it", "what a notebook or the main guard defines is not there in a "
                          "worker; or `num_workers=0`", "unsafe"))
        return
    if not any("dataloader.py" in f.file or "DataLoader" in f.function or _spawns(f.file)
               for f in failure.frames if not f.user):
        return
    if (found := LOCAL.search(failure.message)) is not None:
        name = (found["name"] or found["function"]).rpartition(".")[2]
        what = "a lambda" if name == "<lambda>" else f"the local function `{name}`"
        fix = Fix("define it with `def` at the top of a module", "or `num_workers=0`", "unsafe")
    elif (found := OBJECT.search(failure.message)) is not None:
        what = f"an object of type `{found['type'] or found['kind']}`"
        fix = Fix("make it on first use inside `__getitem__`, not in `__init__`",
                  "or `num_workers=0`", "unsafe")
    else:
        return
    yield Problem(f"a worker can't get {what}: it has no pickle", where=failure.place,
                  evidence=(raised(failure),), fix=fix)


def in_source(script: Script) -> Iterator[Problem]:
    for loader in sourceloaders.loaders(trace_of(script)):
        method = sourceloaders.start_method(script, loader)
        if method not in ("spawn", "forkserver") or not sourceloaders.workers(loader):
            continue
        for value, holder in _given(loader):
            what = _without_pickle(value)
            if what:
                node = value.node if value.kind == "function" else loader.node
                yield Problem(
                    f"a worker can't get {what}{holder}: it has no pickle",
                    where=node_place(script.file, node), confidence="likely",
                    evidence=(Evidence(f"workers start with `{method}`", "source"),),
                    fix=Fix("define it with `def` at the top of a module" if "open" not in what else
                            "open it on first use inside `__getitem__`, not in `__init__`",
                            "or `num_workers=0`", "unsafe"))


def _given(loader: Value) -> Iterator[tuple[Value, str]]:
    """What a worker gets: the loader's functions, and what its dataset holds."""
    for name in ("collate_fn", "worker_init_fn"):
        if name in loader.kwargs:
            yield loader.kwargs[name], f" for `{name}`"
    held = sourceloaders.dataset(loader)
    if held is not None and held.kind == "instance":
        for name, value in held.attrs.items():
            yield value, f" that the dataset keeps in `{name}`"


def _without_pickle(value: Value) -> str:
    if value.kind == "function" and isinstance(value.node, ast.Lambda):
        return "a lambda"
    if value.kind == "function" and value.owner is None and value.scope is not None and (
            value.scope.parent is not None):
        return f"the local function `{value.type}`"
    called = ast.unparse(value.node.func) if isinstance(value.node, ast.Call) else ""
    return f"the open file of `{called}`" if called in OPENING and value.kind == "unknown" else ""


def _starts(failure: Failure) -> bool:
    return any(frame.function == "spawn_main" for frame in failure.frames)


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
    in_source=in_source,
    examples=(
        fires(_PROGRAM % "lambda x: x", "a worker can't get a lambda: it has no pickle",
              "`def` at the top of a module", line="DataLoader(", title="lambda"),
        fires(_PROGRAM % "open(__file__)", "an object of type `_io.TextIOWrapper`",
              "inside `__getitem__`", title="open file"),
        fires(_PROGRAM % "lambda x: x", "a worker can't get a lambda that the dataset keeps in "
              "`change`", kind="source", line="lambda", title="lambda in source"),
        fires(_PROGRAM % "open(__file__)", "the open file of `open`", kind="source",
              title="open file in source"),
        quiet((_PROGRAM % "lambda x: x").replace('"spawn"', '"fork"'), kind="source", title="fork"),
        fires("Traceback (most recent call last):\n  File \"<string>\", line 1, in <module>\n"
              "  File \"C:\\Python311\\Lib\\multiprocessing\\spawn.py\", line 116, in spawn_main\n"
              "    exitcode = _main(fd, parent_sentinel)\nEOFError: Ran out of input\n",
              "its parent failed", kind="log", title="the child's half"),
        fires("Traceback (most recent call last):\n  File \"<string>\", line 1, in <module>\n"
              "  File \"/usr/lib/python3.9/multiprocessing/spawn.py\", line 116, in spawn_main\n"
              "    exitcode = _main(fd, parent_sentinel)\nAttributeError: Can't get attribute "
              "'Samples' on <module '__main__' (built-in)>\n", "does not find `Samples`",
              kind="log", title="class of a notebook"),
        quiet(_PROGRAM % "None", title="plain"),
    ),
)
