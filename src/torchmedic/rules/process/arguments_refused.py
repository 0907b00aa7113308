"""The program refused its command line and ended at once.

## What you see
`usage: train.py [-h] …` and `train.py: error: unrecognized arguments: --local-rank=0`.
## Why
An option is spelled in another way, was removed, or belongs to another version of the program;
something required is missing. `torch.distributed.launch` of torch 2.0 and newer passes
`--local-rank`, where older ones passed `--local_rank`; `torchrun` passes neither.
## Fix
Compare with `python train.py --help`. For the rank: read `os.environ["LOCAL_RANK"]` and start with
`torchrun`.
## When this is fine
When asking for help.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

from torchmedic import logtext
from torchmedic.model import Fix, Problem, Rule, fires, quiet

if TYPE_CHECKING:
    from torchmedic.observed import Log

WORDS = (
    "error: unrecognized", "error: the following", "error: argument", "error: no such option",
    "error: missing option", "error: got unexpected",
)
ERROR = re.compile(
    r"^(?:\[?\w+\]?: ?)?(?:(?P<program>[\w./\\: -]+): error: |Error: )"
    r"(?P<what>unrecognized arguments?: (?P<names>.*)|the following arguments are required: .*"
    r"|argument [^:]+: .*"
    r"|[Nn]o such option:? .*|[Mm]issing option .*|[Gg]ot unexpected extra argument.*)")


def in_log(log: Log) -> Iterator[Problem]:
    hit = logtext.first(log, ERROR)
    if hit is None:
        return
    told = hit.match
    rank = re.search(r"--local[_-]rank", told["names"] or "")
    program = f"`{told['program'].strip()}`" if told["program"] else "the program"
    fix = Fix("read `int(os.environ[\"LOCAL_RANK\"])` in the program and start it with `torchrun`",
              "or accept both spellings: `add_argument(\"--local-rank\", \"--local_rank\", …)`") \
        if rank else Fix(f"compare the command with what {program} accepts", command=f"python "
                         f"{told['program'].strip() if told['program'] else 'train.py'} --help")
    yield Problem(f"{program} refused its command line: {told['what'].strip()[:160]}",
                  evidence=(hit.evidence,), fix=fix, about=logtext.about(*logtext.lasting(log)))


_LOG = "usage: train.py [-h] [--lr LR]\ntrain.py: error: {}\n"

RULE = Rule(
    name="arguments-refused", doc=__doc__, category="code", in_log=in_log,
    examples=(
        fires(_LOG.format("unrecognized arguments: --local-rank=0"), "refused its command line",
              "LOCAL_RANK", kind="log", title="rank"),
        fires(_LOG.format("the following arguments are required: --data"), "--data", "--help",
              kind="log", title="required"),
        quiet("epoch 1\nval error: argument order changed\n", kind="log", title="another line"),
    ),
)
