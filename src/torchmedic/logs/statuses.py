"""Exit codes that shells and launchers print about the processes below them."""

from __future__ import annotations

import re
import signal

# bash: `train.sh: line 3: 4711 Killed    python train.py`; dash: `Killed` alone, without a number.
_SHELL = re.compile(
    r"(?:^|: )\s*(?P<pid>\d+) (?P<what>Killed|Segmentation fault|Aborted|Bus error|Terminated"
    r"|Floating point exception|Illegal instruction|Hangup)\b", re.MULTILINE)
_NAMES = {
    "Killed": signal.SIGKILL, "Segmentation fault": signal.SIGSEGV, "Aborted": signal.SIGABRT,
    "Bus error": signal.SIGBUS, "Terminated": signal.SIGTERM, "Hangup": signal.SIGHUP,
    "Floating point exception": signal.SIGFPE, "Illegal instruction": signal.SIGILL,
}
# torchrun's summary, and its message while it stops the others.
_ELASTIC = re.compile(r"exitcode\s*: (?P<code>-?\d+) \(pid: (?P<pid>\d+)\)")


def told_exit_codes(text: str) -> dict[int, int]:
    """pid → exit code, negative for a signal, as `subprocess` gives it."""
    codes = {int(m["pid"]): -int(_NAMES[m["what"]]) for m in _SHELL.finditer(text)}
    codes.update({int(m["pid"]): int(m["code"]) for m in _ELASTIC.finditer(text)})
    return codes
