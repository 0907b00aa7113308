"""The loader, or its iterator, is made anew for every step.

## What you see
Training is slow: workers start in every step. Without `shuffle` each step gets the same first
batch; with it, some samples come often and others never.
## Why
`iter(loader)` starts a new pass. `next(iter(loader))` takes its first batch and throws the rest
away, with what the workers had already loaded.
## Fix
Go over the loader with `for`, or make the iterator once before the loop and anew when it ends.
## When this is fine
To look at one batch.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import TYPE_CHECKING

from torchmedic.model import Evidence, Fix, Problem, Rule, fires, quiet
from torchmedic.source.flow import Event, Frame, Trace, trace_of
from torchmedic.source.flow.training import place
from torchmedic.trainings import MODEL, STEP, indented, training

if TYPE_CHECKING:
    from torchmedic.source.script import Script


SOURCE_WORDS = ("loader",)


def in_source(script: Script) -> Iterator[Problem]:
    trace = trace_of(script)
    seen = set()
    for event in trace.of("iter", "make"):
        if event.target is None or event.target.kind != "loader" or id(event.node) in seen:
            continue
        loop = _step_loop(trace, event)
        if loop is None:
            continue
        if event.kind == "iter" and not _taken(trace, event, loop):
            continue
        if event.kind == "make" and not (
                len(event.loops) > 1 and any(e.kind == "iter" or e.value is event.target
                                             for e in trace.inside(loop, "iter"))):
            continue
        seen.add(id(event.node))
        yield _problem(script, event)


def _step_loop(trace: Trace, event: Event) -> Frame | None:
    """The innermost loop around it, where that takes a step each time round."""
    loop = event.loops[-1] if event.loops else None
    if loop is None or any(f.kind in ("branch", "item") for f in event.within(loop)):
        return None
    steps = [e for e in trace.inside(loop, "step") if e.loops[-1] is loop]
    return loop if steps and event.at < steps[0].at else None


def _taken(trace: Trace, event: Event, loop: Frame) -> bool:
    """A single batch is taken of the new iterator: no loop goes on over it."""
    return any(e.loops[-1] is loop and e.at >= event.at for e in trace.inside(loop, "next"))


def _problem(script: Script, event: Event) -> Problem:
    loader = event.target
    assert loader is not None
    shuffled = "shuffle" in loader.kwargs or "sampler" in loader.kwargs
    if event.kind == "make":
        message = "a new loader is made in every step"
    elif shuffled:
        message = f"every step starts a new pass: `{_text(event.node)}`"
    else:
        message = f"every step gets the same first batch: `{_text(event.node)}` starts a new pass"
    return Problem(
        message, where=place(script.file, event), confidence="certain",
        evidence=(Evidence("the loop around it takes an optimizer step each time round",
                           "source"),),
        fix=Fix("`for batch in loader:`, or `batches = iter(loader)` once before the loop", "",
                "unsafe"))


def _text(node: ast.AST) -> str:
    return ast.unparse(node)


def _program(batch: str, before: str = "") -> str:
    return (training("pass", setup=MODEL) + f"\n{before}for step in range(100):\n"
            + indented(batch + STEP, 1))


RULE = Rule(
    name="loader-rebuilt-each-step", doc=__doc__, category="code", severity="warning",
    in_source=in_source, examples=(
        fires(_program("x, y = next(iter(loader))"), "every step gets the same first batch",
              kind="source", line="next(iter(loader))", title="first batch"),
        fires(_program("batches = iter(loader)\nx, y = next(batches)\n"), kind="source",
              line="batches = iter(loader)", title="iterator in the loop"),
        quiet(_program("x, y = next(batches)\n", "batches = iter(loader)\n"), kind="source",
              title="iterator before the loop"),
        quiet(_program("try:\n    x, y = next(batches)\nexcept StopIteration:\n"
                       "    batches = iter(loader)\n    x, y = next(batches)\n",
                       "batches = iter(loader)\n"), kind="source", title="anew at the end"),
        quiet(training(before="x, y = next(iter(loader))"), kind="source",
              title="a look per epoch"),
    ),
)
