"""What an exception that was caught cost the program."""

from torchmedic import caught
from torchmedic.observed import Failure, Iteration, Loader, Process

LOADER = Loader(1, 40, 4, 160, False, 0, "Clips")


def test_a_loop_that_was_over_before_was_not_cut_by_it():
    peek = Iteration(LOADER, 1, 2, False, time=1.0, ended=2.0)
    cut = Iteration(LOADER, 1, 2, False, time=3.0, ended=5.0)
    failure = Failure("a", "RuntimeError", "", "seen", batch=2, epoch=1, time=4.0, swallowed=True)
    process = Process(pid=7, parent=1, argv=("train.py",), role="main", iterations=(peek, cut))
    assert caught.cut_by(process, failure) is cut
