"""A program is the same with and without `torchmedic run`: what it prints, computes and sees."""

import difflib
import json
import re
import signal
import sys

import pytest
from launching import PYTHON, Programs

# Only Python 3.11 and newer let a wrapper leave a traceback without a trace.
HIDDEN_FRAMES = sys.version_info >= (3, 11)


@pytest.fixture
def programs(tmp_path):
    return Programs(tmp_path)


def assert_same(bare, ours, hide=b"(?!)"):
    """Same streams, byte for byte, and same exit code; and the program was really observed.

    hide: what differs between any two runs, such as addresses.
    """
    for name in ("out", "err"):
        one, other = (re.sub(hide, b"...", getattr(ran, name)) for ran in (bare, ours))
        if one != other:
            lines = difflib.unified_diff(
                one.decode(errors="replace").splitlines(),
                other.decode(errors="replace").splitlines(), "bare", "supervised", lineterm="")
            raise AssertionError(f"std{name} differs:\n" + "\n".join(list(lines)[:80]))
    assert ours.code == (bare.code if bare.code >= 0 else 128 - bare.code)
    assert ours.report is not None
    assert ours.spools, "the program was not observed at all"
    assert not [e for s in ours.spools for e in s.all("probe-error")]


STATE = '''
import sys
before = dict(vars(sys.modules["__main__"]))
import _signal, faulthandler, gc, json, multiprocessing, os, random, re, signal, threading, warnings

def plain(value):
    return re.sub(r" at 0x[0-9a-f]+", "", repr(value))

def descriptors():
    return sorted(int(n) for n in os.listdir("/proc/self/fd"))

opened = [open(__file__) for _ in range(3)] if os.path.exists(globals().get("__file__", "")) else []
handlers = {}
for number in sorted(signal.valid_signals()):
    handlers[int(number)] = plain(signal.getsignal(number))
facts = {
    "argv": sys.argv, "path": sys.path, "flags": plain(sys.flags), "orig_argv": getattr(sys, "orig_argv", None),
    "main": {name: plain(value) for name, value in before.items() if name != "__builtins__"},
    "main_names": sorted(before), "executable": sys.executable, "prefix": sys.prefix,
    "module": __name__, "spec": plain(__spec__),
    "warnoptions": sys.warnoptions, "filters": plain(warnings.filters),
    "threads": threading.active_count(), "names": [t.name for t in threading.enumerate()],
    "children": multiprocessing.active_children(),
    "opened": [f.fileno() for f in opened], "low": [n for n in descriptors() if n < 64],
    "handlers": handlers, "mask": plain(signal.pthread_sigmask(signal.SIG_BLOCK, [])),
    "excepthook": sys.excepthook is sys.__excepthook__,
    "displayhook": sys.displayhook is sys.__displayhook__,
    "unraisablehook": sys.unraisablehook is sys.__unraisablehook__,
    "recursion": sys.getrecursionlimit(), "interval": sys.getswitchinterval(),
    "trace": [plain(sys.gettrace()), plain(sys.getprofile()), plain(threading._trace_hook)],
    "faulthandler": faulthandler.is_enabled(), "gc": [gc.isenabled(), gc.get_threshold(), gc.callbacks],
    # One finder more waits for torch until it is imported.
    "meta_path": [plain(f) for f in sys.meta_path if not type(f).__module__.startswith("_torchmedic")],
    "path_hooks": len(sys.path_hooks),
    "cwd": os.getcwd(), "umask": os.umask(0o022), "mp": multiprocessing.get_start_method(allow_none=True),
    "sitecustomize": plain(sys.modules.get("sitecustomize")), "dont_write": sys.dont_write_bytecode,
    "streams": [plain(s) for s in (sys.stdin, sys.stdout, sys.stderr)],
    "size": [s.line_buffering for s in (sys.stdout, sys.stderr)],
    "last": [hasattr(sys, n) for n in ("last_value", "last_exc")],
}
assert random.seed(1) is None
facts["random"] = random.random()
print(json.dumps(facts, indent=1, sort_keys=True))
'''


@pytest.mark.parametrize("how", ["script", "module", "package", "command", "stdin", "options"])
def test_what_a_program_sees_of_its_interpreter(programs, how):
    path = programs.write("state.py", STATE)
    programs.write("pack/__init__.py", "")
    programs.write("pack/__main__.py", STATE)
    command = {
        "script": [path, "--lr", "1e-3", "--", "x y"], "module": ["-m", "state", "a"],
        "package": ["-m", "pack", "--", "-c"], "command": ["-c", STATE, "one"],
        "stdin": ["-", "two"], "options": ["-B", "-P", "-X", "dev", "-W", "error", "-u", path],
    }[how]
    if sys.version_info < (3, 11):
        command = [part for part in command if part != "-P"]
    bare, ours = programs.both(PYTHON, *command, input=STATE.encode() if how == "stdin" else None)
    assert_same(bare, ours)
    facts = json.loads(bare.out)
    assert facts["argv"] and facts["module"] == "__main__"  # it did print its state


