"""Every way a training run can end, as small real programs. `# here` marks the line to be named.

Each is the same training, with one thing done to it: in the dataset (`item`), in the model's
encoder (`encode`), around a step (`step`) or to the whole loop (`loop`).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from textwrap import indent

PRELUDE = """\
import ctypes, multiprocessing, os, signal, subprocess, sys, threading, time
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset
torch.set_num_threads(1)
torch.manual_seed(0)

class Samples(Dataset):
    def __len__(self):
        return {samples}
    def __getitem__(self, index):
        if index == 5:
{item}
        return torch.randn(4), index % 2

class Encoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(4, 8)
        self.batches = 0
    def forward(self, x):
        self.batches += 1
        if self.batches == 2:
{encode}
        return self.layer(x)

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder = Encoder()
        self.head = nn.Linear(8, 2)
    def forward(self, x):
        return self.head(self.encoder(x))

def helper():
{helper}

def step(net, optimizer, x, y):
    loss = nn.functional.cross_entropy(net(x), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()

def train(net, optimizer, loader):
    for epoch in range(2):
        for number, (x, y) in enumerate(loader):
            if number == 1:
{loop}
            step(net, optimizer, x, y)

def main():
    net = Net()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    loader = DataLoader(Samples(), batch_size=4, num_workers={workers}, drop_last={drop_last})
{call}
    print("end of main")

if __name__ == "__main__":
{before}
    main()
"""


@dataclass(frozen=True)
class Case:
    """One way to end and what the report must say about it.

    rule None: a clean run. exit_code as a shell shows it. says: in message, evidence or fix.
    """

    name: str
    rule: str | None
    says: tuple[str, ...] = ()
    exit_code: int = 0
    batch: int | None = 2
    phase: str | None = None
    module: str | None = None
    severity: str = "error"
    options: tuple[str, ...] = ()
    code: dict[str, str] = field(default_factory=dict)
    workers: int = 0
    samples: int = 12
    drop_last: bool = False

    @property
    def text(self) -> str:
        depths = {"item": 12, "encode": 12, "helper": 4, "loop": 16, "call": 4, "before": 4}
        usual = {"call": "train(net, optimizer, loader)"}
        parts = {name: indent(self.code.get(name, usual.get(name, "pass")), " " * depth)
                 for name, depth in depths.items()}
        return PRELUDE.format(samples=self.samples, workers=self.workers,
                              drop_last=self.drop_last, **parts)

    @property
    def marked_line(self) -> int | None:
        """Number of the line that must be named."""
        lines = self.text.splitlines()
        return next((n for n, line in enumerate(lines, 1) if line.endswith("# here")), None)


SEGV = "ctypes.string_at(0)  # here"
SWALLOW = """\
for epoch in range(2):
    for x, y in loader:
        try:
            step(net, optimizer, x, y)
        {kind}
            {then}"""
BAD = "x = x[:, :3]  # its caller then fails"


def swallowing(kind: str, then: str) -> dict[str, str]:
    return {"encode": BAD, "call": SWALLOW.format(kind=kind, then=then)}


CALLBACK = """\
class Trainer:
    def __init__(self, callbacks):
        self.callbacks = callbacks
    def fire(self, *args):
        for callback in self.callbacks:
            try:
                callback(*args)
            except Exception:
                pass
trainer = Trainer([lambda x, y: step(net, optimizer, x, y)])
for x, y in loader:
    trainer.fire(x, y)"""
THREAD = """\
def work():
    try:
        train(net, optimizer, loader)
    except Exception:
        pass
thread = threading.Thread(target=work)
thread.start()
thread.join()"""
CHILD = """\
def child():
    torch.zeros(3)[5]  # here
process = multiprocessing.get_context("fork").Process(target=child)
process.start()
process.join()"""
WHILE = """\
batches = iter(loader)
done = 0
while done < 50:
    try:
        x, y = next(batches)  # here
    except StopIteration:
        break
    step(net, optimizer, x, y)
    done += 1"""
CRASHES = {
    "SIGSEGV": SEGV, "SIGABRT": "os.abort()  # here",
    "SIGBUS": "os.kill(os.getpid(), signal.SIGBUS)  # here",
    "SIGFPE": "os.kill(os.getpid(), signal.SIGFPE)  # here",
}
IN_THREAD = """\
thread = threading.Thread(target=ctypes.string_at, args=(0,))
thread.start()
thread.join()"""
RECURSION = "def deeper(n):\n    return deeper(n + 1)  # here\ndeeper(0)"
SAVE = 'torch.save(net.state_dict(), "full/model.pt")  # here'
OPEN = "kept = [open(os.devnull) for _ in range(400)]  # here"
HANDLER = "signal.signal(signal.SIGINT, lambda number, frame: sys.exit(0))"

CASES = (
    Case("normal end", None),
    Case("uncaught exception", "shape-mismatch|linear-in-features", exit_code=1, phase="forward",
         module="encoder.layer", code={"encode": BAD}),
    Case("uncaught, script replaced sys.excepthook", "uncaught-exception", exit_code=1,
         code={"loop": "{}['lr']  # here", "before": "sys.excepthook = lambda *args: None"},
         says=("KeyError",)),
    Case("sys.exit(0) in a helper", "exited-early", ("sys.exit(0)", "in `helper`", " in train"),
         code={"helper": "sys.exit(0)  # here", "loop": "helper()"}),
    Case("sys.exit(1) in a helper", "exited-early", ("sys.exit(1)",), exit_code=1,
         code={"helper": "sys.exit(1)  # here", "loop": "helper()"}),
    Case("os._exit(3) in a helper", "exited-early", ("os._exit(3)", "in `helper`"), exit_code=3,
         code={"helper": "os._exit(3)  # here", "loop": "helper()"}),
    Case("raise SystemExit in the loop", "exited-early", ("raise SystemExit",),
         code={"loop": "raise SystemExit  # here"}),
    Case("exit 0 by native code", "exited-early", ("native code called exit()",),
         code={"encode": "time.sleep(0.3); ctypes.CDLL(None)._exit(0)  # here"},
         phase="forward", module="encoder"),
    Case("swallowed: bare except, break", "shape-mismatch|linear-in-features",
         ("was swallowed by `except: break`", "batch 2 of 3"), module="encoder.layer",
         code=swallowing("except:", "break")),
    Case("swallowed: except Exception, continue", "shape-mismatch|linear-in-features",
         ("was swallowed by `except Exception: continue`", "made no optimizer step"),
         code=swallowing("except Exception:", "continue")),
    Case("swallowed: except Exception, pass", "shape-mismatch|linear-in-features",
         ("was swallowed by `except Exception: pass`",),
         code=swallowing("except Exception:", "pass")),
    Case("swallowed in a callback", "shape-mismatch|linear-in-features",
         ("was swallowed by `except Exception: pass`",), code={"encode": BAD, "call": CALLBACK}),
    Case("swallowed in a thread", "shape-mismatch|linear-in-features",
         ("was swallowed by `except Exception: pass`",), code={"encode": BAD, "call": THREAD}),
    Case("exception ends a thread", "thread-exception|shape-mismatch|linear-in-features",
         ("ended thread",), code={"encode": BAD, "call": THREAD.replace("Exception", "OSError")}),
    Case("exception in a multiprocessing child", "uncaught-exception", ("IndexError",),
         batch=None, code={"call": CHILD}),
    Case("SIGINT handler exits 0", "interrupted", ("own handler", "SIGINT"), severity="warning",
         code={"before": HANDLER, "loop": "signal.raise_signal(signal.SIGINT)"}),
    Case("Ctrl-C", "interrupted", ("in batch 2",), exit_code=130, severity="warning",
         code={"loop": "signal.raise_signal(signal.SIGINT)  # here"}),
    Case("SIGKILL", "killed-by-signal", ("SIGKILL", "the process itself sent it"), exit_code=137,
         code={"loop": "os.kill(os.getpid(), signal.SIGKILL)  # here"}),
    *(Case(f"{name} in the model", "native-crash", (name,), exit_code=code, phase="forward",
           module="encoder", code={"encode": CRASHES[name]})
      for name, code in (("SIGSEGV", 139), ("SIGABRT", 134), ("SIGBUS", 135), ("SIGFPE", 136))),
    Case("SIGSEGV in a thread", "native-crash", ("SIGSEGV", "in a thread"), exit_code=139,
         code={"loop": IN_THREAD}),
    *(Case(f"{name} in a worker", "worker-crashed", (name, "batch 2", "samples 4 to 7"),
           exit_code=1, workers=1, code={"item": CRASHES[name]})
      for name in ("SIGSEGV", "SIGABRT", "SIGFPE")),
    Case("SIGBUS in a worker", "worker-crashed|shared-memory-exhausted", ("SIGBUS",),
         exit_code=1, workers=1, code={"item": CRASHES["SIGBUS"]}),
    Case("worker killed", "worker-killed", ("SIGKILL", "batch 2", "exit code -9"), exit_code=1,
         workers=1, code={"item": "os.kill(os.getpid(), signal.SIGKILL)"}),
    Case("worker os._exit(0)", "worker-crashed", ("os._exit(0)", "batch 2"), exit_code=1,
         workers=1, code={"item": "os._exit(0)  # here"}),
    Case("worker sys.exit(5)", "worker-crashed", ("sys.exit(5)", "exit code 5"), exit_code=1,
         workers=1, code={"item": "sys.exit(5)  # here"}),
    Case("exception in a worker", "uncaught-exception", ("ZeroDivisionError",), exit_code=1,
         workers=1, phase="data", code={"item": "1 / 0  # here"}),
    Case("empty loader", "empty-loader", ("the dataset is empty",), batch=None, samples=0,
         code={"call": "loader = DataLoader(Samples(), batch_size=4, shuffle=False)\n"
                       "train(net, optimizer, loader)"}),
    Case("drop_last leaves nothing", "empty-loader", ("drop_last=True",), batch=None, samples=3,
         drop_last=True),
    Case("iterator exhausted in a while loop", "iterator-exhausted", ("done < 50",), batch=None,
         code={"call": WHILE}),
    Case("too many open files", "too-many-open-files", (), exit_code=1,
         code={"before": "import resource; resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))",
               "loop": OPEN}),
    Case("recursion limit", "uncaught-exception", ("RecursionError",), exit_code=1,
         code={"loop": RECURSION}),
    Case("file size limit while saving", "disk-full", ("model.pt",), exit_code=1,
         code={"before": "import resource; os.mkdir('full'); "
                         "resource.setrlimit(resource.RLIMIT_FSIZE, (500, 500))", "loop": SAVE}),
    Case("memory limit of the process", "host-out-of-memory", ("was refused",), exit_code=1,
         code={"before": "import resource; "
                         "resource.setrlimit(resource.RLIMIT_AS, (3 << 30, 3 << 30))",
               "loop": "torch.zeros(2 << 30)  # here"}),
    Case("hang in the main thread", "hang", ("no progress for", "waits in"),
         exit_code=130, options=("--hang-after", "2", "--hang-stop"),
         code={"loop": "threading.Event().wait()  # here"}),
)
