"""What makes room on a full GPU: that depends on what the program did when it was full."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Literal

from torchmedic.model import Fix

if TYPE_CHECKING:
    from torchmedic.observed import Failure, Frame

Moment = Literal["load", "model", "step", "validation", "batch"]
MODULE = re.compile(r"\b\w*(?:model|net|module|encoder|decoder|backbone|transformer)\w*"
                    r"\.(?:cuda|to|half)\(|from_pretrained\(|\bmodel = .*\.(?:cuda|to)\(")
EVALUATION = re.compile(r"^(?:_?run_)?(?:val|valid\w*|evaluat\w*|eval\w*|test\w*|infer\w*"
                        r"|predict\w*)(?:_|$)", re.IGNORECASE)
WORDS = {"load": ", while a checkpoint was loaded", "model": ", while the model was put on it",
         "step": ", in the optimizer's step", "validation": ", in validation", "batch": ""}
LOAD = Fix("`torch.load(path, map_location=\"cpu\")`: a checkpoint is read onto the GPU it was "
           "saved from, beside the model", "and `del` it after `load_state_dict`; no batch has "
           "been made here, so its size changes nothing", "unsafe")
MODEL = Fix("a smaller model, weights of half the size (`dtype=torch.bfloat16`), quantized ones, "
            "or weights spread over GPUs and host memory", "no batch has been made here, so its "
            "size changes nothing")
STEP = Fix("smaller optimizer states: `foreach=False`, an 8-bit or factored optimizer, fewer "
           "trained parameters, or states sharded over GPUs", "Adam keeps two more values for "
           "each parameter, made in the first step; what the forward pass saved is freed by then")
SMALLER = ("a smaller batch, or smaller inputs: the forward pass must save less; mixed precision "
           "and checkpointing save more of it")
ONE = ("smaller inputs (crops, shorter sequences), mixed precision, checkpointing, or a smaller "
       "model: the batch is one sample already")
VALIDATION = ("`with torch.no_grad():` around validation, if it is not there; then a smaller batch "
              "for it, and outputs moved to the CPU as they come")


def moment(failure: Failure) -> Moment:
    """What the program was doing, by the frames."""
    inner = [frame for frame in failure.frames if not frame.user]
    if any(_in(frame, "torch/serialization.py", "safetensors/torch.py") for frame in inner):
        return "load"
    if any(_in(frame, "torch/optim/") for frame in inner):
        return "step"
    text = failure.user_frame.text if failure.user_frame else None
    if any(_moves(frame) for frame in inner) or MODULE.search(text or ""):
        return "model"
    if any(EVALUATION.match(frame.function) for frame in failure.frames if frame.user):
        return "validation"
    return "batch"


def _moves(frame: Frame) -> bool:
    return _in(frame, "modeling_utils.py") or (
        _in(frame, "nn/modules/module.py") and frame.function in ("_apply", "convert"))


def _in(frame: Frame, *parts: str) -> bool:
    file = frame.file.replace("\\", "/")
    return any(part in file for part in parts)


def cure(failure: Failure, when: Moment, detail: str) -> Fix:
    """For a GPU that live tensors fill."""
    if when in ("load", "model", "step"):
        return {"load": LOAD, "model": MODEL, "step": STEP}[when]
    told = failure.told
    single = told is not None and told.batch_size == 1
    if when == "validation":
        return Fix(VALIDATION.replace("then a smaller batch for it, and ", "and ") if single
                   else VALIDATION, detail)
    smaller = ONE if single else SMALLER
    if told is not None and told.epochs:
        many = "1 epoch" if told.epochs == 1 else f"{told.epochs} epochs"
        return Fix(f"it fitted for {many} before: look for what grows (losses or outputs kept as "
                   "tensors) or differs (one larger sample, another phase)",
                   f"if its use of memory was level: {smaller}; {detail}")
    return Fix(smaller, detail)
