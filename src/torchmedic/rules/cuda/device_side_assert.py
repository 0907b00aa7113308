"""A GPU kernel found an index outside its table: a label, a token or an index is out of range.

## What you see
`RuntimeError: CUDA error: device-side assert triggered`, and above it lines such as `Loss.cu:106:
… Assertion `t >= 0 && t < n_classes` failed.`
## Why
Kernels check their indices. A class label that the last layer has no output for, a token id past
the end of the embedding, or an index past the end of a dimension fails that check. Kernels run
later than the Python line that started them, so the line in the traceback may be another one.
## Fix
The assertion's text tells which index it was. Compare the smallest and largest label or id with
the number of classes or rows; the same batch on the CPU gives a plain exception on the right line.
## When this is fine
Never. After it the process can't use the GPU any more.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

from torchmedic import logtext
from torchmedic.model import Category, Evidence, Fix, Place, Problem, Rule, fires, quiet
from torchmedic.remedies import raised

if TYPE_CHECKING:
    from torchmedic.observed import Failure, Log

WORDS = ("device-side assert", "assertion")
ASSERTED = re.compile(r"device-side assert triggered|\.(?:cu|cuh|h):\d+:.*Assertion .*failed")
CHECK = re.compile(r"\.(?:cu|cuh|h):\d+:.*Assertion [`'\"]?(?P<check>.+?)[`'\"]? failed")
CPU = "CUDA_VISIBLE_DEVICES= "
LABELS = ("a class label is outside what the loss allows: labels must lie in 0 … classes - 1",
          Fix("give the last layer one output for each class, or map the labels to 0 … classes - 1",
              "print `target.min(), target.max()` and the size of the last layer; a label to skip: "
              "`ignore_index=`"), "data")
ROWS = ("an index is outside the table it looks up: a token id past the embedding, or an index "
        "past the end of a dimension",
        Fix("compare the largest index with the number of rows; after adding tokens: "
            "`resize_token_embeddings(len(tokenizer))`", "print `ids.min(), ids.max()` before that "
            "layer"), "data")
UNIT = ("the input of a binary loss is outside 0 … 1, or NaN",
        Fix("`BCEWithLogitsLoss` on the layer's own output, or a sigmoid before `BCELoss`",
            "a NaN fails the same check: look at the loss before it"), "code")
CHANCE = ("the probabilities that were sampled from hold NaN, infinity or a negative number",
          Fix("look for where the output first becomes NaN: `torch.autograd.set_detect_anomaly("
              "True)`, or float32 in place of float16"), "code")
ANY = ("a kernel's check failed: mostly a label or an index out of range",
       Fix("run the same batch on the CPU: it names the value and the line",
           "or set CUDA_LAUNCH_BLOCKING=1: the traceback then shows the right line"), "data")
KINDS = (
    (re.compile(r"n_classes|cur_target|\bt >= 0|target_val|label"), LABELS),
    (re.compile(r"(?:input_val|input|\bx) ?>= ?(?:zero|0\.?).*<= ?(?:one|1)"), UNIT),
    (re.compile(r"probability tensor|cumdist|val >= zero|sum > "), CHANCE),
    (re.compile(r"[Ii]nd(?:ex|ices|_dim)?|size"), ROWS),
)


def in_failure(failure: Failure) -> Iterator[Problem]:
    if failure.how != "logged" and "device-side assert" in failure.message:
        yield _problem(ANY, failure.place, (raised(failure),), ())


def in_log(log: Log) -> Iterator[Problem]:
    if (hit := logtext.first(log, ASSERTED)) is None:
        return
    check = logtext.first(log, CHECK)
    failure = logtext.said_by(log, ASSERTED) or next(iter(logtext.lasting(log)), None)
    kind = _kind(check.match["check"]) if check else ANY
    shown = check or hit
    yield _problem(kind, failure.place if failure else None, (shown.evidence,),
                   logtext.about(failure), check is not None and kind is not ANY)


def _kind(check: str) -> tuple[str, Fix, str]:
    return next((kind for pattern, kind in KINDS if pattern.search(check)), ANY)


def _problem(kind: tuple[str, Fix, str], place: Place | None, evidence: tuple[Evidence, ...],
             about: tuple[str, ...], known: bool = False) -> Problem:
    message, fix, category = kind
    named: Category = "code" if category == "code" else "data"
    return Problem(message, where=place, evidence=evidence, fix=fix, about=about, category=named,
                   confidence="certain" if known else "likely")


_LOG = """../aten/src/ATen/native/cuda/{}: block: [3,0,0], thread: [7,0,0] Assertion `{}` failed.
Traceback (most recent call last):
  File "fit.py", line 30, in <module>
    loss.backward()
RuntimeError: CUDA error: device-side assert triggered
"""

RULE = Rule(
    name="device-side-assert", doc=__doc__, category="data", in_failure=in_failure, in_log=in_log,
    examples=(
        fires(_LOG.format("Loss.cu:240: nll_loss_forward_reduce_cuda_kernel_2d",
                          "t >= 0 && t < n_classes"),
              "a class label is outside", "one output for each class", kind="log", title="labels"),
        fires(_LOG.format("Indexing.cu:1237: indexSelectSmallIndex",
                          "srcIndex < srcSelectDimSize"),
              "a token id past the embedding", kind="log", title="rows"),
        fires(_LOG.format("Loss.cu:92: operator()", "input_val >= zero && input_val <= one"),
              "outside 0 … 1", "BCEWithLogitsLoss", kind="log", title="binary"),
        fires(_LOG.partition("\n")[2], "a kernel's check failed", "on the CPU", kind="log",
              title="the check itself is missing"),
        quiet("RuntimeError: CUDA error: out of memory\n", kind="log"),
    ),
)
