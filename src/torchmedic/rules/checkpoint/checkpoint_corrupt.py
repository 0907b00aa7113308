"""The checkpoint file is no checkpoint, or not all of one.

## What you see
`invalid load key, 'v'`, `Unsupported operand 60`, `PytorchStreamReader failed reading zip archive:
failed finding central directory`, `unexpected EOF, expected 9237 more bytes`, `HeaderTooLarge`.
## Why
The download gave a text in the file's place: a Git LFS pointer (`version https://git-lfs…`), a web
page (`<html>`), a message in JSON; or the download or the saving was cut short.
## Fix
Get the file again and compare its size: `git lfs pull`, or the file's real address. Save to a
temporary name and rename it, so that an interrupted run leaves the old file.
## When this is fine
Never. `weights_only=False` does not help: there are no weights in it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

from torchmedic.model import Evidence, Fix, Place, Problem, Rule, fires, quiet
from torchmedic.remedies import raised
from torchmedic.samples import reading

if TYPE_CHECKING:
    from torchmedic.observed import Failure, Weights

WORDS = (
    "load", "zip", "eof", "header", "magic", "pickle", "storage", "central directory",
    "ran out of input", "hash value", "unable to load weights",
)
BYTE = re.compile(r"Unsupported operand (?P<operand>\d+)|invalid load key, '(?P<key>\\x..|.)'")
SHORT = re.compile(r"PytorchStreamReader failed|unexpected EOF, expected|central directory"
                   r"|MetadataIncompleteBuffer|storage has wrong (?:byte )?size|Ran out of input"
                   r"|pickle data was truncated|file might be corrupted"
                   r"|invalid hash value \(expected")
OTHER = re.compile(r"Unable to load weights from pytorch checkpoint file|not a ZIP archive"
                   r"|Invalid magic number; corrupt file|HeaderTooLarge"
                   r"|InvalidHeaderDeserialization|HeaderTooSmall")
LOADS = ("load", "_load", "_legacy_load", "load_file", "load_state_dict", "_open_zipfile_reader",
         "torch_load", "safe_open")
BEGINS = {"v": ("a Git LFS pointer", "`git lfs install && git lfs pull`"),
          "<": ("a web page", "the address of the file itself, not of the page that shows it"),
          "{": ("a text in JSON", "the answer of the server: it may ask for a login"),
          "E": ("a text", "what the server answered: an error"),
          "\n": ("a text", "look at its first lines"), "\r": ("a text", "look at its first lines")}
LOOK = "ls -l FILE && head -c 200 FILE"
AGAIN = Fix("get the file again and compare its size with the original's",
            "where a run wrote it: go back to the checkpoint before, save to another name first, "
            "then `os.replace` it; a full disk cuts files too", command=LOOK)
FOUND = {
    "pointer": ("the file is a Git LFS pointer and no checkpoint",
                Fix("get the real file", command="git lfs install && git lfs pull")),
    "page": ("the file is a web page and no checkpoint",
             Fix("get the real file: the address of the file itself, not of the page that shows "
                 "it", command=LOOK)),
    "json": ("the file is a text in JSON and no checkpoint",
             Fix("look at it: a server's answer may ask for a login; a configuration belongs "
                 "beside the weights", command=LOOK)),
    "text": ("the file is a text and no checkpoint",
             Fix("look at its first lines: they say what the server or the program answered",
                 command=LOOK)),
    "empty": ("the file is empty", AGAIN),
    "cut": ("the file is not complete: its download or its saving was cut short", AGAIN),
    "damaged": ("the file is damaged", AGAIN),
    "other": ("the file is no checkpoint: {detail}",
              Fix("load it with what wrote it, or get the weights as `.pth` or `.safetensors`",
                  command=LOOK)),
    "encrypted": ("the file is encrypted: {detail}", Fix("decrypt it with the key of its owner")),
    "unpacked": ("the folder is an unpacked checkpoint: somebody opened the zip archive that "
                 "`torch.save` writes",
                 Fix("get the file again; or pack the folder, without compression",
                     command="zip -0 -r NEW.pth FOLDER   # beside the folder, not in it")),
    "pickle": ("the file is a plain pickle, which `torch.load` does not read",
               Fix("where you trust who made it: `pickle.load(open(FILE, \"rb\"))` once, then "
                   "`torch.save` its tensors", "unpickling runs whatever the file says")),
    "too-large": ("the file's header asks for more memory than a checkpoint needs",
                  Fix("do not load it: it is damaged, or made to exhaust the memory")),
    "shard": ("the checkpoint's files are not complete: {names}",
              Fix("get the missing files, or write the index again")),
    "hostile": ("the file wants to run code when it is loaded: {names}",
                Fix("do not load it with `weights_only=False`; get the weights as safetensors or "
                    "from a source you trust")),
    "whole-model": ("the file holds a whole model, not its weights: it needs the class {names}",
                    Fix("once, with the class at hand and if you trust the file: "
                        "`model = torch.load(FILE, weights_only=False)`, then "
                        "`torch.save(model.state_dict(), NEW)`",
                        "`weights_only=True` refuses it, and a renamed class breaks it")),
}
"""Kind of a defect that `torchmedic weights` found → what to say of it."""


def in_failure(failure: Failure) -> Iterator[Problem]:
    starting = any("multiprocessing" in f.file and "spawn" in f.file for f in failure.frames)
    if starting or reading(failure) or not _loads(failure):
        return  # a sample of the dataset has a rule of its own
    told = _first_byte(failure.message) or _cut(failure.message)
    if told is not None:
        message, fix = told
        yield Problem(message, where=failure.place, fix=fix,
                      confidence="certain" if failure.frames else "likely",
                      evidence=(raised(failure), *_byte(failure.message)))


def in_data(seen: Weights) -> Iterator[Problem]:
    file = seen.checkpoint.file
    for defect in seen.checkpoint.defects:
        message, fix = FOUND[defect.kind]
        names = ", ".join(f"`{name}`" for name in defect.names[:4])
        code = defect.kind in ("hostile", "whole-model")
        yield Problem(message.format(names=names, detail=defect.detail),
                      where=Place(file=file), fix=fix,
                      category="code" if code else None,
                      severity="warning" if defect.kind in ("whole-model", "pickle") else None,
                      evidence=(Evidence(defect.detail, "file"),))


def _loads(failure: Failure) -> bool:
    names = {frame.function for frame in failure.frames}
    return not failure.frames or bool(names.intersection(LOADS)) or any(
        re.search("load|from_pretrained", frame.text or "") or "serialization" in frame.file
        for frame in failure.frames)


def _first_byte(text: str) -> tuple[str, Fix] | None:
    found = BYTE.search(text)
    if found is None:
        return None
    first = chr(int(found["operand"])) if found["operand"] else found["key"]
    if first in BEGINS:
        what, how = BEGINS[first]
        return (f"the file is {what} and no checkpoint",
                Fix(f"get the real file: {how}", "`weights_only=False` does not help: the file "
                    "holds no weights", command=LOOK))
    if found["operand"]:
        return None  # `weights-only-refused`
    return ("the file does not begin as a checkpoint does",
            Fix("look at what it is (a `.safetensors`, an archive?) and load it as that, or get it "
                "again", command=LOOK))


def _cut(text: str) -> tuple[str, Fix] | None:
    if OTHER.search(text):
        return ("the file is not a checkpoint, or is damaged",
                Fix("get it again, and compare its size with the original's", command=LOOK))
    if SHORT.search(text):
        return ("the checkpoint is not complete: its download or its saving was cut short",
                Fix("get it again, or go back to the checkpoint before it",
                    "save to another name first, then `os.replace` it; a full disk cuts files too",
                    command=LOOK))
    return None


def _byte(text: str) -> tuple[Evidence, ...]:
    found = BYTE.search(text)
    if found is None or not found["operand"]:
        return ()
    number = int(found["operand"])
    return (Evidence(f"byte {number} is the character `{chr(number)}`", "exception"),) \
        if 32 < number < 127 else ()


_LOG = """Traceback (most recent call last):
  File "fit.py", line 8, in <module>
    state = torch.load("last.pt")
{}
"""
_WRITES = """
import torch
torch.save({"w": torch.ones(5000)}, "checkpoint.pt")
%s
"""

RULE = Rule(
    name="checkpoint-corrupt", doc=__doc__, category="data", in_failure=in_failure,
    in_data=in_data,
    examples=(
        fires(_LOG.format("_pickle.UnpicklingError: invalid load key, 'v'."),
              "a Git LFS pointer", "git lfs pull", kind="log", title="pointer"),
        fires(_LOG.format("_pickle.UnpicklingError: Weights only load failed. In PyTorch 2.6 the "
                          "default changed.\nWeightsUnpickler error: Unsupported operand 60"),
              "a web page", "byte 60 is the character `<`", kind="log", title="page"),
        fires(_LOG.format("RuntimeError: PytorchStreamReader failed reading zip archive: failed "
                          "finding central directory"), "was cut short", kind="log", title="cut"),
        fires(_LOG.format('RuntimeError: invalid hash value (expected "8d92", got "e3b0")'),
              "was cut short", kind="log", title="hash"),
        fires(_WRITES % 'open("checkpoint.pt", "r+b").truncate(9000)', "was cut short",
              "bytes", kind="checkpoint", title="a file cut short"),
        fires(_WRITES % 'open("checkpoint.pt", "w").write("version https://git-lfs.github.com/")',
              "a Git LFS pointer", kind="checkpoint", title="a file that is a pointer"),
        quiet(_WRITES % "", kind="checkpoint", title="a whole file"),
        quiet(_LOG.format("_pickle.UnpicklingError: Weights only load failed. Unsupported global: "
                          "GLOBAL a.B"), kind="log", title="refused"),
    ),
)
