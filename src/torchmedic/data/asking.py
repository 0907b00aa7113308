"""Asks the user's interpreter what needs torch: a model's tensors, a checkpoint's values."""

from __future__ import annotations

import json
import re
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torchmedic.observed.weights import Stored
from torchmedic.output import UserError

FACTORY = re.compile(r"[^\W\d]\w*(\.[^\W\d]\w*)*:[^\W\d]\w*(\.[^\W\d]\w*)*")


@dataclass(frozen=True, slots=True)
class Model:
    """tied: keys that share memory with an earlier key."""

    name: str
    tensors: dict[str, Stored]
    tied: dict[str, str]


def model(factory: str, arguments: str | None, python: str) -> Model:
    """The model that a factory builds, in a process of its own."""
    if not FACTORY.fullmatch(factory):
        raise UserError(f"--model is MODULE:FACTORY, such as net.resnet:build, not {factory!r}")
    try:
        given = json.loads(arguments or "[]")
    except (ValueError, RecursionError) as error:
        raise UserError(f"--model-args is not JSON: {error}") from None
    if not isinstance(given, (dict, list)):
        raise UserError("--model-args must be a JSON object or list")
    told = _asked(python, "build_model.py", factory, json.dumps(given),
                  what=f"can't build {factory}")
    tensors = {str(k): Stored(tuple(shape), dtype) for k, (shape, dtype) in told["tensors"].items()}
    return Model(factory if not told["name"] else str(told["name"]), tensors, told["tied"])


def not_finite(file: Path, python: str) -> tuple[int, tuple[tuple[str, int, int], ...]]:
    """How many tensors were read, and those that hold NaN or Inf, with how many."""
    told = _asked(python, "read_values.py", str(file.resolve()),
                  what=f"can't read the values of {file}")
    return int(told["tensors"]), tuple((str(k), int(n), int(i)) for k, n, i in told["bad"])


def _asked(python: str, script: str, *arguments: str, what: str) -> dict[str, Any]:
    command = [python, str(Path(__file__).parent / script), *arguments]
    try:
        done = subprocess.run(command, capture_output=True, check=False, stdin=subprocess.DEVNULL)
    except OSError as error:
        raise UserError(f"can't start {python}: {error.strerror or error}") from None
    try:
        if done.returncode == 0:
            told = json.loads(done.stdout)
            assert isinstance(told, dict)
            return told
    except ValueError:
        pass
    lines = [line for line in done.stderr.decode("utf-8", "replace").splitlines() if line.strip()]
    last = lines[-1] if lines else f"exit code {done.returncode}"
    raise UserError(f"{what}: {last}")