TRAIN = '''
import copy, hashlib, inspect, io, json, os, pickle, random, re, signal, sys, threading, warnings, weakref
import multiprocessing
import numpy
import torch
from torch import nn

WORKERS, METHOD = int(sys.argv[1]), sys.argv[2]

class Data(torch.utils.data.Dataset):
    def __len__(self):
        return 12
    def __getitem__(self, i):
        info = torch.utils.data.get_worker_info()
        extra = random.random() + numpy.random.rand() if info is None else info.id
        return torch.full((4,), float(i)) + torch.rand(4) + extra, torch.tensor(i % 3)

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Dropout(0.3), nn.BatchNorm1d(8))
        self.head = nn.Linear(8, 3)
        self.soft = nn.Softmax()
    def forward(self, x):
        y = self.head(self.body(x))
        warnings.warn("said in forward", stacklevel=1)
        self.soft(y)  # warns of its implicit dim, at the caller of the module
        return y

def digest(*tensors):
    whole = hashlib.sha256()
    for tensor in tensors:
        whole.update(tensor.detach().cpu().numpy().tobytes())
    return whole.hexdigest()

def plain(value):
    return re.sub(r" at 0x[0-9a-f]+", "", repr(value))

def pickled(value):
    # A storage's key in a plain pickle is its address.
    return hashlib.sha256(re.sub(rb"[0-9]{12,}", b"", pickle.dumps(value))).hexdigest()

def main():
    torch.set_num_threads(1)
    random.seed(3); numpy.random.seed(4); torch.manual_seed(5)
    told = {"signatures": {}}
    for name, call in (
        ("Module.__call__", nn.Module.__call__), ("backward", torch.autograd.backward),
        ("Tensor.backward", torch.Tensor.backward), ("iter", torch.utils.data.DataLoader.__iter__),
        ("next", torch.utils.data.dataloader._BaseDataLoaderIter.__next__),
        ("scheduler", torch.optim.lr_scheduler.LRScheduler.step), ("step", torch.optim.SGD.step),
        ("exit", sys.exit), ("os._exit", os._exit), ("kill", os.kill), ("model", Net()),
        ("process", multiprocessing.process.BaseProcess._bootstrap), ("hook", threading.excepthook),
        ("abort", os.abort), ("quit", quit), ("raise_signal", signal.raise_signal),
        ("worker", torch.utils.data._utils.worker._worker_loop),
    ):
        try:
            signature = str(inspect.signature(call))
        except ValueError as error:
            signature = re.sub(r" at 0x[0-9a-f]+", "", str(error))
        told["signatures"][name] = [signature, call.__doc__, getattr(call, "__name__", None),
                                    getattr(call, "__qualname__", None), getattr(call, "__module__", None)]
    torch.manual_seed(5)
    model = Net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 2)
    context = METHOD if WORKERS else None
    loader = torch.utils.data.DataLoader(Data(), 4, shuffle=True, num_workers=WORKERS,
                                         multiprocessing_context=context, persistent_workers=METHOD == "spawn")
    scheduler.step()  # the order is wrong: torch warns, at this line
    scheduler.get_lr()
    losses = []
    for epoch in range(2):
        for x, y in loader:
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(model(x), y)
            loss.backward()
            optimizer.step()
            losses.append(loss.item().hex())
        scheduler.step()
        scheduler.step(epoch)  # deprecated: warns
    told["losses"] = losses
    told["weights"] = digest(*model.state_dict().values())
    told["random"] = [digest(torch.get_rng_state()), random.random(), float(numpy.random.rand())]
    # A queue's feeder ends some time after its loader.
    told["threads"] = [t.name for t in threading.enumerate() if t.name != "QueueFeederThread"]
    told["children"] = len(multiprocessing.active_children())
    # Pipes to spawned workers are closed some time after them, with and without us.
    told["opened"] = None if WORKERS else open(__file__).fileno()
    told["handlers"] = {int(n): plain(signal.getsignal(n)) for n in signal.valid_signals()}
    for name, value in (("model", model), ("optimizer", optimizer), ("loader", loader),
                        ("scheduler", scheduler), ("gradient", loss)):
        told["names " + name] = sorted(vars(value)) if hasattr(value, "__dict__") else None
        told["hooks " + name] = [plain(v) for k, v in sorted(vars(value).items()) if "hook" in k]
    loader._iterator = None  # with live workers it cannot be pickled
    for name, value in (("model", model), ("optimizer", optimizer), ("loader", loader),
                        ("scheduler", scheduler)):
        told["pickle " + name] = pickled(value)
        told["deepcopy " + name] = pickled(copy.deepcopy(value))
    buffer = io.BytesIO()
    torch.save({"model": model, "state": optimizer.state_dict()}, buffer)
    told["saved"] = hashlib.sha256(buffer.getvalue()).hexdigest()
    again = torch.load(io.BytesIO(buffer.getvalue()), weights_only=False)["model"]
    told["loaded"] = digest(*again.state_dict().values())
    told["excepthook"] = sys.excepthook is sys.__excepthook__
    told["recursion"] = sys.getrecursionlimit()
    told["global hooks"] = [len(getattr(nn.modules.module, n)) for n in sorted(vars(nn.modules.module))
                            if n.startswith("_global_") and hasattr(getattr(nn.modules.module, n), "__len__")]
    told["memory"] = held()
    print(json.dumps(told, indent=1, sort_keys=True, default=plain))

class Thing:
    pass

def held():
    """Nothing keeps a local variable of a loop alive longer than the program does."""
    found = []
    def check(what, fail):
        big = Thing()
        reference = weakref.ref(big)
        hyper = 0.5
        loader = torch.utils.data.DataLoader(range(4), 2)
        for batch in loader:
            break
        try:
            if fail:
                nn.Linear(2, 2)(torch.zeros(3, 3))
        except RuntimeError as error:
            pass
        del big
        found.append((what, reference() is None))
        return found
    check("loop", False)
    check("caught failure", True)
    def mirrored():
        early = locals()
        names = sorted(early)
        later = Thing()
        for batch in torch.utils.data.DataLoader(range(4), 2):
            pass
        found.append(("locals", names == sorted(early)))
    mirrored()
    return found

if __name__ == "__main__":
    main()
'''


