"""Exceptions that end a thread or a multiprocessing child; both leave the parent's exit code 0."""

from __future__ import annotations

import sys

from . import imports
from .patching import Probe, excise
from .recorder import emit, recorder

threads = Probe("thread")
processes = Probe("child")


def uncaught(error, how, **more):
    """Tell it. What reads frames is loaded now: most processes never need it."""
    from . import watch

    watch.uncaught(error, how, **more)


def _wrap_thread_hook(original):
    def excepthook(args, /):
        try:
            if args.exc_value is not None and not isinstance(args.exc_value, SystemExit):
                name = getattr(args.thread, "name", None)
                uncaught(args.exc_value, "thread", thread=name)
        except Exception as error:
            threads.fail(error)
        return original(args)

    return excepthook


def _wrap_bootstrap(original):
    def _bootstrap(self, *args, **kwargs):
        try:
            vars(self)["run"] = _watched(self.run)
            emit("child", name=self.name)
        except Exception as error:
            processes.fail(error)
        code = original(self, *args, **kwargs)
        recorder.finish()
        emit("ended", how="child", code=code)
        if code == 0:
            recorder.fold_ring()
        return code

    return _bootstrap


def _watched(run):
    def call():
        try:
            return run()
        except BaseException as error:
            if isinstance(error, (Exception, KeyboardInterrupt)):
                uncaught(error, "child")
            excise(error)
            raise

    return call


def install():
    imports.after_import("threading", _install_threads)
    imports.after_import("multiprocessing.process", _install_processes)


def _install_threads(threading):
    if not threads.installed and hasattr(threading, "excepthook"):
        threads.wrap(threading, "excepthook", _wrap_thread_hook)


def _install_processes(process):
    if not processes.installed:
        processes.wrap(process.BaseProcess, "_bootstrap", _wrap_bootstrap)


def uninstall():
    threads.uninstall()
    processes.uninstall()


def main_thread_error():
    """The exception that ended the main module, whatever the script put into sys.excepthook."""
    return getattr(sys, "last_exc", None) or getattr(sys, "last_value", None)
