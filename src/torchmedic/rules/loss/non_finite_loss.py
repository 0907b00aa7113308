"""The loss became NaN or infinite.

## What you see
`loss: nan`; `Loss is nan, stopping training`; `Function 'LogBackward0' returned nan values in its
0th output`; a loss scale that halves again and again.
## Why
Steps that are too large (the loss grows first), a logarithm, square root or division at zero, a
sum or product that float16 cannot hold, or NaN in the data (then in the first batch already).
## Fix
Find the first step and the first operation: `torch.autograd.set_detect_anomaly(True)`. A loss that
grew before asks for a smaller learning rate, warm-up, or clipped gradients.
## When this is fine
A step that a gradient scaler skips now and then.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

from torchmedic import logtext, nonfinite
from torchmedic.model import Evidence, Fix, Problem, Rule, fires, quiet
from torchmedic.remedies import raised
from torchmedic.source.flow import trace_of
from torchmedic.source.flow.training import place
from torchmedic.trainings import module

if TYPE_CHECKING:
    from torchmedic.logtext import Hit
    from torchmedic.observed import Failure, Log, Run
    from torchmedic.source.script import Script

WORDS = ("nan", "inf", "isfinite", "loss scale", "loss_scale", "invalid numeric")
ANOMALY = re.compile(r"Function '(?P<op>\w+)' returned nan values in its (?P<n>\d+)th output")
STOPPED = re.compile(r"\bloss\b.{0,30}\b(?:nan|infinite|inf|not finite)\b.{0,40}"
                     r"(?:stopp|abort|at iter)|loss became (?:infinite|NaN)|NaN or Inf found"
                     r"|loss is nan", re.IGNORECASE)
ASSERTED = re.compile(r"assert\b.*(?:isnan|isfinite|isinf)\(")
CHECKED = re.compile(r"[Ii]nput (?:X |y_\w+ )?contains (?:NaN|infinity)"
                     r"|probability tensor contains either"
                     r"|found invalid values:\s*tensor\([^)]*\bnan\b"
                     r"|(?:cost matrix|matrix) (?:is infeasible|contains invalid numeric)")
SCALE = re.compile(r"[Mm]inimum loss scale|loss scale already at minimum|loss_scale.*too small"
                   r"|reducing loss scale to (?:[\d.]+e-\d+|0\.0)")
COLUMN = re.compile(r"\b\w*loss\b(?!\W{0,3}[\d-])", re.IGNORECASE)
"""A column's head."""
ROW = re.compile(r"^\s*\d+/\d+\s+\S+(?:\s+(?:nan|-?\d[\d.e+-]*)){2,}", re.IGNORECASE)
NORM = re.compile(r"grad_?norm['\"]?\W{1,3}(nan|[\d.]+)", re.IGNORECASE)
_IS = r"['\"]?\)? ?[:=]? {0,3}['\"]?(?:tensor\()?"
NAN = re.compile(rf"(?<![A-Za-z])(?:\w*_)?loss\w*{_IS}-?(?:nan|inf)\b", re.IGNORECASE)
LOSS = re.compile(rf"(?<![A-Za-z_])loss{_IS}(-?\d+(?:\.\d+)?(?:e[+-]?\d+)?)", re.IGNORECASE)
RATE = re.compile(r"\b(?:lr|learning[_ ]rate)['\"]?\W{1,3}(\d+(?:\.\d+)?(?:e-?\d+)?)", re.I)
FIND = "torch.autograd.set_detect_anomaly(True)"
GREW = 5.0
"""Times the usual loss."""


def in_failure(failure: Failure) -> Iterator[Problem]:
    found = ANOMALY.search(failure.message)
    if found is None:
        yield from _checked(failure)
        return
    op = re.sub(r"Backward\d*$", "", found["op"])
    yield Problem(f"the gradient of `{op}` is NaN", where=failure.place,
                  evidence=(raised(failure),), fix=Fix(
                      f"keep what goes into `{op}` away from where its gradient is not finite: an "
                      "epsilon under roots, logarithms and divisions; `torch.where` on its input, "
                      "not on its output", "the warning above names the line of the forward pass"))


def _checked(failure: Failure) -> Iterator[Problem]:
    """Somebody checked the values, after the operation that made the first NaN."""
    line = failure.user_frame.text if failure.user_frame else None
    asserted = failure.short_type == "AssertionError" and ASSERTED.search(line or "")
    if CHECKED.search(failure.message) or asserted:
        yield Problem("values that were checked hold NaN or infinity; what made the first of them "
                      "is not told", where=failure.place, evidence=(raised(failure),),
                      category="unknown", confidence="likely", fix=Fix(
                          "look at the loss before: find the first operation that gives NaN, or "
                          "try a smaller learning rate and float32", command=FIND))


def in_run(run: Run) -> Iterator[Problem]:
    for process in run.processes:
        if process.non_finite is not None:
            yield nonfinite.problem(run, process.non_finite)


