"""The command that a log says it was written by."""

from __future__ import annotations

import re
from collections.abc import Sequence

PROGRAM = (r"(?:[\w./~\\:-]*[/\\])?(?:python[\d.]*w?|torchrun|accelerate launch|deepspeed"
           r"|horovodrun|mpirun|srun|nnUNetv2_train|ipython)(?:\.exe)?")
QUOTED = r"\"[A-Za-z]:\\[^\"]*\\python\.exe\""
# What starts the program that starts the training.
AHEAD = (r"(?:(?:sudo(?: -\w+)*|time|nohup|env|stdbuf -\w+|uv run|poetry run|pipenv run"
         r"|conda run(?: -\w+ \S+| --[\w-]+)*|numactl(?: -\S+)*|nice(?: -n \d+)?"
         r"|docker run(?: \S+)*?) +)")
SETTINGS = r"(?:[A-Z][A-Z0-9_]*=\S* +)*"
COMMAND = re.compile(
    rf"(?:^|[$#>+!✗] ?|&& ?|[:\s](?=[A-Z]|python|torchrun)|\S> ?)"
    rf"(?P<command>{SETTINGS}{AHEAD}*(?:{QUOTED}|{PROGRAM}) +\S.*?)\s*$")
MAGIC = re.compile(r"^(?:In \[\d*\]: )?%run +(?:-\w )*(?P<rest>\S+\.py\b.*?)\s*$")
SHELL = re.compile(r"(?:[$#>] |^\+ )(?P<command>(?:ba|z)?sh +(?:-\w+ +)*\S+\.sh\b.*?)\s*$")
PROMPT = re.compile(r"^(?:\([\w.-]+\) ?)?(?:[\w.-]+@[\w.-]+[:~ ]|PS [A-Z]:\\|[A-Z]:\\[^>]*>"
                    r"|\$ |> |\+ |!|[➜❯»] )")
LOOKS = re.compile(r"\.py\b|\.sh\b| -m [\w.]+")
NOT_TRAINING = re.compile(r" -c |-m pip| --version|setup\.py|-m venv| -V\b")
STARTERS = re.compile(r"[:：]\s*(?=[A-Z_]+=|python|torchrun)|\b(?:执行|运行)\s*")
ENDS = re.compile(r"\s+(?:(?:\d?|&)>>? ?\S+|2>&1|&|\|&? ?tee\b.*|\| ?[\w-]+\b.*|; .*|&& .*)\s*$")
CONTINUED = 30
"""Lines that one command may cover."""


def command_in(lines: Sequence[str]) -> str | None:
    """The last command line that starts a training; None where the log shows none."""
    for number in range(len(lines) - 1, -1, -1):
        line = lines[number]
        if not any(word in line for word in ("python", "run", "launch", "deepspeed", "sh ")):
            continue
        found = _command(line, lines, number)
        if found is not None:
            return found
    return None


def _command(line: str, lines: Sequence[str], number: int) -> str | None:
    text = _joined(line, lines, number).strip()
    if len(text) > 1000 or "File \"" in text:
        return None
    if magic := MAGIC.match(text):
        return f"python {magic['rest']}"
    match = COMMAND.search(text) or SHELL.search(text)
    if match is None or NOT_TRAINING.search(match["command"]):
        return None
    whole = match.start("command") == 0 or PROMPT.match(text) or STARTERS.search(text)
    if not whole or not (LOOKS.search(match["command"]) or PROMPT.match(text)):
        return None
    return _bare(match["command"])


def _joined(line: str, lines: Sequence[str], number: int) -> str:
    """With the lines that a backslash, a caret or a backtick at its end continue."""
    parts = [line.rstrip()]
    while parts[-1].endswith(("\\", " ^", " `")) and len(parts) < CONTINUED:
        if number + len(parts) >= len(lines):
            break
        parts.append(lines[number + len(parts)].strip())
    kept = [part[:-1].rstrip() for part in parts[:-1]]
    return " ".join([*kept, parts[-1].rstrip("\\").rstrip()])


def _bare(command: str) -> str:
    """Without redirections: the new run shall print."""
    command = command.removeprefix("nohup ")
    while (end := ENDS.search(command)) is not None:
        command = command[:end.start()]
    return command


def supervised(command: str) -> str:
    """The same command under torchmedic; settings of the environment stay before it."""
    settings = re.match(SETTINGS, command)
    end = settings.end() if settings else 0
    return f"{command[:end]}torchmedic run -- {command[end:]}"
