"""An exception was caught by the program's own `except`, and the work it stood for was lost.

## What you see
The run ends early with exit code 0 and no traceback, or goes through all batches in no time and
learns nothing.
## Why
A bare `except:` or `except Exception:` that breaks, continues, passes or returns catches every
error, not only the one it was written for.
## Fix
Catch the one exception you expect, round the one call that raises it; log or re-raise all
others.
## When this is fine
When the same batch is then tried again with success (an out-of-memory retry), or when the
exception says nothing about the training.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

from torchmedic import caught, wording
from torchmedic.model import Evidence, Fix, Place, Problem, Rule, fires, quiet
from torchmedic.sourcecatches import hidden
from torchmedic.trainings import STEP, indented, training

if TYPE_CHECKING:
    from torchmedic.observed import Failure, Frame, Iteration, Process, Run
    from torchmedic.source.blocks import Handler
    from torchmedic.source.script import Script

FIX = Fix("catch only the exception you expect there, and re-raise all others (`raise`)")


def in_run(run: Run) -> Iterator[Problem]:
    for process in run.processes:
        if process.role == "worker" or process.fatal or any(
                f.how == "uncaught" for f in process.failures):
            continue
        told = False
        for failure in process.failures:
            if not failure.swallowed:
                continue
            if lost := caught.lost_by(run, process, failure):
                told = True
                yield _seen(run, process, failure, lost)
        if not told and run.ending.code == 0 and process is run.main:
            yield from _unseen(run, process)


def in_source(script: Script) -> Iterator[Problem]:
    for found in hidden(script):
        handler = found.handler
        yield Problem(
            f"`{handler.text}: {handler.kind}` hides every error of the training step and "
            f"{found.does}", where=Place(file=script.file, line=handler.line), severity="warning",
            confidence="likely",
            fix=FIX, evidence=(Evidence(f"line {found.event.line}: the step is inside its `try`",
                                        "source"),))


def _seen(run: Run, process: Process, failure: Failure, lost: str) -> Problem:
    raised = failure.user_frame
    catcher = caught.handler_of(run, failure)
    by = f"`{catcher[1].text}: {catcher[1].kind}`" if catcher else "code outside your files"
    where = wording.at(catcher[0]) if catcher else ""
    effect = _effect(process, failure, lost)
    count = f" {failure.count} times" if failure.count > 1 else ""
    return Problem(
        f"`{failure.short_type}` raised at {wording.at(raised)} was swallowed{count} by {by}"
        f"{' at ' + where if where else ''}: {effect}",
        _place(failure, catcher),
        (Evidence(f"raised at {wording.at(raised)}: {failure.short_type}: "
                  f"{failure.message.splitlines()[0][:200] if failure.message else ''}",
                  "exception"),
         *((Evidence(f"caught at {where}: `{catcher[1].text}`", "source"),) if catcher else ()),
         *wording.progress(run, process)),
        FIX, about=(f"failure:{failure.key}", *(("ending",) if run.ending.code == 0 else ())),
        severity="warning" if lost == "batch" and failure.count * 10 < process.step else "error",
    )


def _place(failure: Failure, catcher: tuple[Frame, Handler] | None) -> Place:
    place = failure.place
    if catcher is None:
        return place
    frame, handler = catcher
    return replace(place, file=frame.file, line=handler.line, function=frame.function)


def _effect(process: Process, failure: Failure, lost: str) -> str:
    item = caught.cut_by(process, failure)
    if lost == "pass" and item is not None:
        of = f" of {item.loader.batches}" if item.loader.batches else ""
        return f"the loop ended in batch {failure.batch}{of}"
    return f"batch {failure.batch} made no optimizer step"



def _unseen(run: Run, process: Process) -> Iterator[Problem]:
    """No watched call raised, but the loop's iterator was dropped at a line that tells why."""
    for item in process.iterations:
        frame = wording.innermost_user(item.left) if item.exhausted is False else None
        if frame is None or _left_by_exit(process, frame):
            continue
        inside = caught.left_in_handler(run, frame)
        if inside and _began_again(process, item, frame, inside):
            continue
        outside = caught.left_by_exception(run, item) if item.by == "for" and not inside else None
        catcher, handler = outside or (frame, inside)
        if handler is None:
            continue
        line = "raised inside its `try`" if inside else f"raised at {wording.at(frame)}"
        yield Problem(
            f"an exception {line} was swallowed by `{handler.text}: {handler.kind}` at "
            f"{wording.at(replace(catcher, line=handler.line))}: the loop ended in batch "
            f"{item.batches}" + (f" of {item.loader.batches}" if item.loader.batches else ""),
            replace(process.place_at(item.left), file=catcher.file, function=catcher.function,
                    line=handler.line, batch=item.batches, epoch=item.epoch),
            (Evidence(wording.pass_text(run, item, process), "recorder"),
             Evidence(f"the loop was left at {wording.at(frame)}", "recorder")),
            replace(FIX, detail="to see which exception it was, put `raise` as the first line "
                                f"of the handler at line {handler.line} and run again"),
            about=("ending",),
        )