@pytest.mark.parametrize(("workers", "method"), [(0, "-"), (2, "fork"), (2, "spawn")])
def test_a_training_run_computes_and_warns_the_same(programs, workers, method):
    path = programs.write("train.py", TRAIN)
    bare, ours = programs.both(PYTHON, path, workers, method, timeout=150)
    assert_same(bare, ours)
    told = json.loads(bare.out)
    assert len(told["losses"]) == 6 and bare.code == 0
    assert b"said in forward" in bare.err and b"lr_scheduler.step()" in bare.err
    assert b"Implicit dimension choice for softmax" in bare.err
    assert all(gone for _, gone in told["memory"])
    main = ours.run.processes[0]
    assert main.step == 6
    assert sum(p.role == "worker" for p in ours.run.processes) == (4 if method == "fork" else workers)


TROUBLE = '''
import faulthandler, io, logging, sys, threading, traceback, warnings
import torch
from torch import nn
torch.set_num_threads(1)

class Inner(nn.Module):
    def __init__(self, how):
        super().__init__()
        self.how = how
        self.linear = nn.Linear(3, 3)
    def forward(self, x):
        if self.how == "shape":
            return self.linear(torch.zeros(2, 5))
        if self.how == "own":
            raise KeyError("no such thing")
        if self.how == "chained":
            try:
                self.linear(torch.zeros(2, 7))
            except RuntimeError as error:
                raise ValueError("wrapped") from error
        if self.how == "context":
            try:
                {}["a"]
            except KeyError:
                self.linear(torch.zeros(2, 9))
        return self.linear(x)

class Outer(nn.Module):
    def __init__(self, how):
        super().__init__()
        self.inner = nn.Sequential(Inner(how), nn.ReLU())
    def forward(self, x):
        return self.inner(x)

class Bad(torch.utils.data.Dataset):
    def __len__(self):
        return 4
    def __getitem__(self, i):
        if i == 2:
            raise OSError(28, "no room", "somewhere")
        return i

class Twice(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x * 2
    @staticmethod
    def backward(ctx, grad):
        raise ArithmeticError("in backward")

def tell(what, call):
    try:
        call()
    except BaseException as error:
        print("==", what, "| context:", repr(error.__context__), "| cause:", repr(error.__cause__))
        print(traceback.format_exc())
        print([f.name for f in traceback.extract_tb(error.__traceback__)])

def backward():
    Twice.apply(torch.ones(2, requires_grad=True)).sum().backward()

def twice():
    x = torch.ones(2, requires_grad=True)
    y = (x * x).sum()
    y.backward()
    y.backward()

def gradients():
    torch.autograd.backward([torch.ones(2, requires_grad=True)])

def loop(workers):
    def run():
        for i in torch.utils.data.DataLoader(Bad(), 2, num_workers=workers):
            pass
    return run

def iterate():
    iterator = iter(torch.utils.data.DataLoader([1, 2], 1))
    next(iterator), next(iterator)
    next(iterator)

def group():
    def call():
        try:
            Outer("own")(torch.ones(2, 3))
        except KeyError as error:
            raise ExceptionGroup("several", [error, ValueError(1)])
    return call

def generator():
    def rows():
        for i in torch.utils.data.DataLoader([1, 2, 3], 1):
            yield i
    it = rows()
    next(it)
    it.throw(ZeroDivisionError("thrown in"))

def schedule():
    optimizer = torch.optim.SGD([torch.ones(1, requires_grad=True)], lr=1)
    class Broken(torch.optim.lr_scheduler.LRScheduler):
        def get_lr(self):
            if self.last_epoch:
                raise LookupError("rate")
            return [1]
    scheduler = Broken(optimizer)
    optimizer.step()
    scheduler.step()

def step():
    optimizer = torch.optim.SGD([torch.ones(1, requires_grad=True)], lr=1)
    def closure():
        raise EOFError("closure")
    optimizer.step(closure)

class Loud(nn.Module):
    def forward(self, x):
        logging.getLogger("user").warning("logged", stacklevel=1)
        return x

for how in ("shape", "own", "chained", "context"):
    tell(how, lambda: Outer(how)(torch.ones(2, 3)))
tell("missing argument", lambda: Outer("none")())
tell("not callable so", lambda: nn.Linear(1, 1)(1, 2, k=3))
for call in (backward, twice, gradients, loop(0), loop(1), iterate, generator, schedule, step):
    tell(call.__name__, call)
if sys.version_info >= (3, 11):
    tell("group", group())
tell("exit", lambda: sys.exit(3))
tell("exit wrongly", lambda: sys.exit(1, 2))
tell("quit", lambda: quit("bye") )
tell("kill wrongly", lambda: __import__("os").kill("a", 1))
tell("batch size", lambda: torch.utils.data.DataLoader([1], batch_size=0))

def thread():
    Outer("shape")(torch.ones(2, 3))
one = threading.Thread(target=thread, name="trainer")
one.start()
one.join()

logging.basicConfig(format="%(pathname)s:%(lineno)d %(funcName)s %(message)s")
Loud()(torch.ones(1))

def recursion(n):
    return recursion(n + 1)
try:
    recursion(0)
except RecursionError as error:
    print("recursion", error)
print(faulthandler.is_enabled(), faulthandler.enable(), faulthandler.is_enabled())

class Final(nn.Module):
    def forward(self, x):
        try:
            Outer("chained")(x)
        except ValueError:
            raise NotImplementedError("the end")

Final()(torch.ones(2, 3))
'''


