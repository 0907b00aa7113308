"""What an exception that was caught cost the program."""

import pytest

from torchmedic import caught
from torchmedic.observed import Ending, Failure, Frame, Iteration, Loader, Process, Run
from torchmedic.source.script import Script

LOADER = Loader(1, 40, 4, 160, False, 0, "Clips")


def test_a_loop_that_was_over_before_was_not_cut_by_it():
    peek = Iteration(LOADER, 1, 2, False, time=1.0, ended=2.0)
    cut = Iteration(LOADER, 1, 2, False, time=3.0, ended=5.0)
    failure = Failure("a", "RuntimeError", "", "seen", batch=2, epoch=1, time=4.0, swallowed=True)
    process = Process(pid=7, parent=1, argv=("train.py",), role="main", iterations=(peek, cut))
    assert caught.cut_by(process, failure) is cut


def test_of_two_loaders_the_one_it_came_from_was_cut():
    item = Iteration(LOADER, 1, 2, False, time=1.0, ended=5.0)
    failure = Failure("a", "RuntimeError", "", "seen", batch=2, epoch=1, loader=2, time=4.0)
    process = Process(pid=7, parent=1, argv=("train.py",), role="main", iterations=(item,))
    assert caught.cut_by(process, failure) is None


BODY = """\
def train():
    try:
        for x in loader:
            {line}
    except {kind}:
        pass
"""
IN_LOOP = """\
def train():
    try:
        for x in loader:
            try:
                look(x)
            except {kind}:
                pass
    except {outer}:
        pass
"""


def left_at(text, line, *failures):
    """Who is said to have caught what left the loop on that line."""
    asked, left = Frame("train.py", 3, "train"), Frame("train.py", line, "train")
    item = Iteration(LOADER, 1, 2, False, started=(asked,), left=(left,))
    process = Process(1, 0, ("train.py",), "main", failures=failures, iterations=(item,))
    run = Run(("python",), Ending(0, None), (process,),
              script=lambda file: Script.parse(text, file))
    found = caught.left_by_exception(run, item)
    return found and found[1].text


@pytest.mark.parametrize(("kind", "said"), [
    ("Exception", "except Exception"), ("OSError", None), ("KeyboardInterrupt", None),
    ("OSError:\n        pass\n    except Exception", None),
])
def test_an_unknown_exception_is_said_to_be_caught_by_what_catches_all(kind, said):
    assert left_at(BODY.format(line="look(x)", kind=kind), 4) == said


def test_an_exception_that_ended_its_thread_was_caught_by_nobody():
    text = BODY.format(line="look(x)", kind="Exception")
    frames = (Frame("train.py", 4, "train"), Frame("train.py", 9, "look"))
    assert left_at(text, 4, Failure("a", "SystemError", "", "thread", frames)) is None
    elsewhere = Failure("a", "SystemError", "", "thread", frames[1:])
    assert left_at(text, 4, elsewhere) == "except Exception"


@pytest.mark.parametrize(("kind", "outer", "said"), [
    ("OSError", "Exception", "except Exception"),  # it was another type
    ("Exception", "BaseException", None),  # so it was no error: Ctrl-C, perhaps
])
def test_what_left_a_loop_passed_the_handlers_inside_it(kind, outer, said):
    assert left_at(IN_LOOP.format(kind=kind, outer=outer), 5) == said


@pytest.mark.parametrize(("body", "reraises", "chooses"), [
    ("raise", True, False), ("log(e); raise Wrong from e", True, False), ("pass", False, False),
    ("if small: raise", False, True), ("if small: raise\n    else: raise Wrong", True, False),
    ("if small: return\n    raise", False, True),
])
def test_only_a_raise_on_every_way_lets_no_exception_through(body, reraises, chooses):
    text = f"def f():\n  try:\n    go()\n  except ValueError as e:\n    {body}\n"
    handler, = Script.parse(text).handlers_around(3)
    assert (handler.reraises, handler.chooses) == (reraises, chooses)


def test_a_loop_left_by_the_raise_of_a_handler_was_not_left_for_good():
    text = "try:\n    go()\nexcept ValueError as e:\n    if a:\n        raise\n    stop()\n"
    run = Run(("python",), Ending(0, None), script=lambda file: Script.parse(text, file))
    assert caught.left_in_handler(run, Frame("train.py", 5, "f")) is None
    assert caught.left_in_handler(run, Frame("train.py", 6, "f")).text == "except ValueError as e"


@pytest.mark.parametrize(("count", "batches", "lost"), [
    (1, 4, None), (2, 5, None), (2, 4, "batch"), (1, 1, None)])
def test_without_any_step_a_batch_is_lost_only_when_most_are(count, batches, lost):
    item = Iteration(LOADER, 1, batches, True, time=1.0, ended=9.0)
    failure = Failure("a", "RuntimeError", "", "seen", batch=1, epoch=1, time=2.0, swallowed=True,
                      count=count, phase="forward", steps_after=0)
    process = Process(7, 1, ("x.py",), "main", failures=(failure,), iterations=(item,))
    assert caught.lost_by(Run((), Ending(0, None), (process,)), process, failure) == lost


@pytest.mark.parametrize(("turned", "line"), [
    ("raise ValueError('bad') from e", 9), ("raise KeyError", None), ("raise e", None),
    ("raise Wrong", None), ("raise", None)])
def test_what_a_handler_raises_instead_is_what_the_next_one_catches(turned, line):
    text = ("def go():\n  try:\n    net(x)\n  except RuntimeError as e:\n    " + turned
            + "\ndef main():\n  try:\n    go()\n  except ValueError:\n    stop()\n")
    failure = Failure("a", "RuntimeError", "", "seen", bases=("Exception",),
                      frames=(Frame("x.py", 8, "main"), Frame("x.py", 3, "go")))
    run = Run((), Ending(0, None), script=lambda file: Script.parse(text, file))
    found = caught.handler_of(run, failure)
    assert (found and found[1].line) == line