def in_source(script: Script) -> Iterator[Problem]:
    """`log(1 - p)` of a sigmoid that reaches 1: the logarithm of zero."""
    seen = set()
    for event in trace_of(script).of("log"):
        inner = event.value
        if inner is None or inner.type != "Sub" or len(inner.args) != 2 or id(event.node) in seen:
            continue
        one, chance = inner.args
        if one.kind == "const" and one.data in (1, 1.0) and chance.kind == "tensor" and (
                chance.act == "sigmoid" and chance.type != "clamped" and event.grad is not False):
            seen.add(id(event.node))
            made = getattr(chance.act_node, "lineno", 0)
            yield Problem(
                f"`{ast.unparse(event.node)}` is minus infinity where the sigmoid reaches 1",
                where=place(script.file, event), severity="warning", confidence="likely",
                category="code",
                evidence=(Evidence(f"line {made}: the sigmoid is exactly 1 in float32 for scores "
                                   "above 17; 0 times infinity is NaN", "source"),),
                fix=Fix("`F.binary_cross_entropy_with_logits` on the scores",
                        "or `F.binary_cross_entropy`, which bounds the logarithm", "unsafe"))


def in_log(log: Log) -> Iterator[Problem]:
    if any(ANOMALY.search(f.message) for f in logtext.every_failure(log)):
        return
    nan = logtext.first(log, NAN)
    stop = logtext.first(log, STOPPED)
    scale = logtext.first(log, SCALE)
    if nan and stop is None and _recovers(log, nan):
        nan = scale = None
    nan = nan or _in_columns(log)
    hit = nan or stop or scale
    if hit is None:
        return
    before = _before(log, hit)
    shown = [seen.evidence for seen in (nan, stop, scale) if seen is not None]
    yield Problem(
        _message(before, scale if hit is scale else None), where=None,
        evidence=(*shown[:2], *_trend(log, before, hit)), about=_about(log),
        confidence="likely", category="code" if _grew(before) else "unknown",
        fix=_fix(before, hit is scale))


def _in_columns(log: Log) -> Hit | None:
    """The first row of a table of losses with NaN, where they stay so; or of gradient norms."""
    if sum(len(COLUMN.findall(line)) > 1 for line in log.lines[:2000]):
        rows = [(h, "nan" in h.text) for h in logtext.hits(log, ROW)]
        bad = [hit for hit, isnan in rows if isnan]
        if len(bad) > 1 and rows[-1][1]:
            return bad[0]
    norms = [(hit, hit.match[1].lower() == "nan") for hit in logtext.hits(log, NORM)]
    if len(norms) > 2 and all(isnan for _, isnan in norms[-3:]):
        return next(hit for hit, isnan in norms if isnan)
    return None


def _recovers(log: Log, nan: Hit) -> bool:
    """Finite losses follow: one batch was not finite, or another loss is meant."""
    after = [line for line in log.lines[nan.number:] if LOSS.search(line) and not NAN.search(line)]
    still = [line for line in log.lines[nan.number:] if NAN.search(line)]
    return len(after) > len(still)


def _before(log: Log, hit: Hit) -> list[float]:
    found = (LOSS.search(line) for line in log.lines[:hit.number - 1])
    return [float(match[1]) for match in found if match is not None]


