"""What a run says of its own end."""

from dataclasses import replace

import pytest

from torchmedic.failures import of_run
from torchmedic.observed import Ending, Failure, Process, Run, SignalSent


@pytest.mark.parametrize(("signal", "time", "ended_by"), [
    ("SIGUSR1", 99.5, "SIGUSR1"),
    ("SIGUSR1", 50.0, None),  # it was handled: the process was seen after it
    ("SIGWINCH", 99.5, None), ("SIGCONT", 99.5, None),
])
def test_a_signal_ended_a_process_that_was_not_seen_again(signal, time, ended_by):
    main = Process(7, 1, ("train.py",), "main", step=3, last_seen=100.0)
    run = Run(("bash", "go.sh"), Ending(1, None), (main,),
              signals=(SignalSent(7, 7, signal, (), time),))
    assert run.main_signal == ended_by


def test_failures_are_sorted_out_once_for_a_run_and_anew_for_another():
    failure = Failure("a", "KeyError", "'x'", "uncaught")
    main = Process(7, 1, ("train.py",), "main", failures=(failure,))
    run = Run(("python",), Ending(1, None), (main,))
    assert of_run(run) is of_run(run) and len(of_run(run)) == 1
    assert of_run(replace(run, processes=())) == ()
