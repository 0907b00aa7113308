"""What a workload tells of its own steps: written at its end, never printed."""

from __future__ import annotations

import json
import os
import statistics
import time
from itertools import pairwise

WARM_UP = 0.1  # share of the steps that is left out: caches, lazy imports, first allocations


class Stopwatch:
    """Wall time of each step and CPU time of all of them, from inside the loop."""

    def __init__(self) -> None:
        self._marks: list[int] = []
        self._warm = (0, 0)

    def mark(self, expected: int) -> None:
        """Once per step, at the same place of the loop; `expected` steps in all."""
        self._marks.append(time.perf_counter_ns())
        if len(self._marks) == max(1, int(expected * WARM_UP)):
            self._warm = (len(self._marks), time.process_time_ns())

    def write(self) -> None:
        """To the file named by STEP_TIMES, if any."""
        count, cpu = self._warm
        steps = len(self._marks) - count
        cpu_used = time.process_time_ns() - cpu
        marks = self._marks[count - 1 :]
        times = [after - before for before, after in pairwise(marks)]
        if path := os.environ.get("STEP_TIMES"):
            with open(path, "w", encoding="utf-8") as file:
                json.dump({
                    "steps": steps, "median_ns": statistics.median(times),
                    "mean_ns": statistics.fmean(times), "cpu_ns": cpu_used / steps,
                }, file)
