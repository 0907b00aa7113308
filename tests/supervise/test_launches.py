"""Which processes of a run are observed, for every way to start them."""

import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
from launching import (
    HAS_PTH,
    PYTHON,
    SOURCE,
    TORCHMEDIC,
    Programs,
    environment,
    observed_environment,
)

from torchmedic.supervise.spools import read_spools

# Each process of a test program prints its label and its pid.
SAY = "import os, sys; print({label!r}, os.getpid(), flush=True)"
ROOT = SOURCE.parent


def say(label):
    return SAY.format(label=label)


def python(version):
    """Another interpreter without torchmedic, or skip."""
    found = shutil.which(f"python{version}")
    if found is None or subprocess.run([found, "-c", "pass"], capture_output=True).returncode:
        pytest.skip(f"no python{version} here")
    return found


@pytest.fixture
def programs(tmp_path):
    return Programs(tmp_path)


@pytest.fixture(scope="module")
def installed(tmp_path_factory):
    """A Python with our .pth in its site-packages, as an installed torchmedic puts it there."""
    folder = tmp_path_factory.mktemp("installed") / "venv"
    subprocess.run([PYTHON, "-m", "venv", "--system-site-packages", "--without-pip", folder],
                   check=True, env=environment())
    site = next(folder.glob("lib/python*/site-packages"))
    shutil.copy(SOURCE / "torchmedic.pth", site)
    return folder / "bin" / "python"


def labels(ran):
    """label → pid of what the program printed"""
    lines = (line.split() for line in ran.out.decode().splitlines())
    return {line[0]: int(line[1]) for line in lines if len(line) == 2 and line[1].isdigit()}


def seen(ran):
    """Labels of the processes that were observed, and that there was nothing else to say."""
    observed = {spool.pid for spool in ran.spools}
    assert ran.err == b"", ran.err.decode()
    assert not [e for s in ran.spools for e in s.all("probe-error")]
    return {label for label, pid in labels(ran).items() if pid in observed}


OPTIONS = {"plain": [], "-P": ["-P"], "-s": ["-s"], "-B": ["-B"], "-u": ["-u"], "-O": ["-O"],
           "-X dev": ["-X", "dev"], "-W error": ["-W", "error"],
           "-X warn_default_encoding": ["-X", "warn_default_encoding", "-W", "error"]}


@pytest.mark.parametrize("options", OPTIONS)
def test_a_script(programs, options):
    if "-P" in OPTIONS[options] and sys.version_info < (3, 11):
        pytest.skip("-P is new in Python 3.11")
    path = programs.write("one.py", say("main"))
    ran = programs.supervised(PYTHON, *OPTIONS[options], path)
    assert seen(ran) == {"main"}
    assert ran.run.main.role == "main"


@pytest.mark.parametrize("options", ["-E", "-I", "-IB", "-E -X dev"])
def test_without_python_variables_the_pth_file_starts_it(programs, installed, options):
    path = programs.write("one.py", say("main"))
    assert seen(programs.supervised(installed, *options.split(), path)) == {"main"}
    bare = programs.supervised(PYTHON, *options.split(), path)
    assert seen(bare) == ({"main"} if HAS_PTH else set()) and bare.code == 0


def test_without_site_nothing_is_seen_and_it_is_said(programs):
    path = programs.write("one.py", say("main"))
    ran = programs.supervised(PYTHON, "-S", path)
    assert labels(ran) and seen(ran) == set()
    assert "no Python process of this run could be observed" in " ".join(ran.report.split())
    assert "started with -S" in " ".join(ran.report.split())


def test_the_pth_file_and_the_boot_folder_start_it_once(programs, installed):
    path = programs.write("one.py", say("main"))
    ran = programs.supervised(installed, path)
    assert seen(ran) == {"main"} and len(ran.spools) == 1


def test_the_pth_file_does_nothing_unasked_and_never_complains(programs, installed):
    path = programs.write("one.py", "import sys; print([m for m in sys.modules if 'torchmedic' in m])")
    for env in ({}, {"TORCHMEDIC_BOOT": "/nowhere"}, {"TORCHMEDIC_RUN": "/nowhere"},
                {"TORCHMEDIC_RUN": "/nowhere", "TORCHMEDIC_BOOT": "/nowhere"}):
        ran = programs.bare(installed, path, env=env)
        assert (ran.out, ran.err, ran.code) == (b"[]\n", b"", 0), env


