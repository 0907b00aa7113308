"""How processes ended, as shells, launchers and schedulers print it in a log."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from torchmedic.logtext import Hit

if TYPE_CHECKING:
    from torchmedic.observed import Log

NUMBERS = {1: "SIGHUP", 2: "SIGINT", 4: "SIGILL", 6: "SIGABRT", 7: "SIGBUS", 8: "SIGFPE",
           9: "SIGKILL", 11: "SIGSEGV", 15: "SIGTERM"}
WORDS = {"killed": "SIGKILL", "segmentation fault": "SIGSEGV", "aborted": "SIGABRT",
         "bus error": "SIGBUS", "terminated": "SIGTERM", "hangup": "SIGHUP",
         "floating point exception": "SIGFPE", "illegal instruction": "SIGILL"}
_WORD = "|".join(WORDS)
_WORKER = re.compile(rf"DataLoader worker \(pid\(?s?\)?:? ?(?P<pid>\d+)\) is killed by signal: "
                     rf"(?P<word>{_WORD})|[Uu]nexpected (?P<word2>{_WORD}) encountered in worker",
                     re.IGNORECASE)
_SHELL = re.compile(
    rf"(?:^|: |\d )(?:\[\d+\]\s*[+-]?\s*(?:\d+ )?)?(?P<word>{_WORD})(?: ?\(core dumped\))?"
    r"(?:\s*$|\s{2,}\S|\s+(?:python|torchrun|\")|:? \d+$)", re.IGNORECASE)
_ZSH = re.compile(rf"^zsh: (?P<word>{_WORD}|abort|segmentation fault)", re.IGNORECASE)
_CODE = re.compile(
    r"(?:exit(?:ed)?[ _]?(?:with )?(?:exit )?(?:code|status)|exitcode|return(?:ed)? ?code"
    r"|non-zero exit status|ExitCode)[^\w-]{1,4}(?P<code>-?\d{1,10})\b", re.IGNORECASE)
_SIGNAL = re.compile(
    r"(?:[Ss]ignal |[Ss]ignals?\.|got signal: ?|death signal |signal: )(?P<number>\d{1,2})?\W{0,2}"
    r"(?P<name>SIG[A-Z]+)?")
_STOPPING = re.compile(r"[Ss]ending process|closing signal|Handle SLURM|SLURM handle"
                       r"|Received signal \d+ \(SIGUSR|signal handle|signal_handl|handle signal")
_WINDOWS = {-1073741819: "access violation", 3221225477: "access violation",
            -1073740791: "stack buffer overrun", 3221226505: "stack buffer overrun",
            -1073741571: "stack overflow", 3221225725: "stack overflow",
            -1073740940: "heap corruption", 3221226356: "heap corruption"}


@dataclass(frozen=True, slots=True)
class End:
    """A process was ended. signal: its name; for Windows what the code means."""

    signal: str
    hit: Hit
    worker: bool = False


def ends(log: Log) -> tuple[End, ...]:
    """In the order of the log."""
    return tuple(_ends(log))


def _ends(log: Log) -> Iterator[End]:
    for number, line in enumerate(log.lines, 1):
        if len(line) > 2000 or _STOPPING.search(line):
            continue
        if match := _WORKER.search(line):
            yield End(WORDS[(match["word"] or match["word2"]).lower()], Hit(number, line, match),
                      worker=True)
        elif (match := _SHELL.search(line) or _ZSH.search(line)) is not None:
            word = match["word"].lower()
            yield End(WORDS.get(word, "SIGABRT"), Hit(number, line, match))
        else:
            yield from _numbered(number, line)


def _numbered(number: int, line: str) -> Iterator[End]:
    """An exit code or a signal's number."""
    for pattern, read in ((_CODE, _of_code), (_SIGNAL, _of_signal)):
        match = pattern.search(line)
        if match is not None and (name := read(match)) is not None:
            yield End(name, Hit(number, line, match))
            return


def _of_code(match: re.Match[str]) -> str | None:
    code = int(match["code"])
    if code in _WINDOWS:
        return _WINDOWS[code]
    return NUMBERS.get(-code) or (NUMBERS.get(code - 128) if code > 128 else None)


def _of_signal(match: re.Match[str]) -> str | None:
    if match["name"] in NUMBERS.values():
        return str(match["name"])
    return NUMBERS.get(int(match["number"])) if match["number"] else None
