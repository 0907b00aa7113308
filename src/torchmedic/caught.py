"""Who caught an exception, as the source says of a line where one passed or a loop was left."""

from __future__ import annotations

import ast
import builtins
from dataclasses import replace
from typing import TYPE_CHECKING, Literal

from torchmedic.source.paths import inside

if TYPE_CHECKING:
    from torchmedic.observed import Failure, Frame, Iteration, Process, Run
    from torchmedic.source.blocks import Handler, Loop

# What Python calls an error. StopIteration, KeyboardInterrupt and SystemExit steer a program.
ERRORS = frozenset(name for name, kind in vars(builtins).items()
                   if isinstance(kind, type) and issubclass(kind, Exception)
                   and not issubclass(kind, (Warning, StopIteration, StopAsyncIteration)))


# Functions of test libraries that want an exception.
EXPECTING = ("assertRaises", "assertRaisesRegex", "raises")


def lost_by(run: Run, process: Process, failure: Failure) -> Literal["pass", "batch"] | None:
    """What a program lost by catching an exception; None when it got over it, or meant to.

    `pass`: the loop over a loader ended early. `batch`: that batch made no optimizer step.
    """
    catcher = handler_of(run, failure)
    if _was_asked_for(failure) or _is_plan(process, failure, catcher[1] if catcher else None):
        return None
    if cut_by(process, failure) is not None:
        return "pass"
    trains = failure.phase in ("forward", "backward", "step", "data")
    if failure.batch is None or failure.steps_after != 0 or not trains:
        return None
    return "batch" if process.step or _again_and_again(process, failure) else None


def _was_asked_for(failure: Failure) -> bool:
    """A test called what had to raise: `self.assertRaises(ValueError, net, x)`."""
    return any(frame.function in EXPECTING and not frame.user for frame in failure.frames)


def _is_plan(process: Process, failure: Failure, handler: Handler | None) -> bool:
    """An `except` for a type of the program's own, or a narrow one after which it went on.

    A search for the largest batch ends with what is too large: the `except` names just this type,
    outside the loop over the batches, and there were steps before. Or a library searches.
    """
    if handler is None:
        return failure.short_type == "OutOfMemoryError" and process.step > (failure.step or 0)
    if handler.expects or not catches_errors(handler):
        return True
    if is_broad(handler) and not handler.chooses:
        return False
    exact = failure.short_type == "OutOfMemoryError" and _names(handler) == {"OutOfMemoryError"}
    searched = exact and process.step > 0 and cut_by(process, failure) is not None
    return searched or process.step > (failure.step or 0)


def _again_and_again(process: Process, failure: Failure) -> bool:
    """Without any optimizer step nothing tells a lost batch but that most are lost."""
    passes = [item for item in process.iterations if item.time <= failure.time
              and failure.loader in (None, item.loader.key)]
    batches = passes[-1].batches if passes else 0
    return failure.count > 1 and failure.count * 2 >= batches


def cut_by(process: Process, failure: Failure) -> Iteration | None:
    """The pass over a loader that ended early because of the exception."""
    for item in process.iterations:
        if failure.loader not in (None, item.loader.key):
            continue
        same = (item.epoch == failure.epoch and failure.batch is not None
                and item.batches in (failure.batch, failure.batch - 1))
        going_on = item.time <= failure.time <= (item.ended or failure.time)
        if item.exhausted is False and same and going_on:
            return item
    return None


def handler_of(run: Run, failure: Failure) -> tuple[Frame, Handler] | None:
    """The user's `except` that caught it, or what a handler within raised in its place: innermost
    that takes its type and does not re-raise.

    Returns the frame with the handler's own line.
    """
    names = {failure.short_type, *failure.bases}
    for frame in reversed(failure.frames):
        script = run.script(frame.file) if frame.user else None
        for handler in script.handlers_around(frame.line) if script else ():
            caught = {t.rpartition(".")[2] for t in handler.types}
            if caught and not caught & (names | {"BaseException"}):
                continue
            if handler.reraises:
                names = _raised_by(handler) or names
                continue
            return replace(frame, line=handler.line), handler
    return None