@pytest.mark.skipif(not HIDDEN_FRAMES, reason="before Python 3.11 a wrapper stays in tracebacks")
def test_tracebacks_are_the_same(programs):
    path = programs.write("trouble.py", TROUBLE)
    bare, ours = programs.both(PYTHON, path)
    # The workers' addresses and pids differ from run to run; nothing else does.
    assert_same(bare, ours)
    assert bare.code == 1 and b"the end" in bare.err
    assert bare.out.count(b"==") >= 20


MULTI = '''
import multiprocessing, os, sys
def child(n):
    if n == 1:
        raise ValueError("child %d" % n)
    if n == 2:
        sys.exit("said by a child")
    if n == 3:
        os._exit(7)
    print("child", n, len(multiprocessing.active_children()), flush=True)
if __name__ == "__main__":
    for method in ("fork", "spawn"):
        context = multiprocessing.get_context(method)
        for n in range(4):
            one = context.Process(target=child, args=(n,), name="child")
            one.start()
            one.join()
            print(n, one.exitcode, one, flush=True) if False else print(n, one.exitcode, flush=True)
        with context.Pool(2) as pool:
            print(pool.map(abs, [-1, -2]), flush=True)
'''

ENDS = {
    "falls off its end": "print('fine')",
    "exits with a message": "import sys\nsys.exit('message')",
    "exits with a number": "import sys\nsys.exit(300)",
    "exits with an object": "import sys\nsys.exit(['a', 1])",
    "exits with None": "import sys\nsys.exit()",
    "raises SystemExit": "raise SystemExit('bare')",
    "quits": "quit(4)",
    "raises": "def f():\n    raise ValueError('é—¿')\nf()",
    "raises with a hook": "import sys\nsys.excepthook = lambda *a: print('hooked', a[0].__name__)\n{}['x']",
    "is interrupted": "raise KeyboardInterrupt",
    "has wrong syntax": "def f(:\n  pass",
    "leaves by os._exit": "import os\nprint('a', flush=True)\nos._exit(9)",
    "closes its streams": "import sys, os\nprint('x')\nsys.stdout.close()\nos.close(2)\nsys.exit(5)",
    "raises in atexit": "import atexit\natexit.register(lambda: 1/0)\nprint('end')",
    "raises in a thread": "import threading\nt = threading.Thread(target=lambda: 1/0, name='t')\nt.start()\nt.join()",
    "raises in __del__": "class A:\n  def __del__(self):\n    1/0\nA()\nprint('end')",
    "has children": MULTI,
    "is not there": None,
}