def test_a_boot_file_of_another_time_never_complains(programs):
    """The folder is on the path, but what it should load is gone or broken."""
    path = programs.write("one.py", "print('fine')")
    broken = programs.write("broken.py", "1 / 0")
    good = observed_environment(programs.folder / "spool")
    for boot in ("/nowhere", "", str(broken)):
        ran = programs.bare(PYTHON, path, env={**good, "TORCHMEDIC_BOOT": boot})
        assert (ran.out, ran.err, ran.code) == (b"fine\n", b"", 0)


MULTI = '''
import multiprocessing, os, sys
def work(label):
    os.write(1, b"%s %d\\n" % (label.encode(), os.getpid()))  # whole, beside others
if __name__ == "__main__":
    print("main", os.getpid(), flush=True)
    context = multiprocessing.get_context(sys.argv[1])
    children = [context.Process(target=work, args=("child%d" % n,)) for n in range(2)]
    for child in children:
        child.start()
    for child in children:
        child.join()
    with context.Pool(1) as pool:
        pool.apply(work, ("pool",))
'''


@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
def test_multiprocessing(programs, method):
    path = programs.write("multi.py", MULTI)
    ran = programs.supervised(PYTHON, path, method)
    assert seen(ran) == {"main", "child0", "child1", "pool"}
    pids = labels(ran)
    roles = {p.pid: p.role for p in ran.run.processes}
    assert roles[pids["main"]] == "main"
    assert roles[pids["child0"]] == roles[pids["pool"]] == "child"


FAMILY = '''
import os, subprocess, sys
print("main", os.getpid(), flush=True)
say = "import os, sys; print(sys.argv[1], os.getpid(), flush=True)"
subprocess.run([sys.executable, "-c", say, "subprocess"], check=True)
subprocess.run([sys.executable, "-c", say, "copied"], check=True, env=dict(os.environ), close_fds=False)
os.system(sys.executable + " -c '" + say + "' system")
os.spawnv(os.P_WAIT, sys.executable, [sys.executable, "-c", say, "spawnv"])
subprocess.run([sys.executable, "-c", say, "rebuilt"], env={"TORCHMEDIC_RUN": os.environ["TORCHMEDIC_RUN"],
               "TORCHMEDIC_BOOT": os.environ["TORCHMEDIC_BOOT"]}, check=True)
subprocess.run([sys.executable, "-c", say, "empty"], env={}, check=True)
if os.fork() == 0:
    print("fork", os.getpid(), flush=True)
    os._exit(0)
os.wait()
if os.fork() == 0:
    os.execv(sys.executable, [sys.executable, "-c", say, "forkexec"])
os.wait()
os.execv(sys.executable, [sys.executable, "-c", say, "exec"])
'''


def test_children(programs, installed):
    path = programs.write("family.py", FAMILY)
    everywhere = {"main", "subprocess", "copied", "system", "spawnv", "fork", "forkexec", "exec"}
    by_pth = {"rebuilt"} if HAS_PTH else set()
    assert seen(programs.supervised(PYTHON, path)) == everywhere | by_pth
    ran = programs.supervised(installed, path)
    assert seen(ran) == everywhere | {"rebuilt"}
    assert set(labels(ran)) - seen(ran) == {"empty"}  # an environment without us hides a child


def test_a_shell_script(programs, installed):
    programs.write("one.py", "import sys, os; print(sys.argv[1], os.getpid(), flush=True)")
    for python in (PYTHON, installed):
        script = programs.write("go.sh", f"""
{python} one.py first
export PYTHONPATH=.:$PYTHONPATH
{python} one.py added
PYTHONPATH=. {python} one.py overwritten
env -i {python} one.py cleared
{python} one.py last | cat
exec {python} one.py final
""")
        ran = programs.supervised("bash", script)
        expected = {"first", "added", "last", "final"}
        by_pth = {"overwritten"} if HAS_PTH or python is installed else set()
        assert seen(ran) == expected | by_pth


def test_an_executable_script(programs):
    path = programs.write("tool", f"#!{PYTHON}\n{say('main')}\n")
    path.chmod(0o755)
    assert seen(programs.supervised(path)) == {"main"}
    assert seen(programs.supervised("env", "A=1", "nice", path)) == {"main"}


