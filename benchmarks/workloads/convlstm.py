"""The example that ships with torchmedic, on real clips, with its training steps timed."""

import sys
from pathlib import Path
from typing import Any

from stopwatch import Stopwatch

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "convlstm"
sys.path.insert(0, str(EXAMPLE))

import train  # noqa: E402


def main(batches: str) -> None:
    watch = Stopwatch()
    step = train.train_step

    def timed(*args: Any) -> float:
        loss = step(*args)
        watch.mark(int(batches))
        return loss

    train.train_step = timed
    train.main(["--epochs", "1", "--max-batches", batches])
    watch.write()


if __name__ == "__main__":  # loader workers may import this file
    main(sys.argv[1])
