"""A file of the dataset can't be decoded: it is truncated, damaged, or not what its name says.

## What you see
`UnidentifiedImageError`, `OSError: image file is truncated`, `InvalidDataError`, `BadZipFile`,
`EOFError` or a similar error from below a dataset's `__getitem__`, in some batch of a run that
went well until then.
## Why
One file of many is damaged, most often by an interrupted download or copy. It is met when its
sample comes up, which with shuffling is at another batch in each run.
## Fix
Get that file again, or leave it out. Check the whole dataset once before the next long run.
## When this is fine
When the dataset expects such files and skips them itself.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

from torchmedic.model import Fix, Problem, Rule, fires, quiet
from torchmedic.remedies import raised
from torchmedic.samples import batch_facts, index_of, own_place, path_of, reading

if TYPE_CHECKING:
    from torchmedic.observed import Failure

TYPES = {
    "UnidentifiedImageError", "InvalidDataError", "BadZipFile", "BadGzipFile", "JSONDecodeError",
    "UnpicklingError", "LZMAError", "ReadError", "LibsndfileError", "TiffFileError",
    "InvalidDicomError", "CorruptedError",
    "DECORDError", "ImageFileError", "HeaderDataError", "EOFError", "ParserError",
}
TEXTS = re.compile(
    r"cannot identify image file|image file is truncated|broken data stream|broken PNG file"  # PIL
    r"|unrecognized data stream contents|Truncated File Read|image data is truncated"
    r"|Invalid data found when processing input"  # FFmpeg: av, torchcodec, torchaudio
    r"|Failed to read all data for array|could not read magic|No data left in file"  # NumPy
    r"|Failed to interpret file .* as a pickle|cannot reshape array of size \d+ into shape"
    r"|PytorchStreamReader failed|unexpected EOF, expected|The file might be corrupted"  # torch
    r"|Not a (?:JPEG|PNG) file|Corrupt JPEG|corrupt (?:jpeg|png) data"  # torchvision
    r"|Unable to (?:synchronously )?open (?:file|object) \((?:truncated|file signature)"  # h5py
    r"|Ran out of input|pickle data was truncated|invalid load key|unexpected end of data"
    r"|ended before the end-of-stream marker|incorrect (?:header|data) check|Bad CRC-32"
    r"|Exception thrown in SimpleITK ImageFileReader"
    r"|Error opening .*(?:unknown format|not recogni[sz]ed|Format not)"  # libsndfile
    r"|OpenCV\(.*!(?:_src|src|ssize|_img|img)\.empty\(\)"  # imread gave nothing
)
SHORT = re.compile(r"truncat|EOF|Ran out of input|unexpected end|central directory|not fully|"
                   r"end-of-stream|No data left|read all data", re.IGNORECASE)


def in_failure(failure: Failure) -> Iterator[Problem]:
    if not reading(failure) or not _is_decoding(failure):
        return
    path, index = path_of(failure), index_of(failure)
    what = f"`{path}`" if path else "a file of the dataset"
    how = "ends too early" if SHORT.search(f"{failure.type} {failure.message}") else "is damaged"
    sample = f" (sample {index})" if index is not None else ""
    yield Problem(
        f"{what} {how} and can't be decoded{sample}", where=own_place(failure),
        evidence=(raised(failure), *batch_facts(failure)), fix=_fix(path, index),
    )


def _is_decoding(failure: Failure) -> bool:
    if failure.short_type in TYPES:
        return True
    if "cannot reshape array" in failure.message:  # a short .npy file, not the user's reshape
        last = failure.frames[-1] if failure.frames else None
        return last is not None and ("numpy/lib" in last.file.replace("\\", "/")
                                     or "np.load(" in (last.text or ""))
    return TEXTS.search(failure.message) is not None


def _fix(path: str | None, index: int | None) -> Fix:
    which = f"`{path}`" if path else f"the file of sample {index}" if index is not None else "it"
    return Fix(f"get {which} again from its source, or leave it out of the dataset",
               "a file that was damaged in a copy is rarely alone: check the others before the "
               "next long run")


_PROGRAM = """
import json
from pathlib import Path

import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset

torch.set_num_threads(1)
for number in range(6):
    np.save(f"{number}.npy", np.ones(100))
    Path(f"{number}.json").write_text(json.dumps({"label": number}))
%s


class Samples(Dataset):
    def __len__(self):
        return 6

    def __getitem__(self, index):
        path = Path(f"{index}.npy")
        values = np.load(path)
        label = json.loads(path.with_suffix(".json").read_text())["label"]
        return torch.from_numpy(values), label


if __name__ == "__main__":
    for x, y in DataLoader(Samples(), batch_size=2, num_workers=%d):
        pass
"""
_SHORTER = 'Path("3.npy").write_bytes(Path("3.npy").read_bytes()[:400])'
_NO_ZIP = 'Path("5.npy").write_bytes(b"PK\\x03\\x04 this is no archive")'
_MISSING = 'Path("3.npy").unlink()'
_LOG = '''Traceback (most recent call last):
  File "train.py", line 30, in <module>
    for images, labels in loader:
  File "/usr/lib/python3/dist-packages/torch/utils/data/dataloader.py", line 435, in __next__
    data = self._next_data()
OSError: Caught OSError in DataLoader worker process 3.
Original Traceback (most recent call last):
  File "/usr/lib/python3/dist-packages/torch/utils/data/_utils/worker.py", line 198, in _worker_loop
    data = fetcher.fetch(index)
  File "/home/me/data.py", line 53, in pil_loader
    img = Image.open(f)
  File "/usr/lib/python3/dist-packages/PIL/Image.py", line 2687, in open
    % (filename if filename else fp))
OSError: cannot identify image file <_io.BufferedReader name='train/n0166/n0166_64.JPEG'>
'''
_CONFIG = '''Traceback (most recent call last):
  File "train.py", line 8, in <module>
    config = json.load(open("config.json"))
  File "/usr/lib/python3.11/json/decoder.py", line 355, in raw_decode
    raise JSONDecodeError("Expecting value", s, err.value) from None
json.decoder.JSONDecodeError: Expecting value: line 1 column 1 (char 0)
'''

RULE = Rule(
    name="corrupt-sample", doc=__doc__, category="data", in_failure=in_failure,
    examples=(
        fires(_PROGRAM % (_SHORTER, 0), "`3.npy` ends too early and can't be decoded (sample 3)",
              "batch 2 holds samples 2, 3", "get `3.npy` again", line="np.load(path)",
              title="short array"),
        fires(_PROGRAM % (_NO_ZIP, 1), "`5.npy` is damaged and can't be decoded (sample 5)",
              "batch 3 holds samples 4, 5", line="np.load(path)", title="in a worker"),
        fires(_LOG, "`train/n0166/n0166_64.JPEG` is damaged and can't be decoded", kind="log",
              title="image in a log"),
        quiet(_PROGRAM % ("", 0), title="whole files"),
        quiet(_PROGRAM % (_MISSING, 0), title="missing file", exit_code=1),
        quiet(_CONFIG, kind="log", title="configuration file"),
    ),
)
