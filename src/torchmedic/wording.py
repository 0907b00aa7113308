"""How a moment of a run, a size and a line are put into words; used by every rule."""

from __future__ import annotations

import ast
from collections.abc import Sequence
from pathlib import PurePath
from typing import TYPE_CHECKING

from torchmedic.model import Evidence, Place

if TYPE_CHECKING:
    from torchmedic.observed import Frame, Iteration, Loader, Process, Run

PHASES = {
    "setup": "before the first batch", "data": "while loading the batch",
    "forward": "in the forward pass", "backward": "in the backward pass",
    "step": "in the optimizer step", "other": "between the forward, backward and step calls",
}


def size(count: float) -> str:
    """Bytes as a person reads them: `388 MiB`, `7.62 GiB`, `23.64 GiB`, as torch writes them."""
    for unit in ("B", "KiB", "MiB", "GiB", "TiB"):
        if abs(count) < 1024 or unit == "TiB":
            digits = 2 if unit in ("GiB", "TiB") or count < 10 else 1 if count < 100 else 0
            text = f"{count:.{digits}f}"
            return f"{text.rstrip('0').rstrip('.') if digits else text} {unit}"
        count /= 1024
    raise AssertionError


def plural(number: int, noun: str) -> str:
    """`1 batch`, `2 batches`."""
    if number == 1:
        return f"1 {noun}"
    return f"{number} {noun}{'es' if noun.endswith(('ch', 's', 'x')) else 's'}"


def at(frame: Frame | None) -> str:
    """`train.py:31`, or nothing."""
    return f"{PurePath(frame.file).name}:{frame.line}" if frame else ""


def innermost_user(frames: Sequence[Frame]) -> Frame | None:
    return next((frame for frame in reversed(frames) if frame.user), None)


def batch(place: Place) -> str:
    """`in batch 2`, with the epoch when it is not the first; empty when no batch was begun."""
    if place.batch is None:
        return "before the first batch"
    epoch = f" of epoch {place.epoch}" if place.epoch and place.epoch > 1 else ""
    return f"in batch {place.batch}{epoch}"


def phase(place: Place) -> str:
    """Where in the step: `in the forward pass of `encoder.0``."""
    words = PHASES.get(place.phase or "", "")
    return f"{words} (`{place.module}`)" if place.module and words else words


def moment(place: Place) -> str:
    """`in batch 2, in the forward pass (`encoder`)`."""
    first = batch(place)
    if place.phase in (None, "setup") or (place.batch is None and place.phase in ("data", "other")):
        return first
    return ", ".join(part for part in (first, phase(place)) if part)


def progress(run: Run, process: Process | None = None) -> tuple[Evidence, ...]:
    """How far the run was: batches of the loader, epochs of the loop, steps."""
    process = process or run.main
    if process is None:
        return ()
    said = []
    current = current_pass(process)
    if current is not None:
        said.append(Evidence(pass_text(run, current, process), "recorder"))
    if process.step or process.iterations:
        said.append(Evidence(f"{plural(process.step, 'optimizer step')} finished", "recorder"))
    return tuple(said)


def current_pass(process: Process) -> Iteration | None:
    """The pass that was in progress, or else the last one."""
    unfinished = [item for item in process.iterations if not item.exhausted]
    passes = unfinished or process.iterations
    return passes[-1] if passes else None


def pass_text(run: Run, item: Iteration, process: Process) -> str:
    """`batch 2 of 40 of the loader over `Clips` (train.py:31), epoch 1 of 5`."""
    at_batch = item.batches if item.exhausted is not None else max(item.batches,
                                                                   process.batch or 0)
    of = f" of {item.loader.batches}" if item.loader.batches is not None else ""
    where = at(innermost_user(item.started))
    text = f"batch {at_batch}{of} of the loader over `{item.loader.dataset}`"
    text += f" ({where})" if where else ""
    planned = planned_epochs(run, item)
    if planned:
        return f"{text}, epoch {planned[0]} of {planned[1]}"
    return text


def loader_text(loader: Loader) -> str:
    """`12 samples, batch_size=4, drop_last=True, num_workers=2`."""
    samples = "unknown number of samples" if loader.samples is None else plural(
        loader.samples, "sample")
    return (f"{samples}, batch_size={loader.batch_size}, drop_last={loader.drop_last}, "
            f"num_workers={loader.workers}")


def planned_epochs(run: Run, item: Iteration) -> tuple[int, int] | None:
    """(this epoch, all of them) by the `for … in range(…)` loop around the loader's loop."""
    for frame in reversed(item.started):
        script = run.script(frame.file) if frame.user else None
        if script is None:
            continue
        for loop in script.loops_around(frame.line):
            if loop.kind != "for" or not isinstance(loop.node, (ast.For, ast.AsyncFor)):
                continue
            bounds = range_bounds(loop.node.iter, frame)
            now = frame.values.get(loop.target or "")
            if bounds and now is not None and isinstance(now.number, int):
                start, stop = bounds
                return now.number - start + 1, max(0, stop - start)
    return None


def range_bounds(node: ast.expr, frame: Frame) -> tuple[int, int] | None:
    """(start, stop) of `range(…)`, also inside `tqdm(range(…))`; None when it can't be read."""
    if not isinstance(node, ast.Call):
        return None
    name = getattr(node.func, "id", getattr(node.func, "attr", ""))
    if name != "range":
        return range_bounds(node.args[0], frame) if node.args else None
    numbers = [number(argument, frame) for argument in node.args]
    if any(not isinstance(n, int) for n in numbers) or len(numbers) > 2:
        return None
    whole = [n for n in numbers if isinstance(n, int)]
    return (0, whole[0]) if len(whole) == 1 else (whole[0], whole[1])


def number(node: ast.expr, frame: Frame) -> int | float | None:
    """The number an expression had, from the plain numbers recorded of its frame."""
    if isinstance(node, ast.Constant) and isinstance(node.value, (int, float)):
        return node.value
    if isinstance(node, ast.Name):
        value = frame.values.get(node.id)
        return value.number if value is not None else None
    if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
        owner = frame.values.get(node.value.id)
        found = owner.attributes.get(node.attr) if owner is not None else None
        return found if isinstance(found, (int, float)) else None
    if isinstance(node, ast.BinOp):
        return _arithmetic(node, frame)
    return None


def _arithmetic(node: ast.BinOp, frame: Frame) -> int | float | None:
    left, right = number(node.left, frame), number(node.right, frame)
    if left is None or right is None:
        return None
    if isinstance(node.op, ast.Add):
        return left + right
    if isinstance(node.op, ast.Sub):
        return left - right
    if isinstance(node.op, ast.Mult):
        return left * right
    return None


def stack_evidence(frames: Sequence[Frame], source: str, most: int = 6) -> tuple[Evidence, ...]:
    """The innermost frames of a stack as one piece of evidence, innermost first."""
    shown = [f"{frame.file}:{frame.line} in {frame.function}" for frame in reversed(frames)]
    return (Evidence("\n".join(shown[:most]), source),) if shown else ()
