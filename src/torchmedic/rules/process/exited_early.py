"""The program ended itself before its work was done.

## What you see
The run stops without a traceback. The exit code may be 0, so that schedulers and scripts take
it for a success.
## Why
Something called `sys.exit`, `exit`, `quit` or `os._exit` away from the end of the main module:
a helper that checks a condition, a callback, a library. `os._exit` ends the process at once:
no `finally`, no `atexit`, no flushed output.
## Fix
Raise an exception with a message instead, or return from the loop, at the line shown.
## When this is fine
When ending there was the plan: then `sys.exit` with a message, or a normal return, says so.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

from torchmedic import caught, wording
from torchmedic.model import Evidence, Fix, Place, Problem, Rule, fires, quiet
from torchmedic.observed import ExitCall, Frame, Iteration, Process, Run
from torchmedic.source.reach import exits_in

if TYPE_CHECKING:
    from torchmedic.source.blocks import Handler, Loop


def in_run(run: Run) -> Iterator[Problem]:
    main = run.main
    if main is None or run.main_signal or any(f.how == "uncaught" for f in main.failures):
        return
    call = _that_ended(run, main)
    if call is not None:
        yield from _by_call(run, main, call)
    elif not main.ended and main.exit_code is not None and main.exit_code >= 0:
        yield _natively(run, main)
    else:
        yield from _by_raise(run, main)


def _that_ended(run: Run, main: Process) -> ExitCall | None:
    """The last call, if its code is the one the process ended with, and nothing came after it."""
    if not main.exits or _went_on(main, main.exits[-1]):
        return None
    call = main.exits[-1]
    ended = run.ending.code if main.exit_code is None else main.exit_code
    return call if ended is None or _code(call) == ended & 0xFF else None


def _code(call: ExitCall) -> int:
    """As the shell sees it: the lowest eight bits, of -1 where it is no C number."""
    if not isinstance(call.code, int):
        return 0 if call.code is None else 1
    return (call.code if -2**63 <= call.code < 2**63 else -1) & 0xFF


def _went_on(main: Process, call: ExitCall) -> bool:
    """Somebody caught the exit: more steps came, or passes that began or came to their end."""
    later = any(item.time > call.time or (item.exhausted and (item.ended or 0) > call.time)
                for item in main.iterations)
    return later or main.step > (main.step if call.step is None else call.step)


def _by_call(run: Run, main: Process, call: ExitCall) -> Iterator[Problem]:
    if call.handler_of is not None:
        return  # the rule `interrupted` tells it
    cut = _cut_short(run, main, call)
    frame = wording.innermost_user(call.frames)
    shown = f"{call.how}({'' if call.code is None else repr(call.code)})"
    where = main.place_at(call.frames)
    if (caught_at := _in_handler(run, call)) is not None:
        yield _after_an_error(run, main, call, shown, caught_at)
        return
    if cut is None:
        if _code(call) == 0 or not main.iterations:
            yield from _before_training(run, main, call, shown, where)
        else:
            yield _after_the_loops(shown, where)
        return
    function = f" in `{frame.function}`" if frame and frame.function != "<module>" else ""
    yield Problem(
        f"`{shown}`{function} ended the run {wording.batch(where)}: exit code "
        f"{run.ending.code if main.exit_code is None else main.exit_code}, no error", where,
        (Evidence(_left(run, main, cut), "recorder"),
         *wording.stack_evidence(call.frames, call.how)),
        Fix("raise an exception there that says why, or leave the loop with a message"),
        about=("ending",),
    )


def _in_handler(run: Run, call: ExitCall) -> tuple[Frame, Handler] | None:
    """The user's `except` for errors that the call was made in, itself or by what it called."""
    for frame in reversed(call.frames):
        handler = caught.left_in_handler(run, frame) if frame.user else None
        if handler is not None:
            return frame, handler
    return None


def _after_an_error(run: Run, main: Process, call: ExitCall, shown: str,
                    caught_at: tuple[Frame, Handler]) -> Problem:
    frame, handler = caught_at
    seen = [f for f in main.failures if f.swallowed and f.time <= call.time and not f.steps_after]
    last = max(seen, key=lambda f: f.time, default=None)
    by = caught.handler_of(run, last) if last is not None else None
    known = by is not None and (by[0].file, by[1].line) == (frame.file, handler.line)
    line = wording.at(replace(frame, line=handler.line))
    return Problem(
        f"an exception was caught by `{handler.text}` at {line}, and `{shown}` there ended the "
        f"run {wording.batch(main.place_at(call.frames))}", main.place_at(call.frames),
        wording.stack_evidence(call.frames, call.how),
        Fix("to see the exception with its traceback, put `raise` as the first line of the "
            f"handler at line {handler.line}"),
        about=("ending", *((f"failure:{last.key}",) if last is not None and known else ())),
    )


