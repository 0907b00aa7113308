"""The ring and the spool: they outlive the process, and never hurt it."""

import os
import random
import resource
import signal
import subprocess
import sys
import time

import pytest
from launching import PYTHON, Programs, environment, observed_environment

from torchmedic.probes import layout
from torchmedic.supervise.rings import read_events, read_ring
from torchmedic.supervise.spools import read_spools


@pytest.fixture
def programs(tmp_path):
    return Programs(tmp_path)


@pytest.fixture
def spool(tmp_path):
    return tmp_path / "spool"


def observed(programs, spool, text, *, limit=None, code=0, env=None):
    """Runs a program with the observer alone. limit: (resource, bytes or number)"""
    path = programs.write("program.py", text)
    ended = subprocess.run(
        [PYTHON, path], env=env or observed_environment(spool), cwd=programs.folder, timeout=60,
        capture_output=True, preexec_fn=limit and (lambda: resource.setrlimit(limit[0], limit[1:])))
    assert ended.stderr == b"" and ended.returncode == code, (ended.returncode, ended.stderr.decode())
    return ended.stdout.decode()


EMIT = "from _torchmedic.recorder import emit, recorder, state\nimport os, sys, time, signal\n"


def test_everything_survives_a_kill(programs, spool):
    observed(programs, spool, EMIT + """
from _torchmedic import layout, sampler
state.slots[layout.STEPS] = 41
state.slots[layout.STEPS] += 1
sampler.start()
emit("told", text="bevor — \\u00e9\\n\\x00\\ud800", number=float("nan"), deep=[[[{"a": (1, None, True)}]]])
def busy():
    end = time.time() + 0.5
    while time.time() < end:
        pass
busy()
os.kill(os.getpid(), signal.SIGKILL)
""", code=-9)
    (found,) = read_spools(spool)
    told = found.first("told")
    assert told["text"] == "bevor — \u00e9\n\x00\ud800" and told["number"] is None
    assert told["deep"] == [[[{"a": [1, None, True]}]]]
    assert found.slot(layout.STEPS) == 42 and not found.slot(layout.ENDED)
    assert [entry[2] for entry in found.ring.stack][-2:] == ["<module>", "busy"]
    assert found.all("signal")[0]["signal"] == "SIGKILL"


def test_a_kill_in_the_middle_of_a_write(programs, spool):
    """Whenever it comes, all lines but the last are whole, and in order."""
    path = programs.write("program.py", EMIT + """
print("ready", flush=True)
n = 0
while True:
    emit("tick", n=n, filler="x" * (n * 37 % 9000))
    n += 1
""")
    for turn in range(6):
        folder = spool / str(turn)
        process = subprocess.Popen([PYTHON, path], env=observed_environment(folder), stdout=subprocess.PIPE)
        process.stdout.readline()
        time.sleep(0.02 + turn * 0.013)
        process.kill()
        process.communicate()
        (found,) = read_spools(folder)
        ticks = [e["n"] for e in found.all("tick")]
        assert ticks == list(range(len(ticks))) and len(ticks) > 20


def test_a_forked_child_has_files_of_its_own(programs, spool):
    out = observed(programs, spool, EMIT + """
from _torchmedic import layout
state.slots[layout.STEPS] = 7
emit("told", who="parent before")
before = {n for n in os.listdir("/proc/self/fd")}
child = os.fork()
if not child:
    emit("told", who="child")
    state.slots[layout.STEPS] += 1
    grandchild = os.fork()
    if not grandchild:
        emit("told", who="grandchild")
        os._exit(0)
    os.waitpid(grandchild, 0)
    print(sorted(int(n) for n in os.listdir("/proc/self/fd") if int(n) < 100), flush=True)
    os._exit(0)
os.waitpid(child, 0)
emit("told", who="parent after")
state.slots[layout.STEPS] += 10
print(sorted(int(n) for n in os.listdir("/proc/self/fd") if int(n) < 100))
print(before == {n for n in os.listdir("/proc/self/fd")})
""")
    lines = out.splitlines()
    assert lines == ["[0, 1, 2, 3]", "[0, 1, 2, 3]", "True"]  # 3 is the listing itself
    told = {s.pid: [e["who"] for e in s.all("told")] for s in read_spools(spool)}
    assert sorted(told.values()) == [["child"], ["grandchild"], ["parent before", "parent after"]]
    steps = {s.all("told")[0]["who"]: s.slot(layout.STEPS) for s in read_spools(spool)}
    assert steps == {"parent before": 17, "child": 1, "grandchild": 0}  # a child begins anew
    assert {p.suffix for p in spool.iterdir()} == {".ring", ".events", ".fault"}
    assert len(list(spool.iterdir())) == 9


