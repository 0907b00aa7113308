"""Exceptions that say plainly what is wrong, and the one line that mends each."""

from __future__ import annotations

import re

from torchmedic.model import Fix

CURES = (
    (r"cannot assign module before Module\.__init__\(\) call",
     "`super().__init__()` as the first line of the module's `__init__`"),
    (r"'(?:Distributed)?DataParallel' object has no attribute '(?P<name>\w+)'",
     "ask the wrapped model: `model.module.{name}`"),
    (r"Expected state_dict to be dict-like",
     "give it what the file holds: `model.load_state_dict(torch.load(path))`"),
    (r"Parent directory (?P<name>\S+) does not exist", "`os.makedirs(\"{name}\", exist_ok=True)` "
     "before saving"),
    (r"unscale_\(\) has already been called", "`scaler.update()` once after each `scaler.step()`, "
     "and `unscale_` once before it"),
    (r"step\(\) missing 1 required positional argument: 'metrics'",
     "`scheduler.step(validation_loss)`: this schedule goes by a measured value"),
    (r"param 'initial_lr' is not specified", "make the scheduler without `last_epoch` and load its "
     "state: `scheduler.load_state_dict(…)`"),
    (r"Can't call numpy\(\) on Tensor that requires grad", "`x.detach().cpu().numpy()`"),
    (r"grad can be implicitly created only for scalar outputs",
     "reduce the loss to one number first: `loss.mean().backward()`"),
    (r"cudnn RNN backward can only be called in training mode", "`model.train()` before the "
     "forward pass"),
    (r"is missing the required \"forward\" function", "define `forward` inside the class, spelled "
     "and indented so"),
    (r"can't optimize a non-leaf Tensor", "give the optimizer leaf tensors: `requires_grad_()` "
     "after `.to(device)`, not before"),
    (r"optimizer got an empty parameter list", "register the layers: `nn.ModuleList`, "
     "`nn.ModuleDict` or an attribute, not a plain list"),
    (r"Only Tensors created explicitly by the user .* support the deepcopy",
     "`x.detach().clone()`, or copy `model.state_dict()`"),
    (r"doesn't have any parameters that require a gradient", "wrap only the model that is "
     "trained; one that is frozen needs no `DistributedDataParallel`"),
    (r"only supports? Ampere GPUs or newer", "another attention on this GPU: "
     "`attn_implementation=\"sdpa\"` or `\"eager\"`"),
    (r"module 'PIL\.Image' has no attribute 'ANTIALIAS'", "`Image.LANCZOS`, or `pillow<10`"),
    (r"cannot import name '\w+' from 'collections'", "`collections.abc` holds it since Python "
     "3.10: update the package that asks for it"),
)


def cure(message: str) -> Fix | None:
    """None where the message is another one."""
    for pattern, title in CURES:
        if (found := re.search(pattern, message)) is not None:
            name = found.groupdict().get("name") or ""
            return Fix(title.replace("{name}", name.rstrip(".")), "", "unsafe")
    return None
