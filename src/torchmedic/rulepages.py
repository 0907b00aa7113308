"""The pages of the rules: their docstrings, as files under `docs/rules`.

    python -m torchmedic.rulepages [--check] docs/rules
"""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from torchmedic import registry

if TYPE_CHECKING:
    from torchmedic.registry import Entry

HEADINGS = ("What you see", "Why", "Fix", "When this is fine")
GENERATED = "<!-- Made from the rule's docstring by `python -m torchmedic.rulepages`. -->"
OBSERVES = {
    "failure": "an exception", "run": "a supervised run", "log": "a log", "source": "source",
    "data": "a checkpoint",
}


def page(entry: Entry) -> str:
    """A rule's page in Markdown: the text of `torchmedic rule NAME`."""
    rule = entry.rule
    title, _, body = rule.doc.strip().partition("\n")
    body = re.sub(r"\n*^(## .*)\n+", r"\n\n\1\n\n", body, flags=re.MULTILINE).strip()
    read = ", ".join(OBSERVES[kind] for kind in rule.observes)
    facts = f"Family: {entry.family}. Category: {rule.category}. Severity: {rule.severity}. " \
            f"Found in: {read}."
    return f"# {rule.name}\n\n{title}\n\n{facts}\n\n{body}\n"


def facts(entry: Entry) -> dict[str, object]:
    """A rule as plain data, without its page."""
    rule = entry.rule
    return {
        "name": rule.name, "family": entry.family, "category": rule.category,
        "severity": rule.severity, "level": rule.level, "observes": list(rule.observes),
        "fixable": fixable(entry), "summary": rule.summary,
    }


def fixable(entry: Entry) -> bool:
    """Whether its findings may carry exact edits, which `check --fix` makes."""
    file = entry.module.__file__
    return file is not None and "edits=" in Path(file).read_text(encoding="utf-8")


def page_faults(entry: Entry) -> list[str]:
    """What keeps a rule's file from being a page."""
    rule, faults = entry.rule, []
    if entry.file_name != rule.name.replace("-", "_"):
        faults.append(f"the file is named {entry.file_name}.py, the rule {rule.name}")
    lines = rule.doc.strip().splitlines()
    if len(lines) > 1 and lines[1].strip():
        faults.append("the first line does not stand alone")
    if not rule.observes:
        faults.append("it observes nothing")
    return faults + _heading_faults(rule.doc)


def _heading_faults(doc: str) -> list[str]:
    parts = re.split(r"^ *## (.+?) *$", doc, flags=re.MULTILINE)
    found, texts = tuple(parts[1::2]), parts[2::2]
    if found != HEADINGS:
        return [f"the headings are {', '.join(found) or 'missing'}; wanted {', '.join(HEADINGS)}"]
    pairs = zip(found, texts, strict=True)
    return [f"heading {name!r} is empty" for name, text in pairs if not text.strip()]


def index(entries: tuple[Entry, ...]) -> str:
    """The list of all rules by family."""
    parts = ["# Rules", "Each rule is one kind of failure. `torchmedic rule NAME` shows its page."]
    for family in sorted({entry.family for entry in entries}):
        own = [entry.rule for entry in entries if entry.family == family]
        listed = "\n".join(f"- [{rule.name}]({rule.name}.md): {rule.summary}" for rule in own)
        parts.append(f"## {family}\n\n{listed}")
    return "\n\n".join(parts) + "\n"


def pages() -> dict[str, str]:
    """Every file of the folder by name."""
    entries = registry.catalogue().entries
    files = {f"{entry.rule.name}.md": page(entry) for entry in entries}
    files["README.md"] = index(entries)
    return {name: f"{GENERATED}\n\n{text}" for name, text in files.items()}


def stale(folder: Path) -> list[str]:
    """Names of the files that are missing, old, or of no rule."""
    wanted = pages()
    there = {file.name for file in folder.glob("*.md")}
    changed = {name for name, text in wanted.items()
               if name in there and (folder / name).read_text(encoding="utf-8") != text}
    return sorted((set(wanted) ^ there) | changed)


def write(folder: Path) -> None:
    """Writes every page and removes those of rules that are gone."""
    folder.mkdir(parents=True, exist_ok=True)
    wanted = pages()
    for file in folder.glob("*.md"):
        if file.name not in wanted:
            file.unlink()
    for name, text in wanted.items():
        (folder / name).write_text(text, encoding="utf-8", newline="\n")


def main(arguments: list[str]) -> int:
    check = "--check" in arguments
    folders = [argument for argument in arguments if argument != "--check"]
    if len(folders) != 1:
        print("usage: python -m torchmedic.rulepages [--check] FOLDER", file=sys.stderr)
        return 2
    if not check:
        write(Path(folders[0]))
        return 0
    old = stale(Path(folders[0]))
    if old:
        print(f"not current: {', '.join(old)}; run python -m torchmedic.rulepages {folders[0]}",
              file=sys.stderr)
    return 1 if old else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
