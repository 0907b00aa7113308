"""Ranking, folding and the verdict, with rules made by hand."""

from pathlib import Path

import pytest

from torchmedic.diagnosis import (
    conclude,
    diagnose_log,
    diagnose_run,
    diagnose_source,
    next_checks,
    user_files,
)
from torchmedic.logs.tracebacks import read_log
from torchmedic.model import Fix, Place, Problem, Rule
from torchmedic.observed import Ending, Failure, Frame, Iteration, Loader, Log, Process, Run
from torchmedic.source.script import Script

DOC = "It went wrong.\n"
CRASH = Ending(code=1, signal=None)


def rule(name, *problems, look="in_run", **more):
    """A rule that always says the same."""
    return Rule(name=name, doc=DOC, category=more.pop("category", "code"),
                **{look: lambda _: iter(problems)}, **more)


def on_type(name, wanted, **more):
    """A rule that speaks about failures of one type."""
    def in_failure(failure):
        if failure.short_type == wanted or wanted == "*":
            yield Problem(f"{failure.short_type}: {failure.message}", failure.place)
    return Rule(name=name, doc=DOC, category="code", in_failure=in_failure, **more)


def failure(key, kind, message="x", how="uncaught", line=1, **more):
    frames = (Frame("train.py", line, "main"),)
    return Failure(key=key, type=kind, message=message, how=how, frames=frames, **more)


def run_of(*failures, ending=CRASH, **more):
    return Run(("python", "train.py"), ending,
               (Process(1, 0, ("train.py",), "main", failures=failures),), **more)


def names(findings):
    return [finding.rule for finding in findings]


def test_symptoms_fold_under_the_cause_and_fallbacks_go():
    run = run_of(failure("3", "ValueError"))
    found = diagnose_run(run, [
        rule("killed", Problem("killed", about=("ending",)), level="symptom"),
        on_type("uncaught-exception", "*", level="fallback"),
        on_type("ragged-batch", "ValueError"),
    ])
    assert names(found) == ["ragged-batch", "killed"]
    assert [f.explains for f in found] == [(1,), ()]


def test_a_fallback_speaks_when_nobody_else_does():
    found = diagnose_run(run_of(failure("3", "ValueError")), [
        on_type("uncaught-exception", "*", level="fallback"),
        rule("other", Problem("unrelated", about=("failure:9",), severity="warning")),
    ])
    assert names(found) == ["uncaught-exception", "other"]


def test_a_symptom_without_its_cause_stands_alone():
    found = diagnose_run(run_of(), [
        rule("killed", Problem("a", about=("ending",)), Problem("b", about=("ending",)),
             level="symptom"),
    ])
    assert [f.explains for f in found] == [(1,), ()]


def test_order_of_what_is_told():
    said = [
        ("info", Problem("m", severity="info")),
        ("possible", Problem("m", confidence="possible")),
        ("warning", Problem("m", severity="warning")),
        ("likely", Problem("m", confidence="likely")),
        ("certain", Problem("m")),
        ("ended-it", Problem("m", about=("ending",), severity="warning", confidence="possible")),
    ]
    found = diagnose_run(run_of(), [rule(name, problem) for name, problem in said])
    assert names(found) == ["ended-it", "certain", "likely", "possible", "warning", "info"]


def test_earlier_failures_first_and_the_one_that_ended_it_before_them():
    run = run_of(failure("a", "KeyError", how="seen", time=5.0, swallowed=True, batch=3, count=2,
                         phase="forward", steps_after=0),
                 failure("b", "OSError", how="thread", time=2.0),
                 failure("c", "ValueError", time=9.0))
    kinds = [on_type(kind.lower(), kind) for kind in ("KeyError", "OSError", "ValueError")]
    assert names(diagnose_run(run, kinds)) == ["valueerror", "oserror", "keyerror"]


@pytest.mark.parametrize("more", [
    {"batch": None}, {"batch": 3, "steps_after": 1}, {"batch": 3, "steps_after": None}])
def test_an_exception_the_program_got_over_is_nobody_s_finding(more):
    run = run_of(failure("a", "KeyError", how="seen", swallowed=True, phase="forward", **more))
    assert names(diagnose_run(run, [on_type("keyerror", "KeyError")])) == []


def test_a_cause_that_only_warns_ranks_as_high_as_the_symptom_it_explains():
    found = diagnose_run(run_of(), [
        rule("error", Problem("m", about=("failure:1",))),
        rule("symptom", Problem("m", about=("ending",)), level="symptom"),
        rule("cause", Problem("m", about=("ending",), severity="warning")),
    ])
    assert names(found) == ["cause", "symptom", "error"]


def test_same_problem_twice_is_one():
    run = run_of(failure("1", "ValueError", how="worker"), failure("2", "ValueError"))
    found = diagnose_run(run, [on_type("ragged-batch", "ValueError")])
    assert names(found) == ["ragged-batch"]
    lines = run_of(failure("1", "ValueError", line=1), failure("2", "ValueError", line=2))
    assert len(diagnose_run(lines, [on_type("ragged-batch", "ValueError")])) == 2


