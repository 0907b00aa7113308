"""Masks secrets in commands and text before anything is stored or shown."""

from __future__ import annotations

import re
from collections.abc import Iterable

MASK = "***"

_NAME = (
    r"[\w.-]*(?:token|secret|passw(?:or)?d|passphrase|credentials?"
    r"|(?:api|access|account|auth|license|private|secret|wandb)[-_]?key)"
)
# `--pad_token "[PAD]"` and `--max-token 9` are no secrets, and a retry needs them.
_HARMLESS = re.compile(
    r"(?:pad|eos|bos|unk|sep|cls|mask|special|max|min|num|new|stop|start)[-_]?token\W*$",
    re.IGNORECASE,
)
_FLAG = re.compile(rf"(?P<name>--?{_NAME})$", re.IGNORECASE)
_WHOLE = re.compile(rf"(?P<name>-{{0,2}}{_NAME})(?P<sign>=).+$", re.IGNORECASE | re.DOTALL)
_ASSIGNED = re.compile(
    rf"""(?<![\w.-])(?P<name>-{{0,2}}{_NAME}["']?)(?P<sign>\s*[=:]\s*)"""
    r"""(?P<value>"[^"\n]*"|'[^'\n]*'|[^\s"'&,;)}\]]+)""",
    re.IGNORECASE,
)
_FLAG_IN_TEXT = re.compile(
    rf"""(?<![\w-])(?P<name>--{_NAME})(?P<sign>\s+)"""
    r"""(?P<value>"[^"\n]*"|'[^'\n]*'|(?!-|(?:True|False|None)(?![\w-]))\S+)""",
    re.IGNORECASE,
)
_URL = re.compile(
    r"(?P<scheme>(?<![a-z0-9+.-])[a-z][a-z0-9+.-]*://)[^\s/@:]*:[^\s/@]+@", re.IGNORECASE
)
_BEARER = re.compile(r"\b(?P<kind>bearer|basic)\s+[\w.~+/=-]{8,}", re.IGNORECASE)
_KNOWN = re.compile(
    r"\b(?:hf_\w{8,}|sk-[\w-]{12,}|gh[oprsu]_\w{12,}|github_pat_\w{12,}|glpat-[\w-]{12,}"
    r"|A(?:KIA|SIA)[0-9A-Z]{8,}|xox[abprs]-[\w-]{8,}|AIza[\w-]{20,}|eyJ[\w-]{8,}\.[\w-]+\.[\w-]*)"
)


def text(value: str) -> str:
    """The text with everything that looks like a secret masked."""
    value = _URL.sub(lambda m: f"{m['scheme']}{MASK}@", value)
    value = _KNOWN.sub(MASK, value)
    value = _BEARER.sub(lambda m: f"{m['kind']} {MASK}", value)
    for pattern in (_ASSIGNED, _FLAG_IN_TEXT):
        value = pattern.sub(_masked, value)
    return value


def _masked(match: re.Match[str]) -> str:
    return match[0] if _HARMLESS.search(match["name"]) else f"{match['name']}{match['sign']}{MASK}"


def argument_list(arguments: Iterable[str]) -> list[str]:
    """A command's arguments with secrets masked, each in its place."""
    masked: list[str] = []
    value_follows = False
    for argument in arguments:
        if value_follows and not argument.startswith("-"):
            masked.append(MASK)
            value_follows = False
            continue
        flag = _FLAG.match(argument)
        value_follows = bool(flag and not _HARMLESS.search(flag["name"]))
        is_script = masked[-1:] == ["-c"]  # holds words of its own after the secret
        whole = None if is_script else _WHOLE.match(argument)
        masked.append(_masked(whole) if whole else text(argument))
    return masked
