"""`torchmedic rule NAME`: the page of a rule."""

from __future__ import annotations

import argparse
import difflib
import json
from typing import TYPE_CHECKING

from torchmedic import output, registry
from torchmedic.output import UserError
from torchmedic.report.escape import write_encodable
from torchmedic.rulepages import facts, page

if TYPE_CHECKING:
    from torchmedic.registry import Entry

SUMMARY = "show the page of a rule: what you see, why, the fix, when it is fine"


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("name", help="a rule's name, such as cuda-out-of-memory")
    output.add_options(parser, ("full", "json"))


def execute(args: argparse.Namespace) -> int:
    entry = registry.find(args.name.strip().replace("_", "-"))
    if entry is None:
        raise UserError(not_found(args.name))
    with output.opened(args.output_file) as stream:
        json_wanted = args.output_format == "json"
        write_encodable(as_json(entry) if json_wanted else page(entry), stream)
    return 0


def as_json(entry: Entry) -> str:
    """The facts of a rule and its page in Markdown."""
    return json.dumps({"schema": 1, **facts(entry), "page": page(entry)}, indent=2) + "\n"


def not_found(name: str) -> str:
    """The nearest names; those that contain the word where none is near."""
    names = [rule.name for rule in registry.rules()]
    near = difflib.get_close_matches(name, names, 3) or [n for n in names if name and name in n][:5]
    hint = f"did you mean {', '.join(near)}?" if near else "torchmedic rules lists them"
    return f"there is no rule {name!r}; {hint}"
