"""From what rules say to one main cause with its symptoms, ranked."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from torchmedic.model import Diagnosis, Finding, Problem, Rule, Verdict
from torchmedic.ranking import Said, ranked

if TYPE_CHECKING:
    from torchmedic.failures import Witness
    from torchmedic.observed import Ending, Frame, Log, Process, Run, Weights
    from torchmedic.source.script import Script

Rules = Sequence[Rule]
Look = Callable[[], Iterator[Problem]]


def diagnose_run(run: Run, rules: Rules, notes: list[str] | None = None) -> tuple[Finding, ...]:
    """Every rule on every failure, on the run, and on the user's files that took part."""
    from torchmedic import failures  # not where only source is read

    listener = _Listener(notes)
    witnesses = failures.of_run(run)
    for rule in rules:
        listener.failures(rule, witnesses)
        if rule.in_run is not None:
            listener.hear(rule, partial(rule.in_run, run))
        elif rule.in_failure is None and rule.in_log is not None and run.output.lines:
            listener.hear(rule, partial(rule.in_log, run.output))
    for file in user_files(run):
        if (script := run.script(file)) is not None:
            listener.source(rules, script, ran=True)
    return ranked(listener.said)


def diagnose_log(log: Log, rules: Rules, notes: list[str] | None = None) -> tuple[Finding, ...]:
    """Every rule on every failure the text tells, and on the text."""
    from torchmedic import failures

    listener = _Listener(notes)
    witnesses = tuple(failures.of_log(log))
    for rule in rules:
        listener.failures(rule, witnesses)
        if rule.in_log is not None:
            listener.hear(rule, partial(rule.in_log, log))
    return ranked(listener.said)


def diagnose_source(
    script: Script, rules: Rules, notes: list[str] | None = None
) -> tuple[Finding, ...]:
    """Every rule that reads source, on one file."""
    listener = _Listener(notes)
    listener.source(rules, script)
    return ranked(listener.said)


def diagnose_data(
    weights: Weights, rules: Rules, notes: list[str] | None = None
) -> tuple[Finding, ...]:
    """Every rule that reads checkpoints, on one."""
    listener = _Listener(notes)
    for rule in rules:
        if rule.in_data is not None:
            listener.hear(rule, partial(rule.in_data, weights))
    return ranked(listener.said)


def conclude(command: str, findings: tuple[Finding, ...], ending: Ending | None = None,
             **more: Any) -> Diagnosis:
    """The diagnosis a report shows. `more` are further fields of `Diagnosis`; notes are masked."""
    if more.get("notes"):
        from torchmedic import redact  # as `ranking.py`: not for a clean run

        more["notes"] = tuple(map(redact.text, more["notes"]))
    verdict = verdict_of(findings, ending)
    if verdict.category == "unknown":
        more.setdefault("next_checks", next_checks(ending))
    return Diagnosis(command=command, verdict=verdict, findings=findings, **more)


def verdict_of(findings: Sequence[Finding], ending: Ending | None = None) -> Verdict:
    """What the first error or warning says; without one, whether that is good news."""
    for finding in findings:
        if finding.severity != "info":
            return Verdict(finding.category, finding.rule, finding.message.partition("\n")[0])
    if ending is None or (ending.code == 0 and ending.signal is None):
        return Verdict("none", None, "no failure found")
    how = f"was ended by {ending.signal}" if ending.signal else f"exited with code {ending.code}"
    return Verdict("unknown", None, f"the program {how}, and nothing observed says why")


def next_checks(ending: Ending | None) -> tuple[str, ...]:
    """What would tell more about an end that nothing explains."""
    if ending is not None and ending.signal == "SIGKILL":
        return ("dmesg -T | tail -n 50", "journalctl -k -n 50")
    if ending is not None and ending.signal:
        return ("rerun with CUDA_LAUNCH_BLOCKING=1", "rerun on the CPU (CUDA_VISIBLE_DEVICES=)")
    return ("read the last lines the program printed", "rerun with PYTHONUNBUFFERED=1")


def user_files(run: Run) -> tuple[str, ...]:
    """The user's own files on any stack of the run, each once, main process first."""
    frames = (frame for process in run.processes for frame in _frames(process))
    return tuple(dict.fromkeys(frame.file for frame in frames if frame.user))


def _frames(process: Process) -> Iterator[Frame]:
    for failure in process.failures:
        yield from failure.frames
        if failure.during:
            yield from failure.during.frames
    yield from process.fatal_frames
    yield from process.stack
    for iteration in process.iterations:
        yield from (*iteration.started, *iteration.left)
    for stack in (*(call.frames for call in process.exits),
                  *(backward.frames for backward in process.backwards),
                  *(update.frames for update in process.updates)):
        yield from stack


def _modest(rule: Rule, look: Look) -> Iterator[Problem]:
    """What is not certain is only worth a word."""
    for problem in look():
        doubted = problem.confidence != "certain"
        yield replace(problem, severity="info") if doubted else problem


class _Listener:
    """Collects what rules say. A rule that raises is our failure: noted, never the user's."""

    def __init__(self, notes: list[str] | None) -> None:
        self.said: list[Said] = []
        self.notes = [] if notes is None else notes

    def failures(self, rule: Rule, witnesses: Sequence[Witness]) -> None:
        if rule.in_failure is None:
            return
        for seen in witnesses:
            if seen.earlier and rule.level == "fallback":
                continue  # what was raised from it is what ended things
            look = partial(rule.in_failure, seen.failure)
            self.hear(rule, look, about=seen.about, time=seen.order)

    def source(self, rules: Rules, script: Script, ran: bool = False) -> None:
        """Of a program that ran, what is read from its text must be certain to be more."""
        for rule in rules:
            if rule.in_source is not None:
                look = partial(rule.in_source, script)
                self.hear(rule, partial(_modest, rule, look) if ran else look, origin="source")

    def hear(self, rule: Rule, look: Look, about: tuple[str, ...] = (),
             time: float = float("inf"), origin: str = "run") -> None:
        try:
            for problem in look():
                self._keep(rule, problem, about, time, origin)
        except Exception as error:
            note = f"rule {rule.name} failed: {type(error).__name__}: {error}"
            if note not in self.notes:
                self.notes.append(note)

    def _keep(self, rule: Rule, problem: Problem, about: tuple[str, ...], time: float,
              origin: str) -> None:
        if not isinstance(problem, Problem):
            raise TypeError(f"yielded {type(problem).__name__}, not Problem")
        keys = frozenset((*problem.about, *about))
        self.said.append(Said(rule, problem, keys, time, origin, len(self.said)))
