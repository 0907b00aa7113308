"""The memory of the machine or the container is used up; this is the host's, not the GPU's.

## What you see
`Killed`, exit code 137 or -9, a worker that is gone; or `MemoryError`, `DefaultCPUAllocator:
can't allocate memory`, `Cannot allocate memory`, WinError 1455.
## Why
The kernel kills the largest process when a machine or a container (cgroup) runs out. Each
DataLoader worker has its own copy of what the dataset holds in Python objects, and
`prefetch_factor` batches each; lists of outputs or losses grow with the epoch.
## Fix
Use fewer workers, hold data in arrays or files (`numpy.memmap`) and not in lists of objects,
keep no batches; or give the job more memory.
## When this is fine
Never. A smaller GPU batch does not cure it, unless batches pile up on the host.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

from torchmedic import hostkills, wording, workers
from torchmedic.model import Confidence, Evidence, Fix, Place, Problem, Rule, fires, quiet
from torchmedic.remedies import raised

if TYPE_CHECKING:
    from torchmedic.observed import Failure, Loader, Process, Run

WORDS = (
    "memory", "kill", "oom", "errno 12", "1455", "bad_alloc", "137", "-9", "signal",
    "available ram", "memlimit",
)
ROOM = 0.85  # of the limit, for the processes at their peak
NEAR = 0.93  # share of the limit at which a SIGKILL is likely the kernel's
ASKED = re.compile(r"tried to allocate (\d+) bytes|Unable to allocate ([\d.]+ [KMGTP]iB)")
# c10/core/CPUAllocator (all 1.x and 2.x), CPython, the operating system.
PATTERN = re.compile(r"DefaultCPUAllocator: (?:can't allocate|not enough) memory"
                     r"|\[Errno 12\]|Cannot allocate memory|WinError 1455"
                     r"|std::bad_alloc", re.I)
SHARED = re.compile(r"</?torch_|/dev/shm|shared memory")  # `shared-memory-exhausted`
PAGING = Fix("fewer workers (`num_workers=0`, 1 or 2), or a larger paging file",
             "each worker of Windows loads CUDA's libraries anew and commits memory for them; "
             "the DLL named is neither missing nor broken")


def in_failure(failure: Failure) -> Iterator[Problem]:
    name = failure.short_type
    if name not in ("MemoryError", "_ArrayMemoryError") and not PATTERN.search(failure.message):
        return
    if SHARED.search(failure.message):
        return
    if "1455" in failure.message:
        yield Problem("Windows can commit no more memory: the paging file is too small for all "
                      "processes together", failure.place, (raised(failure),), PAGING,
                      category="environment")
        return
    asked = ASKED.search(failure.message)
    size = wording.size(int(asked[1])) if asked and asked[1] else asked[2] if asked else ""
    amount = f"a request for {size}" if size else "a request"
    yield Problem(
        f"host memory is used up: {amount} was refused", failure.place,
        (raised(failure),
         *wording.stack_evidence([f for f in failure.frames if f.user], "exception", 3)),
        Fix("ask for less at that line, or give the job more memory",
            detail="this is memory of the host: settings of the GPU's allocator do not touch it",
            command="ulimit -v && free -g"),
    )


def in_run(run: Run) -> Iterator[Problem]:
    victim = _victim(run)
    if victim is None:
        return
    proof = _proof(run, victim)
    if proof is None:
        return
    confidence, text, source = proof
    worker = victim.role == "worker"
    who = workers.name(victim) if worker else "the process"
    doing = workers.doing(victim) if worker else wording.batch(victim.place)
    yield Problem(
        f"host memory ran out: the kernel killed {who} {doing}", _place(run, victim),
        (Evidence(text, source), *_numbers(run, victim),
         *wording.progress(run)),
        _fix(run), about=("ending", *(workers.about(run, victim) if worker else ())),
        confidence=confidence,
    )


def _victim(run: Run) -> Process | None:
    """The process that a SIGKILL ended, if that ended the run."""
    if run.main is not None and run.main_signal == "SIGKILL":
        return run.main
    for worker in workers.ended(run):
        if workers.ended_by(worker) == "SIGKILL" and workers.about(run, worker):
            return worker
    return None


def _proof(run: Run, victim: Process) -> tuple[Confidence, str, str] | None:
    """Confidence, evidence and its source that memory was the reason; None when nothing says so."""
    memory = run.memory
    if victim.pid in memory.killed:
        return ("certain", f"the kernel log says that process {victim.pid} was killed for memory",
                "kernel")
    if any(sent.reaches(victim.pid) and sent.signal == "SIGKILL" for sent in run.signals):
        return None
    if memory.oom_kills:
        text = (f"the control group counts {wording.plural(memory.oom_kills, 'kill')} for memory "
                "during this run (oom_kill)")
        # The counter does not say who was killed. The kernel takes the largest.
        sent = any(sent.signal == "SIGKILL" for sent in run.signals)
        if memory.largest_pid != victim.pid or sent:
            return "likely", text, "kernel"
        return "certain", (f"{text}; process {victim.pid} held the most memory of the run, and no "
                           "Python process of the run sent it SIGKILL"), "kernel"
    if memory.limit and memory.peak >= NEAR * memory.limit:
        return "likely", (f"memory reached {memory.peak / memory.limit:.0%} of the "
                          f"{memory.limit_source} before SIGKILL"), "supervisor"
    return None


def _place(run: Run, victim: Process) -> Place:
    return workers.place(run, victim) if victim.role == "worker" else victim.place


def _numbers(run: Run, victim: Process) -> Iterator[Evidence]:
    memory = run.memory
    limit = f" of {wording.size(memory.limit)} ({memory.limit_source})" if memory.limit else ""
    yield Evidence(f"all processes together held {wording.size(memory.peak)}{limit}", "supervisor")
    if victim.peak_rss:
        yield Evidence(f"the killed process held {wording.size(victim.peak_rss)}", "supervisor")
    if len(memory.trend) >= 4:
        (t0, first), (t1, last) = memory.trend[0], memory.trend[-1]
        if t1 > t0 and last > first:
            yield Evidence(f"it grew by {wording.size((last - first) / (t1 - t0))} per second "
                           f"over {t1 - t0:.0f} s", "supervisor")
    loader = workers.loader_of(run)
    if loader is not None:
        yield Evidence(wording.loader_text(loader), "loader")


def _fix(run: Run) -> Fix:
    loader = workers.loader_of(run)
    if loader is not None and loader.workers > 1:
        return _fewer_workers(run, loader)
    return Fix("keep less in memory (see the line above), or give the job more memory",
               detail="num_workers and the GPU's batch size are no cure if data piles up here")


def _fewer_workers(run: Run, loader: Loader) -> Fix:
    """How many workers the limit has room for, by what each of them held."""
    each = max((w.peak_rss or 0 for w in run.workers), default=0)
    parent = run.main.peak_rss or 0 if run.main else 0
    limit = run.memory.limit or 0
    if not each or not limit:
        return Fix(f"use fewer workers than {loader.workers}, or give the job more memory")
    fit = max(0, int((limit * ROOM - parent) // each))
    return Fix(f"use num_workers={min(fit, loader.workers - 1)}, or give the job more memory",
               detail=f"each worker held up to {wording.size(each)} and still grew, the main "
                      f"process {wording.size(parent)}, of {wording.size(limit)}; a worker that "
                      "goes on growing needs less kept in the dataset, not fewer workers")


_PROGRAM = """
import resource, torch
torch.set_num_threads(1)
resource.setrlimit(resource.RLIMIT_AS, (3 << 30, 3 << 30))
kept = []
for batch in torch.utils.data.DataLoader(torch.randn(12, 4), batch_size=4):
    kept.append(torch.zeros({numbers}))
"""

RULE = Rule(
    name="host-out-of-memory", doc=__doc__, category="memory", in_failure=in_failure,
    in_run=in_run, in_log=hostkills.in_log,
    examples=(
        *hostkills.EXAMPLES,
        fires(_PROGRAM.format(numbers="2 << 30"), "a request for 8 GiB was refused",
              line="kept.append(torch.zeros(2 << 30))"),
        quiet(_PROGRAM.format(numbers=1000)),
    ),
)
