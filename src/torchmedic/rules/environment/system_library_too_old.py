"""A system library is older than the package that needs it.

## What you see
``version `GLIBCXX_3.4.29' not found (required by …)``, ``version `GLIBC_2.29' not found``.
## Why
The package was built on a newer system. `GLIBCXX` is the C++ library: conda brings a newer one than
the system's, but `LD_LIBRARY_PATH` or the order of imports loads the system's first. `GLIBC` is
the system's own C library and comes only with a newer system.
## Fix
GLIBCXX: put conda's own library first, or install `libstdcxx-ng`. GLIBC: a package built for this
system, a container, or a newer system.
## When this is fine
Never.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

from torchmedic.model import Fix, Problem, Rule, fires, quiet
from torchmedic.remedies import raised

if TYPE_CHECKING:
    from torchmedic.observed import Failure

WORDS = ("glibc", "cxxabi")
NEEDED = re.compile(r"version [`'\"]?(?P<version>(?P<library>GLIBCXX|GLIBC|CXXABI)_[\d.]+)"
                    r"[`'\"]? not found")


def in_failure(failure: Failure) -> Iterator[Problem]:
    found = NEEDED.search(failure.message)
    if found is None:
        return
    if found["library"] == "GLIBC":
        fix = Fix("install a version of the package that was built for this system, or run in a "
                  "container with a newer one", "the C library itself can't be replaced alone",
                  command="ldd --version")
    else:
        fix = Fix("load conda's C++ library first: `export LD_LIBRARY_PATH=$CONDA_PREFIX/lib`",
                  "or install a newer one", command="conda install -c conda-forge libstdcxx-ng")
    yield Problem(f"the system's library has no {found['version']}, which a package needs",
                  where=failure.place, evidence=(raised(failure),), fix=fix)


_LOG = """Traceback (most recent call last):
  File "fit.py", line 3, in <module>
    import it
ImportError: {}
"""

RULE = Rule(
    name="system-library-too-old", doc=__doc__, category="environment", in_failure=in_failure,
    examples=(
        fires(_LOG.format("/lib/libstdc++.so.6: version `GLIBCXX_3.4.29' not found (required by "
                          "/env/x.so)"), "GLIBCXX_3.4.29", "libstdcxx-ng", kind="log", title="C++"),
        fires(_LOG.format("/lib64/libc.so.6: version `GLIBC_2.29' not found (required by x.so)"),
              "GLIBC_2.29", "container", kind="log", title="C"),
        quiet(_LOG.format("cannot import name 'it'"), kind="log", title="another"),
    ),
)
