"""The installed torch has no kernels for this GPU.

## What you see
`CUDA error: no kernel image is available for execution on the device`, `invalid device
function`, and a warning that the GPU `with CUDA capability sm_120 is not compatible with the
current PyTorch installation`.
## Why
A wheel holds machine code for a list of architectures. A newer card than the wheel needs a newer
CUDA build; a card that is too old was dropped. An extension built for another card says the same.
## Fix
Install the build that names this architecture (`torch.cuda.get_arch_list()` lists what a build
has). For sm_120 and sm_100 that is CUDA 12.8 or newer. Rebuild extensions with
`TORCH_CUDA_ARCH_LIST` set to the card's number.
## When this is fine
The warning alone, where only an integrated or second card is meant and another one is used.
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

WORDS = ("kernel image", "device function", "symbol not found", "cuda capability")
MISSING = re.compile(r"no kernel image is available|invalid device function"
                     r"|device kernel image is invalid|named symbol not found")
CARD = re.compile(r"(?P<card>\S.*?) with CUDA capability sm_(?P<arch>\d+) is not compatible")
OLD = re.compile(r"Found GPU\d+ (?P<card>.+?) which is of cuda capability (?P<major>\d+)\."
                 r"(?P<minor>\d+)|GPU\d* .*too old")
HAS = re.compile(r"supports CUDA capabilities ((?:sm_\d+a? ?|compute_\d+ ?)+)")
NEWEST = 100
"""sm_100 and newer came with CUDA 12.8."""


def in_failure(failure: Failure) -> Iterator[Problem]:
    if failure.how != "logged" and MISSING.search(failure.message):
        yield _problem(None, None, failure.place, (raised(failure),), ())


def in_log(log: Log) -> Iterator[Problem]:
    hit, card = logtext.first(log, MISSING), logtext.first(log, CARD)
    if hit is None and (card is None or not logtext.lasting(log)):
        return
    failure = logtext.said_by(log, MISSING)
    has = logtext.first(log, HAS)
    evidence = tuple(seen.evidence for seen in (hit, card, has) if seen is not None)
    where = failure.place if failure else None
    problem = _problem(card.match if card else None, has.match[1].split() if has else None, where,
                       evidence, logtext.about(failure) if hit else ())
    yield problem


def _problem(card: re.Match[str] | None, has: list[str] | None, where: Place | None,
             evidence: tuple[Evidence, ...], about: tuple[str, ...]) -> Problem:
    which = f"{card['card']} (sm_{card['arch']})" if card else "this GPU"
    return Problem(f"the installed torch, or an extension, has no kernels for {which}",
                   where=where, evidence=evidence, fix=_fix(card, has), about=about)


def _fix(card: re.Match[str] | None, has: list[str] | None) -> Fix:
    list_them = "python -c \"import torch; print(torch.__version__, torch.cuda.get_arch_list())\""
    if card is None:
        return Fix("install the torch build that lists this GPU's architecture; rebuild extensions "
                   "for it (TORCH_CUDA_ARCH_LIST)", command=list_them)
    arch = int(card["arch"])
    known = [int(re.sub(r"\D", "", name)) for name in has or ()]
    if known and arch < min(known):
        return Fix(f"install an older torch: this one begins with sm_{min(known)}",
                   "its list of wheels: https://pytorch.org/get-started/previous-versions/")
    index = "cu128" if arch >= NEWEST else None
    return Fix(f"install a torch build that supports sm_{arch}"
               + (": CUDA 12.8 or newer" if index else ""),
               command=f"pip install --force-reinstall torch --index-url "
                       f"https://download.pytorch.org/whl/{index}" if index else list_them)


_LOG = """/env/lib/python3.11/site-packages/torch/cuda/__init__.py:235: UserWarning:
NVIDIA GeForce RTX 5090 with CUDA capability sm_120 is not compatible with the current PyTorch installation.
The current PyTorch install supports CUDA capabilities sm_50 sm_80 sm_90.
Traceback (most recent call last):
  File "fit.py", line 9, in <module>
    y = net(x)
RuntimeError: CUDA error: no kernel image is available for execution on the device
"""  # noqa: E501

RULE = Rule(
    name="kernel-image-missing", doc=__doc__, category="environment", in_failure=in_failure,
    in_log=in_log,
    examples=(
        fires(_LOG, "no kernels for NVIDIA GeForce RTX 5090 (sm_120)", "whl/cu128", kind="log",
              title="newer card"),
        fires(_LOG.replace("sm_120", "sm_37").replace("RTX 5090", "K80"), "an older torch: this "
              "one begins with sm_50", kind="log", title="older card"),
        fires("stage 1\nerror in roi_align: invalid device function\n", "no kernels for this GPU",
              "TORCH_CUDA_ARCH_LIST", kind="log", title="extension"),
        quiet("\n".join(_LOG.split("\n")[:3]) + "\nepoch 1 loss 0.5\n", kind="log",
              title="the warning alone"),
    ),
)
