"""The contract of every probe: see `probes/patching.py`."""

import json

import pytest
from launching import PYTHON, SOURCE, Programs, environment, observed_environment

from torchmedic.supervise.rings import read_events

PROBES = ("modules", "backward", "optimizer", "scheduler", "loader", "worker", "fetch",
          "exit", "kill", "thread", "child", "crash")

START = '''
import faulthandler, inspect, json, multiprocessing, os, signal, sys, threading
BOOT, RUN = os.environ.pop("BOOT_AFTER", None), os.environ.pop("RUN_AFTER", None)
import torch
torch.set_num_threads(1)
untouched = {}
if BOOT:  # the observer comes after torch
    import multiprocessing.process
    untouched = {
        "modules": torch.nn.Module.__call__, "backward": torch.autograd.backward,
        "scheduler": torch.optim.lr_scheduler.LRScheduler.step,
        "loader": torch.utils.data.DataLoader.__iter__, "exit": sys.exit, "kill": os.kill,
        "thread": threading.excepthook, "child": multiprocessing.process.BaseProcess._bootstrap,
        "crash": faulthandler.enable,
    }
    os.environ["TORCHMEDIC_RUN"], os.environ["TORCHMEDIC_BOOT"] = RUN, BOOT
    exec(compile(open(BOOT).read(), BOOT, "exec"), {"__name__": "_torchmedic_boot", "__file__": BOOT})
from _torchmedic import children, compat, crash, exits, frames, loading, recorder, training, watch
PROBES = {p.name: p for p in (
    training.modules, training.gradients, training.optimizers, training.schedulers, loading.loaders,
    loading.workers, loading.samples, exits.exits, exits.kills, children.threads,
    children.processes, crash.crash)}

def install_all():
    training.install(torch); loading.install(torch); exits.install(); children.install(); crash.install()

def uninstall_all():
    training.uninstall(); loading.uninstall(); exits.uninstall(); children.uninstall(); crash.uninstall()
'''

