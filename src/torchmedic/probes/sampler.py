"""Ten times a second, where the main thread is: what a SIGKILL leaves behind."""

from __future__ import annotations

import _thread
import sys
import time

from . import layout
from .paths import is_ours
from .recorder import recorder, state

PERIOD = 0.1  # seconds
SHARE = 0.002  # of one core: the sampler sleeps longer when it costs more than this
MOST_FRAMES = 48


at_turns = []  # called with the seconds since the turn before
counters = []  # (slot, list with one number): copied to the ring at each turn


class _Sampler:
    def __init__(self):
        self.run = 0
        self.main = None
        self.last = None


_sampler = _Sampler()


def start():
    """Start sampling the thread that calls this. A raw thread: `threading` does not list it."""
    stop()
    _sampler.main = _thread.get_ident()
    _sampler.last = None
    _thread.start_new_thread(_loop, (_sampler.run,))


def stop():
    """The thread ends at its next turn."""
    _sampler.run += 1


def _forked():
    _sampler.run += 1  # The thread did not come along.


def _loop(run):
    period = PERIOD
    while True:
        time.sleep(period)
        if run != _sampler.run:
            return
        began = time.thread_time_ns()
        try:
            _turn(period)
            _sample()
        except Exception:
            return
        cost = time.thread_time_ns() - began
        recorder.spent(cost)
        period = max(PERIOD, cost * 1e-9 / SHARE)


def _turn(seconds):
    for slot, counter in counters:
        state.slots[slot] = counter[0]
    for call in at_turns:
        call(seconds)


def _sample():
    frame = sys._current_frames().get(_sampler.main)
    if frame is None or recorder.ring is None:
        return
    slots = state.slots
    slots[layout.STACK_TIME_NS] = time.time_ns()
    slots[layout.SAMPLES] += 1
    slots[layout.SAMPLE_BATCH] = slots[layout.BATCH]
    here = (id(frame), frame.f_lasti)
    if here == _sampler.last:
        return
    _sampler.last = here
    write(_text(frame))


def _text(frame):
    lines = []
    while frame is not None and len(lines) < MOST_FRAMES:
        code = frame.f_code
        if not is_ours(code.co_filename):
            lines.append("%s\x1f%d\x1f%s" % (code.co_filename, frame.f_lineno or 0, code.co_name))
        frame = frame.f_back
    return "\n".join(lines).encode("utf-8", "replace")[: layout.AREA_SIZE - 1]


def write(text):
    """Into the area that is not the current one; the sequence number then makes it current."""
    slots = state.slots
    sequence = slots[layout.STACK_SEQUENCE] + 1
    start = layout.AREA_START + (sequence & 1) * layout.AREA_SIZE
    recorder.ring[start : start + len(text) + 1] = text + b"\0"
    slots[layout.STACK_SEQUENCE] = sequence


recorder.after_fork.append(_forked)
recorder.at_end.append(stop)
