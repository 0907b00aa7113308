"""Native crashes and stacks on demand: faulthandler writes to a file of ours.

Where the script (or PYTHONFAULTHANDLER) enabled faulthandler itself, it keeps it: its dump then
goes to the standard error stream as the user asked, and is read from there. Until then it looks
to the script as if faulthandler were off.
"""

from __future__ import annotations

import _signal
import faulthandler
import os

from .layout import DUMP_SIGNAL
from .patching import Probe, excise
from .recorder import emit, recorder, state

crash = Probe("crash")
_enable, _disable = faulthandler.enable, faulthandler.disable


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
    install()
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
    if ours:
        _enable(_dumps.fd, all_threads=True)
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
            _disable()
            _enable(_dumps.fd, all_threads=True)
    except Exception as error:
        emit("probe-error", probe="crash", error=repr(error)[:300])


def install():
    if _dumps.fd < 0 or crash.installed:
        return
    try:
        if not faulthandler.is_enabled():
            _enable(_dumps.fd, all_threads=True)
            _dumps.ours = True
        crash.on_uninstall(_let_go)
        crash.wrap(faulthandler, "enable", _wrap_enable)
        crash.wrap(faulthandler, "disable", _wrap_disable)
        crash.wrap(faulthandler, "is_enabled", _wrap_is_enabled)
    except Exception as error:
        crash.fail(error)


def _let_go():
    if _dumps.ours:
        _dumps.ours = False
        _disable()


def uninstall():
    crash.uninstall()


def _wrap_enable(original):
    def enable(*args, **kwargs):
        try:
            result = original(*args, **kwargs)
        except BaseException as error:
            excise(error)
            raise
        _dumps.ours = False
        return result

    return enable


def _wrap_disable(original):
    def disable():
        enabled = original()
        if _dumps.fd < 0:
            return enabled
        theirs = enabled and not _dumps.ours
        try:
            _enable(_dumps.fd, all_threads=True)
            _dumps.ours = True
        except Exception as error:
            crash.fail(error)
        return theirs

    return disable


def _wrap_is_enabled(original):
    def is_enabled():
        return original() and not _dumps.ours

    return is_enabled


recorder.after_fork.append(after_fork)