def _cut_short(run: Run, main: Process, call: ExitCall) -> Iteration | None:
    """A pass whose loop the call was made in."""
    for item in main.iterations:
        going_on = item.ended is None or item.ended >= call.time
        # A loop that counts steps leaves its last iterator open: that is no sign of anything.
        if item.exhausted is not True and item.by == "for" and going_on and _inside(
                run, item, call):
            return item
    return None


def _inside(run: Run, item: Iteration, call: ExitCall) -> bool:
    """The call's stack lies in the very loop that asked: an iterator may outlive its loop."""
    for frame in item.started:
        loop = _loop_at(run, frame)
        if loop is not None and any(_in_loop(f, frame, loop) for f in call.frames):
            return True
    asked = wording.innermost_user(item.started)
    if asked is None or _loop_at(run, asked) is not None:
        return asked is None
    # A library's loop, or a comprehension: the line that led to it.
    spot = (asked.file, asked.line, asked.function)
    return spot in ((f.file, f.line, f.function) for f in call.frames)


def _in_loop(called: Frame, asked: Frame, loop: Loop) -> bool:
    return ((called.file, called.function) == (asked.file, asked.function)
            and loop.line <= called.line <= loop.end_line)


def _loop_at(run: Run, frame: Frame) -> Loop | None:
    """The `for` whose head the line is in."""
    script = run.script(frame.file)
    return next((loop for loop in (script.loops_around(frame.line) if script else ())
                 if loop.kind == "for" and frame.line < loop.node.body[0].lineno), None)


def _left(run: Run, main: Process, item: Iteration) -> str:
    return f"stopped at {wording.pass_text(run, item, main)}"


def _before_training(run: Run, main: Process, call: ExitCall, shown: str,
                     where: Place) -> Iterator[Problem]:
    """Code other than 0 before any batch: a check, or the parsing of arguments, refused."""
    if _code(call) == 0:
        return
    parser = any(f.file.endswith("argparse.py") for f in call.frames)
    reason = "argparse refused the arguments" if parser else f"`{shown}` ended the run"
    said = [line.strip() for line in run.output.lines if line.strip()]
    yield Problem(
        f"{reason} before the first batch", where,
        (*((Evidence(said[-1][:300], "stderr"),) if said else ()),
         *wording.stack_evidence(call.frames, call.how)),
        Fix("give the arguments the message asks for" if parser else
            "see what the condition at that line wants"),
        about=("ending",),
    )


def _after_the_loops(shown: str, where: Place) -> Problem:
    return Problem(
        f"`{shown}` ended the run after its loops: a code other than 0 reads as a failure", where,
        fix=Fix("see why the program gives this code there; if all went well, end with "
                "sys.exit(0)"),
        about=("ending",), severity="warning",
    )


def _natively(run: Run, main: Process) -> Problem:
    place = main.place
    return Problem(
        f"the process ended with code {main.exit_code} {wording.batch(place)} without passing "
        "through Python's end: native code called exit()", place,
        (Evidence("neither sys.exit nor os._exit was called, and atexit did not run", "recorder"),
         *wording.stack_evidence(main.stack, "sampled stack"), *wording.progress(run)),
        Fix("look at the library called at that line: its message on standard error, its log"),
        about=("ending",), confidence="likely",
    )


def _by_raise(run: Run, main: Process) -> Iterator[Problem]:
    """`raise SystemExit` leaves no call: the statement that left the pass tells."""
    for item in main.iterations:
        frame = wording.innermost_user(item.left) if item.exhausted is False else None
        if frame is not None and _raises_exit(run, frame):
            yield Problem(
                f"`raise SystemExit` ended the run after batch {item.batches}: exit code "
                f"{run.ending.code}, no error", main.place_at(item.left),
                (Evidence(_left(run, main, item), "recorder"),),
                Fix("raise an exception there that says why, or leave the loop with a message"),
                about=("ending",),
            )
            return
    yield from _from_source(run, main)


