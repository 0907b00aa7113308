"""The faulty programs of `examples/convlstm`, each diagnosed by its rule; the right one is clean."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

FOLDER = Path(__file__).resolve().parents[2] / "examples" / "convlstm"
TINY = ("--width", "0.125", "--frames", "8", "--size", "32", "--max-batches", "4", "--epochs", "1")
needs = pytest.mark.skipif(
    any(importlib.util.find_spec(name) is None for name in ("torch", "av", "skvideo", "tqdm")),
    reason="needs torchmedic[demo]")


@dataclass(frozen=True)
class Expected:
    """What the report of one faulty program must say."""

    program: str
    rule: str
    says: tuple[str, ...]
    file: str
    batch: int | None = 2
    module: str | None = None
    exit_code: int = 0
    frames: str = "8"


EXPECTED = (
    Expected("lstm_input_size", "recurrent-input-size",
             ("LSTM `lstm` expects 32 features and gets 128 = 32 channels × 2 × 2",
              "input_size=128", "1×1"), "model.py", 1, "lstm", 1),
    Expected("silent_stop", "recurrent-input-size",
             ("LSTM `lstm` expects 32 features and gets 128 = 32 channels × 2 × 2",
              "was swallowed by `except Exception: break`"), "model.py", 2, "lstm"),
    Expected("worker_killed", "worker-killed", ("SIGKILL", "batch 2"), "worker_killed.py",
             exit_code=1),
    Expected("exit_in_helper", "exited-early", ("sys.exit(0)", "in batch 2"),
             "exit_in_helper.py"),
    Expected("native_crash", "native-crash", ("SIGSEGV", "string_at"), "native_crash.py", 2,
             "normalize", 139),
    Expected("hidden_state_smaller_batch", "hidden-state-size", ("(1, 4, 64)", "[1, 8, 64]"),
             "hidden_state_smaller_batch.py", 2, "lstm", 1),
    Expected("hidden_state_graph", "recurrent-state-kept", ("detach",), "hidden_state_graph.py",
             exit_code=1),
    Expected("truncated_clip", "corrupt-sample", (".mp4",), "clips.py", 1, exit_code=1),
    Expected("batchnorm_single_value", "batchnorm-single-value", ("drop_last=True",),
             "batchnorm_single_value.py", 2, "norm", 1),
    Expected("view_instead_of_permute", "view-instead-of-permute", ("permute",),
             "view_instead_of_permute.py", None),
    Expected("view_conv_output", "view-instead-of-permute", ("permute",), "view_conv_output.py",
             None),
)


def run(script: str, folder: Path, *arguments: str) -> tuple[int, Any]:
    command = [sys.executable, "-m", "torchmedic", "run", "--output-format", "json", "-o",
               "report.json", "--", sys.executable, str(FOLDER / script), *arguments, "--out",
               str(folder / "out")]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=170)
    return done.returncode, json.loads((folder / "report.json").read_text())


def said(report: Any) -> str:
    main = report["findings"][0]
    parts = [main["message"], *(e["text"] for e in main.get("evidence") or ()),
             *(str(part) for part in (main.get("fix") or {}).values()),
             *(report["findings"][i]["message"] for i in main.get("explains") or ())]
    return "\n".join(parts)


@needs
@pytest.mark.parametrize("expected", EXPECTED, ids=lambda e: e.program)
def test_faulty_program(expected: Expected, tmp_path: Path) -> None:
    code, report = run(f"faulty/{expected.program}.py", tmp_path, *TINY)
    assert code == expected.exit_code
    assert report["verdict"]["rule"] == expected.rule, report["findings"]
    where = report["findings"][0]["where"]
    assert Path(where["file"]).name == expected.file
    assert expected.batch is None or where["batch"] == expected.batch
    assert expected.module is None or where["module"] == expected.module
    for text in expected.says:
        assert text in said(report)


@needs
@pytest.mark.parametrize("workers", ["0", "2"])
def test_right_program_has_no_finding(workers: str, tmp_path: Path) -> None:
    code, report = run("train.py", tmp_path, *TINY, "--workers", workers)
    assert code == 0
    assert report["findings"] == []
    assert report["verdict"] == {"category": "none", "rule": None, "summary": "no failure found"}


@needs
@pytest.mark.slow
def test_the_right_program_learns(tmp_path: Path) -> None:
    """Chance is 33 %; the README's figures are for four epochs."""
    command = [sys.executable, str(FOLDER / "train.py"), "--epochs", "2", "--seed", "0", "--out",
               str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=170, check=True)
    last = done.stdout.strip().splitlines()[-1]
    assert float(last.split("validation accuracy ")[1].split("%")[0]) > 60, done.stdout