def _raised_by(handler: Handler) -> set[str]:
    """Names of the types that a handler raises in the place of what it caught, and their bases."""
    names: set[str] = set()
    for node in inside(handler.node):
        if not isinstance(node, ast.Raise) or node.exc is None:
            continue
        called = node.exc.func if isinstance(node.exc, ast.Call) else node.exc
        name = ast.unparse(called).rpartition(".")[2]
        if name != handler.name:
            kind = vars(builtins).get(name, Exception)
            names |= {name, *(base.__name__ for base in getattr(kind, "__mro__", ()))}
    return names


def is_broad(handler: Handler) -> bool:
    """A bare `except`, or one that takes every error."""
    return not handler.types or bool({"Exception", "BaseException"} & _names(handler))


def catches_errors(handler: Handler) -> bool:
    """Python's or torch's own errors, and not only what steers a program."""
    return is_broad(handler) or any(
        name in ERRORS or name == "OutOfMemoryError" for name in _names(handler))


def _names(handler: Handler) -> set[str]:
    return {text.rpartition(".")[2] for text in handler.types}


def left_in_handler(run: Run, frame: Frame) -> Handler | None:
    """The `except` for errors whose body holds the line where a loop was left."""
    script = run.script(frame.file)
    handler = script.handler_at(frame.line) if script else None
    if script is None or handler is None or handler.reraises or not catches_errors(handler):
        return None
    statement = script.statement_at(frame.line)
    return None if statement is not None and statement.kind == "raise" else handler


def left_by_exception(run: Run, item: Iteration) -> tuple[Frame, Handler] | None:
    """The loop was left at a line of its body that holds no jump, and an `except` for every error
    lies around it, or around the call of its function.

    Returns the frame with the handler's own line. Which exception it was is not known: an `except`
    for some errors that comes first, or for what steers a program, such as KeyboardInterrupt,
    leaves open which of them it was.
    """
    frames = [frame for frame in reversed(item.left) if frame.user]
    loop = _cut_loop(run, item, frames[0]) if frames else None
    if loop is None or _is_told(run, frames[0]):
        return None
    for frame in frames:
        script = run.script(frame.file)
        for handler in script.handlers_around(frame.line) if script else ():
            within = frame is frames[0] and handler.try_line > loop.line
            if within and not is_broad(handler):
                continue  # the loop would have gone on
            if (within and not handler.reraises) or not is_broad(handler) or handler.chooses:
                return None
            if not handler.reraises:
                return replace(frame, line=handler.line), handler
    return None


def _is_told(run: Run, left: Frame) -> bool:
    """An exception that ended a process or a thread passed that line: nobody caught it."""
    spot = (left.file, left.line, left.function)
    return any(not failure.swallowed and failure.how in ("uncaught", "thread", "child")
               and spot in ((f.file, f.line, f.function) for f in failure.frames)
               for failure in run.failures)


def _cut_loop(run: Run, item: Iteration, left: Frame) -> Loop | None:
    """The very `for` that asked for the batches, if the line is in its body and no statement of
    it ends a loop. A line elsewhere drops an iterator that was kept after its loop."""
    script = run.script(left.file)
    statement = script.statement_at(left.line) if script else None
    asked = next((frame for frame in reversed(item.started) if frame.user), None)
    if script is None or statement is None or asked is None:
        return None
    if (asked.file, asked.function) != (left.file, left.function):
        return None
    if statement.kind in ("break", "return", "for", "while", "with") or _steers(statement.node):
        return None
    return next((loop for loop in script.loops_around(left.line) if loop.kind == "for"
                 and loop.line <= asked.line < loop.node.body[0].lineno), None)


def _steers(node: ast.AST) -> bool:
    """A generator that is closed at its `yield`, a task that is cancelled at its `await`, an
    exception of the program's own that it raises there."""
    if isinstance(node, ast.Raise) and node.exc is not None:
        called = node.exc.func if isinstance(node.exc, ast.Call) else node.exc
        return ast.unparse(called).rpartition(".")[2] not in ERRORS
    return any(isinstance(found, (ast.Yield, ast.YieldFrom, ast.Await)) for found in ast.walk(node))
