"""Dumps that this Python writes, and those of other versions."""

import subprocess
import sys
import textwrap

from torchmedic.logs.faulthandler import read_dumps


def dump_of(source):
    run = subprocess.run([sys.executable, "-X", "faulthandler", "-c", textwrap.dedent(source)],
                         capture_output=True, text=True, check=False)
    return run.stderr


def test_a_real_crash_with_another_thread():
    text = dump_of("""
        import faulthandler, threading, time
        def wait(): time.sleep(30)
        threading.Thread(target=wait, daemon=True).start()
        time.sleep(0.1)
        def crash(): faulthandler._sigsegv()
        crash()
    """)
    dump, = read_dumps(text)
    assert dump.error == "Segmentation fault"
    assert [frame.function for frame in dump.current.frames] == ["<module>", "crash"]
    other = next(thread for thread in dump.threads if not thread.current)
    assert other.frames[-1].function == "wait" and not other.frames[0].user


def test_appended_dumps_and_a_timeout():
    crash = dump_of("import faulthandler; faulthandler._sigabrt()")
    late = dump_of("""
        import faulthandler, time
        faulthandler.dump_traceback_later(0.1, exit=True)
        time.sleep(20)
    """)
    first, second, third = read_dumps(crash + late + crash)
    assert first.error == third.error == "Aborted"
    assert second.error is None and second.threads[0].frames[-1].function == "<module>"


NEW = '''\
Fatal Python error: Bus error

Thread 0x00007f2448378 [Thread-1 (pin)] (most recent call first):
  File "/w/net.py", line 6 in pin

Current thread 0x00007f2448e10b80 [python] (most recent call first):
  <no Python frame>

Current thread's C stack trace (most recent call first):
  Binary file "/usr/bin/python3", at _Py_DumpStack+0x31 [0x55]
  Binary file "/w/libc10.so" [0x7f]

Extension modules: numpy.core._multiarray_umath (total: 1)
'''


def test_newer_forms():
    dump, = read_dumps(NEW)
    assert dump.error == "Bus error"
    assert [(t.name, t.current, len(t.frames)) for t in dump.threads] == [
        ("Thread-1 (pin)", False, 1), ("python", True, 0)]
    again = read_dumps(NEW + NEW.partition("\n\n")[2])
    assert [d.error for d in again] == ["Bus error", None]


def test_single_thread_and_no_dump():
    dump, = read_dumps('Stack (most recent call first):\n  File "a.py", line ??? in f\n')
    assert dump.current is dump.threads[0] and dump.threads[0].frames[0].line == 0
    assert read_dumps("no dump here\n") == ()
