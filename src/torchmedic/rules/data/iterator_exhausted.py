"""The loader's iterator ran out before the loop had what it wanted.

## What you see
`StopIteration` at `next(…)`, or a loop that was to run for N steps and ends after one epoch.
## Why
`iter(loader)` gives one pass over the data. A loop that counts steps and calls `next` needs a
new iterator when that pass is over.
## Fix
Start again: `except StopIteration: iterator = iter(loader)`, or loop over epochs.
## When this is fine
When one pass is what the loop is for.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import TYPE_CHECKING

from torchmedic import changes, wording
from torchmedic.model import Evidence, Fix, Place, Problem, Rule, fires, quiet
from torchmedic.source.paths import inside
from torchmedic.trainings import training

if TYPE_CHECKING:
    from torchmedic.observed import Failure, Frame, Iteration, Run
    from torchmedic.source.blocks import Loop
    from torchmedic.source.script import Script

FIX = Fix("start the next pass there: `except StopIteration: iterator = iter(loader)`",
          detail="and take the next batch from it")
ONCE = ("iter", "enumerate", "zip", "map", "filter", "reversed")
"""Calls that give an iterator, which can be gone over once."""


def in_failure(failure: Failure) -> Iterator[Problem]:
    if failure.short_type != "StopIteration" and not (
            failure.short_type == "RuntimeError" and "raised StopIteration" in failure.message):
        return
    if not any("dataloader" in frame.file for frame in failure.frames):
        return
    yield Problem("`next` was called on a loader's iterator that was at its end", failure.place,
                  wording.stack_evidence([f for f in failure.frames if f.user], "exception", 3),
                  FIX)


def in_run(run: Run) -> Iterator[Problem]:
    last = run.main.iterations[-1:] if run.main else ()
    for item in last:
        frame = wording.innermost_user(item.left)
        if item.by != "next" or item.exhausted is not True or frame is None:
            continue
        wanted = _wanted(run, frame)
        if wanted:
            yield _problem(run, item, *wanted)


def _problem(run: Run, item: Iteration, loop: Loop, wish: str) -> Problem:
    main = run.main
    assert main is not None
    return Problem(
        f"the iterator ended after {wording.plural(item.batches, 'batch')}, but the loop at line "
        f"{loop.line} wanted {wish}", main.place_at(item.left),
        (Evidence(f"`{loop.over}` still held when the loader was at its end"
                  if loop.kind == "while" else f"`for {loop.target} in {loop.over}`", "source"),
         *wording.progress(run)),
        FIX, about=("ending",),
    )


def _wanted(run: Run, frame: Frame) -> tuple[Loop, str] | None:
    """The loop round the `next`, and what it still wanted."""
    script = run.script(frame.file)
    if script is None:
        return None
    handlers = [h for h in script.handlers_around(frame.line)
                if not h.types or "StopIteration" in h.types or "Exception" in h.types]
    if not handlers or handlers[0].kind not in ("break", "return"):
        return None
    for loop in script.loops_around(frame.line):
        wish = _open_wish(loop, frame)
        return (loop, wish) if wish else None
    return None


def _open_wish(loop: Loop, frame: Frame) -> str | None:
    if isinstance(loop.node, ast.While):
        return f"to go on while `{loop.over}`" if _holds(loop.node.test, frame) else None
    bounds = wording.range_bounds(loop.node.iter, frame)
    now = frame.values.get(loop.target or "")
    if bounds and now is not None and isinstance(now.number, int) and now.number < bounds[1]:
        return f"{bounds[1] - bounds[0]} turns"
    return None


def _holds(test: ast.expr, frame: Frame) -> bool:
    """`step < 100` with the numbers of the moment; False for anything that can't be read."""
    if not isinstance(test, ast.Compare) or len(test.ops) != 1:
        return False
    left, right = wording.number(test.left, frame), wording.number(test.comparators[0], frame)
    if left is None or right is None:
        return False
    return {ast.Lt: left < right, ast.LtE: left <= right, ast.Gt: left > right,
            ast.GtE: left >= right, ast.NotEq: left != right}.get(type(test.ops[0]), False)


