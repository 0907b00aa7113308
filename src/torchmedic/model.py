"""The nouns of a diagnosis: what rules say, and what everything after them reads.

A rule yields `Problem`s. `diagnosis.py` turns them into ranked `Finding`s. A report shows
`Finding`s. What rules look at (a run, a failure, a log, a script) is in `observed`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from torchmedic.observed import Failure, Log, Run, Script, Weights

Category = Literal["memory", "data", "code", "environment", "none", "unknown"]
Severity = Literal["error", "warning", "info"]
Confidence = Literal["certain", "likely", "possible"]
Safety = Literal["safe", "unsafe", "display-only"]
Level = Literal["cause", "symptom", "fallback"]
ExampleKind = Literal["program", "source", "log", "checkpoint"]
Phase = Literal["setup", "data", "forward", "backward", "step", "other"]


@dataclass(frozen=True, slots=True)
class Place:
    """Where a problem shows. Absent facts are None. Lines, batches and epochs count from 1."""

    file: str | None = None
    line: int | None = None
    end_line: int | None = None
    column: int | None = None
    """0-based UTF-8 byte offset in the line, as `ast` gives it; formats count as they should."""
    function: str | None = None
    module: str | None = None
    """Path of the `nn.Module` from the model's root, as `named_modules` spells it."""
    phase: Phase | None = None
    epoch: int | None = None
    step: int | None = None
    """Optimizer steps finished before this."""
    batch: int | None = None
    rank: int | None = None
    pid: int | None = None


@dataclass(frozen=True, slots=True)
class Evidence:
    """One fact that supports a problem, and where it was read (`exception`, `log:132`, …)."""

    text: str
    source: str = ""


@dataclass(frozen=True, slots=True)
class Edit:
    """Text to put in the place of a range of a source file.

    Lines count from 1, columns are 0-based UTF-8 byte offsets: as `ast` gives them. An empty
    range inserts.
    """

    line: int
    column: int
    end_line: int
    end_column: int
    text: str


@dataclass(frozen=True, slots=True)
class Fix:
    """The smallest change that cures.

    safety: `safe` keeps the program's meaning, `unsafe` may change results,
    `display-only` is for a person to carry out.
    edits: the change itself where it can be exact, in the file of the problem's place.
    """

    title: str
    detail: str = ""
    safety: Safety = "display-only"
    diff: str | None = None
    command: str | None = None
    edits: tuple[Edit, ...] = ()


@dataclass(frozen=True, slots=True)
class Problem:
    """What a rule says. Everything that is None is taken from the rule.

    about: keys of the things this problem explains, such as `failure:3` or `ending`.
    Two problems with a common key are about the same thing: `diagnosis.py` folds the
    symptom under the cause and drops a fallback.
    """

    message: str
    where: Place | None = None
    evidence: tuple[Evidence, ...] = ()
    fix: Fix | None = None
    about: tuple[str, ...] = ()
    confidence: Confidence = "certain"
    severity: Severity | None = None
    category: Category | None = None


@dataclass(frozen=True, slots=True)
class Finding:
    """A problem with its rule's name filled in. `explains` holds indexes of folded symptoms."""

    rule: str
    category: Category
    severity: Severity
    confidence: Confidence
    message: str
    where: Place | None = None
    evidence: tuple[Evidence, ...] = ()
    fix: Fix | None = None
    explains: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Verdict:
    """The one answer of a command: agrees with the first finding."""

    category: Category
    rule: str | None
    summary: str


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """All that a report needs to know, without torch and without the run.

    process: facts of the supervised process: `exit_code`, `signal`, `duration_s`, `overhead_s`,
    `status` (the code torchmedic itself returns).
    next_checks: the commands that would tell more, most useful first.
    """

    command: str
    verdict: Verdict
    findings: tuple[Finding, ...] = ()
    process: dict[str, Any] = field(default_factory=dict)
    memory: dict[str, Any] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    next_checks: tuple[str, ...] = ()
    retry: str | None = None
    run_folder: str | None = None


@dataclass(frozen=True, slots=True)
class Example:
    """A program, source or log on which the rule fires or stays quiet: the rule's tests.

    kind: `program` is run for real under supervision, `source` is only read, `log` is text,
    `checkpoint` is a program that writes `checkpoint.pt`, which `torchmedic weights` reads; a
    `build` in it makes the model to compare with.
    fires: the rule must be the main finding; otherwise no finding at all may appear.
    says: texts that the finding's message, evidence or fix must hold.
    where: `line` holds the text of the source line that must be named.
    """

    kind: ExampleKind
    text: str
    fires: bool
    says: tuple[str, ...] = ()
    line: str | None = None
    title: str = ""
    options: tuple[str, ...] = ()
    """Options for `torchmedic run`, such as `--hang-after 3`."""
    args: tuple[str, ...] = ()
    exit_code: int | None = None
    """The code a program must end with; None when any will do."""


def fires(text: str, *says: str, kind: ExampleKind = "program",
          **more: Any) -> Example:
    """An example on which the rule must be the main finding."""
    return Example(kind=kind, text=text, fires=True, says=says, **more)


def quiet(text: str, kind: ExampleKind = "program",
          **more: Any) -> Example:
    """An example that is right, or has another fault: the rule must not speak.

    A program must end with 0, or with the `exit_code` that its other fault gives it.
    """
    more.setdefault("exit_code", 0 if kind == "program" else None)
    return Example(kind=kind, text=text, fires=False, **more)


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """One failure kind. Its file holds this, its page (the module's docstring) and its examples.

    level: `cause` is a defect somebody can mend; `symptom` is how it showed (a signal, a
    swallowed exception); `fallback` speaks only when nothing else explains the same thing.
    in_failure sees one exception at a time, whether a live process recorded it or a log holds
    its traceback; in_run sees the whole run, in_log the whole text, in_source one file,
    in_data a checkpoint as `torchmedic weights` reads it.
    """

    name: str
    doc: str
    category: Category
    severity: Severity = "error"
    level: Level = "cause"
    in_failure: Callable[[Failure], Iterator[Problem]] | None = None
    in_run: Callable[[Run], Iterator[Problem]] | None = None
    in_log: Callable[[Log], Iterator[Problem]] | None = None
    in_source: Callable[[Script], Iterator[Problem]] | None = None
    in_data: Callable[[Weights], Iterator[Problem]] | None = None
    examples: Sequence[Example] = ()

    @property
    def summary(self) -> str:
        """First line of the page, without its full stop."""
        return self.doc.strip().splitlines()[0].rstrip(".")

    @property
    def observes(self) -> tuple[str, ...]:
        """Kinds of observation this rule reads, as in the catalogue."""
        kinds = ("failure", "run", "log", "source", "data")
        return tuple(kind for kind in kinds if getattr(self, f"in_{kind}") is not None)
