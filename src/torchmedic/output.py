"""Where a command's answer goes: standard output, or a file that is replaced whole."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from io import StringIO
from pathlib import Path
from typing import TextIO


class UserError(Exception):
    """Something the user asked for can't be done; the message says why."""


def add_options(parser: argparse.ArgumentParser, formats: Sequence[str]) -> None:
    """`--output-format` and `-o`, the same for every command."""
    parser.add_argument("--output-format", choices=tuple(formats), default=formats[0],
                        help=f"how the answer looks (default: {formats[0]})")
    parser.add_argument("-o", "--output-file", type=Path, metavar="FILE",
                        help="write the answer there, replacing what the file held")


@contextmanager
def opened(file: Path | None) -> Iterator[TextIO]:
    """The stream for an answer; a file changes only when all of it was written."""
    if file is None:
        yield sys.stdout
        return
    stream = StringIO()
    yield stream
    try:
        replace_file(file, stream.getvalue())
    except OSError as error:
        raise UserError(f"can't write {file}: {error.strerror or error}") from None


def check(file: Path) -> None:
    """Raises UserError where an answer could not be written: better now than after hours."""
    real = file.resolve()
    if real.is_dir():
        why = "it is a folder"
    elif not real.parent.is_dir():
        why = f"there is no folder {real.parent}"
    elif not os.access(real if real.exists() and not real.is_file() else real.parent, os.W_OK):
        why = "no permission to write there"
    else:
        return
    raise UserError(f"can't write {file}: {why}")


def replace_file(file: Path, text: str, encoding: str = "utf-8",
                 errors: str = "backslashreplace") -> None:
    """Writes text in the place of what the file held: a reader sees the old or the new."""
    import tempfile

    file = file.resolve()  # a link stays, and what it points to is written
    if file.exists() and not file.is_file():  # such as /dev/stdout
        file.write_text(text, encoding=encoding, errors=errors)
        return
    handle, name = tempfile.mkstemp(prefix=f".{file.name}.", dir=file.parent)
    try:
        with open(handle, "w", encoding=encoding, errors=errors, newline="\n") as out:
            out.write(text)
        Path(name).chmod(file.stat().st_mode if file.exists() else 0o666 & ~_umask())
        Path(name).replace(file)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise


def _umask() -> int:
    mask = os.umask(0o077)
    os.umask(mask)
    return mask


def width(stream: TextIO) -> int:
    """Columns for plain tables."""
    try:
        return max(40, os.get_terminal_size(stream.fileno()).columns)
    except (OSError, ValueError, AttributeError):
        columns = os.environ.get("COLUMNS", "")
        return max(40, int(columns)) if columns.isdecimal() else 100