WORK = EMIT + """
import multiprocessing
print("alive", os.path.exists("/"), flush=True)
for n in range(2000):
    emit("tick", n=n, filler="x" * 1000)
child = os.fork()
if not child:
    emit("tick", n=-1)
    print("child", flush=True)
    os._exit(0)
os.waitpid(child, 0)
try:
    raise SystemExit(0)
finally:
    print("done", flush=True)
"""


def test_a_folder_that_cannot_be_written(programs, spool):
    for folder in (spool / "gone", programs.write("a file", ""), "/proc", "", "\u00e9" * 300):
        env = {**observed_environment(spool), "TORCHMEDIC_RUN": str(folder)}
        out = observed(programs, spool, WORK.replace("from _torch", "try:\n from _torch").replace(
            "state\n", "state\nexcept ImportError:\n emit = lambda *a, **k: None\n", 1), env=env)
        assert out == "alive True\nchild\ndone\n"


def test_a_file_size_limit(programs, spool):
    """RLIMIT_FSIZE makes a write past it a SIGXFSZ, which Python ignores, and EFBIG."""
    for size in (0, 600, 30_000, 100_000, 400_000):
        folder = spool / str(size)
        limit = (resource.RLIMIT_FSIZE, size, resource.RLIM_INFINITY)
        out = observed(programs, folder, WORK, limit=limit, env=observed_environment(folder))
        assert out == "alive True\nchild\ndone\n"
        for file in folder.iterdir():
            list(read_events(file))
            read_ring(file)


@pytest.mark.parametrize("number", [8, 16, 64, 250])
def test_few_descriptors(programs, spool, number):
    """Where the limit leaves no room for ours, the program still gets all of its own."""
    text = """
import os
files = []
try:
    while True:
        files.append(os.open("/dev/null", os.O_RDONLY))
except OSError as error:
    print(len(files), error.errno, flush=True)
"""
    path = programs.write("program.py", text)
    limit = lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (number, number))  # noqa: E731
    ended = [subprocess.run([PYTHON, path], env=env, preexec_fn=limit, capture_output=True, text=True)
             for env in (environment(), observed_environment(spool))]
    assert [e.stderr for e in ended] == ["", ""]
    counts = [int(e.stdout.split()[0]) for e in ended]
    assert counts[0] == number - 3
    assert counts[0] - counts[1] <= (4 if number > 8 else 3)


@pytest.fixture
def small_disk(tmp_path):
    """A file system of 300 KiB."""
    folder = tmp_path / "disk"
    folder.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=300k", "tmpfs", folder],
                             capture_output=True)
    if mounted.returncode:
        pytest.skip("cannot mount a tmpfs here")
    yield folder
    subprocess.run(["umount", "-l", folder], check=True)


def test_a_full_disk(programs, small_disk):
    spool = small_disk / "spool"
    out = observed(programs, spool, WORK, env=observed_environment(spool))
    assert out == "alive True\nchild\ndone\n"
    found = read_spools(spool)
    ticks = [e["n"] for e in found[0].all("tick")]
    assert ticks[:50] == list(range(50)) and len(ticks) < 2000


def test_a_disk_that_is_full_from_the_start(programs, small_disk):
    spool = small_disk / "spool"
    env = observed_environment(spool)
    (small_disk / "filler").write_bytes(b"x" * (300 << 10))
    assert observed(programs, spool, WORK, env=env) == "alive True\nchild\ndone\n"


def test_a_spool_has_a_limit(programs, spool):
    observed(programs, spool, EMIT + """
for n in range(12_000):
    emit("tick", n=n, filler="x" * 1000)
emit("exit", how="told in spite of it", frames=[], code=None)
""")
    (found,) = read_spools(spool)
    size = next(spool.glob("*.events")).stat().st_size
    assert 8 << 20 <= size < 9 << 20
    assert found.first("exit")["how"] == "told in spite of it" and found.first("ended")


def test_what_encode_cannot_say(programs, spool):
    """No `__repr__`, `__str__` or iteration of an unknown object runs; deep and cyclic data end."""
    observed(programs, spool, EMIT + """
class Loud:
    def __repr__(self):
        raise RuntimeError
    __str__ = __iter__ = __len__ = __bool__ = __hash__ = __repr__
class Text(str):
    pass
cycle = []
cycle.append(cycle)
emit("told", loud=Loud(), cycle=cycle, text=Text("a"), big=2 ** 80, bytes=b"x", infinite=float("-inf"))
""")
    told = read_spools(spool)[0].first("told")
    assert told["loud"] == "<Loud>" and told["big"] == 2**80 and told["infinite"] is None
    assert told["bytes"] == "<bytes>" and "…" in str(told["cycle"])


