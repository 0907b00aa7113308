"""Signals by name: which tell of a crash, which end a process, and what faulthandler calls them."""

from __future__ import annotations

import signal

CRASHES = {
    "SIGSEGV": "segmentation fault", "SIGABRT": "abort", "SIGBUS": "bus error",
    "SIGFPE": "arithmetic fault", "SIGILL": "illegal instruction",
}
"""What native code ends with when it did something illegal."""
HARMLESS = ("SIGCHLD", "SIGCONT", "SIGSTOP", "SIGTSTP", "SIGTTIN", "SIGTTOU", "SIGURG", "SIGWINCH")
"""Signals that end nothing when nobody handles them."""
# Modules/faulthandler.c, Python 3.8 to 3.14.
FATAL = {
    "Segmentation fault": "SIGSEGV", "Aborted": "SIGABRT", "Bus error": "SIGBUS",
    "Floating-point exception": "SIGFPE", "Floating point exception": "SIGFPE",
    "Illegal instruction": "SIGILL",
}


def fatal_signal(error: str | None) -> str | None:
    """The signal behind what faulthandler calls a fatal error."""
    return next((name for text, name in FATAL.items() if text in (error or "")), None)


def signal_name(number: int) -> str | None:
    """`SIGKILL` for 9; None when there is no such signal."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return None
