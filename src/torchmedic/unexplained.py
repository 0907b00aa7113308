"""What to say of a log in which no cause was found: all is well, or it does not carry the cause."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING

from torchmedic.failures import CUT_OFF, only_reports
from torchmedic.logs.completion import completed
from torchmedic.logs.lines import HEADER
from torchmedic.logs.tracebacks import GOT_OVER
from torchmedic.model import Finding, Verdict

if TYPE_CHECKING:
    from torchmedic.observed import Log

BAD = re.compile(
    r"Segmentation fault|core dumped|(?:^|\d |: )Killed\b(?! \w)|\bAborted\b|Bus error"
    r"|Fatal Python error"
    r"|killed by signal|[Ss]ignal (?:9|11|6|7)\b|SIG(?:KILL|SEGV|ABRT|BUS)"
    r"|(?:exit(?:ed)?[ _-]?(?:with )?(?:code|status)|exitcode) ?:? ?(?!0\b)-?\d"
    r"|return code ?=? ?(?!0\b)-?\d|\[ERROR\]|\b(?:CRITICAL|FATAL)\b"
    r"|Exiting due to|terminate called|ChildFailedError"
    r"|^\W*(?:ERROR|Error|error)\b(?!: pip's dependency|\W*[\d.]+(?:\s|$|%))"
    r"|^[\w.]*(?:Error|Exception)\b(?! ignored|\W*[\d.]+(?:\s|$|%))")
PROMPT = re.compile(r"^(?:\([\w.-]+\) ?)?[\w.-]+@[\w.-]+:[^$#]*[$#]"
                    r"|^PS [A-Z]:\\[^>]*>|^[A-Z]:\\[^>]*>")
UNREADABLE = 0.2
"""Share of characters that are none."""
BAR = re.compile(r"(\d+)%\|")
COUNT = re.compile(r"(?:epoch|step|iter\w*)\D{0,4}(\d+) ?(?:/|of) ?(\d+)", re.IGNORECASE)
MEMORY = re.compile(r"out of memory|oom|Cannot allocate", re.IGNORECASE)


def verdict(log: Log, findings: Sequence[Finding]) -> Verdict | None:
    """The verdict where no finding gives it; None where one does."""
    if any(finding.severity != "info" for finding in findings):
        return None
    shown = [line.strip() for line in log.lines if line.strip()]
    if not shown:
        return Verdict("unknown", None, "the log is empty")
    text = "".join(shown)
    if text.count("\ufffd") > UNREADABLE * len(text):
        return Verdict("unknown", None, "this is no text: a log in UTF-8 or UTF-16 is expected")
    done = completed(log.lines)
    after = shown if done is None else [line for line in log.lines[done:] if line.strip()]
    bad = next((line for line in reversed(after) if BAD.search(line) and not _ignored(line, log)),
               None)
    if bad is not None:
        return Verdict("unknown", None,
                       f"the log tells that something failed, not why: `{_short(bad)}`")
    if done is not None:
        return Verdict("none", None, "no failure found in this log")
    if any(HEADER in line for line in shown) and not log.failures:
        return Verdict("unknown", None, "the log ends inside a traceback: the exception is missing")
    if (where := _stopped(shown)) is not None:
        return Verdict("unknown", None, f"the log ends {where}, without an error: it does not say "
                                        "why")
    return Verdict("none", None, "no failure found in this log")


def _ignored(line: str, log: Log) -> bool:
    """Part of an exception that Python ignored, or of a loader's thread after the end."""
    if GOT_OVER.search(line):
        return True
    return any((f.swallowed or (f.thread and f.short_type in CUT_OFF and only_reports(f)))
               and line.startswith((f.type, f"Exception in thread {f.thread}"))
               for f in log.failures)


def _stopped(shown: Sequence[str]) -> str | None:
    """Where a log stops that was not meant to stop there."""
    prompt = PROMPT.match(shown[-1]) is not None and len(shown) > 1
    last = shown[-2] if prompt else shown[-1]
    if (bars := BAR.findall(last)) and int(bars[-1]) < 100:
        return f"at {bars[-1]} % of a progress bar"
    if not prompt:
        return None
    counts = [COUNT.search(line) for line in shown]
    told = [match for match in counts if match is not None]
    if told and int(told[-1][1]) < int(told[-1][2]):
        return f"at `{told[-1][0]}`"
    return None


def notes(log: Log) -> tuple[str, ...]:
    """What the log excludes, as far as it goes."""
    text = "\n".join(log.lines)
    absent = [what for what, there in (
        ("a Python exception", bool(log.failures)),
        ("a message about memory, of the GPU or the host", bool(MEMORY.search(text))),
        ("a line of the kernel or the scheduler about a kill", "ill" in text and
         re.search(r"\bkill", text, re.IGNORECASE) is not None),
    ) if not there]
    return (f"not in this log: {', '.join(absent)}",) if absent else ()


def next_checks(findings: Sequence[Finding], retry: str | None) -> tuple[str, ...]:
    """The commands that would tell more, most useful first."""
    own = [f.fix.command for f in findings if f.fix and f.fix.command]
    again = retry or "torchmedic run -- python YOUR_SCRIPT.py"
    rest = (f"{again}   # tells how and where it ends, also without a traceback",
            "dmesg -T | grep -i -E 'oom|killed process'   # did the kernel end it for memory?")
    return tuple(dict.fromkeys([*own, *rest]))


def _short(line: str) -> str:
    return line if len(line) <= 120 else line[:117].rstrip() + "..."
