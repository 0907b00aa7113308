"""A diagnosis as text: one module per output format, each with `render(diagnosis, file)`."""

from __future__ import annotations

import importlib
from typing import TextIO

from torchmedic.model import Diagnosis

FORMATS = {"full": "text", "concise": "concise", "json": "jsonfile"}
"""Output format → module of this package."""


def write(diagnosis: Diagnosis, output_format: str, stream: TextIO) -> None:
    """Writes the diagnosis in a format to a stream. Only that format's module is imported."""
    module = importlib.import_module(f"{__name__}.{FORMATS[output_format]}")
    module.render(diagnosis, stream)
