"""The program asks for a GPU that torch can't use.

## What you see
`Torch not compiled with CUDA enabled`, `No CUDA GPUs are available`, `Found no NVIDIA driver`,
`CUDA error: invalid device ordinal`, or `CUDA unknown error`.
## Why
The installed torch is a CPU build; the machine or container shows no GPU
(`CUDA_VISIBLE_DEVICES`, `--gpus all`, a job without a GPU); or the number of the GPU is larger
than what is there.
## Fix
Install a CUDA build, start the container or job with a GPU, or name a GPU that exists.
## When this is fine
Never, when the program insists on a GPU; `device = "cuda" if torch.cuda.is_available() else
"cpu"` lets it train on the CPU.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

from torchmedic import logtext
from torchmedic.model import Fix, Problem, Rule, fires, quiet
from torchmedic.remedies import raised

if TYPE_CHECKING:
    from torchmedic.observed import Failure, Log

WORDS = ("cuda", "nvidia", "device", "requested gpu")
KINDS = (
    (re.compile(r"Torch not compiled with CUDA enabled|not linked with support for cuda"),
     "the installed torch is a build for the CPU",
     Fix("install a CUDA build of torch (https://pytorch.org/get-started/locally/)",
         "or let the program train on the CPU: `torch.cuda.is_available()`",
         command="python -c \"import torch; print(torch.__version__, torch.version.cuda)\"")),
    (re.compile(r"No CUDA GPUs are available|Found no NVIDIA driver|no CUDA-capable device"),
     "torch sees no GPU here",
     Fix("give the job or container a GPU (`docker run --gpus all`), and look at "
         "CUDA_VISIBLE_DEVICES", command="nvidia-smi; echo $CUDA_VISIBLE_DEVICES")),
    (re.compile(r"invalid device ordinal|Invalid device id|device >= 0 && device < num_gpus"
                r"|You requested gpu: .*\s+But your machine only has"),
     "the program names a GPU whose number is not there",
     Fix("use a number below `torch.cuda.device_count()`; CUDA_VISIBLE_DEVICES counts anew from 0",
         "under torchrun: no more processes per node than GPUs",
         command="nvidia-smi -L; echo $CUDA_VISIBLE_DEVICES")),
    (re.compile(r"all CUDA-capable devices are busy or unavailable"),
     "the GPU admits one process at a time, and another has it; or it is in a bad state",
     Fix("look at the GPU's compute mode and at who uses it", "exclusive mode: one process per "
         "GPU", command="nvidia-smi -q -d COMPUTE; nvidia-smi")),
    (re.compile(r"CUDA unknown error|CUDA driver initialization failed|system not yet initialized"),
     "the CUDA driver could not be started",
     Fix("restart the machine or the driver; CUDA_VISIBLE_DEVICES must be set before the program "
         "starts", command="nvidia-smi")),
)


def in_failure(failure: Failure) -> Iterator[Problem]:
    for pattern, message, fix in KINDS:
        if pattern.search(failure.message) and "forked subprocess" not in failure.message:
            yield Problem(message, where=failure.place, evidence=(raised(failure),), fix=fix)
            return


def in_log(log: Log) -> Iterator[Problem]:
    for pattern, message, fix in KINDS:
        hit = logtext.beside(log, pattern)
        if hit is not None and re.search("rror", hit.text) and "Warning" not in hit.text:
            yield Problem(message, evidence=(hit.evidence,), fix=fix, confidence="likely",
                          about=logtext.about())
            return


_LOG = """Traceback (most recent call last):
  File "fit.py", line 5, in <module>
    net.cuda()
{}
"""

RULE = Rule(
    name="cuda-not-available", doc=__doc__, category="environment", in_failure=in_failure,
    in_log=in_log,
    examples=(
        fires(_LOG.format("AssertionError: Torch not compiled with CUDA enabled"),
              "a build for the CPU", kind="log", title="build"),
        fires(_LOG.format("RuntimeError: No CUDA GPUs are available"), "torch sees no GPU",
              kind="log", title="no GPU"),
        fires(_LOG.format("RuntimeError: CUDA error: invalid device ordinal"),
              "whose number is not there", kind="log", title="number"),
        quiet("UserWarning: CUDA initialization: CUDA unknown error\nepoch 1 loss 0.4\n",
              kind="log", title="a warning"),
    ),
)
