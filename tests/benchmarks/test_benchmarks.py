"""The benchmarks run, and their output has its shape. Nothing here looks at a time."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

BENCHMARKS = Path(__file__).resolve().parents[2] / "benchmarks"


def run(script, *words):
    return subprocess.run([sys.executable, str(BENCHMARKS / script), *words],
                          capture_output=True, text=True, timeout=170)


@pytest.mark.slow
def test_overhead_quick(tmp_path):
    file = tmp_path / "overhead.json"
    done = run("overhead.py", "--quick", "--workload", "tiny", "--json", str(file))
    assert done.returncode == 0, done.stderr
    header, line, bare, ours, *rest = done.stdout.splitlines()
    assert [len(row.split("|")) for row in (header, line, bare, ours)] == [9] * 4
    assert "torchmedic run" in ours
    assert "load average" in rest[1]
    assert [line.partition(":")[0] for line in rest[2:]] == ["py-spy", "train-doctor"]
    told = json.loads(file.read_text())
    assert told["machine"]["cores"] >= 1
    (result,) = told["results"]
    assert [sorted(turn) for turn in result["rounds"]] == [["bare", "torchmedic run"]] * 2
    ratios = result["ratios"]["torchmedic run"]
    assert sorted(ratios) == ["cpu", "step", "step_cpu", "wall"]
    assert all(one["count"] == 2 and one["minimum"] <= one["median"] for one in ratios.values())


def test_startup(tmp_path):
    file = tmp_path / "startup.json"
    done = run("startup.py", "--rounds", "1", "--json", str(file))
    assert done.returncode == 0, done.stderr
    (turn,) = json.loads(file.read_text())["rounds"]
    rows = [line for line in done.stdout.splitlines() if line.startswith("| `")]
    assert len(rows) == len(turn) == 8
    assert all(len(row.split("|")) == 7 for row in rows)


def test_a_failing_script_is_told_with_its_output(tmp_path):
    sys.path.insert(0, str(BENCHMARKS))
    try:
        from measure import Failed, cost
    finally:
        sys.path.remove(str(BENCHMARKS))
    with pytest.raises(Failed, match=r"exit code 3[\s\S]*last words"):
        cost([sys.executable, "-c", "print('last words', flush=True); raise SystemExit(3)"],
             {}, tmp_path)
