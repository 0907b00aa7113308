"""Two OpenMP libraries are loaded into one process.

## What you see
`OMP: Error #15: Initializing libiomp5md.dll, but found libiomp5md.dll already initialized.`, and
the process ends.
## Why
torch, NumPy (MKL), OpenCV or conda each bring their own copy of Intel's OpenMP, and two of them
were loaded.
## Fix
Take both packages from one source (all from conda, or all from pip), so that one copy is left.
`KMP_DUPLICATE_LIB_OK=TRUE` lets it go on, and may give wrong results or crash.
## When this is fine
`OMP: Info` and `OMP: Warning` lines.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

from torchmedic import logtext
from torchmedic.model import Fix, Problem, Rule, fires, quiet

if TYPE_CHECKING:
    from torchmedic.observed import Log

WORDS = ("omp: error #15",)
PATTERN = re.compile(r"OMP: Error #15: Initializing (?P<one>\S+), but found (?P<other>\S+) already")


def in_log(log: Log) -> Iterator[Problem]:
    hit = logtext.first(log, PATTERN)
    if hit is not None:
        yield Problem(
            f"two OpenMP libraries are loaded: {hit.match['one'].rstrip(',')} and "
            f"{hit.match['other']}", evidence=(hit.evidence,), about=logtext.about(), fix=Fix(
                "install torch and NumPy from one source, so that one copy is left",
                "KMP_DUPLICATE_LIB_OK=TRUE only hides it: results may be wrong",
                command="python -c \"import sys; print(sys.prefix)\"; conda list | grep -i -E "
                        "'openmp|mkl|torch|numpy'"))


RULE = Rule(
    name="duplicate-openmp", doc=__doc__, category="environment", in_log=in_log,
    examples=(
        fires("OMP: Error #15: Initializing libiomp5md.dll, but found libiomp5md.dll already "
              "initialized.\n", "two OpenMP libraries", "one source", kind="log", title="Windows"),
        quiet("OMP: Info #276: omp_set_nested routine deprecated\n", kind="log", title="info"),
    ),
)
