"""The model is set to `eval()` for an evaluation and trains on in that mode.

## What you see
After the first evaluation the training loss drops at once and the validation loss no longer
follows: dropout is off, and BatchNorm keeps its old statistics.
## Why
`eval()` stays in force until `train()` is called. A call before the loop does not help after the
first evaluation.
## Fix
`model.train()` at the start of each epoch, or at the end of the evaluation.
## When this is fine
Training with frozen statistics on purpose: `eval()` once, before the training loop; or a model
without dropout and BatchNorm.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

from torchmedic import changes, evaluations
from torchmedic.model import Evidence, Fix, Problem, Rule, fires, quiet
from torchmedic.source.flow import Event, Frame, Trace, Value, trace_of
from torchmedic.source.flow.library import is_dependent
from torchmedic.source.flow.training import place, written
from torchmedic.source.flow.values import family
from torchmedic.trainings import MODEL, training

if TYPE_CHECKING:
    from torchmedic.observed import Run
    from torchmedic.source.script import Script


SOURCE_WORDS = ("eval",)


def in_run(run: Run) -> Iterator[Problem]:
    for process in run.processes:
        for item, frozen, before in evaluations.frozen_after(process):
            mode = frozen.mode
            yield Problem(
                f"`{mode.type}` is trained in evaluation mode, after an epoch in training mode",
                where=replace(mode.place, epoch=item.epoch), evidence=(
                    Evidence(f"pass {item.epoch} over the loader: {frozen.count} calls in "
                             f"evaluation mode, {item.steps} optimizer steps; pass {before.epoch}: "
                             "training mode", "modes"),
                    evaluations.layers(mode)),
                fix=Fix("`model.train()` at the start of each epoch", "", "unsafe"))


def in_source(script: Script) -> Iterator[Problem]:
    trace = trace_of(script)
    seen = set()
    for event in trace.of("eval"):
        model = event.target
        if model is None or id(event.node) in seen or not _depends(model):
            continue
        backward = _trained_again(trace, event, model)
        if backward is not None:
            seen.add(id(event.node))
            yield _problem(script, event, backward)


def _depends(model: Value) -> bool:
    """It has layers with two modes, or nobody knows what it has."""
    inside = family(model).values()
    unknown = any(m.kind == "unknown" or (m.kind == "module" and not m.type.startswith("torch.nn."))
                  or (m.kind == "instance" and m.owner is None) for m in inside)
    return unknown or any(map(is_dependent, inside))


def _trained_again(trace: Trace, event: Event, model: Value) -> Event | None:
    """A backward pass in a later round of a loop, with no `train()` on the way."""
    for loop in reversed(event.loops):
        rounds = [e for e in trace.inside(loop, "backward") if _of(e, model)]
        if not rounds:
            continue
        if any(e.target is None or _related(e.target, model)
               for e in trace.inside(loop, "train", "mode")):
            return None
        later = any(_used(e, model) for e in trace.inside(loop, "forward") if e.at > event.at)
        stepped = bool(trace.inside(loop, "step"))
        return rounds[0] if later and stepped and _before(rounds[0], event, loop) else None
    return None


def _before(backward: Event, event: Event, loop: Frame) -> bool:
    """Training first, then evaluation: the next round trains in the wrong mode."""
    same = next((f for f in reversed(event.loops) if f in backward.frames), loop)
    return backward.at < event.at and same is not None


def _of(event: Event, model: Value) -> bool:
    return event.value is not None and any(
        model.id in o.sources for o in event.value.options())


def _related(other: Value, model: Value) -> bool:
    return other is model or other.kind in ("unknown", "either") or model.id in family(other)


def _used(event: Event, model: Value) -> bool:
    return event.target is model and event.grad is not True


def _problem(script: Script, event: Event, backward: Event) -> Problem:
    name = written(event)
    return Problem(
        f"`{name}` stays in evaluation mode: the next round trains in it",
        where=place(script.file, event), confidence="likely",
        evidence=(Evidence(f"line {event.line}: `eval()`; line {backward.line} goes backward in "
                           "the next round, with no `train()` between", "source"),),
        fix=Fix(f"`{name}.train()` at the start of each epoch", "", "unsafe",
                edits=_edits(script, event, backward, name)))


def _edits(script: Script, event: Event, backward: Event, name: str) -> changes.Edits:
    """Before the loop over the batches, in the loop of the epochs where `eval()` stands too."""
    loops = [f for f in backward.loops if f not in event.loops]
    if {event.file, backward.file} != {script.file} or event.function != backward.function or (
            not event.loops or len(loops) != 1):
        return ()
    return changes.before(script, getattr(loops[0].node, "lineno", 0), f"{name}.train()")


_CHECK = """
model.eval()
with torch.no_grad():
    print(model(torch.randn(4, 8)).argmax(1))
"""
_BACK = _CHECK + "model.train()\n"
_PLAIN = MODEL.replace("nn.BatchNorm1d(16), ", "")

RULE = Rule(
    name="eval-mode-left-on", doc=__doc__, category="code", severity="warning",
    in_run=in_run, in_source=in_source, examples=(
        fires(training(after=_CHECK), "`model` stays in evaluation mode", "`model.train()`",
              kind="source", line="model.eval()", title="never back"),
        fires(training(more="model.train()\n", after=_CHECK), kind="source",
              line="model.eval()", title="train before the loop only"),
        fires(training(more="model.train()\n", after=_CHECK), "8 calls in evaluation mode",
              line="model.eval()", title="seen in a run"),
        quiet(training(before="model.train()", after=_CHECK), title="each epoch, in a run"),
        quiet(training(more="model.eval()\n"), title="frozen statistics, in a run"),
        quiet(training(before="model.train()", after=_CHECK), kind="source", title="each epoch"),
        quiet(training(after=_BACK), kind="source", title="afterwards"),
        quiet(training(more="model.eval()\n"), kind="source", title="frozen statistics"),
        quiet(training(setup=_PLAIN, after=_CHECK), kind="source", title="no such layers"),
    ),
)
