"""Runs one command and says what it cost; runs variants in turns; compares within each turn."""

from __future__ import annotations

import json
import os
import random
import statistics
import subprocess
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path


class Failed(Exception):
    """A measured command did not end as it should."""


@dataclass(frozen=True, slots=True)
class Cost:
    """Seconds. cpu: of the started process and all its descendants."""

    wall: float
    cpu: float
    step: float | None = None
    step_cpu: float | None = None


Round = dict[str, Cost]


def cost(command: Sequence[str], environment: Mapping[str, str], folder: Path) -> Cost:
    """Run it in `folder`, from its start to its exit; step times come from STEP_TIMES."""
    times = Path(environment.get("STEP_TIMES") or os.devnull)
    with tempfile.TemporaryFile() as output:
        began = time.perf_counter()
        process = subprocess.Popen(command, env=environment, cwd=folder, stdin=subprocess.DEVNULL,
                                   stdout=output, stderr=output)
        try:
            _, status, usage = os.wait4(process.pid, 0)
        except BaseException:
            process.terminate()  # our supervisor passes it on
            process.wait()
            raise
        wall = time.perf_counter() - began
        process.returncode = os.waitstatus_to_exitcode(status)
        if process.returncode:
            output.seek(0)
            tail = output.read().decode("utf-8", "replace")[-2000:]
            raise Failed(f"{' '.join(command)}: exit code {process.returncode}\n{tail}")
    step, step_cpu = _steps(times)
    return Cost(wall, usage.ru_utime + usage.ru_stime, step, step_cpu)


def _steps(times: Path) -> tuple[float | None, float | None]:
    if not times.is_file():
        return None, None
    told = json.loads(times.read_text(encoding="utf-8"))
    times.unlink()
    return told["median_ns"] * 1e-9, told["cpu_ns"] * 1e-9


def rounds(names: Sequence[str], count: int, seed: int, run: Callable[[str], Cost],
           say: Callable[[str], None] = lambda text: None) -> list[Round]:
    """`count` rounds; in each every variant runs once, in an order of its own.

    Ctrl-C ends them early: the complete ones are given back, if there are any.
    """
    order = random.Random(seed)
    done: list[Round] = []
    try:
        for number in range(1, count + 1):
            shuffled = list(names)
            order.shuffle(shuffled)
            say(f"round {number} of {count}: {', '.join(shuffled)}")
            done.append({name: run(name) for name in shuffled})
    except KeyboardInterrupt:
        if not done:
            raise
    return done


@dataclass(frozen=True, slots=True)
class Spread:
    """A median with what lies around it."""

    median: float
    low: float
    high: float
    minimum: float
    maximum: float
    count: int


def spread(values: Sequence[float]) -> Spread:
    quartiles = statistics.quantiles(values, n=4, method="inclusive") if len(values) > 1 else \
        [values[0]] * 3
    return Spread(statistics.median(values), quartiles[0], quartiles[2], min(values), max(values),
                  len(values))


def compared(done: Sequence[Round], name: str, field: str, base: str) -> dict[str, float] | None:
    """Ratios of `name` to `base`, each within one round; None where the field is absent."""
    pairs = [(getattr(one[name], field), getattr(one[base], field)) for one in done]
    if any(value is None or not reference for value, reference in pairs):
        return None
    return asdict(spread([value / reference for value, reference in pairs]))
