"""What a run says of its own end."""

import pytest

from torchmedic.observed import Ending, Process, Run, SignalSent


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
