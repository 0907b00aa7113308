"""Starts the observer in this process, once."""

from __future__ import annotations

import atexit
import os
import time

from . import children, crash, exits, imports, layout
from .patching import own_codes
from .recorder import emit, process_facts, recorder, state


def start(folder):
    """Open the record, watch the ways to end now, and torch once it is imported."""
    if recorder.folder:
        return
    began = time.perf_counter_ns()
    facts = process_facts()
    recorder.open(folder, **facts)
    emit("process", pid=recorder.pid, parent=os.getppid(), via="start", **facts)
    os.register_at_fork(after_in_child=recorder.fork_child)
    crash.start()
    exits.install()
    children.install()
    imports.after_import("torch", _torch_imported)
    atexit.register(finish)
    recorder.spent(time.perf_counter_ns() - began)


def _torch_imported(torch):
    began = time.perf_counter_ns()
    try:
        from . import compat, graphs, loading, sampler, training, watched  # noqa: F401

        emit("torch", version=str(torch.__version__))
        training.install(torch)
        loading.install(torch)
        graphs.install(torch)
        compat.leave_alone(torch, own_codes())
        sampler.start()
    except Exception as error:
        emit("probe-error", probe="torch", error=repr(error)[:300])
    recorder.spent(time.perf_counter_ns() - began)


def finish():
    """The interpreter ends: say what ended it and what was still open."""
    try:
        error = children.main_thread_error()
        if error is not None and os.getpid() == recorder.pid:
            children.uncaught(error, "uncaught")
        recorder.finish()
        state.slots[layout.ENDED] = 1
        emit("ended", how="atexit", overhead_ns=state.slots[layout.OVERHEAD_NS])
    except Exception as problem:
        emit("probe-error", probe="finish", error=repr(problem)[:300])

