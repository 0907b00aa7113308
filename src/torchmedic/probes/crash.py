"""Native crashes and stacks on demand: faulthandler writes to a file of ours.

Where the script (or PYTHONFAULTHANDLER) enabled faulthandler itself, it keeps it: its dump then
goes to the standard error stream as the user asked, and is read from there.
"""

from __future__ import annotations

import _signal
import faulthandler
import os

from .layout import DUMP_SIGNAL
from .recorder import emit, recorder, state


class _Dumps:
    def __init__(self):
        self.fd = -1
        self.ours = False


_dumps = _Dumps()


def dump_signal():
    """A real-time signal nobody uses, for stacks on demand; None where there is none."""
    top = getattr(_signal, "SIGRTMAX", None)
    return None if top is None else int(top) - 5


def start():
    _dumps.fd = recorder.fault_descriptor()
    if _dumps.fd < 0:
        return
    if not faulthandler.is_enabled():
        faulthandler.enable(_dumps.fd, all_threads=True)
        _dumps.ours = True
    number = dump_signal()
    if number is not None and hasattr(faulthandler, "register"):
        if _signal.getsignal(number) in (_signal.SIG_DFL, None):
            faulthandler.register(number, _dumps.fd, all_threads=True, chain=False)
            state.slots[DUMP_SIGNAL] = number


def after_fork():
    """The child writes to a file of its own."""
    old, ours = _dumps.fd, _dumps.ours
    _dumps.fd = recorder.fault_descriptor()
    if _dumps.fd < 0:
        _dumps.fd = old
        return
    if ours and faulthandler.is_enabled():
        faulthandler.enable(_dumps.fd, all_threads=True)
    number = dump_signal()
    if number is not None and hasattr(faulthandler, "register"):
        faulthandler.register(number, _dumps.fd, all_threads=True, chain=False)
        state.slots[DUMP_SIGNAL] = number
    if old >= 0:
        os.close(old)


def take_over_again():
    """After torch installed its worker handlers: dump first, then let theirs speak."""
    try:
        if _dumps.ours and _dumps.fd >= 0:
            faulthandler.disable()
            faulthandler.enable(_dumps.fd, all_threads=True)
    except Exception as error:
        emit("probe-error", probe="crash", error=repr(error)[:300])


recorder.after_fork.append(after_fork)
