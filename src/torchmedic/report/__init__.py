"""A diagnosis as text: one module per output format, each with `render(diagnosis, file)`."""

from __future__ import annotations

import importlib
import io
import os
import tempfile
from pathlib import Path
from typing import TextIO

from torchmedic.model import Diagnosis

FORMATS = {"full": "text", "concise": "concise", "json": "jsonfile"}
"""Output format → module of this package."""


def write(diagnosis: Diagnosis, output_format: str, stream: TextIO) -> None:
    """Writes the diagnosis in a format to a stream. Only that format's module is imported."""
    module = importlib.import_module(f"{__name__}.{FORMATS[output_format]}")
    module.render(diagnosis, stream)


def write_file(diagnosis: Diagnosis, output_format: str, file: Path) -> None:
    """Writes the report, without colour, in the place of whatever the file held. May raise OSError.

    A reader sees the old report or the new one, never half of one.
    """
    text = _plain(diagnosis, output_format)
    file = file.resolve()  # a link stays, and what it points to is written
    if file.exists() and not file.is_file():  # such as /dev/stdout
        file.write_text(text, encoding="utf-8", errors="backslashreplace")
        return
    handle, name = tempfile.mkstemp(prefix=f".{file.name}.", dir=file.parent)
    try:
        with open(handle, "w", encoding="utf-8", errors="backslashreplace", newline="\n") as out:
            out.write(text)
        Path(name).chmod(file.stat().st_mode if file.exists() else 0o666 & ~_umask())
        Path(name).replace(file)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise


def _plain(diagnosis: Diagnosis, output_format: str) -> str:
    stream = io.StringIO()
    if output_format == "full":
        from torchmedic.report import text

        text.render(diagnosis, stream, width=80, colour=False)
    else:
        write(diagnosis, output_format, stream)
    return stream.getvalue()


def _umask() -> int:
    mask = os.umask(0o077)
    os.umask(mask)
    return mask
