"""Tracebacks as Python really prints them, and as logs mangle them."""

import subprocess
import sys
import textwrap

import pytest

from torchmedic.logs.paths import is_user
from torchmedic.logs.tracebacks import read_log, unwrapped
from torchmedic.observed import Failure

WORKER = """\
Epoch 1:  40%|████      | 4/10 [00:01<00:02,  2.11it/s]Traceback (most recent call last):
  File "/home/ana/misr/train.py", line 25, in main
    for low, high in loader:
                     ^^^^^^
  File "/opt/conda/lib/python3.11/site-packages/torch/_utils.py", line 543, in reraise
    raise exception
RuntimeError: Caught RuntimeError in DataLoader worker process 0.
Original Traceback (most recent call last):
  File "/opt/conda/lib/python3.11/site-packages/torch/utils/data/_utils/fetch.py", line 61, in fetch
    return self.collate_fn(data)
  File "/home/ana/misr/utils.py", line 17, in collate
    batch = torch.stack(items, dim=0)
            ^^^^^^^^^^^^^^^^^^^^^^^^^
RuntimeError: stack expects each tensor to be equal size, but got [24, 32] at entry 0

wandb: syncing
"""


def only(text):
    log = read_log(text)
    assert len(log.failures) == 1, log.failures
    return log.failures[0]


def real(source, *options):
    """What this Python prints for a program."""
    run = subprocess.run([sys.executable, *options, "-c", textwrap.dedent(source)],
                         capture_output=True, text=True, encoding="utf-8", check=False)
    assert run.stderr
    return run.stderr


def test_a_worker_is_unwrapped_and_a_progress_bar_is_no_part_of_it():
    failure = only(WORKER)
    assert failure.type == "RuntimeError"
    assert failure.message.startswith("stack expects") and "wandb" not in failure.message
    assert [f.function for f in failure.frames] == ["main", "reraise", "fetch", "collate"]
    assert failure.user_frame.text == "batch = torch.stack(items, dim=0)"
    assert (failure.key, failure.line_number, failure.how) == ("log:1", 1, "logged")


def test_the_message_of_a_live_exception_is_unwrapped_too():
    message = WORKER.partition("RuntimeError: ")[2].partition("\n\nwandb")[0]
    live = Failure(key="3", type="RuntimeError", message=message, how="uncaught", frames=())
    told = unwrapped(live)
    assert told.key == "3" and told.message.startswith("stack expects")
    assert told.user_frame.line == 17
    plain = Failure(key="4", type="ValueError", message="x", how="uncaught")
    assert unwrapped(plain) is plain


def test_chained_exceptions_are_one_failure():
    failure = only(real("""
        def read():
            try:
                {}["image"]
            except KeyError as error:
                raise ValueError("no image") from error
        try:
            read()
        except ValueError:
            1 / 0
    """))
    assert failure.type == "ZeroDivisionError"
    assert (failure.during.type, failure.during.message) == ("ValueError", "no image")
    assert (failure.during.during.type, failure.during.during.message) == ("KeyError", "'image'")


def test_message_of_several_lines_and_what_comes_after():
    failure = only(real("""
        import sys
        try:
            raise RuntimeError("Error(s) in loading:\\n\\tMissing: a\\n\\n    indented\\nflush")
        except RuntimeError:
            import traceback; traceback.print_exc()
        print("2026-01-02 10:00:00 INFO saved", file=sys.stderr)
    """))
    assert failure.message == "Error(s) in loading:\n\tMissing: a\n\n    indented\nflush"


def test_ignored_exception_and_thread():
    text = real("""
        import threading
        class Loader:
            def __del__(self):
                assert False, "can only join a child process"
        Loader()
        thread = threading.Thread(target=lambda: {}["k"], name="fetch")
        thread.start(); thread.join()
    """)
    ignored, thread = read_log(text).failures
    assert ignored.swallowed and ignored.message == "can only join a child process"
    assert not thread.swallowed
    assert (thread.type, thread.thread) == ("KeyError", "fetch")


@pytest.mark.parametrize("source", ["def f(:\n    pass\n", "if 1:\nx = 1\n"])
def test_syntax_errors(source, tmp_path):
    file = tmp_path / "train.py"
    file.write_text(source)
    run = subprocess.run([sys.executable, str(file)], capture_output=True, text=True, check=False)
    failure = only(run.stderr)
    assert failure.type in ("SyntaxError", "IndentationError")
    assert failure.place.file == str(file)
    (tmp_path / "main.py").write_text("import train\n")
    run = subprocess.run([sys.executable, str(tmp_path / "main.py")], capture_output=True,
                         text=True, check=False)
    failure = only(run.stderr)
    assert failure.place.file == str(file) and len(failure.frames) > 1


