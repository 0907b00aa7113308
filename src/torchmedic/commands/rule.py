"""`torchmedic rule NAME`: the page of a rule."""

from __future__ import annotations

import argparse
import difflib
from pathlib import Path

from torchmedic import output, registry
from torchmedic.output import UserError
from torchmedic.report.escape import write_encodable
from torchmedic.rulepages import page

SUMMARY = "show the page of a rule: what you see, why, the fix, when it is fine"


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("name", help="a rule's name, such as cuda-out-of-memory")
    parser.add_argument("-o", "--output-file", type=Path, metavar="FILE",
                        help="write the page there, replacing what the file held")


def execute(args: argparse.Namespace) -> int:
    entry = registry.find(args.name.strip().replace("_", "-"))
    if entry is None:
        raise UserError(not_found(args.name))
    with output.opened(args.output_file) as stream:
        write_encodable(page(entry), stream)
    return 0


def not_found(name: str) -> str:
    """The nearest names; those that contain the word where none is near."""
    names = [rule.name for rule in registry.rules()]
    near = difflib.get_close_matches(name, names, 3) or [n for n in names if name and name in n][:5]
    hint = f"did you mean {', '.join(near)}?" if near else "torchmedic rules lists them"
    return f"there is no rule {name!r}; {hint}"
