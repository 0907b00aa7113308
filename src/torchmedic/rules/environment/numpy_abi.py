"""The installed NumPy does not fit what was built or written for another one.

## What you see
`A module that was compiled using NumPy 1.x cannot be run in NumPy 2.0.2`, `RuntimeError: Numpy is
not available`, `numpy.dtype size changed, may indicate binary incompatibility`, or `module
'numpy' has no attribute 'float'`.
## Why
torch before 2.3 and many extensions were compiled for NumPy 1; NumPy 2 changed the binary
interface. NumPy 1.24 and 2.0 removed old names.
## Fix
`pip install "numpy<2"`, or update the package that was compiled for NumPy 1 (torch 2.3 or newer).
For a removed name: update the package that uses it, or `numpy<1.24`.
## When this is fine
The warning alone, where no tensor is exchanged with NumPy.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

from torchmedic import logtext
from torchmedic.model import Evidence, Fix, Place, Problem, Rule, Severity, fires, quiet
from torchmedic.remedies import raised

if TYPE_CHECKING:
    from torchmedic.observed import Failure, Log

WORDS = ("numpy", "_array_api", "np.", "multiarray")
NEW = re.compile(r"compiled using NumPy 1\.x cannot be run in|_ARRAY_API not found"
                 r"|Numpy is not available|multiarray failed to import")
SIZE = re.compile(r"numpy\.(?:dtype|ndarray|ufunc) size changed|compiled against API version")
NAME = re.compile(r"module 'numpy' has no attribute '(?P<name>\w+)'"
                  r"|`np\.(?P<name2>\w+)` was removed")
NEWER = re.compile(r"NumPy (2\.[\d.]+\d)")
BELOW_2 = Fix("install a NumPy that fits: `numpy<2`, or torch 2.3 or newer",
              "after it start the program anew; a notebook needs a restarted kernel",
              command='pip install "numpy<2"')


def in_failure(failure: Failure) -> Iterator[Problem]:
    found = _judged(failure.message)
    if found is not None:
        yield _problem(*found, failure.place, (raised(failure),), ())


def in_log(log: Log) -> Iterator[Problem]:
    """The warning: it is the reason where something failed, else only worth knowing."""
    hit = logtext.first(log, NEW)
    if hit is None or any(_judged(f.message) for f in logtext.every_failure(log)):
        return
    failed = [f for f in logtext.lasting(log) if "numpy" in f.message.lower()]
    yield _problem("a module was compiled for NumPy 1 and NumPy 2 is installed", BELOW_2, None,
                   (hit.evidence,), logtext.about(*failed) if failed else (),
                   "error" if failed else "info")


def _judged(text: str) -> tuple[str, Fix] | None:
    if NEW.search(text):
        return ("this torch, or another module, was compiled for NumPy 1 and NumPy 2 is installed",
                BELOW_2)
    if SIZE.search(text):
        return ("a module was compiled for another NumPy than the one installed",
                Fix("install the module again so that it fits this NumPy, or the NumPy it was "
                    "built with", command="pip install --force-reinstall --no-cache-dir MODULE"))
    if (found := NAME.search(text)) is None:
        return None
    name = found["name"] or found["name2"]
    return (f"`numpy.{name}` does not exist in the installed NumPy",
            Fix(f"write `{name.rstrip('_')}` or NumPy's present name for it, or update the package "
                "that uses it", "or an older NumPy: `numpy<1.24` for `np.float`, `np.int`, "
                "`np.bool`; `numpy<2` for what 2.0 removed"))


def _problem(message: str, fix: Fix, where: Place | None, evidence: tuple[Evidence, ...],
             about: tuple[str, ...], severity: Severity | None = None) -> Problem:
    return Problem(message, where=where, evidence=evidence, fix=fix, about=about,
                   severity=severity)


_LOG = """
A module that was compiled using NumPy 1.x cannot be run in
NumPy 2.1.3 as it may crash.
{}"""
_FAILS = """Traceback (most recent call last):
  File "fit.py", line 6, in <module>
    x = torch.from_numpy(a)
RuntimeError: Numpy is not available
"""

RULE = Rule(
    name="numpy-abi", doc=__doc__, category="environment", in_failure=in_failure, in_log=in_log,
    examples=(
        fires(_LOG.format(_FAILS), "compiled for NumPy 1", 'pip install "numpy<2"', kind="log",
              title="torch"),
        fires(_FAILS.replace("RuntimeError: Numpy is not available", "ValueError: numpy.dtype size "
                             "changed, may indicate binary incompatibility. Expected 96 from C "
                             "header, got 88 from PyObject"),
              "for another NumPy", kind="log", title="extension"),
        fires(_FAILS.replace("RuntimeError: Numpy is not available", "AttributeError: module "
                             "'numpy' has no attribute 'float'."),
              "`numpy.float` does not exist", kind="log", title="removed name"),
        quiet(_FAILS.replace("Numpy is not available", "expected np.ndarray (got list)"),
              kind="log"),
    ),
)
