"""Starts programs bare and under `torchmedic run`, and gives back what each left."""

import json
import os
import site
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import torchmedic
from torchmedic.supervise.environment import child_environment
from torchmedic.supervise.reading import read_run
from torchmedic.supervise.spools import read_spools

SOURCE = Path(torchmedic.__file__).resolve().parents[1]
PYTHON = sys.executable
# An installed torchmedic has put its .pth beside itself, an import from a checkout has not.
HAS_PTH = any((Path(folder) / "torchmedic.pth").exists() for folder in site.getsitepackages())
# Neither the program nor its children could import torchmedic: as with the tool in a venv of its own.
TORCHMEDIC = (PYTHON, "-E", "-c", f"import sys; sys.path.insert(0, {str(SOURCE)!r}); "
              "from torchmedic.main import main; sys.exit(main())")
DROPPED = ("PYTHON", "TORCHMEDIC", "PYTEST", "COV_", "OMP_", "MKL_")


@dataclass(frozen=True)
class Ran:
    """What a program left."""

    code: int
    out: bytes
    err: bytes
    report: str | None = None
    folder: Path | None = None

    @property
    def run(self):
        return read_run(self.folder)

    @property
    def spools(self):
        return read_spools(self.folder / "spool")

    @property
    def data(self):
        """What the program printed as its last line of standard output, in JSON."""
        return json.loads(self.out.decode().strip().splitlines()[-1])


def environment(**more):
    """The test run's own environment without what would steer Python, and with one thread."""
    kept = {k: v for k, v in os.environ.items() if not k.startswith(DROPPED)}
    return {**kept, "OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1", **more}


def observed_environment(spool, **more):
    """The environment of a child that starts the observer, without a supervisor."""
    spool.mkdir(parents=True, exist_ok=True)
    return child_environment(environment(**more), spool)


class Programs:
    """A folder with programs, and the ways to start them."""

    def __init__(self, folder):
        self.folder = folder

    def write(self, name, text):
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        return path

    def _start(self, command, folder, input, env, together, timeout):
        ended = subprocess.run(
            [str(part) for part in command], cwd=folder, env=environment(**(env or {})),
            input=input if input is not None else b"", stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT if together else subprocess.PIPE, timeout=timeout)
        return ended.returncode, ended.stdout, ended.stderr or b""

    def bare(self, *command, input=None, env=None, together=False, timeout=120):
        return Ran(*self._start(command, self.folder, input, env, together, timeout))

    def supervised(self, *command, options=(), input=None, env=None, together=False, timeout=120):
        report = self.folder / "report.txt"
        report.unlink(missing_ok=True)
        before = self._runs()
        whole = (*TORCHMEDIC, "run", *options, "-o", report, "--", *command)
        ran = self._start(whole, self.folder, input, env, together, timeout)
        new = self._runs() - before
        return Ran(*ran, report=report.read_text() if report.exists() else None,
                   folder=new.pop() if len(new) == 1 else None)

    def _runs(self):
        found = (self.folder / ".torchmedic").glob("*/*/facts.json")
        return {path.parent for path in found}

    def both(self, *command, **how):
        """(bare, supervised)"""
        return self.bare(*command, **how), self.supervised(*command, **how)