def test_a_worker_and_its_parent_are_one_failure_that_ended_the_run():
    inner = failure("1", "ValueError", "bad size", how="worker", line=7)
    outer = failure("2", "ValueError", (
        "Caught ValueError in DataLoader worker process 0.\nOriginal Traceback (most recent call "
        'last):\n  File "train.py", line 7, in main\n    x\nValueError: bad size\n'), time=1.0)
    found = diagnose_run(run_of(inner, outer), [
        on_type("ragged-batch", "ValueError"),
        rule("exited", Problem("e", about=("ending",)), level="symptom"),
    ])
    assert names(found) == ["ragged-batch", "exited"]
    assert found[0].message == "ValueError: bad size" and found[0].where.line == 7
    alone = diagnose_run(run_of(outer), [on_type("ragged-batch", "ValueError")])
    assert alone[0].message == "ValueError: bad size" and alone[0].where.line == 7


def test_the_earlier_exception_explains_the_later_one():
    outer = failure("2", "RuntimeError", "step failed",
                    during=failure("1", "OutOfMemoryError", "114 MiB", how="seen"))
    found = diagnose_run(run_of(outer), [
        on_type("uncaught-exception", "*", level="fallback"),
        on_type("cuda-out-of-memory", "OutOfMemoryError"),
    ])
    assert names(found) == ["cuda-out-of-memory"]
    plain = diagnose_run(run_of(outer), [on_type("uncaught-exception", "*", level="fallback")])
    assert [f.message for f in plain] == ["RuntimeError: step failed"]


def traceback(kind, message):
    return ("Traceback (most recent call last):\n"
            f'  File "train.py", line 3, in main\n    f()\n{kind}: {message}\n')


def test_the_error_stream_tells_only_what_no_process_recorded():
    output = read_log(traceback("torch.OutOfMemoryError", "114 MiB") + traceback("OSError", "no"))
    run = run_of(failure("3", "OutOfMemoryError", "114 MiB"), output=output)
    found = diagnose_run(run, [on_type("any", "*")])
    assert [f.message for f in found] == ["OutOfMemoryError: 114 MiB", "OSError: no"]
    unseen = diagnose_run(run_of(output=output), [
        on_type("any", "*"), rule("exited", Problem("e", about=("ending",)), level="symptom")])
    assert [f.message for f in unseen] == ["OSError: no", "e", "OutOfMemoryError: 114 MiB"]


def test_a_printed_traceback_does_not_explain_a_signal():
    run = run_of(output=read_log(traceback("OSError", "no")), ending=Ending(None, "SIGKILL"))
    found = diagnose_run(run, [
        on_type("any", "*"), rule("killed", Problem("k", about=("ending",)), level="symptom")])
    assert names(found) == ["killed", "any"]


def test_of_several_ranks_the_first_ended_it_and_a_launcher_never_did():
    ranks = "".join(f"[rank{rank}]: {line}\n" for rank, kind in ((1, "ValueError"), (0, "OSError"))
                    for line in traceback(kind, "m").splitlines())
    launcher = traceback("ChildFailedError", "").replace("train.py", "/lib/python3.11/run.py")
    found = diagnose_log(read_log(ranks + launcher), [on_type("any", "*")])
    assert found[0].message == "ValueError: m" and len(found) == 3
    alone = diagnose_log(read_log(traceback("KeyError", "1") + launcher), [on_type("any", "*")])
    assert alone[0].message == "KeyError: 1"


def test_log_rules_hear_the_error_stream_of_a_run():
    log_only = rule("driver-too-old", Problem("old driver"), look="in_log")
    assert names(diagnose_run(run_of(output=Log(("x",))), [log_only])) == ["driver-too-old"]
    assert diagnose_run(run_of(), [log_only]) == ()


def test_a_log():
    log = read_log(traceback("KeyError", "'a'") + traceback("ValueError", "bad"))
    found = diagnose_log(log, [on_type("any", "*"), rule("t", Problem("m"), look="in_log")])
    assert [f.message for f in found] == ["ValueError: bad", "KeyError: 'a'", "m"]


def test_source_ranks_below_what_ended_the_run_and_is_not_said_twice(tmp_path: Path):
    file = tmp_path / "train.py"
    file.write_text("x = 1\n")
    crash = Failure("1", "ValueError", "m", "uncaught", (Frame(str(file), 1, "main"),) * 2)
    reads = []

    def in_source(script):
        reads.append(script.file)
        yield Problem("in the file", Place(file=script.file, line=1))

    both = Rule(name="both", doc=DOC, category="code", in_source=in_source,
                in_run=lambda run: iter([Problem("it happened")]))
    only_source = Rule(name="source", doc=DOC, category="code", in_source=in_source)
    run = run_of(crash, script=Script.read)
    found = diagnose_run(run, [only_source, both, on_type("failed", "*", level="fallback")])
    assert names(found) == ["failed", "both", "source"]
    assert reads == [str(file)] * 2
    assert names(diagnose_source(Script.read(str(file)), [both])) == ["both"]


