"""Damaged logs: whatever is lost or mixed in, `explain` answers and does not fail."""

from __future__ import annotations

import io
import random
import re

import pytest

from torchmedic import barelines, registry, unexplained
from torchmedic.diagnosis import conclude, diagnose_log
from torchmedic.logs import stream
from torchmedic.logs.commandline import command_in
from torchmedic.logs.tracebacks import read_log

LOGS = [example.text for _, _, example in registry.cases() if example.kind == "log"]
HEADER = "Traceback (most recent call last):"
ROUNDS = 150


def answered(data: bytes):
    """Verdict and findings, as the command makes them."""
    excerpt = stream.read(io.BytesIO(data))
    log = read_log(excerpt.lines)
    notes: list[str] = []
    rules = registry.rules()
    found = diagnose_log(log, rules, notes)
    if not found:
        found = barelines.diagnose(log, rules)
    assert notes == [], notes
    command_in(log.lines)
    diagnosis = conclude("explain", found)
    return unexplained.verdict(log, found) or diagnosis.verdict, found


def cut(random: random.Random, text: str) -> str:
    start = random.randrange(len(text))
    return text[start:start + random.randrange(len(text))]


def thinned(random: random.Random, text: str) -> str:
    return "\n".join(line for line in text.split("\n") if random.random() < 0.7)


def interleaved(random: random.Random, text: str) -> str:
    others = iter(random.choice(LOGS).split("\n"))
    lines = []
    for line in text.split("\n"):
        lines.append(line)
        if random.random() < 0.5:
            lines.append(next(others, ""))
    return "\n".join(lines)


def junk(random: random.Random, text: str) -> str:
    at = random.randrange(len(text))
    return text[:at] + "".join(map(chr, random.choices(range(1, 0x2FF), k=30))) + text[at:]


def repeated(random: random.Random, text: str) -> str:
    line = random.choice(text.split("\n"))
    return text.replace(line, line * 300, 1)


@pytest.mark.parametrize("damage", [cut, thinned, interleaved, junk, repeated],
                         ids=lambda damage: damage.__name__)
def test_damaged_logs_are_answered(damage):
    generator = random.Random(7)
    for number in range(ROUNDS):
        text = damage(generator, LOGS[number % len(LOGS)])
        answered(text.encode("utf-8", "replace"))


def test_bytes_are_answered():
    generator = random.Random(7)
    for _ in range(40):
        data = bytearray(generator.choice(LOGS).encode())
        for _ in range(20):
            data[generator.randrange(len(data))] = generator.randrange(256)
        answered(bytes(data))


def test_a_traceback_without_its_end_is_no_certainty():
    """What comes before the exception says only where it was."""
    for text in LOGS:
        at = text.rfind(HEADER)
        frames = re.match(r"(?:  .*\n)+", text[at + len(HEADER) + 1:]) if at >= 0 else None
        if frames is None or at != text.find(HEADER):
            continue
        verdict, found = answered((HEADER + "\n" + frames[0]).encode())
        assert verdict.category == "unknown", text
        assert not [f for f in found if f.confidence == "certain"], text