def _began_again(process: Process, left: Iteration, frame: Frame, handler: Handler) -> bool:
    """The handler started the loader over, or made way for the next pass of a loop that counts."""
    for item in process.iterations:
        asked = wording.innermost_user(item.started)
        later = item.loader.key == left.loader.key and item.time > left.time
        if later and (left.by == "next" or (asked is not None and asked.file == frame.file and (
                handler.line <= asked.line <= handler.end_line))):
            return True
    return False


def _left_by_exit(process: Process, frame: Frame) -> bool:
    return any((f.file, f.line) == (frame.file, frame.line)
               for call in process.exits for f in call.frames)




_PROGRAM = """
import torch
from torch import nn
torch.set_num_threads(1)
net = nn.Linear(4, 2)
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
data = [torch.randn(4, 4), torch.randn(4, {width}), torch.randn(4, 4)]
def train():
    for x in torch.utils.data.DataLoader(data, batch_size=None):
        try:
            {body}
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        except {kind}:
            {then}
train()
print("done")
"""
_LOSS = "loss = net(x).square().mean()"
_OUTER = """
import torch
torch.set_num_threads(1)
names = {0: "a"}
def train():
    for number, x in enumerate(torch.utils.data.DataLoader(torch.randn(12, 4), batch_size=4)):
        total = x.sum()
        print(number)
        print(names[number])
def main():
    try:
        train()
    except Exception: return
main()
"""
_KEPT = """
import torch
torch.set_num_threads(1)
loader = torch.utils.data.DataLoader(torch.randn(12, 4), batch_size=4)
try:
    for epoch in range(2):
        bar = enumerate(loader)
        for number, x in bar:
            if number == 1:
                break
except Exception as error:
    print(error)
"""
_CLOSED = """
import torch
torch.set_num_threads(1)
def batches():
    try:
        for x in torch.utils.data.DataLoader(torch.randn(12, 4), batch_size=4):
            yield x
    except Exception as error:
        print(error)
def first():
    rows = batches()
    return next(rows)
first()
print("done")
"""
_RETRY = """
import torch
from torch import nn
torch.set_num_threads(1)
net = nn.Linear(4, 2)
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
for x in torch.utils.data.DataLoader(torch.randn(12, 4), batch_size=4):
    try:
        loss = net(x.reshape(2, 8)).mean()
    except RuntimeError:
        loss = net(x).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""
_SEARCH = """
import torch
from torch import nn
torch.set_num_threads(1)
class Net(nn.Linear):
    def forward(self, x):
        if len(x) > 4:
            raise {kind}("CUDA out of memory. Tried to allocate 388.00 MiB. GPU 0 has a total "
                         "capacity of 23.64 GiB of which 100.00 MiB is free.")
        return super().forward(x)
net = Net(4, 2)
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
def fit(size):
    for x in torch.utils.data.DataLoader(torch.randn(24, 4), batch_size=size):
        loss = net(x).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
"""
_HALVED = _SEARCH.format(kind="RuntimeError") + """
size = 12
while True:
    try:
        fit(size)
        break
    except RuntimeError as error:
        if "out of memory" not in str(error):
            raise
        size //= 2
"""
_RAISED = _SEARCH.format(kind="torch.OutOfMemoryError") + """
for size in (2, 4, 8, 12):
    try:
        fit(size)
    except torch.OutOfMemoryError:
        print(size, "is too large")
