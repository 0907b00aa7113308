"""Fault: the loader's worker process is killed (as for lack of memory) while it makes batch 2."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import os
import signal
import time
from functools import partial

from clips import ClipWindows
from torch import Tensor
from train import main, parse_args


class KilledInSecondBatch(ClipWindows):
    """The worker gets SIGKILL, as the kernel sends it, at the first clip of its batch 2."""

    def __init__(self, *args: object, batch_size: int) -> None:
        super().__init__(*args)
        self.batch_size, self.served = batch_size, 0

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        self.served += 1
        if self.served > self.batch_size:
            time.sleep(2)  # lets batch 1 reach the training loop, and that loop wait for batch 2
            os.kill(os.getpid(), signal.SIGKILL)
        return super().__getitem__(index)


if __name__ == "__main__":
    main(
        [*sys.argv[1:], "--workers", "1"],  # in the program's own process the kill would end it all
        dataset_class=partial(KilledInSecondBatch, batch_size=parse_args().batch_size),
    )
