"""cuBLAS or cuDNN refused: no memory for its workspace, an earlier fault, or another version.

## What you see
`CUBLAS_STATUS_ALLOC_FAILED when calling cublasCreate(handle)`, `CUBLAS_STATUS_EXECUTION_FAILED`,
`CUDNN_STATUS_NOT_INITIALIZED`, `Unable to find a valid cuDNN algorithm to run convolution`.
## Why
The libraries say little. An index out of range in an earlier kernel shows here first; so does a
full GPU, since the libraries ask for memory of their own; or another cuDNN or cuBLAS than torch's
own is found on `LD_LIBRARY_PATH`.
## Fix
Run the same batch on the CPU: an index out of range is then named. Look at `nvidia-smi` for memory.
Unset `LD_LIBRARY_PATH` for the version.
## When this is fine
Never.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

from torchmedic import logtext
from torchmedic.model import Category, Confidence, Fix, Place, Problem, Rule, fires, quiet

if TYPE_CHECKING:
    from torchmedic.observed import Failure, Log

WORDS = ("_status_", "cudnn", "cublas", "cufft", "unable to find an engine")
STATUS = re.compile(r"(?P<status>(?:CUBLAS|CUDNN|CUSOLVER|CUFFT|CUSPARSE)_STATUS_(?!SUCCESS)\w+)"
                    r"|[Uu]nable to find (?:a valid cuDNN algorithm|an engine)"
                    r"|cublas runtime error|cu(?:FFT|SPARSE|SOLVER|DNN) error: |CUFFT_\w+")
VERSION = re.compile(r"VERSION_MISMATCH|cuDNN version incompatibility|Could not load library "
                     r"libcudnn|undefined symbol: cu(?:blas|dnn)|STATUS_ARCH_MISMATCH")
ASSERTED = re.compile(r"device-side assert|\.(?:cu|cuh|h):\d+:.*Assertion .*failed")
INDEX = re.compile(r"index out of range|is out of bounds|IndexError")
Told = tuple[str, Category, Confidence, Fix]
ELSE: Told = (
    "a CUDA library failed: out of memory, an earlier fault on the GPU or NaN can look like "
    "this, and the log does not tell them apart", "unknown", "possible",
    Fix("run one batch on the CPU (it names an index out of range), then with "
        "CUDA_LAUNCH_BLOCKING=1; watch the memory meanwhile",
        command="CUDA_VISIBLE_DEVICES= python …   # then: CUDA_LAUNCH_BLOCKING=1 python …"))
OTHER: Told = (
    "another cuDNN or cuBLAS than torch's own is loaded", "environment", "certain",
    Fix("unset LD_LIBRARY_PATH, and remove a second cuDNN or nvidia-* package",
        command="env -u LD_LIBRARY_PATH python …"))
FAULT: Told = (
    "an index out of range on the GPU shows as a failure of a CUDA library: the CPU run in this "
    "log names it", "data", "likely",
    Fix("keep ids below the number of rows: the right tokenizer, or "
        "`resize_token_embeddings(len(tokenizer))`", "print `ids.max()` before the lookup"))
WORKSPACE: Told = (
    "cuDNN found no way to run the convolution: mostly there is no memory left for its workspace",
    "memory", "likely",
    Fix("a smaller batch or smaller inputs; see whether another process holds the GPU",
        command="nvidia-smi"))


def in_failure(failure: Failure) -> Iterator[Problem]:
    if failure.how != "logged" and STATUS.search(failure.message):
        yield _problem(_judged(failure.message, False), failure.place)


def in_log(log: Log) -> Iterator[Problem]:
    hit = logtext.first(log, VERSION) or next(
        (hit for hit in logtext.hits(log, STATUS) if "Warning" not in hit.text), None)
    if hit is None or logtext.first(log, ASSERTED):
        return  # `device-side-assert`
    failure = logtext.said_by(log, STATUS)
    told = _judged(hit.text, logtext.first(log, INDEX) is not None)
    yield _problem(told, failure.place if failure else None, (hit, *_named(log, told)),
                   logtext.about(failure))


def _named(log: Log, told: Told) -> tuple[logtext.Hit, ...]:
    hit = logtext.first(log, INDEX) if told is FAULT else None
    return (hit,) if hit else ()


def _judged(text: str, index: bool) -> Told:
    if VERSION.search(text):
        return OTHER
    if index:
        return FAULT
    return WORKSPACE if "valid cuDNN algorithm" in text else ELSE


def _problem(told: Told, where: Place | None, hits: tuple[logtext.Hit, ...] = (),
             about: tuple[str, ...] = ()) -> Problem:
    message, category, confidence, fix = told
    return Problem(message, where=where, evidence=tuple(hit.evidence for hit in hits), fix=fix,
                   about=about, confidence=confidence, category=category)


_LOG = """Traceback (most recent call last):
  File "fit.py", line 18, in <module>
    y = net(x)
RuntimeError: {}
"""
_HANDLE = "CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`"

RULE = Rule(
    name="cublas-or-cudnn-failure", doc=__doc__, category="environment", in_failure=in_failure,
    in_log=in_log,
    examples=(
        fires(_LOG.format(_HANDLE), "does not tell them apart", "on the CPU", kind="log",
              title="bare"),
        fires(_LOG.format(_HANDLE) + "on the CPU it says IndexError: index out of range in self\n",
              "an index out of range on the GPU", kind="log", title="the CPU names it"),
        fires(_LOG.format("cuDNN error: CUDNN_STATUS_SUBLIBRARY_VERSION_MISMATCH"),
              "another cuDNN or cuBLAS", "LD_LIBRARY_PATH", kind="log", title="version"),
        fires(_LOG.format("Unable to find a valid cuDNN algorithm to run convolution"),
              "no memory left for its workspace", kind="log", title="workspace"),
        quiet("graph.py:744: UserWarning: Plan failed with a cudnnException: cudnnFinalize"
              "Descriptor Failed cudnn_status: CUDNN_STATUS_NOT_SUPPORTED\nepoch 1 loss 0.9\n",
              kind="log",
              title="another plan is taken"),
        fires("Could not load library libcudnn_cnn_train.so.8. Error: undefined symbol: _Z1\n"
              + _LOG.format("GET was unable to find an engine to execute this computation"),
              "another cuDNN or cuBLAS than torch's own", kind="log", title="another library"),
        fires(_LOG.format("cublas runtime error : the GPU program failed to execute at THCBlas.cu"),
              "does not tell them apart", kind="log", title="old wording"),
        quiet(_LOG.format("mat1 and mat2 shapes cannot be multiplied (2x3 and 4x5)"), kind="log"),
    ),
)
