"""The ways to start one and the same script: bare, supervised by us, under other observers."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

SOURCE = Path(__file__).resolve().parents[1] / "src"
PEERS = ("py-spy==0.4.3", "train-doctor==0.2.0")
FOREVER = "1000000000"


@dataclass(frozen=True, slots=True)
class Variant:
    """`prefix` goes before the interpreter and its script."""

    name: str
    prefix: tuple[str, ...] = ()


BARE = Variant("bare")
OURS = Variant("torchmedic run", (sys.executable, "-m", "torchmedic", "run", "--"))


def py_spy(program: Path) -> Variant:
    """A sampling profiler that reads the process from outside."""
    return Variant("py-spy record", (
        str(program), "record", "-o", os.devnull, "-f", "raw", "--"))


def train_doctor(program: Path) -> Variant:
    """The closest peer: it too observes an unmodified script through sitecustomize.

    Its defaults end the run after 50 steps and trace 5 more with torch.profiler; here it watches
    the whole run, as we do.
    """
    return Variant("train-doctor profile", (
        str(program), "profile", "--steps", FOREVER, "--seconds", "0", "--profiler-steps", "0",
        "--timeout", "3600", "--"))


def all_variants(peers: Path | None) -> tuple[list[Variant], list[str]]:
    """What can be measured here, and a line for each peer that can't."""
    found, missing = [BARE, OURS], []
    for name, make in (("py-spy", py_spy), ("train-doctor", train_doctor)):
        program = peers and peers.resolve() / "bin" / name
        if program and program.exists():
            found.append(make(program))
        else:
            missing.append(f"{name}: not measured, it is not in the folder of --peers")
    return found, missing


def install_peers(folder: Path) -> None:
    """A virtual environment of their own: neither needs torch beside it."""
    subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True)
    subprocess.run([str(folder / "bin" / "pip"), "install", "--quiet", *PEERS], check=True)


def environment(times: Path) -> dict[str, str]:
    """The same for every variant. Byte code is kept, as it is of an installed package."""
    kept = {k: v for k, v in os.environ.items() if not k.startswith("TORCHMEDIC_")}
    kept.pop("PYTHONDONTWRITEBYTECODE", None)
    theirs = kept.get("PYTHONPATH")
    kept["PYTHONPATH"] = f"{SOURCE}{os.pathsep}{theirs}" if theirs else str(SOURCE)
    return kept | {"OMP_NUM_THREADS": "1", "STEP_TIMES": str(times)}
