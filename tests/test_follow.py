"""What the supervisor looks at while a run goes on."""

import os
import shlex
import struct
import subprocess
import sys
import threading

from torchmedic.probes import layout
from torchmedic.supervise.follow import Pace
from torchmedic.supervise.rings import LiveRings, read_ring
from torchmedic.supervise.streams import write_all


def ring(folder, name, pid, **slots):
    values = [0] * layout.SLOTS
    values[layout.MAGIC_SLOT], values[layout.PID] = layout.MAGIC, pid
    for slot, value in slots.items():
        values[getattr(layout, slot)] = value
    path = folder / f"{name}.ring"
    path.write_bytes(struct.pack(f"<{layout.SLOTS}Q", *values).ljust(layout.SIZE, b"\0"))
    return path


def test_the_dead_are_read_once_more_and_then_no_longer(tmp_path):
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    own, other = ring(tmp_path, "own", os.getpid()), ring(tmp_path, "other", child.pid, STEPS=3)
    ended = ring(tmp_path, "ended", os.getpid(), ENDED=1)
    live = LiveRings(tmp_path)
    assert set(live.look()) == {own, other, ended}
    child.communicate(b"\n")
    assert live.look()[other].slots == read_ring(other).slots
    assert set(live.look()) == {own}


def test_a_process_of_another_namespace_is_not_taken_for_dead(tmp_path):
    path = ring(tmp_path, "far", 2**22 + 1)
    live = LiveRings(tmp_path)
    assert all(set(live.look()) == {path} for _ in range(3))


def test_new_processes_are_seen_in_a_folder_that_was_at_rest(tmp_path):
    os.utime(tmp_path, (1, 1))
    live = LiveRings(tmp_path)
    assert live.look() == {}
    path = ring(tmp_path, "new", os.getpid())
    assert set(live.look()) == {path}


def test_time_in_which_we_were_stopped_is_no_hang():
    pace = Pace(since=100.0)
    pace.pause(3600)
    assert pace.since == 3700.0


def test_nothing_is_lost_on_a_descriptor_that_does_not_block():
    read_end, write_end = os.pipe()
    os.set_blocking(write_end, False)
    data = os.urandom(1 << 20)
    got = []

    def drain():
        with open(read_end, "rb") as stream:
            got.append(stream.read())

    reader = threading.Timer(0.2, drain)
    reader.start()
    write_all(write_end, data)
    os.close(write_end)
    reader.join()
    assert got == [data]


def test_a_reader_of_the_errors_that_goes_away_is_told_to_the_program(tmp_path):
    program = "for n in range(100000): print(n, flush=True)\nopen('finished', 'w')"
    command = [sys.executable, "-m", "torchmedic", "run", "--", sys.executable, "-c", program]
    line = f"{shlex.join(command)} 2>&1 | head -1; echo ${{PIPESTATUS[0]}}"
    ended = subprocess.run(["bash", "-c", line], cwd=tmp_path, capture_output=True, timeout=60)
    assert ended.stdout == b"0\n1\n"
    assert not (tmp_path / "finished").exists()
