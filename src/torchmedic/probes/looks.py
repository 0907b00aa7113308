"""Looks closely at a few steps of a training loop; outside of them a step costs one comparison.

A window of steps is open from the start, and again after 10, 30, 100, 300, … steps as long as all
looks together cost less than SHARE of the run's time, and GRACE. What is looked at is the parts'
own affair: each adds itself to the lists below, and is switched off when it raises.
"""

from __future__ import annotations

import sys
import time

from . import compat
from .layout import STEPS
from .patching import Probe, describe
from .recorder import emit, recorder, state

LENGTH = 2  # optimizer steps in a window: of two optimizers that take turns both are seen
FIRST = 3  # in the first one: what only a step leaves behind shows in the next
SHARE = 0.005  # of the time since torch was imported
GRACE = 30_000_000  # nanoseconds that looks may cost in any run: a short one is to be seen too
MOST_CALLS = 400  # module calls shown in one window
MOST_BACKWARDS = 12  # also where no optimizer steps: then the first window never closes

looking = [None]  # what each module call is shown to, or None
open_ = [False]  # a window is open
due = [0]  # number of optimizer steps at which it closes or the next one opens

at_call = []  # part(module, args, result): after a module's call
at_backward = []  # part(roots, options): before backward; roots: the tensors it starts from
before_step = []  # part(optimizer, step): step is the number of the step about to be made
after_step = []  # part(optimizer, step)
at_close = []  # part(step): the window's last step is over

steps_ahead = Probe("looks")


class _Window:
    def __init__(self):
        self.spent = 0
        self.began = time.perf_counter_ns()
        self.calls = self.backwards = 0
        self.next = 10
        self.busy = False


_window = _Window()


def start(torch):
    """Open the first window."""
    _window.began = time.perf_counter_ns()
    due[0] = FIRST
    _open(torch)


def stop():
    steps_ahead.uninstall()
    open_[0] = False
    looking[0] = None


def turn(steps):
    """`steps` are done, and the window closes or the next one opens."""
    if open_[0]:
        _ask(at_close, steps)
        stop()
        while _window.next <= steps:
            _window.next = _after(_window.next)
        due[0] = _window.next
    elif _affordable():
        due[0] = steps + LENGTH
        _open(sys.modules["torch"])
    else:
        due[0] = steps + max(1, steps >> 3)


def _affordable():
    return _window.spent <= GRACE + SHARE * (time.perf_counter_ns() - _window.began)


def _after(number):
    """1, 3, 10, 30, 100, …"""
    return number * 10 // 3 if str(number)[0] == "3" else number * 3


def _open(torch):
    _window.calls = MOST_CALLS
    _window.backwards = MOST_BACKWARDS
    open_[0] = True
    looking[0] = _called
    register = compat.before_step_hook(torch)
    if register is not None and not steps_ahead.installed:
        steps_ahead.on_uninstall(register(torchmedic_before_step).remove)


def _called(module, args, result):
    if _window.busy:
        return
    _window.calls -= 1
    if _window.calls < 0:
        looking[0] = None
    else:
        _ask(at_call, module, args, result)


def look_at_calls():
    """Show the next calls to the parts, also outside a window."""
    if looking[0] is None and _affordable():
        _window.calls = MOST_CALLS
        looking[0] = _called


def backward(roots, options):
    """Before a backward pass, in an open window."""
    _window.backwards -= 1
    if _window.backwards >= 0:
        _ask(at_backward, roots, options)


def torchmedic_before_step(optimizer, args, kwargs):
    try:
        _ask(before_step, optimizer, state.slots[STEPS] + 1)
    except Exception as error:
        steps_ahead.fail(error)


def stepped(optimizer, steps):
    """After an optimizer's step, in an open window."""
    _ask(after_step, optimizer, steps)


def _ask(parts, *facts):
    """Show the facts to each part. What a part itself computes is not shown to any."""
    if not parts or _window.busy:
        return
    began = time.perf_counter_ns()
    _window.busy = True
    try:
        for part in tuple(parts):
            try:
                part(*facts)
            except Exception as error:
                parts.remove(part)
                emit("probe-error", probe=part.__module__.rpartition(".")[2],
                     error=describe(error))
    finally:
        _window.busy = False
        cost = time.perf_counter_ns() - began
        _window.spent += cost
        recorder.spent(cost)


def _close_last():
    if open_[0]:
        _ask(at_close, state.slots[STEPS])


recorder.at_end.append(_close_last)