USES = '''
class Odd(Exception):
    pass

class Fails(torch.nn.Module):
    def __init__(self, error):
        super().__init__()
        self.error = error
    def forward(self, *inputs):
        raise self.error

class Rows(torch.utils.data.Dataset):
    error = None
    def __len__(self):
        return 4
    def __getitem__(self, i):
        if self.error is not None and i == 3:
            raise self.error
        return torch.tensor([i])

def caught(call):
    try:
        call()
    except BaseException as error:
        return error
    return None

def loader(workers=0, error=None):
    rows = Rows()
    rows.error = error
    return torch.utils.data.DataLoader(rows, 2, num_workers=workers, multiprocessing_context="fork" if workers else None)

def use_modules():
    error = Odd("same")
    linear = torch.nn.Linear(1, 1, bias=False)
    torch.nn.init.constant_(linear.weight, 2.0)
    return [linear(torch.ones(1)).item() == 2, caught(Fails(error)) is error,
            linear(input=torch.ones(1)).item() == 2, error.__context__ is None]

def use_backward():
    error = Odd("same")
    x = torch.ones(2, requires_grad=True)
    returned = (x * 3).sum().backward()
    y = torch.ones(1, requires_grad=True)
    def hook(grad):
        raise error
    z = y * 2
    z.register_hook(hook)
    return [returned is None, x.grad.tolist() == [3, 3], caught(z.backward) is error]

def use_optimizer():
    error = Odd("same")
    x = torch.ones(1, requires_grad=True)
    x.grad = torch.ones(1)
    optimizer = torch.optim.SGD([x], lr=0.5)
    def bad():
        raise error
    return [optimizer.step(lambda: 7) == 7, x.item() == 0.5, caught(lambda: optimizer.step(bad)) is error]

def use_scheduler():
    error = Odd("same")
    optimizer = torch.optim.SGD([torch.ones(1, requires_grad=True)], lr=1.0)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 1, gamma=0.5)
    optimizer.step()
    returned = scheduler.step()
    def bad():
        raise error
    scheduler.get_lr = bad
    return [returned is None, optimizer.param_groups[0]["lr"] == 0.5, caught(scheduler.step) is error]

def use_loader():
    error = Odd("same")
    whole = [b.flatten().tolist() for b in loader()]
    iterator = iter(loader())
    next(iterator), next(iterator)
    stop = caught(lambda: next(iterator))
    return [whole == [[0, 1], [2, 3]], type(stop) is StopIteration and stop.args == (),
            caught(lambda: list(loader(error=error))) is error]

def use_worker():
    bad = caught(lambda: list(loader(1, Odd("same"))))
    return [[b.flatten().tolist() for b in loader(2)] == [[0, 1], [2, 3]], type(bad) is Odd]

use_fetch = use_loader

def use_exit():
    a, b = caught(lambda: sys.exit("text")), caught(lambda: quit(4))
    child = os.fork()
    if not child:
        os._exit(9)
    return [type(a) is SystemExit and a.code == "text", b.code == 4,
            type(caught(lambda: sys.exit(1, 2))) is TypeError,
            os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 9]

def use_kill():
    error = caught(lambda: os.kill(2 ** 22 + 1, 0))
    got = []
    signal.signal(signal.SIGUSR1, lambda *a: got.append(a[0]))
    os.kill(os.getpid(), signal.SIGUSR1)
    signal.raise_signal(signal.SIGUSR1)
    os.killpg(0, 0)
    return [type(error) is ProcessLookupError, got == [signal.SIGUSR1] * 2, os.kill(os.getpid(), 0) is None]

def use_thread():
    def bad():
        raise Odd("in a thread")
    thread = threading.Thread(target=bad, name="bad")
    thread.start()
    thread.join()
    return [not thread.is_alive()]

def _work(how):
    if how:
        raise Odd("in a child")
    sys.exit(5)

def use_child():
    context = multiprocessing.get_context("fork")
    codes = []
    for how in (0, 1):
        child = context.Process(target=_work, args=(how,), name="work")
        child.start()
        child.join()
        codes.append(child.exitcode)
    return [codes == [5, 1]]

def use_crash():
    first = faulthandler.is_enabled()
    faulthandler.enable()
    second = faulthandler.is_enabled()
    off = faulthandler.disable(), faulthandler.is_enabled(), faulthandler.disable()
    return [(first, second, off) == (False, True, (True, False, False)),
            type(caught(lambda: faulthandler.enable("no file"))) is AttributeError]

def signatures():
    found = {}
    for name, probe in PROBES.items():
        found[name] = []
        for owner, attribute, original, wrapper in probe.patches:
            try:
                wanted = str(inspect.signature(original))
            except ValueError:
                wanted = None
            try:
                got = str(inspect.signature(owner.__dict__[attribute]))
            except ValueError:
                got = None
            same = [getattr(original, n, None) == getattr(wrapper, n, None)
                    for n in ("__name__", "__qualname__", "__module__", "__doc__")]
            found[name].append(got == wanted and all(same))
    return found
'''

KEEPS = START + USES + '''
told = {name: {} for name in PROBES}
def note(what, call):
    for name, probe in PROBES.items():
        told[name][what] = call(name, probe)

note("installed", lambda name, probe: probe.installed and not probe.failed)
before = {name: (list(p.patches), list(p.removers)) for name, p in PROBES.items()}
install_all()
note("twice is once", lambda name, p: (p.patches, p.removers) == before[name])
note("in place", lambda name, p: all(o.__dict__[a] is w for o, a, _, w in p.patches))
note("no signature", lambda name, p: all(signatures()[name]))
note("used", lambda name, p: globals()["use_" + name]())
note("the original is no wrapper", lambda name, p: not [
    1 for _, _, original, _ in p.patches if "torchmedic" in getattr(getattr(original, "__code__", None), "co_filename", "")])
note("the original", lambda name, p: name not in untouched or p.patches[0][2] is untouched[name])
uninstall_all()
note("restored", lambda name, p: all(o.__dict__[a] is original for o, a, original, _ in before[name][0]))
note("gone", lambda name, p: not p.installed)
hooks = sys.modules["torch.optim.optimizer"]
told["optimizer"]["restored"] = not hooks._global_optimizer_pre_hooks and not hooks._global_optimizer_post_hooks
note("used bare", lambda name, p: globals()["use_" + name]())
uninstall_all()
install_all()
note("again", lambda name, p: p.installed and all(o.__dict__[a] is w for o, a, _, w in p.patches))
# A wrapper of the user's on top of ours stays, and works.
ours = torch.nn.Module.__call__
def theirs(self, *args, **kwargs):
    return ours(self, *args, **kwargs)
torch.nn.Module.__call__ = theirs
uninstall_all()
told["modules"]["theirs stays"] = torch.nn.Module.__call__ is theirs and torch.nn.Linear(1, 1)(torch.ones(1)).shape == (1,)
print(json.dumps(told))
'''


