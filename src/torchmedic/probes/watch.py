"""Remembers the exceptions that pass through watched calls, and what became of them.

A swallowed exception leaves no other trace: the call that raised it is over and nobody printed
it. Nothing of the exception is kept alive: its frames are read into plain data at once.
"""

from __future__ import annotations

import sys
import time

from . import frames, layout
from .recorder import emit, recorder, state

MOST_READ = 25  # exceptions read in full, per process; the others are only counted


class _Watch:
    def __init__(self):
        self.last = None
        self.number = 0
        self.counts = {}
        self.extras = []

    def reset(self):
        """In a forked child: the parent's failures are the parent's to tell."""
        self.last = None
        del pending[:]
        self.counts = {}


_watch = _Watch()
pending = []  # at most one: (number of a failure, steps at its batch's start), or None
began = [0]  # optimizer steps when the current batch was asked for
recorder.after_fork.append(_watch.reset)


def add_fact(reader):
    """`reader()` → dict of more facts for each failure that is read."""
    _watch.extras.append(reader)


def moment():
    """Where the loop is now."""
    slots = state.slots
    return {"phase": layout.PHASES[slots[layout.PHASE]], "batch": slots[layout.BATCH] or None,
            "epoch": slots[layout.EPOCH] or None, "step": slots[layout.STEPS],
            "loader": slots[layout.LOADER] or None}


def seen(exception, depth=1):
    """Called by a wrapper, in its except clause, for what the wrapped call raised.

    depth: how many of our frames lie between this and the user's call.
    """
    if not isinstance(exception, Exception) or isinstance(exception, StopIteration):
        return
    if _watch.last == id(exception):
        return  # The same exception on its way up, through an outer watched call.
    started = time.perf_counter_ns()
    try:
        _read(exception, sys._getframe(depth + 1))
    except Exception as error:
        emit("probe-error", probe="watch", error=repr(error)[:300])
    recorder.spent(time.perf_counter_ns() - started)


def _read(exception, outer):
    _watch.last = id(exception)
    where = _raised_at(exception)
    known = _watch.counts.get(where)
    _watch.counts[where] = (known or 0) + 1
    if known:
        _tell_count(where, known + 1)
        pending[:] = pending or [None]  # nothing new to tell, but the batch is over
        return
    if len(_watch.counts) <= MOST_READ:
        _watch.number += 1
        emit("failure", failure=_watch.number, how="seen", where=str(where),
             outer=frames.stack(outer), **facts(exception))
        pending[:] = [(_watch.number, began[0])]


def _tell_count(where, count):
    if count & (count - 1) == 0:  # 2, 4, 8, …: a killed process has told the order of magnitude
        emit("failure-again", where=str(where), count=count)


def finish():
    """At the end of the process: what became of the last one, and the final counts."""
    resolve("end")
    for where, count in _watch.counts.items():
        if count > 2:
            emit("failure-again", where=str(where), count=count)


def facts(exception):
    described = frames.error(exception)
    described.update(moment())
    for reader in _watch.extras:
        described.update(reader())
    return described


def _raised_at(exception):
    trace = exception.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    line = (trace.tb_frame.f_code.co_filename, trace.tb_lineno) if trace else None
    return (type(exception).__name__, line)


def resolve(how):
    """The next batch is asked for, or the process ends: did the lost batch still make a step?"""
    waiting = pending[:]
    del pending[:]
    _watch.last = None
    for number, steps in filter(None, waiting):
        emit("failure-after", failure=number, how=how, steps=state.slots[layout.STEPS] - steps)


def uncaught(exception, how, **more):
    """An exception that ended its process, thread or child."""
    try:
        emit("failure", failure=0, how=how, where=str(_raised_at(exception)),
             outer=[], **dict(facts(exception), **more))
    except Exception as error:
        emit("probe-error", probe="watch", error=repr(error)[:300])


recorder.at_end.append(finish)
