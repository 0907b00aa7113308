"""Nothing moves any more: no batch, no forward, no step, for much longer than usual.

## What you see
The progress bar stands still. No error, no exit. The GPU is idle or, for a collective, at 100 %.
## Why
A thread waits for something that does not come: a lock, a queue, another rank, a file on a
network disk, an answer from a server.
## Fix
The stacks show who waits where. Mend that wait: give it a timeout, or make sure that the other
side always answers.
## When this is fine
When the step really takes that long: `--hang-after SECONDS` sets your own limit.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

from torchmedic import wording, workers
from torchmedic.model import Evidence, Fix, Problem, Rule, fires, quiet

if TYPE_CHECKING:
    from torchmedic.observed import Frame, Process, Run, Stall

BUSY = 0.5  # cores: with less, what does not move waits


def in_run(run: Run) -> Iterator[Problem]:
    stall, main = run.hang, run.main
    if stall is None or main is None:
        return
    if workers.waited_for(run, stall):
        yield _in_a_worker(run, main, stall)
        return
    stacks = stall.stacks.get(main.pid, {})
    frames = stacks.get("main", main.stack)
    place = main.place_at(frames) if frames else main.place
    yield Problem(
        f"no progress for {stall.after_s:.0f} s: the main thread {_waits(frames, stall)} "
        f"{wording.moment(place)}", place,
        (Evidence(_pace(stall), "supervisor"),
         *wording.stack_evidence(frames, "main thread"), *_others(stall, main),
         *wording.progress(run)),
        Fix(f"look at what {wording.at(wording.innermost_user(frames)) or 'the main thread'} "
            "waits for; give the wait a timeout"),
        about=("stall", "ending"),
    )


def _in_a_worker(run: Run, main: Process, stall: Stall) -> Problem:
    """The main thread only waits: what the worker does is what there is to say."""
    worker, frames = workers.waited_for(run, stall)[0]
    index = f" {worker.worker_index}" if worker.worker_index is not None else ""
    inner = wording.innermost_user(frames) or frames[-1]
    where = wording.at(inner)
    main_frames = stall.stacks.get(main.pid, {}).get("main", main.stack)
    return Problem(
        f"no progress for {stall.after_s:.0f} s: the main thread waits for DataLoader "
        f"worker{index}, which is in `{inner.function}` {workers.doing(worker)}",
        replace(worker.place_at(frames), phase="data"),
        (Evidence(_pace(stall), "supervisor"),
         *wording.stack_evidence(frames, "worker's own stack"),
         Evidence(f"the main thread waits at {wording.at(wording.innermost_user(main_frames))}",
                  "main thread"),
         *wording.progress(run)),
        Fix(f"look at what the worker does at {where}: give what it waits for a timeout, or read "
            "less there; if a sample really takes so long, set --hang-after"),
        about=("stall", "ending"),
    )


def _waits(frames: tuple[Frame, ...], stall: Stall) -> str:
    if not frames:
        return "does not move"
    # The CPU time is that of all processes: it says that some thread computes, not which.
    verb = "is" if stall.cpu_share > BUSY else "waits"
    return f"{verb} in `{frames[-1].function}`"


def _pace(stall: Stall) -> str:
    usual = (f"a step usually takes {stall.usual_step_s:.2g} s; " if stall.usual_step_s else "")
    return f"{usual}all processes together used {stall.cpu_share:.2f} cores meanwhile"


def _others(stall: Stall, main: Process) -> Iterator[Evidence]:
    """Other threads and processes that run the user's own code."""
    for pid, threads in stall.stacks.items():
        for name, frames in threads.items():
            frame = wording.innermost_user(frames)
            if frame is None or (pid == main.pid and name == "main"):
                continue
            yield Evidence(f"process {pid}, {name}: {frames[-1].function} called from "
                           f"{wording.at(frame)} in {frame.function}", "stacks")


_PROGRAM = """
import threading, torch
from torch import nn
torch.set_num_threads(1)
net = nn.Linear(4, 2)
lock = threading.Lock()
def log(number):
    with lock:
        if number == 1:
            {}
for number, batch in enumerate(torch.utils.data.DataLoader(torch.randn(12, 4), batch_size=4)):
    net(batch)
    log(number)
"""
_SLEEPS = """
import time, torch
torch.set_num_threads(1)
class Rows(torch.utils.data.Dataset):
    def __len__(self):
        return 8
    def __getitem__(self, index):
        if index == 5: time.sleep(1000)
        return torch.zeros(3)
if __name__ == "__main__":
    for batch in torch.utils.data.DataLoader(Rows(), batch_size=4, num_workers=1):
        pass
"""

RULE = Rule(
    name="hang", doc=__doc__, category="code", level="symptom", in_run=in_run,
    examples=(
        fires(_PROGRAM.format("log(number)"), "no progress for", "in batch 2", "waits in `log`",
              line="with lock:", options=("--hang-after", "2", "--hang-stop")),
        fires(_SLEEPS, "waits for DataLoader worker 0, which is in `__getitem__` while it prepared "
              "batch 2", line="time.sleep", options=("--hang-after", "3", "--hang-stop"),
              title="a worker that sleeps"),
        quiet(_PROGRAM.format("pass"), options=("--hang-after", "5")),
        quiet(_PROGRAM.format("pass") + "import time\ntime.sleep(3)\n",
              options=("--hang-after", "1"), title="long work after the last batch, then its end"),
    ),
)