"""
_SKIPPED = """
import torch
from torch import nn
torch.set_num_threads(1)
net = nn.Linear(4, 2)
data = [torch.randn(4, width) for width in (4, 5, {width}, {width})]
for x in torch.utils.data.DataLoader(data, batch_size=None):
    try:
        net(x)
    except RuntimeError:
        print("skipped")
"""
_TEST = """
import unittest, torch
from torch import nn
torch.set_num_threads(1)
class Widths(unittest.TestCase):
    def test_wrong(self):
        net = nn.Linear(4, 2)
        for x in torch.utils.data.DataLoader(torch.randn(12, 4), batch_size=4):
            net(x)
            with self.assertRaises(RuntimeError):
                net(torch.randn(2, 99))
            self.assertRaises(RuntimeError, net, torch.randn(2, 99))
unittest.main()
"""
_LOOKED = """
import torch
from torch import nn
torch.set_num_threads(1)
net = nn.Linear(4, 2)
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
for x in torch.utils.data.DataLoader(torch.randn(12, 4), batch_size=4):
    optimizer.zero_grad()
    net(x).mean().backward()
    optimizer.step()
    try:
        net(x.reshape(2, 8))
    except Exception:
        print("no picture")
"""
_OVER = """
import torch
torch.set_num_threads(1)
loader = torch.utils.data.DataLoader(torch.randn(12, 4), batch_size=4)
names = ["a", "b"]
batches = iter(loader)
for number in range(5):
    try:
        x = next(batches)
        print(names[number % 3])
    except IndexError:
        batches = iter(loader)
        x = next(batches)
"""

_PROBE = """
def works(x, y):
    try:
        criterion(model(x), y).backward()
    except Exception:
        return False
    return True
"""

RULE = Rule(
    name="exception-swallowed", doc=__doc__, category="code", level="symptom", in_run=in_run,
    in_source=in_source,
    examples=(
        fires(training("try:\n" + indented(STEP, 1) + "except Exception:\n    continue"),
              "hides every error of the training step and goes on", kind="source",
              line="except Exception:", title="in source"),
        quiet(training("try:\n" + indented(STEP, 1) + "except Exception as error:\n"
                       "    print(error)\n    continue"), kind="source", title="printed"),
        quiet(training("works(x, y)", more=_PROBE), kind="source", title="the answer is no"),
        quiet(training("try:\n" + indented(STEP, 1) + "except StopIteration:\n    break"),
              kind="source", title="one kind"),
        fires(_PROGRAM.format(width=4, body="loss = net(x).square().mean() if x is not data[1] "
                                            "else {}['weight']", kind="Exception", then="break"),
              "swallowed by `except Exception: break` at train.py:15", "in batch 2",
              line="except Exception:", title="raised where nothing watches"),
        fires(_PROGRAM.format(width=4, body="loss = net(x).square().mean(); x.view(3, -1)"
                                            " if x is data[1] else 0", kind="", then="return")
              .replace("except :", "except:"),
              "swallowed by `except: return`", "the loop ended in batch 2"),
        fires(_OUTER, "raised at train.py:9 was swallowed by `except Exception: return` at "
                      "train.py:13", "in batch 2 of 3", line="except Exception: return",
              title="raised where nothing watches, caught by the caller"),
        quiet(_OUTER.replace("except Exception: return",
                             "except KeyboardInterrupt: return\n    except Exception: return"),
              title="perhaps it was Ctrl-C"),
        quiet(_KEPT, title="a kept iterator is dropped when the next pass begins"),
        quiet(_CLOSED, title="a generator that is closed"),
        quiet(_RETRY, title="the same batch again, with success"),
        quiet(_HALVED, title="a smaller batch after each that is too large"),
        quiet(_RAISED, title="larger batches until one is too large"),
        quiet(_SKIPPED.format(width=4), title="one of several inputs, without training"),
        quiet(_LOOKED, title="a look at the batch, after its step"),
        quiet(_OVER, title="the handler starts the loader over"),
        quiet(_TEST, title="a test wants the exception"),
        quiet(_PROGRAM.format(width=4, body=_LOSS, kind="ValueError", then="break")),
        quiet(_PROGRAM.format(width=4, body=_LOSS + "; stop(x)", kind="Enough", then="break")
              .replace("def train", "class Enough(Exception): pass\n"
                       "def stop(x):\n    if x is data[1]: raise Enough\ndef train"),
              title="an exception of the program's own that steers it"),
    ),
)
