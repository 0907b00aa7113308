"""Every fact about torch that differs between versions. One small function per fact.

Checked on torch 2.13.0 and 2.14.1; the older branches are as their release notes say.
"""

from __future__ import annotations

import sys


def is_compiling(torch):
    """The function that dynamo folds to True while it traces, and eager code runs as False.

    torch.compiler.is_dynamo_compiling: 2.3 and newer; torch._dynamo.external_utils: 2.1, 2.2.
    """
    compiler = getattr(torch, "compiler", None)
    for name in ("is_dynamo_compiling", "is_compiling"):
        found = getattr(compiler, name, None)
        if found is not None:
            return found
    return _never


def is_tracing(torch):
    """True inside torch.jit.trace, where asking for a shape would add to the graph."""
    return getattr(_part(torch, "_C"), "_is_tracing", _never)


def _never():
    return False


def leave_alone(torch, codes):
    """Make dynamo run frames of these codes as they are, and still look at what they call.

    Else it takes our wrapper for the outermost frame to compile, and compiles our helpers.
    skip_code: up to 2.6; set_code_exec_strategy: since 2.7, with skip_code in Python on top of it.
    """
    frames = _part(torch, "_C", "_dynamo", "eval_frame")
    skip = getattr(frames, "skip_code", None)
    set_strategy = getattr(frames, "set_code_exec_strategy", None)
    for code in codes:
        if skip is not None:
            skip(code)
        elif set_strategy is not None:
            actions = frames._FrameAction
            set_strategy(code, frames._FrameExecStrategy(actions.SKIP, actions.DEFAULT))


def _part(whole, *names):
    for name in names:
        whole = getattr(whole, name, None)
    return whole


def after_step_hook(torch):
    """Registers a hook after every optimizer's step; None before torch 2.0."""
    # torch.optim deletes the name of its submodule.
    module = sys.modules.get("torch.optim.optimizer")
    return getattr(module, "register_optimizer_step_post_hook", None)


def is_capturing(tensor, torch):
    """While a CUDA graph is recorded nothing may be read from the device."""
    return tensor.is_cuda and torch.cuda.is_current_stream_capturing()


def before_step_hook(torch):
    """Registers a hook before every optimizer's step; None before torch 2.0."""
    module = sys.modules.get("torch.optim.optimizer")
    return getattr(module, "register_optimizer_step_pre_hook", None)


def scheduler_class(torch):
    """Base class of schedulers: LRScheduler since 2.0, _LRScheduler before."""
    module = torch.optim.lr_scheduler
    return getattr(module, "LRScheduler", None) or getattr(module, "_LRScheduler", None)


def loader_module():
    """torch.utils.data.dataloader if it is imported; `import torch` does it in all 2.x."""
    return sys.modules.get("torch.utils.data.dataloader")


def worker_arguments(args):
    """(worker index, number of workers) from the positional arguments of `_worker_loop`.

    dataset_kind, dataset, index_queue, data_queue, done_event, auto_collation, collate_fn,
    drop_last, base_seed, init_fn, worker_id, num_workers, …: the same since 1.7.
    """
    return (args[10], args[11]) if len(args) > 11 else (None, None)


def start_method(loader):
    """How a loader starts its workers; None when it has none or the default was not asked for."""
    context = getattr(loader, "multiprocessing_context", None)
    if context is None:
        multiprocessing = sys.modules.get("multiprocessing")
        if multiprocessing is None:
            return None
        return multiprocessing.get_start_method(allow_none=True) or _default_method()
    return getattr(context, "_name", None) or getattr(context, "get_start_method", lambda: None)()


def _default_method():
    # Asking multiprocessing itself would fix the default, which the script may still set.
    if sys.platform != "linux":
        return "spawn"
    return "forkserver" if sys.version_info >= (3, 14) else "fork"
