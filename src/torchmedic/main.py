"""The command line: finds the command asked for, and imports nothing of the others."""

from __future__ import annotations

import argparse
import importlib
import os
import pkgutil
import sys
from collections.abc import Sequence
from io import StringIO
from types import ModuleType

from torchmedic import __version__, commands
from torchmedic.output import UserError, width

OWN_FAILURE = 125
BROKEN_PIPE = 128 + 13
INTERRUPTED = 128 + 2
STARTERS = ("python", "python3", "torchrun", "accelerate", "deepspeed", "bash", "sh")


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs one command and gives back the exit code."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    sys.stdout = sys.stdout or StringIO()  # None where the caller closed it
    sys.stderr = sys.stderr or StringIO()
    try:
        code = _dispatch(words)
        sys.stdout.flush()
        return code
    except BrokenPipeError:  # the reader, such as `head`, has seen enough
        _silence(sys.stdout)
        return BROKEN_PIPE
    except OSError as error:  # such as a full disk under standard output
        print(f"torchmedic: can't write: {error.strerror or error}", file=sys.stderr)
        _silence(sys.stdout)
        return OWN_FAILURE
    except KeyboardInterrupt:
        return INTERRUPTED


def _dispatch(words: list[str]) -> int:
    if not words or words[0] in ("-h", "--help", "help"):
        print(overview(), file=sys.stdout if words else sys.stderr)
        return 0 if words else 2
    if words[0] in ("-V", "--version"):
        print(f"torchmedic {__version__}")
        return 0
    name, *rest = words
    if name not in command_names():
        print(f"torchmedic: {unknown(words)}", file=sys.stderr)
        return 2
    return _execute(name, rest)


def _execute(name: str, rest: list[str]) -> int:
    module = _command(name)
    parser = argparse.ArgumentParser(
        prog=f"torchmedic {name}", description=module.SUMMARY, allow_abbrev=False,
        formatter_class=_formatter)
    module.configure(parser)
    try:
        return int(module.execute(parser.parse_args(rest)))
    except SystemExit as stop:  # argparse: 0 after help, 2 after an error
        return stop.code if isinstance(stop.code, int) else 2
    except UserError as error:
        print(f"torchmedic {name}: {error}", file=sys.stderr)
        return 2
    except Exception as error:
        if isinstance(error, OSError) and error.filename is None:
            raise  # standard output: `main` tells it
        if os.environ.get("TORCHMEDIC_DEBUG"):
            raise
        print(f"torchmedic {name}: our own failure: {type(error).__name__}: {error} "
              "(TORCHMEDIC_DEBUG=1 shows the traceback)", file=sys.stderr)
        return OWN_FAILURE


def _formatter(prog: str) -> argparse.HelpFormatter:
    """argparse makes one for each option; left to itself it asks `shutil` for the width."""
    return argparse.HelpFormatter(prog, width=width(sys.stdout) - 2)


def command_names() -> list[str]:
    """Every module of `commands/` is a command."""
    found = pkgutil.iter_modules(commands.__path__)
    return sorted(m.name.replace("_", "-") for m in found if not m.name.startswith("_"))


def overview() -> str:
    """The help text: each command with its summary."""
    names = command_names()
    longest = max(map(len, names), default=0)
    listed = "\n".join(f"  {name:{longest}}  {_command(name).SUMMARY}" for name in names)
    return (
        "usage: torchmedic COMMAND ...\n\n"
        "Says why a PyTorch training run died, hung or stopped, and the smallest fix.\n\n"
        f"commands:\n{listed}\n\n"
        "  torchmedic COMMAND --help    the options of a command\n"
        "  torchmedic --version         the version"
    )


def unknown(words: list[str]) -> str:
    """What to say of a command that does not exist."""
    import difflib
    import shlex

    name = words[0]
    if name.endswith(".py") or name.rpartition("/")[2] in STARTERS:
        start = ["python"] if name.endswith(".py") else []
        return f"to supervise a program: torchmedic run -- {shlex.join([*start, *words])}"
    if name.startswith("-"):
        return f"unknown option {name}; torchmedic --help lists the commands"
    near = difflib.get_close_matches(name, command_names(), 1)
    hint = f"did you mean `{near[0]}`?" if near else "torchmedic --help lists them"
    return f"there is no command {name!r}; {hint}"


def _command(name: str) -> ModuleType:
    return importlib.import_module(f"{commands.__name__}.{name.replace('-', '_')}")


def _silence(stream: object) -> None:
    """Keeps the interpreter from complaining about the same pipe at its end."""
    sink = os.open(os.devnull, os.O_WRONLY)
    try:
        os.dup2(sink, stream.fileno())  # type: ignore[attr-defined]
    except (OSError, ValueError, AttributeError):
        pass
    finally:
        os.close(sink)
