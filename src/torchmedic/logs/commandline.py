"""The command that a log says it was written by."""

from __future__ import annotations

import re
from collections.abc import Sequence

PROGRAM = (r"(?:[\w./~-]*/)?(?:python[\d.]*|torchrun|accelerate launch|deepspeed|horovodrun|mpirun"
           r"|srun|nnUNetv2_train)(?:\.exe)?")
COMMAND = re.compile(
    rf"(?:^|[$#>+] ?|[:\s](?=[A-Z]|python|torchrun)|\S> ?)"
    rf"(?P<command>(?:[A-Z][A-Z0-9_]*=\S* +)*{PROGRAM} +\S.*?)\s*$")
PROMPT = re.compile(r"^(?:\([\w.-]+\) ?)?(?:[\w.-]+@[\w.-]+[:~ ]|PS [A-Z]:\\|[A-Z]:\\|\$ |> |\+ )")
LOOKS = re.compile(r"\.py\b| -m [\w.]+")
NOT_TRAINING = re.compile(r" -c |-m pip| --version|setup\.py|-m venv| -V\b")
STARTERS = re.compile(r"[:：]\s*(?=[A-Z_]+=|python|torchrun)|\b(?:执行|运行)\s*")


def command_in(lines: Sequence[str]) -> str | None:
    """The last command line that starts a training; None where the log shows none."""
    for line in reversed(lines):
        if "python" not in line and "run" not in line and "launch" not in line:
            continue
        found = _command(line)
        if found is not None:
            return found
    return None


def _command(line: str) -> str | None:
    text = line.strip()
    if len(text) > 1000 or "File \"" in text:
        return None
    match = COMMAND.search(text)
    if match is None or NOT_TRAINING.search(match["command"]):
        return None
    whole = match.start("command") == 0 or PROMPT.match(text) or STARTERS.search(text)
    if not whole or not (LOOKS.search(match["command"]) or PROMPT.match(text)):
        return None
    return match["command"]


def supervised(command: str) -> str:
    """The same command under torchmedic; settings of the environment stay before it."""
    settings = re.match(r"(?:[A-Z][A-Z0-9_]*=\S* +)*", command)
    end = settings.end() if settings else 0
    return f"{command[:end]}torchmedic run -- {command[end:]}"
