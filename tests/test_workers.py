"""Which of several lost workers the parent's exception is about."""

import pytest

from torchmedic import registry, workers
from torchmedic.diagnosis import diagnose_run
from torchmedic.observed import Ending, Failure, Frame, Process, Run, Stall
from torchmedic.rules.loading import worker_deadlock
from torchmedic.source.script import Script

GONE = "DataLoader worker (pid(s) {}) exited unexpectedly"


def worker(pid, code=-9, seen=1.0, **more):
    return Process(pid, 1, ("train.py",), "worker", exit_code=code, last_seen=seen,
                   worker_index=0, **more)


def run_of(message, *lost, kind="RuntimeError", **more):
    frames = (Frame("/lib/torch/utils/data/dataloader.py", 9, "_next_data", user=False),
              Frame("/lib/python3/multiprocessing/connection.py", 9, "recv", user=False))
    failure = Failure("a", kind, message, "uncaught", frames, time=9.0)
    main = Process(1, 0, ("train.py",), "main", failures=(failure,))
    return Run(("python",), Ending(1, None), (main, *lost), **more)


def test_a_worker_that_was_replaced_takes_no_blame():
    first, second = worker(11), worker(12, code=3, seen=8.0)
    run = run_of(GONE.format(12), first, second)
    assert workers.about(run, first) == ()
    assert workers.about(run, second) == ("failure:a", "ending")
    assert "worker-killed" not in [f.rule for f in diagnose_run(run, registry.rules())]


def test_several_may_be_named():
    first, second = worker(11), worker(12)
    run = run_of(GONE.format("11, 12"), first, second)
    assert workers.about(run, first) == workers.about(run, second) == ("failure:a", "ending")


def test_without_a_number_it_is_the_last_that_was_lost():
    first, last, stopped = worker(11), worker(12, seen=8.0), worker(13, code=-15, seen=9.0)
    run = run_of("", first, last, stopped, kind="EOFError")
    assert [bool(workers.about(run, w)) for w in (first, last, stopped)] == [False, True, False]


@pytest.mark.parametrize(("line", "certain"), [
    ("with self._lock:", True), ("with FileLock(path), open(path):", True),
    ("self.locks[0].acquire()", True), ("found = self.mutex.acquire(timeout=9)", True),
    ("with self.clock:", False), ("block = read_block(file)", False),
    ("with open('lock') as file:", False), ("unlock = self.acquire()", False),
])
def test_a_line_takes_a_lock_by_what_it_does(line, certain):
    text = line + ("\n    pass" if line.endswith(":") else "")
    run = run_of("", script=lambda file: Script.parse(text, file))
    assert worker_deadlock._at_lock(run, (Frame("data.py", 1, "load"),)) is certain


def test_python_s_own_code_for_locks_is_one():
    frames = (Frame("data.py", 1, "load"), Frame("/usr/lib/python3.12/threading.py", 9, "wait"))
    assert worker_deadlock._at_lock(run_of(""), frames)


def test_a_stall_is_laid_to_the_last_that_was_lost():
    stall = Stall(60.0, None, 0.0, stopped=True)
    first, last = worker(11), worker(12, seen=8.0)
    run = Run(("python",), Ending(1, None), (first, last), stall=stall)
    assert (workers.about(run, first), workers.about(run, last)) == ((), ("ending",))