def test_the_reader_survives_anything(programs, spool):
    observed(programs, spool, EMIT + "emit('told', n=1)\nemit('told', n=2)\n")
    events, ring = next(spool.glob("*.events")), next(spool.glob("*.ring"))
    good, good_ring = events.read_bytes(), ring.read_bytes()
    whole = len(list(read_events(events)))
    chance = random.Random(0)
    for turn in range(300):
        cut = chance.randrange(len(good) + 1)
        noise = bytes(chance.randrange(256) for _ in range(chance.randrange(40)))
        spoiled = good[:cut] + noise + (good[cut:] if turn % 2 else b"")
        events.write_bytes(spoiled)
        kept = list(read_events(events))
        assert all(isinstance(e, dict) and "kind" in e for e in kept)
        if turn % 2 and b"\n" not in noise:
            assert len(kept) >= whole - 1  # noise spoils the one line that it is in
        place = chance.randrange(len(good_ring))
        ring.write_bytes(good_ring[:place] + noise + good_ring[place + len(noise):] if turn % 2
                         else good_ring[:place])
        found = read_ring(ring)
        assert found is None or (found.phase and found.progress and isinstance(found.stack, tuple))
        read_spools(spool)
    for odd in (b"", b"\n\n", b"null\n[]\n1\n", b'{"kind": 3}\n', b'{"a": 1}\n', b"\xff\xfe" * 99,
                b'{"kind": "process"}\n', b"[" * 100_000 + b"\n"):
        events.write_bytes(odd)
        assert all(isinstance(e["kind"], str) for e in read_events(events)), odd
        read_spools(spool)


def test_signals_and_threads_do_not_tear_events(programs, spool):
    """Many threads and a signal handler write at once: each line stays whole."""
    observed(programs, spool, EMIT + """
import threading
signal.signal(signal.SIGALRM, lambda *a: emit("alarm"))
signal.setitimer(signal.ITIMER_REAL, 0.001, 0.001)
def work(k):
    for n in range(400):
        emit("tick", k=k, n=n, filler="y" * (n % 3000))
threads = [threading.Thread(target=work, args=(k,)) for k in range(4)]
for t in threads: t.start()
for t in threads: t.join()
signal.setitimer(signal.ITIMER_REAL, 0)
""")
    raw = next(spool.glob("*.events")).read_bytes().splitlines()
    (found,) = read_spools(spool)
    assert len(found.events) == len(raw)
    for k in range(4):
        assert [e["n"] for e in found.all("tick") if e["k"] == k] == list(range(400))
    assert found.all("alarm")


def test_the_dump_signal_writes_all_stacks_and_stops_nothing(programs, spool):
    path = programs.write("program.py", """
import threading, time, sys
def waits():
    time.sleep(30)
threading.Thread(target=waits, daemon=True).start()
print("ready", flush=True)
sys.stdin.readline()
print("went on")
""")
    process = subprocess.Popen([PYTHON, path], env=observed_environment(spool), stdin=subprocess.PIPE,
                               stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    process.stdout.readline()
    number = read_ring(next(spool.glob("*.ring"))).slots[layout.DUMP_SIGNAL]
    assert number == signal.SIGRTMAX - 5
    os.kill(process.pid, number)
    time.sleep(0.3)
    out, err = process.communicate(b"\n", timeout=20)
    assert (out, err, process.returncode) == (b"went on\n", b"", 0)
    assert b"in waits" in next(spool.glob("*.fault")).read_bytes()


def test_start_up_is_cheap(programs, spool):
    """The observer's own account of a start without torch."""
    times = []
    for turn in range(5):
        folder = spool / str(turn)
        observed(programs, folder, "pass", env=observed_environment(folder))
        times.append(read_spools(folder)[0].slot(layout.OVERHEAD_NS) / 1e6)
    assert min(times) < 15, times


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_an_unwritable_mapping_is_no_bus_error(programs, spool):
    """Someone truncates the ring of a living process: the blocks are gone, writes would be SIGBUS."""
    out = observed(programs, spool, EMIT + """
import glob
(ring,) = glob.glob(os.path.join(recorder.folder, "*.ring"))
os.unlink(ring)  # the folder is cleaned up while the program runs
for name in os.listdir(recorder.folder):
    os.unlink(os.path.join(recorder.folder, name))
os.rmdir(recorder.folder)
emit("tick")
state.slots[5] += 1
child = os.fork()
if not child:
    emit("tick")
    os._exit(0)
print(os.waitpid(child, 0)[1])
""")
    assert out == "0\n" and not spool.exists()
