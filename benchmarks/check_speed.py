"""How many files a second of CPU time `check` reads, beside the checkers that come closest.

    python benchmarks/check_speed.py TREE --install-peers --peers /some/folder

All read the same tree in the same rounds: ours in one process and without its cache. Below that,
what `check` and `explain` of one small file cost from start to end. Nothing here fails on a time.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import machine
from measure import Cost, Failed, Round, compared, cost, rounds, spread
from variants import environment

TORCHMEDIC = (sys.executable, "-m", "torchmedic")
PEERS = ("torch-preflight==0.5.0", "torchfix==0.7.0")
FOUND = 'out=$("$@" 2>&1); code=$?; [ "$code" -le 1 ] || { echo "$out"; exit "$code"; }'
"""Checkers end with 1 when they found something."""
SMALL = """import torch
from torch import nn

model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 3))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for epoch in range(3):
    loss = nn.functional.cross_entropy(model(torch.randn(4, 4)), torch.tensor([0, 1, 2, 0]))
    loss.backward()
    optimizer.step()
"""
LOG = """Traceback (most recent call last):
  File "train.py", line 8, in <module>
    loss = nn.functional.cross_entropy(model(x), y)
RuntimeError: mat1 and mat2 shapes cannot be multiplied (4x5 and 4x8)
"""


@dataclass(frozen=True, slots=True)
class Tool:
    name: str
    command: tuple[str, ...]


def main(words: Sequence[str] | None = None) -> int:
    args = arguments(words)
    if args.install_peers:
        install(args.peers)
    known = machine.facts()
    try:
        files = sum(1 for _ in args.tree.rglob("*.py"))
        tools, missing = all_tools(args.tree.resolve(), args.peers)
        trees = measured(tools, args.rounds, args.seed)
        starts = measured(starting(), args.start_rounds, args.seed)
    except Failed as failure:
        print(failure, file=sys.stderr)
        return 1
    print(table(trees, files))
    print(*missing, sep="\n")
    print(start_table(starts))
    print(f"\n{len(trees)} and {len(starts)} rounds; {machine.sentence(known)}.")
    if args.json:
        told = {"machine": known, "files": files, "tree": plain(trees), "start": plain(starts)}
        args.json.write_text(json.dumps(told, indent=1) + "\n", encoding="utf-8")
    return 0


def arguments(words: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tree", type=Path, help="a folder of Python files")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--start-rounds", type=int, default=15)
    parser.add_argument("--seed", type=int, default=0, help="of the order within the rounds")
    parser.add_argument("--peers", type=Path, metavar="DIR",
                        help="virtual environment with torch-preflight and TorchFix")
    parser.add_argument("--install-peers", action="store_true", help="make that environment first")
    parser.add_argument("--json", type=Path, metavar="FILE", help="all measurements, too")
    args = parser.parse_args(words)
    if args.install_peers and not args.peers:
        parser.error("--install-peers needs --peers DIR")
    if not args.tree.is_dir():
        parser.error(f"{args.tree} is no folder")
    return args


def install(folder: Path) -> None:
    subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True)
    subprocess.run([str(folder / "bin" / "pip"), "install", "--quiet", *PEERS], check=True)


def all_tools(tree: Path, peers: Path | None) -> tuple[list[Tool], list[str]]:
    """What can be measured here, and a line for each peer that can't."""
    found = [Tool("torchmedic", (*TORCHMEDIC, "check", "--no-cache", "--jobs", "1", "--isolated",
                                 "--output-format", "concise", str(tree)))]
    missing = []
    for name, words in (("torch-preflight", ("check",)), ("torchfix", ())):
        program = peers and peers.resolve() / "bin" / name
        if program and program.exists():
            found.append(Tool(name, (str(program), *words, str(tree))))
        else:
            missing.append(f"{name}: not measured, it is not in the folder of --peers")
    return found, missing


def starting() -> list[Tool]:
    """`check` and `explain` of one small file, for each kind of format."""
    return [Tool("python -c pass", (sys.executable, "-c", "pass")), *(
        Tool(f"{command} ({form})", (*TORCHMEDIC, command, name, "--output-format", form))
        for command, name in (("check", "small.py"), ("explain", "small.log"))
        for form in ("json", "concise", "sarif", "full"))]


def measured(tools: Sequence[Tool], count: int, seed: int) -> list[Round]:
    """All rounds, after one run of each tool that fills the caches of files and bytecode."""
    commands = {tool.name: ("sh", "-c", FOUND, "sh", *tool.command) for tool in tools}
    with tempfile.TemporaryDirectory() as folder:
        here = Path(folder)
        (here / "small.py").write_text(SMALL, encoding="utf-8")
        (here / "small.log").write_text(LOG, encoding="utf-8")
        surroundings = dict(environment(here / "none"), FORCE_COLOR="1")
        surroundings.pop("PYTHONDONTWRITEBYTECODE", None)

        def run(name: str) -> Cost:
            return cost(commands[name], surroundings, here)

        for name in commands:
            run(name)
        return rounds(list(commands), count, seed, run,
                      lambda text: print(text, file=sys.stderr))


def table(done: list[Round], files: int) -> str:
    lines = ["| checker | files per CPU second | CPU time against ours | wall |",
             "|---|---|---|---|"]
    for name in done[0]:
        rate = spread([files / turn[name].cpu for turn in done])
        ratio = compared(done, name, "cpu", "torchmedic") or {}
        wall = spread([turn[name].wall for turn in done])
        lines.append(f"| {name} | {rate.median:.1f} ({rate.minimum:.1f} to {rate.maximum:.1f}) | "
                     f"{ratio['median']:.1f} | {wall.median:.1f} s |")
    return "\n".join([f"{files} files", "", *lines])


def start_table(done: list[Round]) -> str:
    lines = ["", "| one small file | CPU, median | least to most |", "|---|---|---|"]
    for name in done[0]:
        cpu = spread([turn[name].cpu * 1e3 for turn in done])
        lines.append(f"| {name} | {cpu.median:.0f} ms | {cpu.minimum:.0f} to {cpu.maximum:.0f} |")
    return "\n".join(lines)


def plain(done: list[Round]) -> list[dict[str, list[float]]]:
    return [{name: [c.wall, c.cpu] for name, c in turn.items()} for turn in done]


if __name__ == "__main__":
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    sys.exit(main())
