"""Hands the terminal to the child's process group and takes it back, as a shell does."""

from __future__ import annotations

import contextlib
import os
import signal


class Terminal:
    """The controlling terminal, if our standard input is one and we are in its foreground.

    shared: our output goes on to another program of the same job (`… | less`), which must be able
    to read the terminal too. The child then stays in our process group, as it would without us.
    """

    def __init__(self) -> None:
        self.descriptor: int | None = None
        self.shared = False
        self._saved_group = 0
        with contextlib.suppress(OSError):
            if os.isatty(0) and os.tcgetpgrp(0) == os.getpgrp():
                self.shared = not os.isatty(1)
                self.descriptor = None if self.shared else 0
                self._saved_group = os.getpgrp()

    def in_child(self) -> None:
        """Between fork and exec: a group of its own, in the foreground if we were."""
        if self.shared:
            return
        os.setpgid(0, 0)
        if self.descriptor is not None:
            # A background group that changes the foreground is stopped by SIGTTOU, unless blocked.
            old = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTTOU})
            with contextlib.suppress(OSError):
                os.tcsetpgrp(self.descriptor, os.getpid())
            signal.pthread_sigmask(signal.SIG_SETMASK, old)

    def _foreground(self, group: int) -> None:
        if self.descriptor is None:
            return
        old = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTTOU})
        with contextlib.suppress(OSError):
            os.tcsetpgrp(self.descriptor, group)
        signal.pthread_sigmask(signal.SIG_SETMASK, old)

    def take_back(self) -> None:
        self._foreground(self._saved_group)

    def stop_with_child(self, child_group: int) -> None:
        """The child was stopped (Ctrl-Z): stop too; when we go on, so does it."""
        self.take_back()
        os.kill(os.getpid(), signal.SIGSTOP)
        self._foreground(child_group)
        with contextlib.suppress(OSError):
            os.killpg(child_group, signal.SIGCONT)
