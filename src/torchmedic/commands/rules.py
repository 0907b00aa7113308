"""`torchmedic rules`: what can be found."""

from __future__ import annotations

import argparse
import json
from typing import TYPE_CHECKING

from torchmedic import output, registry
from torchmedic.report.escape import write_encodable
from torchmedic.rulepages import facts
from torchmedic.tables import table

if TYPE_CHECKING:
    from torchmedic.registry import Entry

SUMMARY = "list every failure that can be named"


def configure(parser: argparse.ArgumentParser) -> None:
    output.add_options(parser, ("full", "json"))


def execute(args: argparse.Namespace) -> int:
    entries = registry.catalogue().entries
    with output.opened(args.output_file) as stream:
        if args.output_format == "json":
            write_encodable(as_json(entries), stream)
        else:
            write_encodable(as_text(entries, output.width(stream)), stream)
    return 0


def as_text(entries: tuple[Entry, ...], width: int) -> str:
    """Name, category, what it observes, and one sentence."""
    head = ("RULE", "CATEGORY", "FOUND IN", "SUMMARY")
    rows = [(e.rule.name, e.rule.category, ",".join(e.rule.observes), e.rule.summary)
            for e in entries]
    return table([head, *rows], width)


def as_json(entries: tuple[Entry, ...]) -> str:
    """Every rule as `torchmedic rule NAME` gives it, without the page."""
    return json.dumps({"schema": 1, "rules": [facts(e) for e in entries]}, indent=2) + "\n"