@pytest.mark.parametrize("how", ENDS)
def test_ends(programs, how):
    path = programs.folder / "ends.py"
    if ENDS[how] is not None:
        programs.write("ends.py", ENDS[how])
    bare, ours = programs.both(PYTHON, path)
    if how == "has children" and not HIDDEN_FRAMES:
        pytest.skip("before Python 3.11 a wrapper stays in tracebacks")
    assert_same(bare, ours, hide=rb"0x[0-9a-f]+")


@pytest.mark.parametrize("name", ["SIGSEGV", "SIGABRT", "SIGKILL", "SIGTERM", "SIGINT", "SIGPIPE"])
def test_deaths_by_signal(programs, name):
    path = programs.write("dies.py", f"""
import os, signal, sys
print("before", flush=True)
signal.signal(signal.SIGPIPE, signal.SIG_DFL)
print(signal.getsignal(signal.SIGINT) is signal.default_int_handler, flush=True)
os.kill(os.getpid(), signal.{name})
import time
time.sleep(5)
""")
    if name == "SIGINT" and not HIDDEN_FRAMES:
        pytest.skip("before Python 3.11 a wrapper stays in tracebacks")
    bare, ours = programs.both(PYTHON, path)
    assert bare.code == -getattr(signal, name)
    assert ours.code == 128 - bare.code
    assert (bare.out, bare.err) == (ours.out, ours.err)


def test_a_crash_is_dumped_where_the_program_wanted_it(programs):
    """faulthandler seems off at the start, and once the program turns it on it is the program's."""
    path = programs.write("crash.py", """
import faulthandler, os, sys
if not faulthandler.is_enabled():
    faulthandler.enable()
if os.fork() == 0:
    faulthandler._sigsegv()
os.wait()
faulthandler.disable()
print(faulthandler.is_enabled(), flush=True)
faulthandler.enable(open("crash.txt", "w"))
faulthandler._sigsegv()
""")
    bare = programs.bare(PYTHON, path)
    text = (programs.folder / "crash.txt").read_bytes()
    (programs.folder / "crash.txt").unlink()
    ours = programs.supervised(PYTHON, path)

    assert b"Fatal Python error: Segmentation fault" in bare.err and bare.code == -11
    assert ours.code == 139
    strip = lambda data: [line for line in data.splitlines() if b"File" in line]  # noqa: E731
    assert strip(bare.err) == strip(ours.err) and bare.out == ours.out
    theirs = (programs.folder / "crash.txt").read_bytes()
    assert strip(theirs) == strip(text) != []


def test_a_crash_is_silent_where_the_program_left_it_so(programs):
    path = programs.write("crash.py", "import ctypes\nctypes.string_at(0)\n")
    bare, ours = programs.both(PYTHON, path)
    assert (bare.out, bare.err, ours.out, ours.err) == (b"",) * 4
    assert ours.code == 139 and ours.run.main.fatal == "Segmentation fault"


@pytest.mark.parametrize("together", [True, False])
def test_megabytes_on_both_streams_in_their_order(programs, together):
    path = programs.write("big.py", """
import os, sys
for i in range(400):
    os.write(1, b"o%06d " % i + b"x" * (i % 97 * 90) + b"\\n")
    os.write(2, b"e%06d " % i + bytes(range(256)) * (i % 53) + b"\\n")
""")
    bare, ours = programs.both(PYTHON, path, together=together)
    assert_same(bare, ours)
    assert len(bare.out) > 1 << 20