@pytest.mark.parametrize("version", ["3.8", "3.9", "3.10", "3.12", "3.13", "3.14"])
def test_another_interpreter(programs, version):
    """One that has no torchmedic, as a training environment beside a tool installed by pipx."""
    other = python(version)
    path = programs.write("multi.py", MULTI)
    for method in ("fork", "spawn"):
        ran = programs.supervised(other, path, method)
        assert seen(ran) == {"main", "child0", "child1", "pool"}
    assert ran.run.main.python.startswith(version)
    trouble = programs.write("trouble.py", """
import sys, threading
def f(n):
    if n: f(n - 1)
    raise ValueError("deep")
t = threading.Thread(target=f, args=(0,), name="t"); t.start(); t.join()
try:
    sys.exit(4)
except SystemExit as error:
    print(error.code)
f(3)
""")
    bare, ours = programs.both(other, trouble)
    assert (bare.out, bare.err, bare.code) == (ours.out, ours.err, ours.code)
    main = ours.run.main
    assert [f.type for f in main.failures] == ["ValueError", "ValueError"]
    assert main.exits[0].code == 4 and not main.probe_errors


def test_a_sitecustomize_of_the_users_still_runs(programs):
    programs.write("theirs/sitecustomize.py", "import sys; sys.theirs = 'ran'")
    path = programs.write("one.py", "import sys, sitecustomize; print(sys.theirs, sitecustomize.__file__)")
    bare, ours = programs.both(PYTHON, path, env={"PYTHONPATH": str(programs.folder / "theirs")})
    assert bare.out.startswith(b"ran ") and (bare.out, bare.err) == (ours.out, ours.err)
    assert len(ours.spools) == 1


@pytest.mark.parametrize("body", [
    "raise ValueError('broken')", "import not_there_at_all", "raise SystemExit(3)",
    "import sys; print('to both', file=sys.stderr); print('out')", "def f(:",
    "raise ImportError('x', name='sitecustomize')", "import os; os._exit(6)",
    "raise KeyboardInterrupt", "import sys; sys.path.append('/added')",
])
def test_a_sitecustomize_that_is_odd_behaves_as_it_does_bare(programs, body):
    programs.write("theirs/sitecustomize.py", body)
    path = programs.write("one.py", "import sys; print(sys.path, 'sitecustomize' in sys.modules)")
    bare, ours = programs.both(PYTHON, path, env={"PYTHONPATH": str(programs.folder / "theirs")})
    if b"Traceback" in bare.err:  # of the import of sitecustomize itself: our file is in it
        assert ours.err.splitlines()[-1] == bare.err.splitlines()[-1]
    else:
        assert ours.err == bare.err
    expected = 128 - bare.code if bare.code < 0 else bare.code
    assert (ours.out, ours.code) == (bare.out, expected)


TRAIN = '''
import os, sys
import torch
torch.set_num_threads(1)
class Data(torch.utils.data.Dataset):
    def __len__(self):
        return 8
    def __getitem__(self, i):
        return torch.ones(2)
def main():
    print("main", os.getpid(), flush=True)
    for method in ("fork", "forkserver"):
        for batch in torch.utils.data.DataLoader(Data(), 2, num_workers=2, multiprocessing_context=method):
            pass
if __name__ == "__main__":
    main()
'''


def test_workers_of_a_loader(programs):
    path = programs.write("train.py", TRAIN)
    ran = programs.supervised(PYTHON, path)
    assert seen(ran) == {"main"}
    run = ran.run
    workers = [p for p in run.processes if p.role == "worker"]
    assert sorted(p.worker_index for p in workers) == [0, 0, 1, 1]
    assert [p.role for p in run.processes if p.role != "worker"] == ["main"]
    assert [i.batches for i in run.main.iterations] == [4, 4]
    assert all(i.exhausted for i in run.main.iterations)


RANK = '''
import os, sys
import torch
import torch.distributed as dist
torch.set_num_threads(1)
dist.init_process_group("gloo")
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(2, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(3):
    optimizer.zero_grad()
    model(torch.ones(4, 2)).sum().backward()
    optimizer.step()
os.write(1, b"rank%d %d\\n" % (dist.get_rank(), os.getpid()))  # whole, beside the other rank
dist.destroy_process_group()
'''


def test_torchrun(programs):
    path = programs.write("rank.py", RANK)
    ran = programs.supervised(PYTHON, "-m", "torch.distributed.run", "--standalone",
                              "--nproc-per-node", "2", path, timeout=150)
    assert ran.code == 0, ran.err.decode()[-2000:]
    assert {"rank0", "rank1"} == set(labels(ran))
    by_role = sorted((p.role, p.rank, p.step) for p in ran.run.processes if p.role != "child")
    assert [p for p in by_role if p[0] == "rank"] == [("rank", 0, 3), ("rank", 1, 3)]
    assert [p for p in by_role if p[0] != "rank"] == [("launcher", None, 0)]


