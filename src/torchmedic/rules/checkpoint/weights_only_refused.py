"""`torch.load` refuses a checkpoint that holds more than tensors.

## What you see
`_pickle.UnpicklingError: Weights only load failed … Unsupported global: GLOBAL
numpy.core.multiarray.scalar was not an allowed global by default`.
## Why
torch 2.6 made `weights_only=True` the default: only tensors and plain containers are read, since
a pickle can run code. A checkpoint with an optimizer's configuration, NumPy scalars or a whole
model holds classes that are not allowed.
## Fix
For a file whose origin you trust: allow the class that is named
(`torch.serialization.add_safe_globals`), or `torch.load(path, weights_only=False)`.
## When this is fine
When the file comes from somebody you do not know: then the refusal is right.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

from torchmedic.model import Evidence, Fix, Place, Problem, Rule, fires, quiet
from torchmedic.remedies import raised

if TYPE_CHECKING:
    from torchmedic.observed import Failure, Weights

WORDS = ("weights only", "weightsunpickler")
REFUSED = re.compile(r"Weights only load failed|WeightsUnpickler error")
CLASS = re.compile(r"(?:Unsupported (?:global|class): ?(?:GLOBAL )?|GLOBAL )([A-Za-z_][\w.]+)")
OPERAND = re.compile(r"Unsupported operand (\d+)|invalid load key, '(.)'")
TEXT = range(32, 127)
"""Bytes that begin a text and no pickle: `checkpoint-corrupt`."""
OPCODES = {ord(c) for c in "().0123456789BCDEFGHIJKLMNQRSTUVXY]abcdeghijloqrstu}"}


def in_failure(failure: Failure) -> Iterator[Problem]:
    if not REFUSED.search(failure.message) or no_pickle(failure.message):
        return
    found = CLASS.search(failure.message)
    name = found[1].rstrip(".") if found else None
    if name is None and not OPERAND.search(failure.message):
        yield Problem("`weights_only=True` refuses the file; the message does not say what of it",
                      where=failure.place, evidence=(raised(failure),), confidence="likely",
                      fix=Fix("look at what the file is: a text (a Git LFS pointer, a web page) is "
                              "no checkpoint; if it is one and you trust it: "
                              "`torch.load(…, weights_only=False)`",
                              command="ls -l FILE && head -c 200 FILE"))
        return
    what = f"the class `{name}`" if name else "objects that are not tensors"
    allow = f"`torch.serialization.add_safe_globals([{name}])` before the load" if name else \
        "allow the classes it holds (`torch.serialization.add_safe_globals`)"
    yield Problem(f"the checkpoint holds {what}, which `weights_only=True` refuses",
                  where=failure.place, evidence=(raised(failure),), fix=Fix(
                      f"if you trust the file: {allow}, or `torch.load(…, weights_only=False)`",
                      "save `state_dict()`s only, and the next file needs neither", "unsafe"))


def in_data(seen: Weights) -> Iterator[Problem]:
    found = seen.checkpoint
    told = {name for defect in found.defects for name in defect.names}
    names = [name for name in found.refused if name not in told]
    if not names or not found.format.startswith(("torch (", "shards")) or any(
            defect.kind in ("hostile", "whole-model") for defect in found.defects):
        return  # `checkpoint-corrupt` says these
    more = f" and {len(names) - 1} more" if len(names) > 1 else ""
    listed = ", ".join(names[:6])
    yield Problem(
        f"the checkpoint holds the class `{names[0]}`{more}, which `weights_only=True` refuses",
        where=Place(file=found.file), severity="warning",
        evidence=(Evidence(f"its pickle asks for {', '.join(f'`{n}`' for n in names[:6])}", "file"),
                  Evidence("from torch 2.6 on `weights_only=True` is the default", "torch")),
        fix=Fix(f"if you trust the file: `torch.serialization.add_safe_globals([{listed}])` before "
                "the load, or `torch.load(…, weights_only=False)`",
                "save `state_dict()`s and plain numbers only, and the next file needs neither",
                "unsafe"))


def no_pickle(message: str) -> bool:
    """The first byte says that the file is a text."""
    found = OPERAND.search(message)
    if found is None:
        return False
    byte = int(found[1]) if found[1] else ord(found[2])
    return byte in TEXT and (byte not in OPCODES or chr(byte) in "v<{")


_LOG = """Traceback (most recent call last):
  File "fit.py", line 8, in <module>
    state = torch.load("last.pt")
_pickle.UnpicklingError: Weights only load failed. This file can still be loaded.
	WeightsUnpickler error: {}
"""
_WRITES = """
import argparse, torch
torch.save({"w": torch.ones(5), "args": %s}, "checkpoint.pt")
"""

RULE = Rule(
    name="weights-only-refused", doc=__doc__, category="code", in_failure=in_failure,
    in_data=in_data,
    examples=(
        fires(_LOG.format("Unsupported global: GLOBAL argparse.Namespace was not an allowed "
                          "global by default."), "the class `argparse.Namespace`",
              "add_safe_globals([argparse.Namespace])", kind="log", title="class"),
        fires("_pickle.UnpicklingError: Weights only load failed.\n", "does not say what of it",
              "head -c 200", kind="log", title="cut off"),
        fires(_LOG.format("Unsupported operand 149"), "objects that are not tensors", kind="log",
              title="another protocol"),
        fires(_WRITES % "argparse.Namespace(lr=0.1)", "the class `argparse.Namespace`",
              "add_safe_globals([argparse.Namespace])", kind="checkpoint",
              title="a file with settings"),
        quiet(_WRITES % "{'lr': 0.1}", kind="checkpoint", title="a file with plain settings"),
        quiet(_LOG.format("Unsupported operand 60"), kind="log", title="a web page"),
    ),
)
