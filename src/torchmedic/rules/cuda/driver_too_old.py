"""The GPU's driver is older than the CUDA that torch was built with.

## What you see
`The NVIDIA driver on your system is too old (found version 11040)`, `CUDA driver version is
insufficient for CUDA runtime version`, or `forward compatibility was attempted on non supported
HW`.
## Why
A driver supports CUDA up to one version. A newer torch wheel brings a newer CUDA runtime. After
an update without a restart the loaded kernel module and the libraries differ, too.
## Fix
Update the driver, or install the torch build for the CUDA that the driver supports (`nvidia-smi`
shows it at the top right).
## When this is fine
The warning alone, where training on the CPU is meant.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

from torchmedic import logtext
from torchmedic.model import Evidence, Fix, Place, Problem, Rule, fires, quiet
from torchmedic.remedies import raised

if TYPE_CHECKING:
    from torchmedic.observed import Failure, Log

WORDS = ("driver", "forward compatibility", "unsupported toolchain")
PATTERN = re.compile(r"NVIDIA driver on your system is too old(?: \(found version (?P<found>\d+))?"
                     r"|driver version is insufficient for CUDA runtime|forward compatibility was "
                     r"attempted|Driver/library version mismatch"
                     r"|PTX was compiled with an unsupported toolchain")


def in_failure(failure: Failure) -> Iterator[Problem]:
    if match := PATTERN.search(failure.message):
        yield _problem(match, failure.place, raised(failure), ())


def in_log(log: Log) -> Iterator[Problem]:
    hit = logtext.beside(log, PATTERN)
    failed = logtext.lasting(log)
    if hit is None or not (failed or "rror" in hit.text):
        return
    gpu = [f for f in failed if re.search("CUDA|cuda|GPU|NCCL|device", f.message)]
    yield _problem(hit.match, None, hit.evidence, logtext.about(*gpu[-1:]) if gpu else ())


def _problem(match: re.Match[str], where: Place | None, evidence: Evidence,
             about: tuple[str, ...]) -> Problem:
    if "forward compat" in match[0] or "mismatch" in match[0]:
        return Problem("the loaded driver and its libraries are of different versions",
                       where=where, evidence=(evidence,), about=about,
                       fix=Fix("restart the machine after the driver's update; in a container "
                               "leave the driver to the host", command="nvidia-smi"))
    found = match["found"]
    upto = f" it supports CUDA {int(found) // 1000}.{int(found) % 1000 // 10}" if found else ""
    build = f"the torch build for CUDA{upto.rpartition('CUDA')[2]}" if found else "an older build"
    return Problem("the GPU's driver is older than this torch build's CUDA"
                   + (f":{upto} at most" if upto else ""), where=where, evidence=(evidence,),
                   about=about,
                   fix=Fix(f"update the driver, or install {build} or older",
                           "https://pytorch.org/get-started/previous-versions/",
                           command="nvidia-smi"))


_LOG = """Traceback (most recent call last):
  File "fit.py", line 5, in <module>
    net.cuda()
RuntimeError: The NVIDIA driver on your system is too old (found version 11040). Please update it.
"""

RULE = Rule(
    name="driver-too-old", doc=__doc__, category="environment", in_failure=in_failure,
    in_log=in_log,
    examples=(
        fires(_LOG, "it supports CUDA 11.4 at most", "the torch build for CUDA 11.4", kind="log"),
        fires("RuntimeError: CUDA error: CUDA driver version is insufficient for CUDA runtime "
              "version\n", "older than this torch build's CUDA", kind="log", title="old wording"),
        quiet("UserWarning: CUDA initialization: The NVIDIA driver on your system is too old "
              "(found version 11040).\nepoch 1 loss 0.4\nepoch 2 loss 0.3\n", kind="log",
              title="trains on the CPU"),
    ),
)