def _grew(before: list[float]) -> bool:
    if len(before) < 3:
        return False
    usual = sorted(before[:-1])[len(before) // 2 - 1]
    return before[-1] > GREW * max(1e-9, usual)


def _message(before: list[float], scale: Hit | None) -> str:
    if scale is not None:
        return "gradients are not finite in every step: the loss scale fell to its minimum"
    if not before:
        return "the loss is not finite from the first one that the log shows"
    if _grew(before):
        return f"the loss grew to {before[-1]:g} and became NaN: the steps are too large"
    return f"the loss became NaN after {before[-1]:g}; the log does not say in which operation"


def _trend(log: Log, before: list[float], hit: Hit) -> Iterator[Evidence]:
    rates = [float(m[1]) for line in log.lines[:hit.number] for m in [RATE.search(line)] if m]
    if len(rates) >= 2 and rates[-1] > rates[0]:
        yield Evidence(f"the learning rate was still rising: {rates[0]:g} … {rates[-1]:g}",
                       f"log:{hit.number}")
    if len(before) >= 2:
        yield Evidence("losses before: " + ", ".join(f"{loss:g}" for loss in before[-4:]),
                       f"log:{hit.number}")


def _fix(before: list[float], scaled: bool) -> Fix:
    if _grew(before):
        return Fix("a smaller learning rate, or a longer warm-up; `clip_grad_norm_` before the "
                   "step", "batch size and number of GPUs changed? scale the learning rate with "
                   "them")
    if scaled:
        return Fix("train once in bfloat16 or float32: if the loss stays finite, float16 "
                   "overflows; if not, the steps are too large or the data hold NaN", command=FIND)
    if not before:
        return Fix("look at the first batch: `torch.isfinite(x).all()` for inputs and targets",
                   "then at the initial weights; float16: try bfloat16", command=FIND)
    return Fix("find the first operation that gives NaN; try a smaller learning rate and float32 "
               "in place of float16, one at a time", command=FIND)


def _about(log: Log) -> tuple[str, ...]:
    failures = [f for f in logtext.lasting(log)
                if re.search(r"nan|inf|finite|loss|SystemExit|ZeroDivision",
                             f"{f.type} {f.message}", re.I)]
    return logtext.about(*failures) if failures or not logtext.lasting(log) else ()


_LINE = "iter {} lr {} loss: {}\n"
_LOG = "".join(_LINE.format(10 * n, 0.01, loss) for n, loss in enumerate((0.9, 0.8, 0.9, "{}")))

_PROGRAM = """
import torch

torch.set_num_threads(1)
torch.manual_seed(0)
net = torch.nn.Linear(4, 1)
optimizer = torch.optim.SGD(net.parameters(), lr={rate})
for step in range(60):
    x = torch.randn(8, 4)
    {change}
    out = net(x)
    optimizer.zero_grad()
    loss = {loss}
    loss.backward()
    optimizer.step()
"""
_SQUARE = "((out - x.sum(1, keepdim=True)) ** 2).mean()"
_BY_HAND = """
p = torch.sigmoid(self.layer(x))
p = %s
return -(x[:, :3] * torch.log(p) + (1 - x[:, :3]) * torch.log(1 - p)).mean()
"""

RULE = Rule(
    name="non-finite-loss", doc=__doc__, category="unknown", in_run=in_run, in_failure=in_failure,
    in_log=in_log,
    in_source=in_source, examples=(
        fires(_PROGRAM.format(rate=0.01, change="pass", loss="-torch.log(out.relu()).mean()"),
              "`log` of 0 makes the loss", "clamp_min", line="torch.log(", title="log of zero"),
        fires(_PROGRAM.format(rate=0.01, change="x[0, 0] = float('nan') if step == 3 else 0",
                              loss=_SQUARE), "the data brings NaN: 1 of 32",
              line="loss.backward()", title="in the data"),
        fires(_PROGRAM.format(rate=50.0, change="pass", loss=_SQUARE),
              "the loss grew", "smaller learning rate", title="steps too large"),
        fires(_PROGRAM.format(rate=0.01, change="pass", loss=_SQUARE + " / (x * 0).sum()"),
              "a division by zero makes the loss", line="/ (x * 0)", title="division"),
        quiet(_PROGRAM.format(rate=0.01, change="pass", loss=_SQUARE), title="finite"),
        fires(_LOG.format("0.7") + _LINE.format(50, 0.01, "nan"), "the loss became NaN after 0.7",
              "set_detect_anomaly", kind="log", title="nan"),
        fires(_LOG.format("48.5") + _LINE.format(50, 0.01, "nan"), "the steps are too large",
              kind="log", title="grew"),
        fires(module(_BY_HAND % "p", more="model(torch.randn(4, 8))"),
              "where the sigmoid reaches 1", kind="source", line="torch.log(1 - p)",
              title="log of one minus a sigmoid"),
        quiet(module(_BY_HAND % "p.clamp(1e-6, 1 - 1e-6)", more="model(torch.randn(4, 8))"),
              kind="source", title="clamped"),
        quiet(module((_BY_HAND % "p").replace("log(1 - p)", "log((1 - p).clamp(min=1e-8))"),
                     more="model(torch.randn(4, 8))"), kind="source", title="clamped after"),
        fires("Loss is nan, stopping training\n", "from the first one", kind="log", title="stop"),
        fires("RuntimeError: Function 'SqrtBackward0' returned nan values in its 0th output.\n",
              "the gradient of `Sqrt` is NaN", kind="log", title="anomaly"),
        fires("RuntimeError: probability tensor contains either `inf`, `nan` or element < 0\n",
              "hold NaN or infinity", kind="log", title="checked"),
        fires("{'loss': 1.93, 'grad_norm': 2.1}\n" + "{'loss': 0.0, 'grad_norm': nan}\n" * 3,
              "became NaN", kind="log", title="norms of gradients"),
        fires("epoch  box_loss  cls_loss  size\n1/9  2.1G  1.8  2.4  640\n"
              "2/9  2.1G  nan  nan  640\n3/9  2.1G  nan  nan  640\n", "not finite",
              kind="log", title="columns"),
        quiet(_LOG.format("0.7") + "Gradient overflow. Skipping step, loss scaler 0 reducing loss "
              "scale to 32768.0\n" + _LINE.format(50, 0.01, 0.6), kind="log",
              title="a skipped step"),
    ),
)
