"""Ranks and folds what rules said: causes first, symptoms under them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from torchmedic.model import Finding, Place, Problem, Rule, Severity

ENDING = "ending"
"""The key of how the program ended: what explains that comes first."""
SEVERITIES = ("error", "warning", "info")
CONFIDENCES = ("certain", "likely", "possible")
LEVELS = ("cause", "symptom", "fallback")


@dataclass(frozen=True, slots=True, eq=False)
class Said:
    """A problem, who said it, about what, and from what: a `run` (or log) or its `source`."""

    rule: Rule
    problem: Problem
    about: frozenset[str]
    time: float
    origin: str
    order: int

    @property
    def severity(self) -> Severity:
        return self.problem.severity or self.rule.severity

    @property
    def place(self) -> Place:
        return self.problem.where or Place()

    @property
    def line(self) -> tuple[str | None, int | None]:
        return self.place.file, self.place.line

    @property
    def rank(self) -> tuple[object, ...]:
        """Smaller is told earlier."""
        return (
            ENDING not in self.about, SEVERITIES.index(self.severity), self.origin == "source",
            LEVELS.index(self.rule.level), CONFIDENCES.index(self.problem.confidence),
            self.time, self.order,
        )


def ranked(said: Iterable[Said]) -> tuple[Finding, ...]:
    """The final tuple: each cause, followed by the symptoms folded under it."""
    kept = _without_fallbacks(_merged(_seen_in_the_run_first(list(said))))
    findings: list[Finding] = []
    for top, symptoms in _folded(kept):
        first = len(findings) + 1
        explains = tuple(range(first, first + len(symptoms)))
        findings.append(replace(_finding(top), explains=explains))
        findings.extend(_finding(symptom) for symptom in symptoms)
    return tuple(findings)


def _seen_in_the_run_first(said: list[Said]) -> list[Said]:
    """A rule that saw its fault happen does not say it again from reading the file.

    Where nothing failed, what was seen only shows that the text is right: the text knows the
    line of the defect, and is certain now.
    """
    happened = {s.rule.name for s in said if s.origin == "run" and s.about}
    read = {s.rule.name for s in said if s.origin == "source"} - happened
    seen = [s for s in said if s.origin == "run"]
    kept = [s for s in seen if s.rule.name not in read]
    for one in said:
        if one.origin == "source" and one.rule.name in read:
            kept.append(_confirmed(one, [s for s in seen if s.rule is one.rule]))
    return kept


def _confirmed(read: Said, seen: list[Said]) -> Said:
    if not seen:
        return read
    told = tuple(dict.fromkeys(e for s in seen for e in s.problem.evidence))
    severity = None if read.problem.severity == "info" else read.problem.severity
    problem = replace(read.problem, evidence=(*read.problem.evidence, *told),
                      severity=severity, confidence="certain")
    return replace(read, problem=problem, origin="run")


def _merged(said: list[Said]) -> list[Said]:
    found: dict[tuple[object, ...], Said] = {}
    for new in sorted(said, key=lambda s: s.rank):
        key = (new.rule.name, new.line, new.problem.message)
        old_key = next((k for k, old in found.items() if _one_failure(old, new)), key)
        old = found.get(old_key)
        found[old_key] = new if old is None else replace(old, about=old.about | new.about)
    return list(found.values())


def _one_failure(old: Said, new: Said) -> bool:
    """The same rule on an exception and on the one it was raised from is one finding."""
    shared = (key for key in old.about & new.about if key.startswith("failure:"))
    return old.rule.name == new.rule.name and any(shared)


def _without_fallbacks(said: list[Said]) -> list[Said]:
    """A fallback speaks only where nothing else does, and once for each thing."""
    explained = {key for s in said if s.rule.level != "fallback" for key in s.about}
    kept = []
    for one in sorted(said, key=lambda s: s.rank):
        if one.rule.level == "fallback":
            if one.about & explained:
                continue
            explained |= one.about
        kept.append(one)
    return kept


def _folded(said: list[Said]) -> list[tuple[Said, list[Said]]]:
    """Each symptom under the best cause of the same thing, which then ranks as high as it did."""
    tops: list[tuple[Said, list[Said]]] = []
    for one in sorted(said, key=lambda s: (LEVELS.index(s.rule.level), s.rank)):
        owner = next((t for t in tops if one.about & t[0].about), None)
        if owner is None or one.rule.level == "cause":
            tops.append((one, []))
        else:
            owner[1].append(one)
    return sorted(tops, key=lambda top: min(s.rank for s in (top[0], *top[1])))


def _finding(said: Said) -> Finding:
    """Texts of a program may hold secrets: here is the one way into a report."""
    from torchmedic import redact  # its patterns are compiled on import: not without a finding

    problem, rule = said.problem, said.rule
    evidence = tuple(replace(e, text=redact.text(e.text)) for e in problem.evidence)
    fix = problem.fix and replace(problem.fix, title=redact.text(problem.fix.title),
                                  detail=redact.text(problem.fix.detail))
    return Finding(
        rule=rule.name, category=problem.category or rule.category, severity=said.severity,
        confidence=problem.confidence, message=redact.text(problem.message), where=problem.where,
        evidence=evidence, fix=fix,
    )
