"""What to say of a loss that is not finite: the operation, the weights, the data or the steps."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING

from torchmedic.model import Evidence, Fix, Place, Problem

if TYPE_CHECKING:
    from torchmedic.observed import Run
    from torchmedic.observed.nonfinite import Cause, NonFinite

GREW = 5.0
"""Times the usual loss."""
CALLS = {"Log": "log", "Log2": "log2", "Log10": "log10", "Log1P": "log1p", "Sqrt": "sqrt",
         "Rsqrt": "rsqrt", "Exp": "exp", "Acos": "acos", "Asin": "asin", "Pow": "pow",
         "Reciprocal": "reciprocal"}
CURES = {
    "Log": "keep its input above 0: `torch.log(x.clamp_min(1e-8))`, or a loss that takes scores "
           "(`BCEWithLogitsLoss`, `log_softmax`)",
    "Div": "keep the divisor away from 0: `x / (y + 1e-8)`",
    "Exp": "subtract the largest input first (`logsumexp`, `softmax`), or clamp the input",
    "Pow": "keep the base above 0: `x.clamp_min(1e-8) ** p`",
}


def problem(run: Run, seen: NonFinite) -> Problem:
    """The first reason that the graph shows; without one, what is known."""
    facts = [Evidence(f"the loss is {seen.value} in step {seen.step + 1}", "loss")]
    if seen.data and not seen.parameters:
        count, of = seen.data[0]
        return Problem(
            f"the data brings NaN: {count} of {of} input elements are not finite",
            where=seen.place, category="data", evidence=(*facts, Evidence(
                "the weights are finite", "parameters")),
            fix=Fix("find the samples and leave them out: "
                    "`torch.isfinite(x).all()` in the data set"))
    causes = () if seen.parameters else seen.causes
    facts_before = [*facts, *_trend(seen)]
    if causes and not (_grew(seen) and causes[0].what == "result"):
        return _operation(run, seen, causes[0], facts)
    if _grew(seen):
        return Problem(
            "the loss grew until it was not finite: the steps are too large", where=seen.place,
            confidence="likely", category="code", evidence=tuple(facts_before),
            fix=Fix("a smaller learning rate, warm-up, or `clip_grad_norm_` before the step"))
    if seen.parameters:
        names = ", ".join(f"`{name}`" for name in seen.parameters[:3])
        facts_before.append(Evidence(f"weights that are not finite: {names}", "parameters"))
        return Problem(
            "the step before made the weights NaN, and the loss with them", where=seen.place,
            confidence="likely", category="code", evidence=tuple(facts_before),
            fix=Fix("rerun with `torch.autograd.set_detect_anomaly(True)`: a gradient was not "
                    "finite although the loss was",
                    "a square root, norm or `std` of 0 has such a gradient"))
    return Problem(
        "the loss is not finite, with finite weights", where=seen.place, confidence="likely",
        category="code", evidence=tuple(facts_before),
        fix=Fix("rerun with `torch.autograd.set_detect_anomaly(True)` to see the operation"))


def _operation(run: Run, seen: NonFinite, cause: Cause, facts: list[Evidence]) -> Problem:
    name = CALLS.get(cause.operation, cause.operation.lower())
    low, high = (None if v is None else f"{v:g}" for v in (cause.low, cause.high))
    if cause.what == "divisor":
        told, message = f"its divisor reaches from {low} to {high}", "a division by zero"
    elif cause.what == "result":
        told, message = f"its largest finite result is {high}", f"`{name}` overflows"
    else:
        told = f"its input reaches from {low} to {high}"
        message = f"`{name}` of {'0' if cause.low == 0 else low}"
    facts.append(Evidence(f"{cause.operation}Backward0 in the graph: {told}", "graph"))
    return Problem(
        f"{message} makes the loss {seen.value}", where=_line(run, seen, name),
        category="code", evidence=tuple(facts),
        fix=Fix(CURES.get(cause.operation, CURES["Log"] if "Log" in cause.operation else
                          f"keep the input of `{name}` inside its domain"), "", "unsafe"))


def _line(run: Run, seen: NonFinite, name: str) -> Place:
    """The one call of that name in the user's files on the stack; else where backward began."""
    call = re.compile(rf"\b{name}\(" if name != "div" else r"(?<!/)/(?!/)")
    for file in dict.fromkeys(f.file for f in reversed(seen.frames) if f.user):
        script = run.script(file)
        lines = [n for n, text in enumerate(script.lines if script else (), 1)
                 if call.search(text.partition("#")[0])]
        if len(lines) == 1:
            function = script.function_at(lines[0]) if script else None
            return replace(seen.place, file=file, line=lines[0], phase="forward",
                           function=function.name if function else None)
    return seen.place


def _trend(seen: NonFinite) -> list[Evidence]:
    told = [f"{loss:g}" for loss in seen.before[-5:] if loss is not None]
    return [Evidence("losses before: " + ", ".join(told), "loss")] if told else []


def _grew(seen: NonFinite) -> bool:
    known = [loss for loss in seen.before if loss is not None]
    if len(known) < 3:
        return False
    usual = sorted(known[:-1])[(len(known) - 1) // 2]
    return known[-1] > GREW * max(1e-9, usual)