def test_user_files_come_from_every_stack():
    library = Frame("/lib/python3.11/x.py", 1, "f", user=False)
    loader = Loader(1, 1, 1, 1, False, 0, "Clips")
    earlier = Failure("0", "E", "", "seen", (Frame("d.py", 1, "f"),))
    process = Process(
        1, 0, (), "main", stack=(library, Frame("a.py", 1, "f")),
        failures=(failure("1", "E", during=earlier),),
        iterations=(Iteration(loader, 1, 1, True, started=(Frame("b.py", 2, "g"),)),))
    run = Run(("python",), CRASH, (process,))
    assert user_files(run) == ("train.py", "d.py", "a.py", "b.py")


def test_a_rule_that_raises_is_noted_and_others_go_on():
    def broken(run):
        yield Problem("first")
        raise KeyError("steps")

    notes = []
    found = diagnose_run(run_of(), [
        Rule(name="broken", doc=DOC, category="code", in_run=broken),
        Rule(name="odd", doc=DOC, category="code", in_run=lambda run: iter(["text"])),
        Rule(name="none", doc=DOC, category="code", in_run=lambda run: None),
        rule("good", Problem("m")),
    ], notes)
    assert names(found) == ["broken", "good"]
    assert notes[0] == "rule broken failed: KeyError: 'steps'"
    assert notes[1] == "rule odd failed: TypeError: yielded str, not Problem"
    assert notes[2].startswith("rule none failed: TypeError")


def test_what_the_problem_leaves_open_comes_from_the_rule():
    found = diagnose_run(run_of(), [
        rule("a", Problem("m"), category="data", severity="warning"),
        rule("b", Problem("m", category="memory", severity="info")),
    ])
    assert [(f.category, f.severity) for f in found] == [("data", "warning"), ("memory", "info")]


@pytest.mark.parametrize("ending, category", [
    (Ending(0, None), "none"), (None, "none"), (CRASH, "unknown"),
    (Ending(None, "SIGKILL"), "unknown"),
])
def test_verdict_without_findings(ending, category):
    diagnosis = conclude("run", (), ending, retry="python train.py")
    assert diagnosis.verdict.category == category
    assert bool(diagnosis.next_checks) is (category == "unknown")
    assert diagnosis.retry == "python train.py"
    if category == "none":
        assert diagnosis.verdict.summary == "no failure found"


def test_verdict_is_the_first_that_is_not_just_information():
    found = diagnose_run(run_of(), [rule("a", Problem("note", severity="info"))])
    assert conclude("run", found, Ending(0, None)).verdict.category == "none"
    found = diagnose_run(run_of(), [rule("a", Problem("one\ntwo", severity="warning"))])
    verdict = conclude("run", found, Ending(0, None)).verdict
    assert (verdict.category, verdict.rule, verdict.summary) == ("code", "a", "one")


def test_next_checks_depend_on_the_end():
    assert "dmesg" in next_checks(Ending(None, "SIGKILL"))[0]
    assert "CUDA_LAUNCH_BLOCKING" in next_checks(Ending(None, "SIGSEGV"))[0]
    assert "PYTHONUNBUFFERED" in next_checks(CRASH)[1]


def test_secrets_in_a_program_s_texts_are_masked() -> None:
    from torchmedic.model import Evidence, Problem, Rule

    def leak(run: Run):  # type: ignore[no-untyped-def]
        yield Problem("can't open https://me:hunter2@host/x", None,
                      (Evidence("Authorization: Bearer abcdefghijk"),))

    rule = Rule(name="leak", doc="Leaks.", category="code", in_run=leak)
    run = Run(("python",), Ending(1, None))
    found = diagnose_run(run, (rule,))[0]
    assert "hunter2" not in found.message and "***" in found.message
    assert "abcdefghijk" not in found.evidence[0].text


def test_secrets_in_notes_are_masked() -> None:
    notes = ("a probe was switched off (loader: OSError('https://me:hunter2@host/x'))",)
    assert conclude("run", (), notes=notes).notes == (
        "a probe was switched off (loader: OSError('https://***@host/x'))",)


def test_secrets_in_a_fix_are_masked() -> None:
    fix = Fix("get `https://me:hunter2@host/a.png` again", "or api_key=hunter2 is old")
    found = diagnose_run(run_of(), [rule("told", Problem("it is broken", fix=fix))])
    assert found[0].fix is not None and "hunter2" not in found[0].fix.title + found[0].fix.detail
    assert found[0].fix.title == "get `https://***@host/a.png` again"


def test_a_failure_of_another_program_counts_only_when_the_command_failed():
    own = Process(1, 0, ("train.py",), "main", step=3)
    other = Process(2, 1, ("-c",), "launcher", failures=(failure("a", "ValueError", pid=2),))
    child = Process(3, 1, ("x",), "child",
                    failures=(failure("b", "OSError", how="child", pid=3),))
    rules = [on_type("any", "*")]
    ended_well = Run(("python",), Ending(0, None), (own, other, child))
    assert [f.message for f in diagnose_run(ended_well, rules)] == ["OSError: x"]
    assert len(diagnose_run(Run(("python",), CRASH, (own, other)), rules)) == 1