def in_source(script: Script) -> Iterator[Problem]:
    """An iterator that the first epoch uses up, gone over again in each of the next."""
    text = "\n".join(script.lines)
    if "torch" not in text or "backward(" not in text or "range(" not in text:
        return
    bodies: list[ast.AST] = [script.tree, *(f.node for f in script.functions)]
    generators = {f.node.name for f in script.functions if any(
        isinstance(n, (ast.Yield, ast.YieldFrom)) for n in inside(f.node))}
    kept = _kept(script, generators)
    for body in bodies:
        made = {n.targets[0].id: n for n in inside(body) if isinstance(n, ast.Assign)
                and isinstance(n.targets[0], ast.Name) and _once(n.value, generators)}
        made.update(kept)
        for epochs in (n for n in inside(body) if isinstance(n, ast.For) and _again(n)):
            inner = [n for n in inside(epochs) if isinstance(n, ast.For)]
            stored = {n.id for n in ast.walk(epochs) if isinstance(n, ast.Name)
                      and isinstance(n.ctx, ast.Store)}
            for loop in inner:
                name = ast.unparse(loop.iter).removeprefix("tqdm(").removesuffix(")")
                start = made.get(name)
                early = start is not None and (name in kept or start.lineno < epochs.lineno)
                if start is not None and name not in stored and early:
                    yield _used_up(script, loop, start, name not in kept)


def _kept(script: Script, generators: set[str]) -> dict[str, ast.Assign]:
    """Attributes that are set to such an iterator, and to nothing else anywhere."""
    stores: dict[str, list[ast.Assign]] = {}
    for node in ast.walk(script.tree):
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Attribute):
            stores.setdefault(ast.unparse(node.targets[0]), []).append(node)
    return {name: found[0] for name, found in stores.items()
            if len(found) == 1 and _once(found[0].value, generators)}


def _once(node: ast.expr, generators: set[str]) -> bool:
    """It can be gone over once: `iter(loader)`, `enumerate(loader)`, a generator."""
    return isinstance(node, ast.GeneratorExp) or (
        isinstance(node, ast.Call) and ast.unparse(node.func) in {*ONCE, *generators})


def _again(loop: ast.For) -> bool:
    """A loop that goes round more than once without leaving."""
    return "range(" in ast.unparse(loop.iter) and not any(
        isinstance(n, (ast.Break, ast.Return)) for n in loop.body)


def _used_up(script: Script, loop: ast.For, start: ast.Assign, here: bool) -> Problem:
    function = script.function_at(loop.lineno)
    name = ast.unparse(start.targets[0])
    return Problem(
        f"`{name}` is used up in the first epoch: the others go over nothing",
        where=Place(file=script.file, line=loop.lineno,
                    function=function.name if function else None), confidence="certain",
        evidence=(Evidence(f"line {start.lineno}: `{ast.unparse(start)}`, once for all epochs",
                           "source"),),
        fix=Fix(f"`{ast.unparse(start.value)}` in the inner loop, in the place of `{name}`", "",
                "unsafe", edits=_edits(script, loop, start) if here else ()))


def _edits(script: Script, loop: ast.For, start: ast.Assign) -> changes.Edits:
    """What makes the iterator, in the place of its name."""
    name = ast.unparse(start.targets[0])
    spot = next((n for n in ast.walk(loop.iter) if ast.unparse(n) == name), None)
    text = ast.get_source_segment("\n".join(script.lines), start.value)
    return changes.replacing(spot, text) if text and "\n" not in text else ()


_PROGRAM = """
import torch
from torch import nn
torch.set_num_threads(1)
net = nn.Linear(4, 2)
def train(max_steps):
    batches = iter(torch.utils.data.DataLoader(torch.randn(12, 4), batch_size=4))
    step = 0
    while {condition}:
        try:
            x = next(batches)
        except StopIteration:
            break
        net(x)
        step += 1
train({steps})
"""

RULE = Rule(
    name="iterator-exhausted", doc=__doc__, category="code", in_failure=in_failure,
    in_run=in_run, in_source=in_source,
    examples=(
        fires(_PROGRAM.format(condition="step < max_steps", steps=100), "after 3 batches",
              "while `step < max_steps`", line="x = next(batches)"),
        fires(_PROGRAM.format(condition="step < max_steps", steps=100)
              .replace("except StopIteration", "except ValueError"),
              "at its end", line="x = next(batches)"),
        fires(training(more="batches = enumerate(loader)\n").replace(
            "for x, y in loader", "for i, (x, y) in batches"), "used up in the first epoch",
              kind="source", line="in batches", title="enumerated once"),
        quiet(training(before="batches = iter(loader)").replace("in loader", "in batches"),
              kind="source", title="anew in each epoch"),
        quiet(_PROGRAM.format(condition="step < max_steps", steps=3)),
        quiet(_PROGRAM.format(condition="True", steps=100), title="one pass is the plan"),
    ),
)