@pytest.mark.skipif(sys.version_info < (3, 11), reason="exception groups came with Python 3.11")
def test_exception_groups_are_survived():
    text = real("""
        def bad(n):
            try:
                raise ValueError(f"sample {n}")
            except ValueError as e:
                return e
        raise ExceptionGroup("loading", [bad(3), bad(7)])
    """)
    group, first, second = read_log(text).failures
    assert (group.type, group.message) == ("ExceptionGroup", "loading (2 sub-exceptions)")
    assert (first.message, second.message) == ("sample 3", "sample 7")


def test_deep_recursion_and_bare_type():
    failure = only(real("def f(): f()\nf()\n"))
    assert failure.type == "RecursionError"
    assert only(real("assert 0\n")).type == "AssertionError"
    assert only(real("raise KeyboardInterrupt\n")).type == "KeyboardInterrupt"


def test_ranks_that_write_at_the_same_time():
    text = textwrap.dedent("""\
        [rank1]: Traceback (most recent call last):
        [rank0]: Traceback (most recent call last):
        [rank1]:   File "/w/train.py", line 5, in main
        [rank0]:   File "/w/train.py", line 7, in main
        [rank1]:     step(x)
        [rank0]:     step(y)
        [rank1]: ValueError: one
        [rank0]: ValueError: zero
        """)
    one, zero = read_log(text).failures
    assert (one.rank, one.message, one.user_frame.text) == (1, "one", "step(x)")
    assert (zero.rank, zero.message, zero.user_frame.line) == (0, "zero", 7)


@pytest.mark.parametrize("prefix", [
    "2021-03-10T13:22:37.402Z: [1,3]<stderr>:", "[default3]:", "3: ", "trainer-3  | ",
    "\x1b[36m(RayTrainWorker pid=4711, ip=10.0.0.2)\x1b[0m ",
])
def test_launchers_prefixes(prefix):
    plain = ["Traceback (most recent call last):", '  File "/w/train.py", line 5, in main',
             "    \x1b[31mstep(x)\x1b[0m", "ValueError: bad", ""]
    failure = only("\n".join(prefix + line for line in plain))
    assert failure.message == "bad" and failure.user_frame.text == "step(x)"
    assert failure.rank == (None if prefix.startswith(("trainer", "\x1b")) else 3)


def test_spawned_child():
    failure = only(textwrap.dedent("""\
        Traceback (most recent call last):
          File "/w/train.py", line 9, in <module>
            mp.spawn(work, nprocs=2)
        torch.multiprocessing.spawn.ProcessRaisedException:

        -- Process 1 terminated with the following error:
        Traceback (most recent call last):
          File "/w/train.py", line 4, in work
            raise ValueError("in the child")
        ValueError: in the child
        """))
    assert (failure.type, failure.message) == ("ValueError", "in the child")
    assert [f.function for f in failure.frames] == ["<module>", "work"]


def test_last_line_alone_and_cut_off_tracebacks():
    assert only("epoch 3\nRuntimeError: CUDA out of memory. Tried\n").frames == ()
    header = "Traceback (most recent call last):\n"
    assert read_log(header + '  File "a.py", line 1, in f\n').failures == ()
    assert read_log(header).failures == ()
    assert read_log("").lines == ()


def test_lines_are_as_a_person_sees_them():
    log = read_log("\r 10%|#\r 20%|##\n\x1b[1mbold\x1b[0m\r\nlast", source="stderr")
    assert log.lines == (" 20%|##", "bold", "last") and log.source == "stderr"


@pytest.mark.parametrize("file, user", [
    ("/home/ana/train.py", True), ("train.py", True), ("<ipython-input-3-a>", True),
    ("/opt/conda/lib/python3.11/threading.py", False), ("<frozen runpy>", False),
    ("/usr/lib/python3/dist-packages/numpy/core.py", False),
    (r"D:\Anaconda3\envs\seg\lib\multiprocessing\spawn.py", False),
    (r"D:\proj\lib\mynet\model.py", True), ("/src/pytorch/torch/nn/modules/module.py", False),
])
def test_whose_code(file, user):
    assert is_user(file) is user
