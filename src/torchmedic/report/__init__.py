"""A diagnosis as text: one module per output format, each with `render(diagnosis, file)`."""

from __future__ import annotations

import importlib
from io import StringIO
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

if TYPE_CHECKING:
    from types import ModuleType

    from torchmedic.model import Diagnosis

FORMATS = {
    "full": "text", "concise": "concise", "json": "jsonfile", "json-lines": "jsonlines",
    "github": "github", "sarif": "sarif", "junit": "junit",
}
"""Output format → module of this package."""
WITHOUT_NOTES = ("concise", "github", "junit")
"""Formats that have no place for what could not be seen: that goes to standard error."""


def load(output_format: str) -> ModuleType:
    """The module of a format; only that one is imported."""
    return importlib.import_module(f"{__name__}.{FORMATS[output_format]}")


def write(diagnosis: Diagnosis, output_format: str, stream: TextIO) -> None:
    """Writes the diagnosis in a format to a stream. Only that format's module is imported."""
    load(output_format).render(diagnosis, stream)


def write_file(diagnosis: Diagnosis, output_format: str, file: Path) -> None:
    """Writes the report without colour in the place of what the file held. May raise OSError."""
    from torchmedic.output import replace_file

    stream = StringIO()
    if output_format == "full":
        from torchmedic.report import text

        text.render(diagnosis, stream, width=80, colour=False)
    else:
        write(diagnosis, output_format, stream)
    replace_file(file, stream.getvalue())