@pytest.fixture(scope="module")
def programs(tmp_path_factory):
    return Programs(tmp_path_factory.mktemp("contract"))


def start(programs, name, text, order):
    """Runs the program with the observer before or after torch. (what it told, events, stderr)"""
    path = programs.write(name, text)
    spool = programs.folder / ("spool-" + name + order)
    env = observed_environment(spool)
    if order == "after":
        env = {**environment(), "BOOT_AFTER": env["TORCHMEDIC_BOOT"], "RUN_AFTER": str(spool)}
    ran = programs.bare(PYTHON, path, env=env)
    assert ran.code == 0, ran.err.decode()[-3000:]
    events = [e for file in sorted(spool.glob("*.events")) for e in read_events(file)]
    return ran.data, sorted(events, key=lambda e: e["time"]), ran.err.decode()


@pytest.mark.parametrize("order", ["before", "after"])
def test_every_probe_leaves_everything_as_it_was(programs, order):
    told, events, err = start(programs, "keeps.py", KEEPS, order)
    assert set(told) == set(PROBES) and all(len(told[name]) >= 9 for name in PROBES)
    wrong = {(name, what): answer for name in PROBES for what, answer in told[name].items()
             if not (answer is True or (answer and all(answer)))}
    assert wrong == {}
    assert not [e for e in events if e["kind"] == "probe-error"]
    failures = [e for e in events if e["kind"] == "failure"]
    assert {e["how"] for e in failures} == {"seen", "thread", "child"}
    # Once with the probes installed and once without.
    assert err.count("Odd: in a thread\n") == 2 and err.count("Odd: in a child\n") == 2
    assert {e["code"] for e in events if e["kind"] == "exit"} == {"text", 4, 5, 9, 1}
    assert "SIGUSR1" in {e["signal"] for e in events if e["kind"] == "signal"}


BREAKS = START + USES + '''
class Broken:
    def __getitem__(self, key):
        raise ZeroDivisionError("ours")
    __setitem__ = __getitem__
    def __setitem__(self, key, value):
        raise ZeroDivisionError("ours")

def boom(*args, **kwargs):
    raise ZeroDivisionError("ours")

SLOTS = (recorder.state, "slots", Broken())
SABOTAGE = {
    "modules": SLOTS, "backward": (watch, "_read", boom), "optimizer": SLOTS, "scheduler": SLOTS, "loader": SLOTS,
    "fetch": (loading, "_note_indices", boom), "worker": (compat, "worker_arguments", boom),
    "exit": (frames, "stack", boom), "kill": (frames, "stack", boom),
    "thread": (children, "uncaught", boom), "child": (children, "_watched", boom),
    "crash": (crash, "_enable", boom),
}
told = {}
for name, (owner, attribute, broken) in SABOTAGE.items():
    probe = PROBES[name]
    before = list(probe.patches)
    kept = getattr(owner, attribute)
    setattr(owner, attribute, broken)
    try:
        used = globals()["use_" + name]()
        again = globals()["use_" + name]()
    finally:
        setattr(owner, attribute, kept)
    # What breaks in a worker or child is switched off there.
    # backward only passes on: what can break is the reading of an exception, which guards itself.
    elsewhere = name in ("worker", "child", "backward")
    told[name] = {"used": used, "again": again, "failed": [probe.failed or elsewhere],
                  "gone": [elsewhere or not probe.installed],
                  "restored": [elsewhere or o.__dict__[a] is original for o, a, original, _ in before] or [True],
                  "alone": [all(p.installed for n, p in PROBES.items() if n not in told and n != name
                            and SABOTAGE[n][0] not in (recorder.state, loading))]}
print(json.dumps(told))
'''


