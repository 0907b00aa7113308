"""The process has more files open than it is allowed to.

## What you see
`OSError: [Errno 24] Too many open files`, `RuntimeError: received 0 items of ancdata`, or
`unable to open shared memory object … Too many open files`.
## Why
Each tensor that a DataLoader worker sends occupies a file descriptor until it is freed, so
keeping batches (in a list, in a cache) keeps descriptors; so do files that are opened in
`__getitem__` and never closed.
## Fix
Close what you open; do not keep batches. Or share tensors by file name:
`torch.multiprocessing.set_sharing_strategy("file_system")`. Or raise the limit: `ulimit -n`.
## When this is fine
Never.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

from torchmedic import wording
from torchmedic.model import Fix, Problem, Rule, fires, quiet
from torchmedic.remedies import raised

if TYPE_CHECKING:
    from torchmedic.observed import Failure

WORDS = ("too many open files", "errno 24", "ancdata")
PATTERN = re.compile(r"\[Errno 24\]|Too many open files|received \d+ items of ancdata", re.I)

SHARED = re.compile(r"ancdata|shared memory|Communication with the workers|sharing strategy")


def in_failure(failure: Failure) -> Iterator[Problem]:
    if not PATTERN.search(failure.message):
        return
    shared = SHARED.search(failure.message) is not None or any(
        "multiprocessing" in frame.file for frame in failure.frames)
    what = "tensors shared by DataLoader workers" if shared else "files"
    yield Problem(
        f"too many open files: {what} hold every descriptor the process may have",
        failure.place,
        (raised(failure),
         *wording.stack_evidence([f for f in failure.frames if f.user], "exception", 3)),
        _fix(shared),
    )


def _fix(shared: bool) -> Fix:
    if shared:
        return Fix("do not keep batches from workers, or copy them with `.clone()`",
                   detail='or call torch.multiprocessing.set_sharing_strategy("file_system") '
                          "once at the start", command="ulimit -n 65536")
    return Fix("close the files that are opened there (use `with open(…)`)",
               command="ulimit -n 65536")


_PROGRAM = """
import resource, torch
torch.set_num_threads(1)
resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))
class Lines(torch.utils.data.Dataset):
    def __init__(self):
        self.kept = []
    def __len__(self):
        return 200
    def __getitem__(self, index):
        file = open(__file__)
        {}
        return len(file.readline())
for batch in torch.utils.data.DataLoader(Lines(), batch_size=4):
    pass
"""

RULE = Rule(
    name="too-many-open-files", doc=__doc__, category="environment", in_failure=in_failure,
    examples=(
        fires("RuntimeError: unable to open shared memory object </torch_3_9> in read-write mode: "
              "Too many open files (24)\n", "tensors shared by DataLoader workers",
              "file_system", kind="log", title="shared tensors"),
        fires(_PROGRAM.format("self.kept.append(file)"), "close the files",
              line="file = open(__file__)"),
        quiet(_PROGRAM.format("pass")),
    ),
)
