"""What the supervisor knows at the end of a run, in memory and in the run's folder."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

FACTS, OUTPUT = "facts.json", "output.txt"


@dataclass(frozen=True, slots=True)
class Outcome:
    """In memory first: a run that filled the disk is told all the same.

    facts: wait status, memory, stall, statuses of orphans, … as `session.py` gathers them.
    output: the masked tail of standard error.
    """

    facts: dict[str, Any]
    output: str

    @property
    def status(self) -> int:
        return int(self.facts["status"])

    def write(self, folder: Path) -> None:
        """Raises OSError where there is no room or no folder any more."""
        (folder / OUTPUT).write_text(self.output, encoding="utf-8", errors="replace", newline="")
        (folder / FACTS).write_text(json.dumps(self.facts), encoding="utf-8")

    @classmethod
    def read(cls, folder: Path) -> Outcome:
        # Line ends as they are: `\\r` tells the states of a progress bar from lines.
        output = (folder / OUTPUT).read_bytes().decode("utf-8", "replace")
        return cls(json.loads((folder / FACTS).read_text(encoding="utf-8")), output)