def _from_source(run: Run, main: Process) -> Iterator[Problem]:
    """No exit call, no exception: then a `raise SystemExit` of the script, if there is just one."""
    code = main.exit_code
    path = next((word for word in main.argv[1:] if word.endswith(".py")), None)
    script = run.script(path) if path and code and not main.exits else None
    raised = [node for node in exits_in(script.tree) if _may_give(node, code)] if script else []
    if script is None or len(raised) != 1:
        return
    node, name = raised[0], script.file.replace("\\", "/").rpartition("/")[2]
    files = (f.file for item in main.iterations for f in item.started)
    file = next((f for f in files if f.endswith(f"/{name}")), script.file)
    done = bool(main.iterations) and all(item.exhausted for item in main.iterations)
    when = "after its loops" if done else wording.batch(main.place)
    yield Problem(
        f"`{ast.unparse(node)}` ended the run {when} with code {code}: a code other than 0 reads "
        "as a failure", Place(file=file, line=node.lineno, pid=main.pid),
        (Evidence("no exception and no call of sys.exit was seen, and no other `raise SystemExit` "
                  f"of {name} can give this code", "source"),),
        Fix("see why the program gives this code there; if all went well, end with 0"),
        about=("ending",), confidence="likely", severity="warning" if done else "error",
    )


def _may_give(node: ast.Raise, code: int | None) -> bool:
    """Its argument is not plainly another code."""
    if not isinstance(node.exc, ast.Call) or not node.exc.args:
        return False  # `raise SystemExit`: 0
    try:
        given = ast.literal_eval(node.exc.args[0])
    except ValueError:
        return True
    return _code(ExitCall("raise", given, ())) == code


def _raises_exit(run: Run, frame: Frame) -> bool:
    script = run.script(frame.file)
    statement = script.statement_at(frame.line) if script else None
    return statement is not None and statement.text.lstrip().startswith("raise SystemExit")


_CAUGHT = """
import sys, torch
torch.set_num_threads(1)
names = ["a", "b"]
def train():
    for x in torch.utils.data.DataLoader(torch.randn(12, 4), batch_size=4):
        print(x.sum())
        {}
try:
    train()
except Exception as error:
    print("Error:", error)
    sys.exit(1)
"""
_PROGRAM = """
import os, sys, torch
from torch import nn
torch.set_num_threads(1)
net = nn.Linear(4, 2)

def check(number):
    if number == 1:
        {}

def train():
    for number, batch in enumerate(torch.utils.data.DataLoader(torch.randn(12, 4), batch_size=4)):
        net(batch)
        check(number)

{}
"""
_PREFETCH = """
import queue, sys, threading, time, torch
torch.set_num_threads(1)
loader = torch.utils.data.DataLoader(torch.randn(12, 4), batch_size=4)
batches = queue.Queue(2)
def read():
    while True:
        for x in loader:
            batches.put(x)
threading.Thread(target=read, daemon=True).start()
for number in range(7):
    batches.get().sum()
time.sleep(0.5)
sys.exit(0)
"""

RULE = Rule(
    name="exited-early", doc=__doc__, category="code", level="symptom", in_run=in_run,
    examples=(
        fires(_PROGRAM.format("sys.exit(0)", "train()"), "sys.exit(0)", "in `check`", "in batch 2",
              "batch 2 of 3", line="sys.exit(0)"),
        fires(_PROGRAM.format("os._exit(3)", "train()"), "os._exit(3)", "exit code 3",
              line="os._exit(3)"),
        fires(_PROGRAM.format("quit()", "train()"), "quit()", "in batch 2"),
        fires(_PROGRAM.format("sys.stdout.flush(); import ctypes; ctypes.CDLL(None)._exit(0)",
                              "train()"), "native code called exit()", "in batch 2"),
        quiet(_PROGRAM.format("pass", "sys.exit(train())"), title="the usual last line"),
        quiet(_PROGRAM.format("pass", "train(); sys.stdout.flush(); os._exit(0)"),
              title="skips a slow tear-down when all is done"),
        fires(_PROGRAM.format("pass", "train(); print('done'); sys.exit(1)"),
              "ended the run after its loops"),
        fires(_CAUGHT.format("names[2]"), "an exception was caught by `except Exception as error` "
              "at train.py:11", "`sys.exit(1)` there ended the run", line="sys.exit(1)",
              title="an error that is only printed"),
        quiet(_CAUGHT.format("names[0]")),
        quiet(_PROGRAM.format("pass", "rows = enumerate(torch.utils.data.DataLoader(names))\n"
                              "for number, row in rows:\n    break\nsys.exit(0)")
              .replace("import os", "names = [1, 2, 3]\nimport os"), title="a kept iterator"),
        quiet(_PREFETCH, title="a thread that reads on"),
        quiet(_PROGRAM.format("try: sys.exit(0)\n        except SystemExit: pass", "train()"),
              title="the exit was caught"),
        quiet(_PROGRAM.format("pass", "train(); sys.exit(256)"), title="256 is 0"),
        fires(_PROGRAM.format("pass", "train(); raise SystemExit(len('abc'))"),
              "`raise SystemExit(len('abc'))` ended the run after its loops with code 3",
              line="raise SystemExit"),
    ),
)
