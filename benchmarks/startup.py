"""What it costs before the first line of the script, and after its last one.

    python benchmarks/startup.py            medians of interleaved pairs
    python benchmarks/startup.py --check    exit code 1 when a CPU-time budget is far exceeded
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import machine
from measure import Cost, Round, Spread, cost, rounds, spread
from variants import OURS, SOURCE, environment

SLACK = 2.0  # A busy machine doubles even CPU time: caches are cold, two threads share a core.

PYTHON, TORCHMEDIC = sys.executable, (sys.executable, "-m", "torchmedic")
PAYLOAD = SOURCE / "torchmedic" / "probes"
TORCH = "import torch"


@dataclass(frozen=True, slots=True)
class Case:
    """One command. observed: it starts our observer itself, without a supervisor."""

    name: str
    command: tuple[str, ...]
    observed: bool = False


@dataclass(frozen=True, slots=True)
class Budget:
    """CPU seconds that `case` may use more than `base`, and why no more."""

    case: str
    base: str | None
    seconds: float
    reason: str


CASES = (
    Case("python -c pass", (PYTHON, "-c", "pass")),
    Case("python -c pass, observed", (PYTHON, "-c", "pass"), observed=True),
    Case("import torch", (PYTHON, "-c", TORCH)),
    Case("import torch, observed", (PYTHON, "-c", TORCH), observed=True),
    Case("torchmedic run, import torch", (*OURS.prefix, PYTHON, "-c", TORCH)),
    Case("torchmedic run, pass", (*OURS.prefix, PYTHON, "-c", "pass")),
    Case("torchmedic --version", (*TORCHMEDIC, "--version")),
    Case("torchmedic rules", (*TORCHMEDIC, "rules")),
)
BUDGETS = (
    Budget("python -c pass, observed", "python -c pass", 0.015,
           "every Python process of a run pays it: launchers, helpers, compilers' workers"),
    Budget("import torch, observed", "import torch", 0.150,
           "a tenth of what importing torch takes: not noticed"),
    Budget("torchmedic --version", None, 0.150,
           "editors and shells' completions ask for it"),
)


def main(words: Sequence[str] | None = None) -> int:
    args = arguments(words)
    needed = checked_names() if args.check else [case.name for case in CASES]
    known = machine.facts()
    done = measured(needed, 7 if args.check else args.rounds, args.seed)
    known["load_after"] = machine.load()
    print(table(done))
    print(f"\n{len(done)} rounds; {machine.sentence(known)} before, {known['load_after']} after.")
    if args.json:
        costs = [{n: [c.wall, c.cpu] for n, c in turn.items()} for turn in done]
        args.json.write_text(json.dumps({"machine": known, "rounds": costs}) + "\n",
                             encoding="utf-8")
    return int(too_slow(done)) if args.check else 0


def arguments(words: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--seed", type=int, default=0, help="of the order within the rounds")
    parser.add_argument("--check", action="store_true", help="only hold the budgets of CPU time")
    parser.add_argument("--json", type=Path, metavar="FILE", help="all measurements, too")
    return parser.parse_args(words)


def checked_names() -> list[str]:
    asked = {name for budget in BUDGETS for name in (budget.case, budget.base)}
    return [case.name for case in CASES if case.name in asked]


def measured(names: Sequence[str], count: int, seed: int) -> list[Round]:
    """All rounds, after one run of each command that fills the caches."""
    cases = {case.name: case for case in CASES}
    with tempfile.TemporaryDirectory() as folder:
        here = Path(folder)

        def run(name: str) -> Cost:
            case = cases[name]
            return cost(case.command, surroundings(case, here), here)

        for name in names:
            run(name)
        return rounds(names, count, seed, run)


def surroundings(case: Case, folder: Path) -> dict[str, str]:
    """As the supervisor sets them, where there is none."""
    kept = environment(folder / "none")
    if case.observed:
        (folder / "spool").mkdir(exist_ok=True)
        kept["PYTHONPATH"] = f"{PAYLOAD / 'boot'}:{kept['PYTHONPATH']}"
        kept["TORCHMEDIC_RUN"] = str(folder / "spool")
        kept["TORCHMEDIC_BOOT"] = str(PAYLOAD / "bootstrap.py")
    return kept


def extra(done: Sequence[Round], case: str, base: str | None, field: str) -> Spread:
    """Seconds more than `base` in the same round."""
    return spread([getattr(turn[case], field) - (getattr(turn[base], field) if base else 0.0)
                   for turn in done])


BASE = {"python -c pass, observed": "python -c pass", "torchmedic run, pass": "python -c pass",
        "import torch, observed": "import torch", "torchmedic run, import torch": "import torch"}


def table(done: Sequence[Round]) -> str:
    """Markdown, milliseconds."""
    lines = ["| command | wall | CPU | wall more than bare | CPU more than bare |",
             "|---|---|---|---|---|"]
    for name in (case.name for case in CASES if case.name in done[0]):
        cells = [in_ms(extra(done, name, None, field)) for field in ("wall", "cpu")]
        if base := BASE.get(name):
            cells += [in_ms(extra(done, name, base, field)) for field in ("wall", "cpu")]
        else:
            cells += ["", ""]
        lines.append(f"| `{name}` | {' | '.join(cells)} |")
    return "\n".join(lines)


def in_ms(one: Spread) -> str:
    return f"{one.median * 1e3:.1f} ms ({one.low * 1e3:.1f} to {one.high * 1e3:.1f})"


def too_slow(done: Sequence[Round]) -> bool:
    """Says which budgets are exceeded; the lower quartile decides, as noise only adds."""
    failed = False
    for budget in BUDGETS:
        used = extra(done, budget.case, budget.base, "cpu").low
        over = used > budget.seconds * SLACK
        failed |= over
        print(f"{'TOO SLOW' if over else 'ok'}: {budget.case}: {used * 1e3:.1f} ms of CPU, "
              f"budget {budget.seconds * 1e3:.0f} ms, limit ×{SLACK:g} ({budget.reason})")
    return failed


if __name__ == "__main__":
    sys.exit(main())
