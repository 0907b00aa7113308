"""Exceptions of which a log holds a line alone: within a record, or without their type."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from torchmedic.diagnosis import diagnose_log
from torchmedic.logs.completion import completed
from torchmedic.logs.told import told
from torchmedic.observed import Failure, Log

if TYPE_CHECKING:
    from torchmedic.model import Finding, Rule

WITHIN = re.compile(r"(?<![\w.])(?P<type>(?:[a-z_]\w*\.)*[A-Z]\w*(?:Error|Exception))"
                    r"(?:: |[:：]\s?(?=[A-Z\[]))"
                    r"(?P<text>\S.*)")
GOT_OVER = re.compile(r"warning|skipp|retry|ignor|recover", re.IGNORECASE)
FEW = 60
"""Lines of a log that may be no more than somebody's account of a failure."""
SHORTEST = 20
WRAPPED = 3
"""Lines that one message may cover."""


def diagnose(log: Log, rules: Sequence[Rule]) -> tuple[Finding, ...]:
    """What rules that know an exception say about such lines: likely at best."""
    failures = tuple(_failures(log))
    if not failures:
        return ()
    asked = [replace(rule, in_log=None) for rule in rules
             if rule.in_failure is not None and rule.level != "fallback"]
    found = diagnose_log(Log(log.lines, failures, log.source), asked)
    return tuple(replace(f, confidence="likely") if f.confidence == "certain" else f
                 for f in found)


def _failures(log: Log) -> Iterator[Failure]:
    if completed(log.lines) is not None:
        return
    filled = [number for number, line in enumerate(log.lines, 1) if line.strip()]
    for number in filled:
        line = log.lines[number - 1].strip()
        if GOT_OVER.search(line):
            continue
        if match := WITHIN.search(line):
            yield _failure(log, number, match["type"], match["text"])
        elif len(filled) <= FEW and len(line) >= SHORTEST:
            text = "\n".join(log.lines[number - 1:number - 1 + WRAPPED])
            yield _failure(log, number, "Error", text)


def _failure(log: Log, number: int, kind: str, message: str) -> Failure:
    settings = told(log.lines, number) if "out of memory" in message else None
    return Failure(key=f"log:{number}", type=kind, message=message.strip(), how="logged",
                   line_number=number, told=settings)
