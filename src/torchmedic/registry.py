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
    """A rule's file, whose rule is not imported before it is asked for.

    text: of the file; empty where it can't be read as one, and then nothing is ruled out.
    """

    name: str
    module: str
    text: str
    _words: dict[str, tuple[str, ...]] = field(default_factory=dict, repr=False)
    _kinds: dict[str, bool] = field(default_factory=dict, repr=False)

    def may_read(self, *kinds: str) -> bool:
        """Whether the rule reads one of these kinds of observation, such as `source`."""
        for kind in kinds:
            if kind not in self._kinds:
                self._kinds[kind] = not self.text or f"in_{kind}=" in self.text
        return any(self._kinds[kind] for kind in kinds)

    def may_speak(self, constant: str, lower: str) -> bool:
        """Whether one of the words of the file's constant is in a text of lower case.

        A file without that constant may always have something to say.
        """
        if constant not in self._words:
            start = self.text.find(f"\n{constant} = (")
            self._words[constant] = () if start < 0 else tuple(
                self.text[start:self.text.index(")\n", start)].split('"')[1::2])
        words = self._words[constant]
        return not words or any(word in lower for word in words)

    def rule(self, *kinds: str) -> Rule | None:
        """The rule if it reads one of the kinds; None also when its file is broken (`catalogue`
        says which are)."""
        try:
            rule = getattr(importlib.import_module(self.module), "RULE", None)
        except Exception:
            return None
        reads = isinstance(rule, Rule) and any(getattr(rule, f"in_{kind}") for kind in kinds)
        return rule if reads else None


@lru_cache
def readers() -> tuple[Reader, ...]:
    """The files of our rules."""
    found = []
    for family, name in _modules(importlib.import_module(HOME)):
        bare = name.rpartition(".")[2]
        path = Path(__file__).parent / "rules" / family / f"{bare}.py"
        text = path.read_text(encoding="utf-8") if path.is_file() else ""
        found.append(Reader(bare.replace("_", "-"), name, text))
    return tuple(found)


def for_source(text: str, chosen: frozenset[str] | None = None) -> Iterator[Rule]:
    """Those that may have something to say of a file with this text.

    chosen: names of the rules that are wanted; None for all. A file that names `SOURCE_WORDS`
    speaks only where one of them is in the text, in any case.
    """
    lower = text.lower()
    for reader in readers():
        if (chosen is None or reader.name in chosen) and reader.may_read("source") and (
                reader.may_speak("SOURCE_WORDS", lower)):
            rule = reader.rule("source")
            if rule is not None:
                yield rule


def for_log(text: str) -> tuple[Rule, ...]:
    """Our rules that read logs and may have something to say of this one, by their `WORDS`."""
    lower = text.lower()
    found = (reader.rule("log", "failure") for reader in readers()
             if reader.may_read("log", "failure") and reader.may_speak("WORDS", lower))
    return tuple(rule for rule in found if rule is not None)


def for_data() -> tuple[Rule, ...]:
    """Our rules that read checkpoints; no other is imported."""
    found = (reader.rule("data") for reader in readers() if reader.may_read("data"))
    return tuple(rule for rule in found if rule is not None)


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
