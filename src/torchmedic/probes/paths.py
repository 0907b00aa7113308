"""Whose code a file is: the user's, a library's or ours."""

from __future__ import annotations

import os

HERE = os.path.dirname(os.path.abspath(__file__))
STDLIB = os.path.dirname(os.path.abspath(os.__file__))


def is_user_file(file):
    """False for the standard library, installed packages, frozen modules and ourselves."""
    if file.startswith(("<frozen", HERE)):
        return False
    if "site-packages" in file or "dist-packages" in file:
        return False
    if not file.startswith("<") and not os.path.isabs(file) and not os.path.exists(file):
        return False  # Cython's frames: a path below the source tree they were built from
    return not file.startswith(STDLIB + os.sep)


def is_ours(file):
    return file.startswith(HERE)
