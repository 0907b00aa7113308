"""`add_argument(…, type=bool)`: every text is true, also `False`.

## What you see
`--flag False` on the command line switches the flag on.
## Why
argparse calls `bool("False")`, and every string that is not empty is true.
## Fix
`action=argparse.BooleanOptionalAction` (gives `--flag` and `--no-flag`), or `action="store_true"`.
## When this is fine
Never.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

from torchmedic import changes
from torchmedic.model import Fix, Problem, Rule, fires, quiet
from torchmedic.source.flow import trace_of
from torchmedic.source.flow.training import home_of, place

if TYPE_CHECKING:
    from torchmedic.source.flow import Event
    from torchmedic.source.script import Script


SOURCE_WORDS = ("bool",)
OTHER = re.compile(r"(?:from|import) (?:jsonargparse|tap|simple_parsing)\b|LightningArgumentParser")
"""Parsers that read `False` as what it says."""


def _edits(script: Script, event: Event, flag: str) -> changes.Edits:
    """Only an option can be given without a value."""
    call = event.node
    if event.file != script.file or not isinstance(call, ast.Call) or not flag.startswith("--"):
        return ()
    if any(k.arg not in ("type", "default", "help", "required", "dest") for k in call.keywords):
        return ()  # such as `nargs`, which that action does not take
    kind = next((k for k in call.keywords if k.arg == "type"), None)
    known = any(isinstance(n, ast.Import) and any(a.name == "argparse" and not a.asname
                                                  for a in n.names) for n in script.tree.body)
    return changes.replacing(kind, "action=argparse.BooleanOptionalAction") if known else ()


def _other(script: Script, event: Event) -> bool:
    home = home_of(script, event)
    return home is not None and any(OTHER.search(line) for line in home.lines)


def in_source(script: Script) -> Iterator[Problem]:
    for event in trace_of(script).of("argument"):
        kind = event.more["kwargs"].get("type")
        if kind is not None and kind.type == "builtins.bool" and not _other(script, event):
            flag = next((a.data for a in event.more["args"] if a.kind == "const"), "the flag")
            yield Problem(
                f"`{flag} False` is true: `type=bool` calls `bool(\"False\")`",
                where=place(script.file, event),
                fix=Fix("`action=argparse.BooleanOptionalAction` in place of `type=bool`", "",
                        "unsafe", edits=_edits(script, event, str(flag))))


_PROGRAM = """
import argparse
import torch

parser = argparse.ArgumentParser()
parser.add_argument("--amp", %s, default=True)
args = parser.parse_args()
print(args.amp)
"""

RULE = Rule(
    name="boolean-flag-type", doc=__doc__, category="code", severity="warning",
    in_source=in_source, examples=(
        fires(_PROGRAM % "type=bool", "`--amp False` is true", kind="source", line="type=bool",
              title="type bool"),
        quiet((_PROGRAM % "type=bool").replace("import arg", "import jsonargparse as arg"),
              kind="source", title="another parser"),
        quiet(_PROGRAM % "action=argparse.BooleanOptionalAction", kind="source", title="action"),
        quiet(_PROGRAM % "type=lambda text: text == 'yes'", kind="source", title="parser"),
    ),
)
