"""What a run tells of DataLoader workers that ended before their time; several rules ask."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from torchmedic import wording
from torchmedic.model import Evidence, Place
from torchmedic.signals import signal_name

if TYPE_CHECKING:
    from torchmedic.observed import Failure, Frame, Loader, Process, Run, Stall

# torch's own words in the parent, for every way a worker can end.
EXITED = re.compile(r"DataLoader worker \(pid(?:\(s\))? ?[\d, ]+\)|DataLoader worker.*killed by")
PIDS = re.compile(r"DataLoader worker \(pid(?:\(s\))? ?([\d, ]+)\)")


def ended(run: Run) -> tuple[Process, ...]:
    """Workers that ended other than by finishing their loop."""
    return tuple(w for w in run.workers if w.exit_code not in (None, 0) or _left(w) or w.fatal)


def _left(worker: Process) -> bool:
    """It ended itself with 0, which only its own call tells."""
    return bool(worker.exits) and not any(f.how == "uncaught" for f in worker.failures)


def ended_by(worker: Process) -> str | None:
    """The signal that ended it."""
    code = worker.exit_code
    return signal_name(-code) if code is not None and code < 0 else None


# A batch whose worker is gone can't be taken over: its tensors lie behind a closed socket.
BROKEN = ("EOFError", "ConnectionResetError", "ConnectionRefusedError", "BrokenPipeError",
          "FileNotFoundError")


def parent_failures(run: Run, worker: Process) -> tuple[Failure, ...]:
    """The parent's exceptions that only say that this worker is gone."""
    return tuple(f for f in run.failures
                 if (EXITED.search(f.message) or _cut_off(f)) and _means(run, f, worker))


def _means(run: Run, failure: Failure, worker: Process) -> bool:
    """By the number in the message; a message without numbers means the worker lost last."""
    named = {int(pid) for listed in PIDS.findall(failure.message)
             for pid in listed.replace(",", " ").split()}
    if named & {lost.pid for lost in ended(run)}:
        return worker.pid in named
    return worker is _last_lost(run)


def _last_lost(run: Run) -> Process | None:
    """The worker that ended last before its time; one that was sent SIGTERM is shut down by torch
    after another was lost."""
    return max(ended(run), key=lambda w: (ended_by(w) != "SIGTERM", w.last_seen), default=None)


def _cut_off(failure: Failure) -> bool:
    """The connection to a worker broke while a batch was taken over."""
    files = [frame.file for frame in failure.frames]
    return (failure.short_type in BROKEN and any(f.endswith("dataloader.py") for f in files)
            and any("multiprocessing" in f for f in files[-6:]))


def about(run: Run, worker: Process) -> tuple[str, ...]:
    """Keys of what a worker's end explains: one that was replaced explains nothing."""
    failures = parent_failures(run, worker)
    hangs = run.hang is not None and worker is _last_lost(run)
    ends = hangs or any(f.how == "uncaught" for f in failures)
    return (*(f"failure:{f.key}" for f in failures), *(("ending",) if ends else ()))


def loader_of(run: Run) -> Loader | None:
    """The loader with workers that was in use last."""
    main = run.main
    used = [i.loader for i in main.iterations if i.loader.workers] if main else []
    return used[-1] if used else None


def waited_for(run: Run, stall: Stall) -> tuple[tuple[Process, tuple[Frame, ...]], ...]:
    """Workers in the midst of a batch, with their stacks, while the main thread waits for one."""
    main = run.main
    own = stall.stacks.get(main.pid, {}).get("main", main.stack) if main else ()
    if not any(f.file.endswith("dataloader.py") for f in own):
        return ()
    stacks = ((w, stall.stacks.get(w.pid, {}).get("main", ())) for w in run.workers)
    # A worker with nothing to do sits in its queue: there is no frame of the dataset.
    return tuple((worker, frames) for worker, frames in stacks
                 if any(f.function == "fetch" or f.user for f in frames))


def name(worker: Process) -> str:
    return f"DataLoader worker {worker.worker_index} (pid {worker.pid})"


def doing(worker: Process) -> str:
    """`while it prepared batch 2 (samples 8 to 15)`."""
    if worker.batch is None:
        return "before its first batch"
    samples = worker.indices
    if not samples:
        return f"while it prepared batch {worker.batch}"
    listed = (f"samples {samples[0]} to {samples[-1]}"
              if len(samples) > 3 and list(samples) == list(range(samples[0], samples[-1] + 1))
              else "sample" + ("s " if len(samples) > 1 else " ")
              + ", ".join(map(str, samples[:8])) + ("…" if len(samples) > 8 else ""))
    return f"while it prepared batch {worker.batch} ({listed})"


def place(run: Run, worker: Process) -> Place:
    """The worker's own line; else the line of the loop that waited for it."""
    own = worker.place
    if own.file is not None:
        return own
    main = run.main
    current = wording.current_pass(main) if main else None
    frame = wording.innermost_user(current.started) if current else None
    if frame is None or main is None:
        return own
    return Place(file=frame.file, line=frame.line, function=frame.function, phase="data",
                 epoch=main.epoch, batch=worker.batch, step=main.step, pid=worker.pid)


def evidence(run: Run, worker: Process) -> tuple[Evidence, ...]:
    """Exit code, loader, and what the parent said."""
    loader = loader_of(run)
    told = parent_failures(run, worker)
    first = f"{told[0].short_type}: {told[0].message.partition(chr(10))[0]}" if told else ""
    return (
        *((Evidence(f"exit code {worker.exit_code}", "worker"),)
          if worker.exit_code is not None else ()),
        *((Evidence(wording.loader_text(loader), "loader"),) if loader else ()),
        *((Evidence(f"the parent only saw: {first[:160]}", "exception"),) if told else ()),
    )


EXAMPLE = """
import ctypes, os, signal, sys, torch
torch.set_num_threads(1)
class Samples(torch.utils.data.Dataset):
    def __len__(self):
        return 12
    def __getitem__(self, index):
        if index == 5:
            {}
        return torch.zeros(3)
if __name__ == "__main__":
    loader = torch.utils.data.DataLoader(Samples(), batch_size=4, num_workers=1)
    for batch in loader:
        pass
"""