def test_the_environment_holds_nothing_else_of_ours(programs):
    path = programs.write("one.py", "import os, json; print(json.dumps(dict(os.environ)))")
    bare, ours = programs.both(PYTHON, path, env={"PYTHONPATH": "/theirs"})
    changed = {k for k in ours.data if ours.data[k] != bare.data.get(k)}
    assert changed == {"PYTHONPATH", "TORCHMEDIC_RUN", "TORCHMEDIC_BOOT"}
    assert set(bare.data) <= set(ours.data)
    first, rest = ours.data["PYTHONPATH"].split(os.pathsep)
    assert rest == "/theirs" and [p.name for p in Path(first).iterdir() if p.suffix] == ["sitecustomize.py"]


def test_it_can_be_turned_off(programs):
    path = programs.write("one.py", say("main"))
    assert programs.supervised(PYTHON, path, env={"TORCHMEDIC_OFF": "1"}).spools == []


def test_a_run_within_a_run(programs):
    path = programs.write("one.py", "import sys; print(sys.path); sys.exit(3)")
    inner = (*TORCHMEDIC, "run", "-o", "inner.txt", "--", PYTHON, path)
    bare, ours = programs.both(*inner)
    assert (bare.out, bare.err, bare.code) == (ours.out, ours.err, ours.code)
    assert bare.code == 3 and b"probes" not in bare.out


@pytest.fixture(scope="module")
def tree(tmp_path_factory):
    """What a package is built from, apart from the working tree."""
    pytest.importorskip("hatchling")
    copy = tmp_path_factory.mktemp("tree")
    without = shutil.ignore_patterns("__pycache__", "*.mp4", "*.avi", ".torchmedic", "runs")
    for name in ("src", "examples", "tests"):
        shutil.copytree(ROOT / name, copy / name, ignore=without)
    for name in ("pyproject.toml", "LICENSE"):
        shutil.copy(ROOT / name, copy)
    readme = ROOT / "README.md"
    (copy / "README.md").write_text(readme.read_text() if readme.exists() else "torchmedic\n")
    return copy


def build(tree, hook, to):
    code = f"import sys; from hatchling import build; print(build.{hook}(sys.argv[1]))"
    ended = subprocess.run([PYTHON, "-c", code, str(to)], cwd=tree, env=environment(),
                           capture_output=True, text=True)
    assert ended.returncode == 0, ended.stderr[-3000:]
    return zipfile.ZipFile(to / ended.stdout.split()[-1])


def test_the_wheel(tree, tmp_path):
    with build(tree, "build_wheel", tmp_path) as wheel:
        names = wheel.namelist()
        line = wheel.read("torchmedic.pth").decode()
        assert wheel.read("torchmedic.start").decode() == "torchmedic.probes.entry:start\n"
    assert line == (SOURCE / "torchmedic.pth").read_text() and line.count("\n") == 1
    assert any(name.startswith("torchmedic/examples/convlstm/") for name in names)
    assert "torchmedic/probes/boot/sitecustomize.py" in names
    tops = {name.split("/")[0] for name in names}
    assert {t for t in tops if not t.endswith(".dist-info")} == \
        {"torchmedic", "torchmedic.pth", "torchmedic.start"}
    assert not [name for name in names if "tests/" in name or name.endswith(".pyc")]


def test_an_editable_install_starts_it_too(tree, tmp_path):
    pytest.importorskip("editables")
    with build(tree, "build_editable", tmp_path) as wheel:
        assert {"torchmedic.pth", "torchmedic.start"} <= set(wheel.namelist())


def test_the_target_of_the_start_file(programs):
    """What Python 3.15 does with `torchmedic.start`: imports the module, calls the function."""
    module, _, function = (SOURCE / "torchmedic.start").read_text().strip().partition(":")
    path = programs.write("one.py", f"""
import sys
sys.path.insert(0, {str(SOURCE)!r})
from importlib import import_module
getattr(import_module({module!r}), {function!r})()
print(sorted(m for m in sys.modules if m.startswith("torchmedic")), "_torchmedic.begin" in sys.modules)
""")
    spool = programs.folder / "spool"
    names = ["torchmedic", "torchmedic.probes", module]
    off = programs.bare(PYTHON, path)
    assert off.out.decode() == f"{names} False\n"
    env = observed_environment(spool)
    env["PYTHONPATH"] = ""
    on = programs.bare(PYTHON, path, env=env)
    assert on.out.decode() == f"{names} True\n" and on.err == b""
    assert len(read_spools(spool)) == 1
