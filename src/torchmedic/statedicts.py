"""What `load_state_dict` says when keys or sizes differ, as data."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from torchmedic.shapes import numbers, written

if TYPE_CHECKING:
    from torchmedic.observed.weights import Checkpoint, Prefix

# torch 0.4 to 2.14
HEAD = re.compile(r"Error\(s\) in loading state_dict for (\w+)")
OLD = re.compile(r"(?P<kind>unexpected|missing) keys? (?P<keys>.*?)in state_dict(?P<more>.*)",
                 re.DOTALL)
"""torch 0.2 and 0.3, a `KeyError`."""
KEYS = re.compile(r"(Missing|Unexpected|Unexpected running stats buffer)\s+key\(s\) in state_dict:"
                  r"\s*(.*?)\s*(?:\n|$)")
SIZE = re.compile(r"size mismatch for ([\w.]+): copying a param with shape (\S+\[[\d, ]*\]\)?|"
                  r"\([\d, ]*\)) from checkpoint, the shape in current model is "
                  r"(\S+\[[\d, ]*\]\)?|\([\d, ]*\))")


@dataclass(frozen=True, slots=True)
class Told:
    """sizes: (key, shape in the checkpoint, shape in the model)."""

    model: str
    missing: tuple[str, ...]
    unexpected: tuple[str, ...]
    sizes: tuple[tuple[str, str, str], ...]


def read(message: str) -> Told | None:
    """The keys of a message; None when it is another one."""
    head = HEAD.search(message)
    if head is None:
        return _old(message)
    keys: dict[str, tuple[str, ...]] = {}
    for kind, text in KEYS.findall(message):
        keys[kind] = tuple(re.findall(r"[\"']([^\"']+)[\"']", text))
    sizes = tuple((name, written(numbers(ours)), written(numbers(theirs)))
                  for name, ours, theirs in SIZE.findall(message))
    return Told(head[1], keys.get("Missing", ()), keys.get("Unexpected", ()), sizes)


def _old(message: str) -> Told | None:
    """Only the first key that differs is told, or the missing ones."""
    found = OLD.search(message)
    if found is None:
        return None
    keys = tuple(re.findall(r"[\"']([\w.]+)[\"']", found["keys"] + found["more"]))
    missing = found["kind"] == "missing"
    return Told("model", keys if missing else (), () if missing else keys, ())


def loading(checkpoint: Checkpoint, *lines: str) -> str:
    """As added lines, the code that reads the file's state dict and goes on with further lines."""
    where = "".join(f"[{key!r}]" for key in checkpoint.within)
    name = checkpoint.file.replace("\\", "/")
    if checkpoint.format == "safetensors":
        head = ["from safetensors.torch import load_file", f"state = load_file({name!r})"]
    elif checkpoint.format == "TorchScript":
        head = [f"state = torch.jit.load({name!r}, map_location='cpu').state_dict()"]
    else:
        head = [f"state = torch.load({name!r}, map_location='cpu', weights_only=True){where}"]
    return "".join(f"+{line}\n" for line in (*head, *lines))


def renaming(prefix: Prefix) -> list[str]:
    """The lines that give the checkpoint's keys the model's prefix."""
    removed, added, lines = prefix.removed, prefix.added, []
    for part in prefix.inside:
        lines.append(f"state = {{k.replace({part + '.'!r}, ''): v for k, v in state.items()}}")
    if removed:
        bare = f"k.removeprefix({removed!r})"
        new = f"{added!r} + {bare}" if added else bare
        other = f" if k.startswith({removed!r}) else k" if added else ""
        lines.append(f"state = {{{new}{other}: v for k, v in state.items()}}")
    elif added:
        lines.append(f"state = {{{added!r} + k: v for k, v in state.items()}}")
    if prefix.inside:  # the model's own parts are put back
        bare = "".join(f".replace({part + '.'!r}, '')" for part in prefix.inside)
        lines.append(f"own = {{k{bare}: k for k in model.state_dict()}}")
        lines.append("state = {own.get(k, k): v for k, v in state.items()}")
    return lines


def prefix_between(missing: tuple[str, ...], unexpected: tuple[str, ...]
                   ) -> tuple[str, bool] | None:
    """The prefix that alone makes the keys differ, and whether the checkpoint has it."""
    if not missing and len(unexpected) == 1 and unexpected[0].startswith("module."):
        return "module.", True  # torch 0.2 and 0.3 name the first key only
    for short, long, on_file in ((missing, unexpected, True), (unexpected, missing, False)):
        prefix = next((long[0].removesuffix(key) for key in short
                       if long and long[0].endswith(f".{key}")), None)
        if prefix and all(key.startswith(prefix) for key in long):
            bare = {key.removeprefix(prefix) for key in long}
            if len(bare & set(short)) * 2 > len(set(short)):
                return prefix, on_file
    return None
