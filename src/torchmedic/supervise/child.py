"""One child process: started in its own group, signalled, waited for, its orphans too."""

from __future__ import annotations

import contextlib
import ctypes
import os
import selectors
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence

from torchmedic.supervise.streams import connect
from torchmedic.supervise.terminal import Terminal

FORWARDED = ("SIGINT", "SIGTERM", "SIGHUP", "SIGWINCH", "SIGUSR1", "SIGUSR2", "SIGQUIT")
FROM_TERMINAL = (signal.SIGINT, signal.SIGQUIT, signal.SIGWINCH)
DRAIN_TURNS = 5


class NotStarted(Exception):
    """The command can't be run. `status` is 126 (not executable) or 127 (not found)."""

    def __init__(self, message: str, status: int) -> None:
        super().__init__(message)
        self.status = status


class Child:
    """The user's command, running."""

    def __init__(self, command: Sequence[str], environment: Mapping[str, str]) -> None:
        self.forwarded: str | None = None
        self.statuses: dict[int, int] = {}
        self._terminal = Terminal()
        self._status: int | None = None
        self._wake, self._waker = socket.socketpair()
        for end in (self._wake, self._waker):
            end.setblocking(False)
        become_subreaper()
        self._old_handlers = self._install_handlers()
        streams = connect()
        self.tail, self._tees, self.terminal_output = streams.tail, streams.tees, streams.terminal
        self._process = self._start(list(command), environment, streams.out, streams.err)
        self.pid = self._process.pid
        for tee in self._tees:
            tee.child_started()

    def _start(self, command: list[str], environment: Mapping[str, str], out: int | None,
               err: int | None) -> subprocess.Popen[bytes]:
        try:
            return subprocess.Popen(command, env=dict(environment), stdout=out, stderr=err,
                                    preexec_fn=self._terminal.in_child)
        except FileNotFoundError as error:
            self.close()
            if shutil.which(command[0]) is None:  # else it is there, and its interpreter is not
                raise NotStarted(f"command not found: {command[0]}", 127) from None
            raise NotStarted(f"cannot run {command[0]}: {error.strerror}", 126) from None
        except (PermissionError, OSError) as error:
            self.close()
            raise NotStarted(f"cannot run {command[0]}: {error.strerror}", 126) from None

    def _install_handlers(self) -> dict[int, object]:
        old: dict[int, object] = {}
        for name in FORWARDED:
            number = getattr(signal, name, None)
            # An ignored signal (nohup) stays ignored, for us and for the child.
            if number is not None and signal.getsignal(number) is not signal.SIG_IGN:
                old[number] = signal.signal(number, self._forward)
        old[signal.SIGCHLD] = signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.set_wakeup_fd(self._waker.fileno(), warn_on_full_buffer=False)
        return old

    def _forward(self, number: int, _frame: object) -> None:
        if self._status is None and hasattr(self, "pid"):
            if number != signal.SIGWINCH:
                self.forwarded = signal.Signals(number).name
            # In a shared group the terminal has sent these to the child itself.
            if not (self._terminal.shared and number in FROM_TERMINAL):
                self.signal(number)

    def signal(self, number: int) -> None:
        """To the child's whole group, as a terminal sends Ctrl-C."""
        with contextlib.suppress(OSError):
            if self._terminal.shared:
                os.kill(self.pid, number)
            else:
                os.killpg(self.pid, number)

    def wait(self, tick: Callable[[], None], period: float) -> int:
        """Until the child ends; `tick` every `period` seconds. Returns its wait status."""
        with selectors.DefaultSelector() as selector:
            selector.register(self._wake, selectors.EVENT_READ)
            for tee in self._tees:
                selector.register(tee.read_end, selectors.EVENT_READ, tee)
            while self._status is None:
                self._turn(selector, period)
                self._reap()
                tick()
        self._drain()
        self._terminal.take_back()
        return self._status

    def _turn(self, selector: selectors.BaseSelector, period: float) -> None:
        for key, _ in selector.select(period):
            tee = key.data
            if tee is None:
                with contextlib.suppress(BlockingIOError):
                    self._wake.recv(4096)
                continue
            read_end = tee.read_end
            tee.pump()
            if not tee.open:
                selector.unregister(read_end)

    def _reap(self) -> None:
        """Collect every status there is: the child's, and of orphans that came to us."""
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG | os.WUNTRACED)
            except ChildProcessError:
                return
            if pid == 0:
                return
            if os.WIFSTOPPED(status):
                # Without a terminal nobody would wake us: `kill -TSTP` stops the child only.
                by_terminal = os.WSTOPSIG(status) in (signal.SIGTSTP, signal.SIGTTIN)
                if pid == self.pid and by_terminal and self._terminal.descriptor is not None:
                    self._terminal.stop_with_child(self.pid)
            elif pid == self.pid:
                self._status = status
                self._process.returncode = os.waitstatus_to_exitcode(status)
            else:
                self.statuses[pid] = os.waitstatus_to_exitcode(status)

    def _drain(self) -> None:
        """What is still in the pipes; a daemon that keeps one open is not waited for."""
        for tee in self._tees:
            idle = 0
            while tee.open and idle < DRAIN_TURNS:
                if tee.pump():
                    idle = 0
                elif tee.open:
                    idle += 1
                    with selectors.DefaultSelector() as selector:
                        selector.register(tee.read_end, selectors.EVENT_READ)
                        selector.select(0.01)
            tee.leave_open()

    def close(self) -> None:
        """Give the signals back."""
        signal.set_wakeup_fd(-1)
        for number, handler in self._old_handlers.items():
            signal.signal(number, handler)  # type: ignore[arg-type]
        self._wake.close()
        self._waker.close()


def become_subreaper() -> None:
    """Orphans of the run become our children, so that their statuses can be read (Linux)."""
    if sys.platform == "linux":
        with contextlib.suppress(OSError, AttributeError):
            ctypes.CDLL(None).prctl(36, 1, 0, 0, 0)  # PR_SET_CHILD_SUBREAPER
