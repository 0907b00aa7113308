"""Whose code a path is: the user's, or an installed package's and the standard library's."""

from __future__ import annotations

import re
import sys

INSTALLED = re.compile(
    r"[\\/](?:site-packages|dist-packages|lib(?:64)?[\\/](?:python|pypy)\d[^\\/]*)[\\/]"
    r"|\.egg[\\/]|[\\/]bin[\\/](?:torchrun|accelerate|deepspeed)$"
    # torch run from its own source folder
    r"|[\\/](?:torch|torchvision)[\\/](?:_\w+|amp|autograd|cuda|distributed|multiprocessing|nn"
    r"|optim|utils)[\\/]",
    re.IGNORECASE,
)
WINDOWS_LIBRARY = re.compile(r"^[A-Za-z]:\\.*\\lib\\([A-Za-z_]\w*)(?:\.py$|\\)", re.IGNORECASE)


def is_user(file: str) -> bool:
    """Whether somebody would look into this file to mend their training."""
    if file.startswith("<"):  # `<frozen runpy>`, `<string>`; a notebook's cell is the user's
        return file.startswith(("<stdin", "<ipython-input"))
    if INSTALLED.search(file) or file.endswith((".pyx", ".pxd", ".pxi")):
        return False
    windows = WINDOWS_LIBRARY.match(file)
    return not (windows and windows[1] in sys.stdlib_module_names)
