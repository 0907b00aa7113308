"""Who ends a process on purpose, and who sends signals: the calls leave their stacks."""

from __future__ import annotations

import _signal
import os
import sys

from . import imports
from .patching import Probe, excise
from .paths import STDLIB, is_user_file
from .recorder import emit, recorder

exits = Probe("exit")
kills = Probe("kill")


def _tell(how, code, depth=2):
    from . import frames, watch

    frame = sys._getframe(depth)
    if type(code) is bool:
        code = int(code)
    told = code if code is None or type(code) in (int, str) else type(code).__name__
    emit("exit", how=how, code=told, frames=frames.stack(frame),
         handler=_handler_on(frame), **watch.moment())


def _handler_on(frame):
    """Name of the signal whose Python handler is on this stack."""
    codes = {}
    for name in ("SIGINT", "SIGTERM", "SIGHUP", "SIGUSR1", "SIGUSR2"):
        handler = _signal.getsignal(getattr(_signal, name)) if hasattr(_signal, name) else None
        code = getattr(getattr(handler, "__func__", handler), "__code__", None)
        if code is not None:
            codes[code] = name
    while frame is not None:
        if frame.f_code in codes:
            return codes[frame.f_code]
        frame = frame.f_back
    return None


def _signal_name(number):
    for name in dir(_signal):
        if name.startswith("SIG") and "_" not in name and getattr(_signal, name) == number:
            return name
    return str(number)


def _wrap_exit(original):
    def exit(*args, **kwargs):
        try:
            _tell("sys.exit", args[0] if args else None)
        except Exception as error:
            exits.fail(error)
        try:
            original(*args, **kwargs)
        except BaseException as error:
            excise(error)
            raise

    return exit


def _wrap_quitter(original):
    def __call__(self, code=None):
        try:
            _tell(self.name, code)
        except Exception as error:
            exits.fail(error)
        try:
            original(self, code)
        except BaseException as error:
            excise(error)
            raise

    return __call__


def _wrap_os_exit(original):
    def _exit(status):
        try:
            caller = sys._getframe(1).f_code.co_filename
            if is_user_file(caller) or not caller.startswith(STDLIB):
                _tell("os._exit", status)
                recorder.finish()
            recorder.emit("ended", how="os._exit", code=status)
        except Exception as error:
            exits.fail(error)
        try:
            original(status)
        except BaseException as error:
            excise(error)
            raise

    return _exit


def _wrap_abort(original):
    def abort():
        try:
            _tell("os.abort", None)
        except Exception as error:
            exits.fail(error)
        original()

    return abort


def _tell_signal(target, number):
    from . import frames

    emit("signal", sender=recorder.pid, target=target, signal=_signal_name(number),
         frames=frames.stack(sys._getframe(2)))


def _wrap_kill(target_of):
    def make(original):
        def kill(*args):
            try:
                if args[-1] and is_user_file(sys._getframe(1).f_code.co_filename):
                    _tell_signal(target_of(args), args[-1])
            except Exception as error:
                kills.fail(error)
            try:
                return original(*args)
            except BaseException as error:  # also what the signal's own handler raises
                excise(error)
                raise

        return kill

    return make


def install():
    if exits.installed:
        return
    exits.wrap(sys, "exit", _wrap_exit)
    exits.wrap(os, "_exit", _wrap_os_exit)
    exits.wrap(os, "abort", _wrap_abort)
    quitter = sys.modules.get("_sitebuiltins")
    if quitter is not None:
        exits.wrap(quitter.Quitter, "__call__", _wrap_quitter)
    kills.wrap(os, "kill", _wrap_kill(lambda args: args[0]))
    if hasattr(os, "killpg"):
        kills.wrap(os, "killpg", _wrap_kill(lambda args: -args[0]))
    imports.after_import("signal", _install_raise)


def _install_raise(signal):
    kills.wrap(signal, "raise_signal", _wrap_kill(lambda args: recorder.pid))


def uninstall():
    exits.uninstall()
    kills.uninstall()
