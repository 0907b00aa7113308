"""Finds rules by walking packages: a rule exists because its file does."""

from __future__ import annotations

import importlib
import pkgutil
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from types import ModuleType

from torchmedic.model import Example, Rule

HOME = "torchmedic.rules"


@dataclass(frozen=True, slots=True, eq=False)
class Entry:
    """A rule, its family and the module that holds it."""

    rule: Rule
    family: str
    module: ModuleType

    @property
    def file_name(self) -> str:
        """Name of the rule's module, without its package."""
        return self.module.__name__.rpartition(".")[2]


@dataclass(frozen=True, slots=True)
class Catalogue:
    """What was found. `broken` says which modules could not be imported, and why."""

    entries: tuple[Entry, ...]
    broken: tuple[str, ...] = ()
    by_name: dict[str, Entry] = field(default_factory=dict)


@lru_cache
def catalogue(*more: str) -> Catalogue:
    """Our rules and those of further packages, given by name or by folder."""
    entries: list[Entry] = []
    broken: list[str] = []
    for package in _packages(HOME, *more):
        for family, name in _modules(package):
            try:
                module = importlib.import_module(name)
            except Exception as error:  # one bad rule file must not silence the others
                broken.append(f"{name}: {type(error).__name__}: {error}")
                continue
            if isinstance(rule := getattr(module, "RULE", None), Rule):
                entries.append(Entry(rule, family, module))
    entries.sort(key=lambda entry: (entry.family, entry.rule.name))
    by_name = {entry.rule.name: entry for entry in entries}
    return Catalogue(tuple(entries), tuple(broken), by_name)


def rules(*more: str) -> tuple[Rule, ...]:
    """All rules, sorted by family and name."""
    return tuple(entry.rule for entry in catalogue(*more).entries)


@lru_cache
def names() -> dict[str, str]:
    """Our rules' names with their families, in order; no rule is imported."""
    return {name.rpartition(".")[2].replace("_", "-"): family
            for family, name in sorted(_modules(importlib.import_module(HOME)))}


@dataclass(slots=True)
class Reader:
    """A rule that reads source, not imported before it is asked for. words: one of them must be
    in the file for the rule to have anything to say; empty: it may always."""

    name: str
    module: str
    words: tuple[str, ...]
    _rule: Rule | None = None

    def rule(self) -> Rule | None:
        """The rule; None when its file is broken (`catalogue` says which are)."""
        if self._rule is None:
            try:
                found = getattr(importlib.import_module(self.module), "RULE", None)
            except Exception:
                return None
            self._rule = found if isinstance(found, Rule) and found.in_source else None
        return self._rule


@lru_cache
def readers() -> tuple[Reader, ...]:
    """Our rules that read source, by their files' texts."""
    found = []
    for family, name in _modules(importlib.import_module(HOME)):
        bare = name.rpartition(".")[2]
        path = Path(__file__).parent / "rules" / family / f"{bare}.py"
        text = path.read_text(encoding="utf-8") if path.is_file() else "in_source="
        if "in_source=" in text:
            words = _words(text, "\nSOURCE_WORDS = (")
            found.append(Reader(bare.replace("_", "-"), name, words))
    return tuple(found)


def for_source(text: str, chosen: frozenset[str] | None = None) -> Iterator[Rule]:
    """Those that may have something to say of a file with this text.

    chosen: names of the rules that are wanted; None for all.
    """
    lower = text.lower()
    for reader in readers():
        if (chosen is None or reader.name in chosen) and (
                not reader.words or any(word in lower for word in reader.words)):
            rule = reader.rule()
            if rule is not None:
                yield rule


def for_log(text: str) -> tuple[Rule, ...]:
    """Our rules that read logs and may have something to say of this one.

    A file that names `WORDS` speaks only where one of them is in the text, in any case; it is
    not imported otherwise.
    """
    found: list[Rule] = []
    lower = text.lower()
    for family, name in _modules(importlib.import_module(HOME)):
        path = Path(__file__).parent / "rules" / family / f"{name.rpartition('.')[2]}.py"
        try:
            if path.is_file() and not _may_speak(path.read_text(encoding="utf-8"), lower):
                continue
            rule = getattr(importlib.import_module(name), "RULE", None)
        except Exception:  # `catalogue` says which rule files are broken
            continue
        if isinstance(rule, Rule) and (rule.in_log or rule.in_failure):
            found.append(rule)
    return tuple(found)


def for_data() -> tuple[Rule, ...]:
    """Our rules that read checkpoints; no other is imported."""
    found = []
    for family, name in _modules(importlib.import_module(HOME)):
        path = Path(__file__).parent / "rules" / family / f"{name.rpartition('.')[2]}.py"
        if not path.is_file() or "in_data=" in path.read_text(encoding="utf-8"):
            try:
                rule = getattr(importlib.import_module(name), "RULE", None)
            except Exception:  # `catalogue` says which rule files are broken
                continue
            if isinstance(rule, Rule) and rule.in_data is not None:
                found.append(rule)
    return tuple(found)


def _may_speak(source: str, lower: str) -> bool:
    if "in_log=" not in source and "in_failure=" not in source:
        return False
    words = _words(source, "\nWORDS = (")
    return not words or any(word in lower for word in words)


def _words(source: str, head: str) -> tuple[str, ...]:
    """The texts of a constant of a rule's file."""
    start = source.find(head)
    return () if start < 0 else tuple(
        source[start + len(head):source.index(")\n", start)].split('"')[1::2])


def find(name: str, *more: str) -> Entry | None:
    """The entry of the rule with this name; of ours no other is imported."""
    if more or (family_name := names().get(name)) is None:
        return catalogue(*more).by_name.get(name) if more else None
    try:
        module = importlib.import_module(f"{HOME}.{family_name}.{name.replace('-', '_')}")
    except Exception:  # `catalogue` says which rule files are broken
        return None
    rule = getattr(module, "RULE", None)
    return Entry(rule, family_name, module) if isinstance(rule, Rule) else None


def family(rule: Rule, *more: str) -> str:
    """The folder a rule lives in, such as `memory`."""
    entry = find(rule.name, *more)
    if entry is None:
        raise LookupError(f"no rule is named {rule.name!r}")
    return entry.family


def cases(*more: str) -> Iterator[tuple[str, Rule, Example]]:
    """Every example of every rule with a readable identity: each is a test."""
    for rule in rules(*more):
        for number, example in enumerate(rule.examples, 1):
            verb = "fires" if example.fires else "quiet"
            title = example.title.replace(" ", "-") or str(number)
            yield f"{rule.name}-{verb}-{title}", rule, example


def _packages(*places: str) -> Iterator[ModuleType]:
    for place in places:
        yield _folder(Path(place)) if Path(place).is_dir() else importlib.import_module(place)


def _folder(path: Path) -> ModuleType:
    """A folder of families as a package, wherever it lies and whatever its name."""
    name = "torchmedic_rules_" + path.resolve().as_posix().encode().hex()
    if name not in sys.modules:
        module = ModuleType(name)
        module.__path__ = [str(path)]
        sys.modules[name] = module
    return sys.modules[name]


def _modules(package: ModuleType) -> Iterator[tuple[str, str]]:
    """(family, full module name) of each module in each family's folder."""
    for found in pkgutil.iter_modules(package.__path__):
        if not found.ispkg:
            continue
        for root in package.__path__:
            folder = Path(root) / found.name
            for inner in pkgutil.iter_modules([str(folder)]):
                if not inner.name.startswith("_"):
                    yield found.name, f"{package.__name__}.{found.name}.{inner.name}"
