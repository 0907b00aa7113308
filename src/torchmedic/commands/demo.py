"""`torchmedic demo`: a real training that stops without a word, diagnosed, then mended."""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from torchmedic.output import UserError

SUMMARY = "watch a real training stop without a word, read why, and see it mended"
NEEDED = {"torch": "torch", "numpy": "numpy", "av": "av", "skvideo": "scikit-video", "tqdm": "tqdm"}
FAULTY = ("faulty/silent_stop.py", "--epochs", "1", "--max-batches", "12")
FIXED = ("train.py", "--epochs", "3")
EXPECTED = "recurrent-input-size"


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--quick", action="store_true",
                        help="train the mended program on a few batches only")


def execute(args: argparse.Namespace) -> int:
    folder = examples() / "convlstm"
    missing = [package for module, package in NEEDED.items()
               if importlib.util.find_spec(module) is None]
    if missing:
        raise UserError("the demo trains on real clips and needs " + ", ".join(missing)
                        + ": pip install 'torchmedic[demo]'")
    _say("A 3D-CNN + LSTM learns from real video clips. This one stops in its second batch:\n"
         "no error, no traceback, exit code 0.")
    found, _ = _run(folder, FAULTY)
    if found != EXPECTED:
        _say(f"the demo expected {EXPECTED} and got {found}: please report this")
        return 1
    _say("With the fix, each frame's map pooled to 1x1, the same program trains:")
    found, code = _run(folder, (*FIXED, "--max-batches", "8") if args.quick else FIXED)
    return 0 if found is None and code == 0 else 1


def examples() -> Path:
    """The example programs: inside the installed package, or beside it in a checkout."""
    here = Path(__file__).resolve().parent.parent
    for folder in (here / "examples", here.parent.parent / "examples"):
        if (folder / "convlstm" / "train.py").exists():
            return folder
    raise UserError("the example programs are not part of this installation")


def _run(folder: Path, words: tuple[str, ...]) -> tuple[str | None, int]:
    """The rule of the verdict, and the exit code. The program runs as a person would run it."""
    script, *options = words
    shown = Path(os.path.relpath(folder / script))
    with tempfile.TemporaryDirectory(prefix="torchmedic-demo-") as scratch:
        command = [sys.executable, str(shown), *options, "--out", scratch]
        print(f"\n$ torchmedic run -- python {shown} {' '.join(options)}\n", flush=True)
        code = subprocess.run([sys.executable, "-m", "torchmedic", "run", "--", *command]
                              ).returncode
    from torchmedic import store

    report = json.loads((store.find("last").path / store.REPORT).read_text(encoding="utf-8"))
    return report["verdict"].get("rule"), code


def _say(text: str) -> None:
    print("\n" + text, flush=True)
