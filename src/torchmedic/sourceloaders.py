"""Loaders of a script: how workers start, what their datasets are, where they are gone over."""

from __future__ import annotations

import ast
import os
import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from torchmedic.source.flow.training import main_guard
from torchmedic.source.paths import FUNCTIONS

if TYPE_CHECKING:
    from torchmedic.source.flow import Event, Trace, Value
    from torchmedic.source.script import Script

METHOD = re.compile(r"set_start_method\(\s*(?:method\s*=\s*)?['\"](spawn|forkserver|fork)['\"]")
DATALOADER = "torch.utils.data.DataLoader"


def loaders(trace: Trace) -> Iterator[Value]:
    """Each `DataLoader` that the file makes."""
    for made in trace.made:
        if made.kind == "loader" and made.type == DATALOADER and made.file == trace.script.file:
            yield made


def workers(loader: Value) -> int:
    """Its number of workers, where the code tells it; 0 where it has none."""
    given = loader.keyword("num_workers", 5)
    whole = given is not None and given.kind == "const" and type(given.data) is int
    return given.data if given is not None and whole else 0


def start_method(script: Script, loader: Value) -> str:
    """`spawn` or another, where the program chooses one."""
    given = loader.kwargs.get("multiprocessing_context")
    if given is not None:
        node = given.node
        text = str(given.data) if given.kind == "const" else ast.unparse(node) if node else ""
        return next((name for name in ("forkserver", "spawn", "fork") if name in text), "")
    found = METHOD.search("\n".join(script.lines))
    return found[1] if found else ""


def dataset(loader: Value) -> Value | None:
    given = loader.keyword("dataset", 0)
    options = list(given.options()) if given is not None else []
    return options[0] if len(options) == 1 else None


def samples(held: Value | None) -> int | None:
    """How many samples a dataset has."""
    if held is None:
        return None
    if held.kind == "dataset" and held.name == "TensorDataset" and held.args:
        shape = held.args[0].shape
        return shape[0] if shape else None
    if held.kind == "list" and held.data is None:
        return len(held.items)
    body = method(held, "__len__")
    last = body.body[-1] if body is not None and len(body.body) == 1 else None
    if held.kind != "instance" or not isinstance(last, ast.Return) or last.value is None:
        return None
    if isinstance(last.value, ast.Constant) and type(last.value.value) is int:
        return last.value.value
    inner = re.fullmatch(r"len\(self\.(\w+)\)|self\.(\w+)(\.shape\[0\]|\.size\(0\))?",
                         ast.unparse(last.value))
    value = held.attrs.get(inner[1] or inner[2]) if inner else None
    if value is None or inner is None:
        return None
    if value.kind == "const" and type(value.data) is int and not inner[3] and not inner[1]:
        return value.data
    return value.shape[0] if value.kind == "tensor" and value.shape else None


def method(held: Value, name: str) -> Any:
    """A method that the class of a dataset itself defines."""
    made = held.owner if held.kind == "instance" else held
    if made is None or not isinstance(made.node, ast.ClassDef):
        return None
    return next((n for n in made.node.body if isinstance(n, FUNCTIONS) and n.name == name), None)


def passes(trace: Trace, loader: Value) -> Iterator[Event]:
    """The first event of each loop over a loader."""
    seen = set()
    for event in trace.events:
        for frame in event.loops:
            over = frame.value
            while over is not None and over.kind == "enumerate":
                over = over.owner
            if over is loader and id(frame.node) not in seen:
                seen.add(id(frame.node))
                yield event


def on_import(event: Event) -> bool:
    """It happens when the file is imported, too: no main guard is around it."""
    first = next((f for f in event.frames if f.kind == "call"), None)
    if first is not None and first.site is first.node:
        return False  # a function that the file itself does not call
    return not any(f.kind == "branch" and main_guard(f) for f in event.frames)


def cores() -> int:
    """Processor cores of the machine that reads the source."""
    return os.cpu_count() or 1
