"""What observing costs: the same training script bare and observed, in turns.

    python benchmarks/overhead.py --peers /some/folder --json overhead.json

Each cell is the median, over all rounds, of the ratio to the bare run of the same round, with its
quartiles in brackets and its extremes below. Nothing here fails on a time.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import machine
from measure import Cost, Failed, Round, compared, cost, rounds, spread
from variants import BARE, Variant, all_variants, environment, install_peers

WORKLOADS = Path(__file__).resolve().parent / "workloads"
FIELDS = {"step": "step", "step_cpu": "CPU per step", "wall": "process", "cpu": "CPU of the tree"}


@dataclass(frozen=True, slots=True)
class Workload:
    """A script that takes the number of its steps. budget: of step and process time."""

    name: str
    title: str
    steps: int
    quick: int
    budget: float


KNOWN = (
    Workload("tiny", "two-layer network, no loader", 18000, 200, 1.05),
    Workload("small", "convolutional network, DataLoader", 4000, 100, 1.02),
    Workload("convlstm", "examples/convlstm, one worker", 30, 2, 1.01),
)


def main(words: Sequence[str] | None = None) -> int:
    args = arguments(words)
    if args.install_peers:
        install_peers(args.peers)
    variants, missing = all_variants(args.peers)
    count = 2 if args.quick else args.rounds
    known = machine.facts()
    results = []
    try:
        for workload in KNOWN:
            if not args.workload or workload.name in args.workload:
                done = measured(workload, variants, count, args)
                results.append(summary(workload, variants, done))
    except Failed as failure:
        print(failure, file=sys.stderr)
        return 1
    known["load_after"] = machine.load()
    print(table(results, known, missing))
    if args.json:
        args.json.write_text(json.dumps({"machine": known, "results": results}, indent=1) + "\n",
                             encoding="utf-8")
    return 0


def arguments(words: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--scale", type=float, default=1.0, help="factor on the number of steps")
    parser.add_argument("--seed", type=int, default=0, help="of the order within the rounds")
    parser.add_argument("--workload", action="append", choices=[w.name for w in KNOWN])
    parser.add_argument("--peers", type=Path, metavar="DIR",
                        help="virtual environment with py-spy and train-doctor")
    parser.add_argument("--install-peers", action="store_true", help="make that environment first")
    parser.add_argument("--json", type=Path, metavar="FILE", help="all measurements, too")
    parser.add_argument("--quick", action="store_true", help="two short rounds: does it work?")
    args = parser.parse_args(words)
    if args.install_peers and not args.peers:
        parser.error("--install-peers needs --peers DIR")
    return args


def measured(workload: Workload, variants: Sequence[Variant], count: int,
             args: argparse.Namespace) -> list[Round]:
    """All rounds of one workload, after a short run of each variant that fills the caches."""
    prefixes = {variant.name: variant.prefix for variant in variants}
    wanted = workload.quick if args.quick else max(workload.quick, int(workload.steps * args.scale))
    with tempfile.TemporaryDirectory() as folder:
        here = Path(folder)

        def run(name: str, steps: int = 0) -> Cost:
            script = str(WORKLOADS / f"{workload.name}.py")
            number = steps or wanted
            command = [*prefixes[name], sys.executable, script, str(number)]
            return cost(command, environment(here / "times.json"), here)

        for name in prefixes:
            run(name, workload.quick)
        return rounds(list(prefixes), count, args.seed, run,
                      lambda text: print(f"{workload.name}: {text}", file=sys.stderr))


def summary(workload: Workload, variants: Sequence[Variant],
            done: list[Round]) -> dict[str, object]:
    return {
        "workload": workload.name, "title": workload.title, "budget": workload.budget,
        "rounds": [{name: asdict(one) for name, one in turn.items()} for turn in done],
        "bare": {field: asdict(spread([getattr(turn[BARE.name], field) for turn in done]))
                 for field in FIELDS},
        "ratios": {variant.name: {field: compared(done, variant.name, field, BARE.name)
                                  for field in FIELDS}
                   for variant in variants if variant is not BARE},
    }


def table(results: Sequence[dict], known: dict, missing: Sequence[str]) -> str:
    """Markdown."""
    head = ["workload", "variant", *FIELDS.values(), "budget"]
    lines = ["| " + " | ".join(head) + " |", "|---" * len(head) + "|"]
    for result in results:
        lines.append(bare_row(result))
        lines += [ratio_row(result, name) for name in result["ratios"]]
    facts = machine.sentence(known) + f" before and {known['load_after']} after"
    counts = " and ".join(sorted({str(len(result["rounds"])) for result in results}))
    notes = [f"{counts} rounds; {facts}.", *missing]
    return "\n".join(lines) + "\n\n" + "\n".join(notes)


def bare_row(result: dict) -> str:
    """Absolute times, so that a ratio can be judged."""
    units = {"step": (1e3, "ms"), "step_cpu": (1e3, "ms"), "wall": (1, "s"), "cpu": (1, "s")}
    cells = []
    for field, (factor, unit) in units.items():
        one = result["bare"][field]
        cells.append(f"{one['median'] * factor:.3g} {unit} "
                     f"({one['low'] * factor:.3g} to {one['high'] * factor:.3g})")
    return f"| {result['title']} | bare | {' | '.join(cells)} | |"


def ratio_row(result: dict, name: str) -> str:
    cells = []
    for field in FIELDS:
        one = result["ratios"][name][field]
        cells.append("" if one is None else
                     f"**{one['median']:.3f}** ({one['low']:.3f} to {one['high']:.3f}; "
                     f"{one['minimum']:.2f} … {one['maximum']:.2f})")
    return f"| | {name} | {' | '.join(cells)} | {result['budget']:.2f} |"


if __name__ == "__main__":
    sys.exit(main())