def test_a_broken_probe_is_switched_off_and_the_program_goes_on(programs):
    told, events, _ = start(programs, "breaks.py", BREAKS, "before")
    assert set(told) == set(PROBES)
    assert {name: told[name] for name in PROBES if not all(map(all, told[name].values()))} == {}
    for name in PROBES:
        told_by = "watch" if name == "backward" else name
        errors = [e for e in events if e["kind"] == "probe-error" and e["probe"] == told_by]
        assert errors and "ZeroDivisionError" in errors[0]["error"] and "ours" in str(errors)
        # Said once by each process that met it.
        assert len(errors) <= (6 if name in ("worker", "child", "backward") else 1)


FLAKY = START + USES + '''
class Flaky:
    """Slots of which the n-th access fails, and then every other one."""
    def __init__(self, left):
        self.left, self.slots = left, [0] * 64
    def _fail(self):
        self.left -= 1
        if self.left < 0 and self.left % 2:
            raise ZeroDivisionError("ours")
    def __getitem__(self, key):
        self._fail()
        return self.slots[key]
    def __setitem__(self, key, value):
        self._fail()
        self.slots[key] = value

def train():
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(1, 2), torch.nn.ReLU(), torch.nn.Linear(2, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 1)
    losses = []
    for epoch in range(2):
        for x in loader():
            optimizer.zero_grad()
            loss = model(x.float()).pow(2).mean()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
        scheduler.step()
        error = ValueError("theirs")
        caught_one = caught(lambda: list(loader(error=error)))
        losses.append(caught_one is error and caught_one.__context__ is None)
        error.__context__ = None
        losses.append(caught(Fails(error)) is error and error.__context__ is None)
        losses.append(caught(lambda: torch.nn.Sequential(Fails(error))(1)) is error)
        y = torch.ones(1, requires_grad=True) * 2
        y.register_hook(lambda grad: {}[1])
        losses.append(caught(y.backward).__context__ is None)
    return losses

uninstall_all()
wanted = train()
real = recorder.state.slots
wrong, failed = [], set()
for n in range(150):
    for probe in PROBES.values():
        probe.failed = False
    install_all()
    recorder.state.slots = Flaky(n)
    try:
        got = train()
        if got != wanted:
            wrong.append([n, got])
    except BaseException as error:
        wrong.append([n, repr(error)])
    finally:
        recorder.state.slots = real
    failed |= {p.name for p in PROBES.values() if p.failed}
    uninstall_all()
print(json.dumps({"wrong": wrong, "failed": sorted(failed), "wanted": wanted}))
'''


def test_no_failure_of_ours_at_any_point_reaches_the_program(programs):
    told, _, _ = start(programs, "flaky.py", FLAKY, "before")
    assert told["wrong"] == []
    assert set(told["failed"]) >= {"modules", "optimizer", "scheduler", "loader"}
    assert all(told["wanted"])


def test_the_source_stays_python_3_8_and_imports_little():
    """Compiled for 3.8, and at the start none of the modules that are slow to import."""
    import ast
    import subprocess

    for file in (SOURCE / "torchmedic" / "probes").rglob("*.py"):
        ast.parse(file.read_text(encoding="utf-8"), feature_version=(3, 8))
    code = ("import sys, json; bare = set(sys.modules)\n"
            "print(json.dumps(sorted(m for m in sys.modules)))")
    names = {}
    for env in (environment(), None):
        env = env or _observed()
        out = subprocess.run([PYTHON, "-c", code], env=env, capture_output=True, check=True)
        names[len(names)] = set(json.loads(out.stdout))
    ours = {n for n in names[1] - names[0] if not n.startswith("_torchmedic")}
    assert ours & {"re", "json", "functools", "signal", "enum", "threading", "typing", "inspect",
                   "traceback", "dataclasses", "collections", "multiprocessing"} == set()
    assert len(ours) <= 12, sorted(ours)


def _observed():
    import tempfile
    from pathlib import Path

    return observed_environment(Path(tempfile.mkdtemp()))
