"""A program at a terminal under `torchmedic run`: prompts, keys, job control, sizes, signals, exits."""

import contextlib
import fcntl
import os
import pty
import select
import shlex
import signal
import struct
import subprocess
import termios
import time

import psutil
import pytest
from launching import PYTHON, TORCHMEDIC, Programs, environment


@pytest.fixture
def programs(tmp_path):
    return Programs(tmp_path)


class Terminal:
    """A pseudo-terminal with a session of its own and a command in its foreground."""

    def __init__(self, command, folder, env=None):
        self.pid, self.fd = pty.fork()
        if self.pid == 0:
            os.chdir(folder)
            os.execvpe(str(command[0]), [str(c) for c in command], environment(**(env or {})))
        self.text = b""
        self.resize(24, 80)

    def resize(self, rows, columns):
        fcntl.ioctl(self.fd, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    def expect(self, wanted, timeout=30):
        """Everything printed up to and with `wanted`."""
        end = time.monotonic() + timeout
        while wanted not in self.text:
            left = end - time.monotonic()
            assert left > 0, f"waited for {wanted!r}, got {self.text!r}"
            if select.select([self.fd], [], [], left)[0]:
                try:
                    chunk = os.read(self.fd, 65536)
                except OSError:
                    chunk = b""
                assert chunk, f"ended before {wanted!r}: {self.text!r}"
                self.text += chunk
        before, _, self.text = self.text.partition(wanted)
        return before + wanted

    def type(self, keys):
        os.write(self.fd, keys)

    def end(self, timeout=30):
        """(the rest of the output, exit code as a shell gives it)"""
        end = time.monotonic() + timeout
        with contextlib.suppress(OSError):
            while time.monotonic() < end:
                if not select.select([self.fd], [], [], 0.5)[0]:
                    continue
                chunk = os.read(self.fd, 65536)
                if not chunk:
                    break
                self.text += chunk
        _, status = os.waitpid(self.pid, 0)
        code = os.waitstatus_to_exitcode(status)
        os.close(self.fd)
        return self.text, 128 - code if code < 0 else code


def supervised(programs, *command, options=()):
    return (*TORCHMEDIC, "run", *options, "-o", programs.folder / "report.txt", "--", *command)


def words(command):
    return shlex.join(str(part) for part in command)


def both(programs, *command, **how):
    yield Terminal(command, programs.folder, **how)
    yield Terminal(supervised(programs, *command), programs.folder, **how)


def test_prompts_colours_and_editing(programs):
    path = programs.write("asks.py", r"""
import getpass, os, sys, termios
print([os.isatty(n) for n in range(3)], os.ttyname(0) == os.ttyname(2))
print(os.get_terminal_size(), sys.stdout.line_buffering, os.tcgetpgrp(0) == os.getpgrp())
print(termios.tcgetattr(0)[3] & termios.ECHO != 0)
name = input("name? ")
print("\x1b[31mhello\x1b[0m", name, "\r50%\r100%\x07")
print(len(getpass.getpass("secret? ")), file=sys.stderr)
print(sys.stdin.readline().strip().upper(), end="")
sys.stdout.flush()
try:
    input()
except EOFError:
    print("end of file")
sys.exit(4)
""")
    outputs = []
    for terminal in both(programs, PYTHON, path):
        seen = terminal.expect(b"name? ")
        terminal.type(b"An\x7fda\n")  # a line discipline's erase
        seen += terminal.expect(b"secret? ")
        time.sleep(0.2)
        terminal.type(b"hidden\n")
        seen += terminal.expect(b"6\r\n")
        terminal.type(b"line\n")
        seen += terminal.expect(b"LINE")
        terminal.type(b"\x04")
        rest, code = terminal.end()
        assert code == 4 and b"hidden" not in seen
        outputs.append(seen + rest)
    assert outputs[0] == outputs[1]
    assert outputs[0].startswith(b"[True, True, True] True\r\n") and b"(columns=80" in outputs[0]


def test_pdb(programs):
    path = programs.write("debugs.py", """
def f(x):
    y = x + 1
    breakpoint()
    z = y * 2
    return z
print("result", f(3))
""")
    outputs = []
    for terminal in both(programs, PYTHON, path):
        seen = terminal.expect(b"(Pdb) ")
        for command in (b"p x, y\n", b"w\n", b"n\n", b"y = 100\n", b"p y\n", b"up\n"):
            terminal.type(command)
            seen += terminal.expect(b"(Pdb) ")
        terminal.type(b"c\n")
        rest, code = terminal.end()
        assert code == 0
        outputs.append(seen + rest)
    assert outputs[0] == outputs[1] and b"result 8" in outputs[0]


WAITS = """
import signal, sys, time
print("ready", flush=True)
try:
    time.sleep(30)
except KeyboardInterrupt:
    print("saved", flush=True)
    {then}
"""


@pytest.mark.parametrize(("then", "code"), [("sys.exit(7)", 7), ("raise", 130), ("pass", 0)])
def test_ctrl_c_reaches_the_program(programs, then, code):
    path = programs.write("waits.py", WAITS.format(then=then))
    outputs = []
    for terminal in both(programs, PYTHON, path):
        terminal.expect(b"ready\r\n")
        time.sleep(0.3)
        terminal.type(b"\x03")
        rest, got = terminal.end()
        assert got == code
        outputs.append(rest)
    assert outputs[0] == outputs[1] and b"saved" in outputs[0]


def test_ctrl_c_twice_and_ctrl_backslash(programs):
    path = programs.write("stubborn.py", """
import time
for n in range(2):
    try:
        print("ready", n, flush=True)
        time.sleep(30)
    except KeyboardInterrupt:
        print("no", n, flush=True)
print("ready for more", flush=True)
time.sleep(30)
""")
    terminal = Terminal(supervised(programs, PYTHON, path), programs.folder)
    for n in range(2):
        terminal.expect(b"ready %d\r\n" % n)
        time.sleep(0.2)
        terminal.type(b"\x03")
        terminal.expect(b"no %d\r\n" % n)
    terminal.expect(b"ready for more\r\n")
    time.sleep(0.2)
    terminal.type(b"\x1c")
    assert terminal.end()[1] == 128 + signal.SIGQUIT


def test_ctrl_z_and_fg_in_a_shell(programs):
    path = programs.write("counts.py", """
import os, signal, sys, time
signal.signal(signal.SIGCONT, lambda *a: print("continued", flush=True))
print("ready", flush=True)
print("got", input(), flush=True)
""")
    shell = Terminal(["bash", "--norc", "-i"], programs.folder, env={"PS1": "$ "})
    shell.expect(b"$ ")
    programs.write("go", "exec " + words(supervised(programs, PYTHON, path)) + "\n")
    shell.type(b"bash go\n")
    shell.expect(b"ready\r\n")
    for _ in range(2):
        time.sleep(0.3)
        shell.type(b"\x1a")
        shell.expect(b"Stopped")
        shell.type(b"echo in the $((1+1))nd shell\n")
        shell.expect(b"in the 2nd shell\r\n")
        shell.type(b"fg\n")
        shell.expect(b"continued\r\n")
    time.sleep(0.2)
    shell.type(b"typed\n")
    shell.expect(b"got typed\r\n")
    shell.type(b"echo code $?; exit\n")
    shell.expect(b"code 0\r\n")
    shell.end()


def test_a_new_window_size_reaches_the_program(programs):
    path = programs.write("size.py", """
import os, signal, time
sizes = []
signal.signal(signal.SIGWINCH, lambda *a: sizes.append(os.get_terminal_size()))
print("ready", flush=True)
while not sizes:
    time.sleep(0.01)
print(sizes[0].columns, sizes[0].lines, flush=True)
time.sleep(0.3)
print(len(sizes), flush=True)
""")
    for terminal in both(programs, PYTHON, path):
        terminal.expect(b"ready\r\n")
        time.sleep(0.2)
        terminal.resize(40, 132)
        rest, code = terminal.end()
        assert rest.split() == [b"132", b"40", b"1"] and code == 0


def test_a_redirected_stream_leaves_the_other_a_terminal(programs):
    path = programs.write("where.py", "import os; print([os.isatty(n) for n in range(3)], flush=True); os.write(2, b'E')")
    for redirect, wanted in (("2>err", b"[True, True, False]\r\n"), (">out", b"E"), ("2>&1 | cat", b"[True, False, False]")):
        for command in ((PYTHON, path), supervised(programs, PYTHON, path)):
            shell = Terminal(["bash", "-c", f"{words(command)} {redirect}"], programs.folder)
            assert wanted in shell.end()[0]
    assert (programs.folder / "err").read_bytes() == b"E"
    assert (programs.folder / "out").read_bytes() == b"[True, False, True]\n"


def start(programs, path, **how):
    return subprocess.Popen([str(p) for p in supervised(programs, PYTHON, path)], cwd=programs.folder,
                            env=environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE, **how)


@pytest.mark.parametrize("name", ["SIGINT", "SIGTERM", "SIGHUP", "SIGUSR1", "SIGQUIT"])
def test_a_signal_to_us_is_passed_on(programs, name):
    number = getattr(signal, name)
    handled = programs.write("handled.py", f"""
import signal, sys, time
def handle(n, frame):
    print("handled", n, flush=True)
    sys.exit(12)
signal.signal({int(number)}, handle)
print("ready", flush=True)
time.sleep(30)
""")
    default = programs.write("default.py", f"""
import signal, time
signal.signal({int(number)}, signal.SIG_DFL)
print("ready", flush=True)
time.sleep(30)
""")
    for path, code in ((handled, 12), (default, 128 + number)):
        process = start(programs, path)
        assert process.stdout.readline() == b"ready\n"
        time.sleep(0.2)
        process.send_signal(number)
        out, err = process.communicate(timeout=30)
        assert process.returncode == code and err == b""
        assert (b"handled" in out) == (code == 12)


def test_an_ignored_hangup_stays_ignored(programs):
    path = programs.write("long.py", """
import signal, sys, time
print(signal.getsignal(signal.SIGHUP) is signal.SIG_IGN, flush=True)
time.sleep(1)
print("still here", flush=True)
""")
    process = start(programs, path, preexec_fn=lambda: signal.signal(signal.SIGHUP, signal.SIG_IGN))
    assert process.stdout.readline() == b"True\n"
    process.send_signal(signal.SIGHUP)
    for child in psutil.Process(process.pid).children():
        child.send_signal(signal.SIGHUP)
    out, err = process.communicate(timeout=30)
    assert (out, err, process.returncode) == (b"still here\n", b"", 0)


def test_exit_codes(programs):
    folder = programs.folder
    programs.write("plain.txt", "text")
    programs.write("odd", "#!/nowhere/interpreter\n").chmod(0o755)
    for command, code in (
        (["./not-there"], 127), (["no-such-command-anywhere"], 127), (["./plain.txt"], 126),
        (["./odd"], 126), ([folder], 126), ([PYTHON, "-c", "import sys; sys.exit(125)"], 125),
        ([PYTHON, "not_there.py"], 2), (["sh", "-c", "kill -9 $$"], 137), (["true"], 0),
        ([PYTHON, "-c", "import os; os._exit(255)"], 255),
    ):
        ran = programs.supervised(*command)
        assert ran.code == code, (command, ran)
        if code in (126, 127):
            assert ran.err.startswith(b"torchmedic: ") and ran.err.count(b"\n") == 1
    nothing = programs.supervised()
    assert nothing.code == 2


def test_our_own_failure_is_125(programs):
    """Nowhere to keep the run: no folder can be made in any of the places."""
    blocked = programs.write("file", "")
    env = {"XDG_STATE_HOME": str(blocked), "TMPDIR": str(blocked), "HOME": str(blocked)}
    code = TORCHMEDIC[-1].replace("from torchmedic.main", "import tempfile; tempfile.tempdir = "
                                  f"{str(blocked)!r}; from torchmedic.main")
    programs.write(".torchmedic", "not a folder")
    ended = subprocess.run([*TORCHMEDIC[:-1], code, "run", "--", PYTHON, "-c", "print(1)"],
                           env=environment(**env), cwd=programs.folder, capture_output=True)
    assert ended.returncode == 125 and b"our own failure" in ended.stderr


def test_a_daemon_left_behind_with_our_stderr(programs):
    """Its stream stays open, it gets no SIGPIPE, and the run ends when the program does."""
    path = programs.write("leaves.py", """
import os, sys, time
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        time.sleep(2)
        for n in range(3):
            os.write(2, b"later %d\\n" % n)
            time.sleep(0.2)
        open("survived", "w").close()
    os._exit(0)
os.wait()
print("main done", flush=True)
""")
    errors = programs.folder / "errors"
    with open(errors, "wb") as file:
        began = time.monotonic()
        ended = subprocess.run([str(p) for p in supervised(programs, PYTHON, path)], cwd=programs.folder,
                               env=environment(), stdout=subprocess.DEVNULL, stderr=file, timeout=30)
        took = time.monotonic() - began
    assert ended.returncode == 0 and took < 1.9, took
    deadline = time.monotonic() + 10
    while not (programs.folder / "survived").exists() and time.monotonic() < deadline:
        time.sleep(0.05)
    assert (programs.folder / "survived").exists()
    time.sleep(0.1)
    assert errors.read_bytes() == b"later 0\nlater 1\nlater 2\n"


def test_a_reader_that_goes_away(programs):
    """`torchmedic run … | head -1`: the program gets what it would get without us."""
    path = programs.write("many.py", """
import sys, signal
signal.signal(signal.SIGPIPE, signal.SIG_DFL)
for n in range(200000):
    print(n)
""")
    for command in ((PYTHON, path), supervised(programs, PYTHON, path)):
        ended = subprocess.run(["bash", "-c", f"{words(command)} | head -1; echo ${{PIPESTATUS[0]}}"],
                               cwd=programs.folder, env=environment(), capture_output=True, timeout=60)
        assert ended.stdout == b"0\n141\n", ended
