"""Watches DataLoaders: which batch, how each pass ended, and what happens inside workers."""

from __future__ import annotations

import sys
import time
import weakref

from . import compat, crash, frames, modes, sampler, watch
from .layout import BATCH, DATA, EPOCH, FETCHES, LOADER, OTHER, PHASE, STEPS
from .patching import Probe, excise
from .paths import is_user_file
from .recorder import emit, recorder, state

loaders = Probe("loader")
workers = Probe("worker")
samples = Probe("fetch")

FULL_EVENTS = 200  # told as they happen; of later ones the last RECENT, at the end of the process
RECENT = 32


class _Pass:
    """One iteration over a loader."""

    __slots__ = ("began", "by", "count", "done", "epoch", "loader", "modes", "ref", "steps")


class _Book:
    def __init__(self):
        self.passes = {}
        self.loaders = {}
        self.facts = {}
        self.epochs = {}
        self.numbers = self.told = 0
        self.recent = []
        self.multi = weakref.WeakSet()
        self.indices = ()
        self.worker = None
        self.current = None

    def forget_passes(self):
        """In a forked child: the parent's passes are not ours to end."""
        self.passes.clear()  # the same dict: the hot path holds it
        self.current = None
        self.recent = []


book = _Book()
recorder.after_fork.append(book.forget_passes)
watch.add_fact(lambda: {"indices": _plain_indices()})
fetches = [0]
sampler.counters.append((FETCHES, fetches))


def _loader_number(loader):
    key = id(loader)
    known = book.loaders.get(key)
    if known is not None and known[1]() is loader:
        return known[0]
    number = book.numbers = book.numbers + 1
    # The address may serve another loader once this one is gone.
    book.loaders[key] = (number, weakref.ref(loader, lambda _: book.loaders.pop(key, None)))
    book.facts[number] = _facts(loader)
    if number > RECENT:
        book.facts.pop(number - RECENT, None)
        book.epochs.pop(number - RECENT, None)
    return number


def _facts(loader):
    dataset = loader.dataset
    sampler_class = type(getattr(loader, "sampler", None)).__name__
    return {
        "batches": _length(loader), "batch_size": loader.batch_size,
        "samples": _length(dataset), "drop_last": bool(loader.drop_last),
        "workers": int(loader.num_workers), "dataset": type(dataset).__name__,
        "sampler": sampler_class, "timeout": float(loader.timeout or 0),
        "start_method": compat.start_method(loader) if loader.num_workers else None,
        "persistent": bool(getattr(loader, "persistent_workers", False)),
    }


def _length(thing):
    # An iterable dataset's loader warns from __len__ later if asked now: only map-style is asked.
    if "__len__" not in dir(type(thing)):
        return None
    torch = sys.modules["torch"]
    dataset = getattr(thing, "dataset", thing)
    if isinstance(dataset, torch.utils.data.IterableDataset):
        return None
    try:
        return len(thing)
    except Exception:
        return None


def _begin(loader, iterator):
    number = _loader_number(loader)
    entry = _Pass()
    entry.loader = number
    entry.epoch = book.epochs[number] = book.epochs.get(number, 0) + 1
    entry.count = 0
    entry.began = entry.done = False
    entry.by = None
    entry.steps = state.slots[STEPS]
    entry.modes = modes.snapshot()
    key = id(iterator)
    old = book.passes.get(key)
    if old is not None and not old.done:
        _end(old, None)  # A persistent iterator that was started again before its end.
    entry.ref = weakref.ref(iterator, lambda _: _dropped(key, entry))
    book.passes[key] = entry
    if hasattr(iterator, "_workers"):
        book.multi.add(iterator)


def _dropped(key, entry):
    try:
        if book.passes.get(key) is entry:
            del book.passes[key]
        if not entry.done:
            _end(entry, False)
    except Exception as error:
        loaders.fail(error)


def _tell(kind, entry, **fields):
    """Tell of a pass, and before it of its loader. Thousands of passes must not fill the disk."""
    fields.update(loader=entry.loader, epoch=entry.epoch, by=entry.by, time=time.time())
    book.told += 1
    if book.told <= FULL_EVENTS:
        _write(kind, fields)
    else:
        book.recent = [*book.recent[1 - RECENT :], (kind, fields)]


def _write(kind, fields):
    facts = book.facts.pop(fields["loader"], None)
    if facts is not None:
        emit("loader", loader=fields["loader"], **facts)
    emit(kind, **fields)


def tell_recent():
    """At the end of the process: the last passes, where there were too many to tell each."""
    for kind, fields in book.recent:
        _write(kind, fields)
    book.recent = []


def _end(entry, exhausted):
    """A pass is over: used up, or dropped by whoever held it, at this very line."""
    entry.done = True
    if entry.began:
        frame = sys._getframe(1)
        told = frames.stack(frame, 30)
        if entry.by == "next":
            _add_scalars(frame, told)  # was the loop around it done?
        calls, backwards = modes.since(entry.modes)
        _tell("pass-ended", entry, batches=entry.count, exhausted=exhausted, calls=calls,
              backwards=backwards,
              steps=state.slots[STEPS] - entry.steps, frames=told)


def _first(entry, caller):
    """Before the first batch: who asks, and the plain numbers in scope (planned epochs)."""
    entry.began = True
    code, position = caller.f_code.co_code, caller.f_lasti
    entry.by = "for" if code[position] in _FOR_ITER else "next"
    told = frames.stack(caller, 30)
    _add_scalars(caller, told)
    _tell("pass", entry, frames=told)


def _add_scalars(frame, told):
    """Plain numbers of the innermost user frames into their entries."""
    user = 0
    entries = list(reversed(told))
    while frame is not None and entries and user < 3:
        if is_user_file(frame.f_code.co_filename):
            match = next((e for e in entries if e["function"] == frame.f_code.co_name
                          and e["file"] == frame.f_code.co_filename), None)
            if match is not None:
                match["values"] = frames.scalars_of(frame)
            user += 1
        frame = frame.f_back


def _for_iter_opcodes():
    import opcode

    names = [name for name in opcode.opmap if name.startswith("FOR_ITER")]
    return frozenset(opcode.opmap[name] for name in names)


_FOR_ITER = _for_iter_opcodes()


def _wrap_iter(original):
    def __iter__(self):
        try:
            iterator = original(self)
        except BaseException as error:
            watch.seen(error)
            excise(error)
            raise
        try:
            _begin(self, iterator)
        except Exception as error:
            loaders.fail(error)
        return iterator

    return __iter__


def _wrap_next(original):
    passes = book.passes
    pending, steps_then = watch.pending, watch.began

    def __next__(self):
        try:
            # The hot path of a loop: four numbers, and nothing else unless something is new.
            entry = passes.get(id(self))
            if entry is not None:
                slots = state.slots
                slots[PHASE] = DATA
                slots[BATCH] = entry.count + 1
                if book.current is not entry or pending:
                    _turn_to(entry, sys._getframe(1))
                steps_then[0] = slots[STEPS]
        except Exception as error:
            loaders.fail(error)
            entry = None
        try:
            batch = original(self)
        except BaseException as error:
            _not_given(entry, error)
            excise(error)
            raise
        if entry is not None:
            try:
                entry.count += 1
                slots[PHASE] = OTHER
            except Exception as error:
                loaders.fail(error)
        return batch

    return __next__


def _turn_to(entry, caller):
    """Another pass than that of the batch before, or an exception whose outcome is now known."""
    book.current = entry
    state.slots[EPOCH] = entry.epoch
    state.slots[LOADER] = entry.loader
    if not entry.began:
        _first(entry, caller)
    watch.resolve("next-batch")


def _not_given(entry, error):
    """The pass is used up, or this batch could not be made."""
    if entry is None:
        return
    try:
        if isinstance(error, StopIteration):
            state.slots[PHASE] = OTHER
            state.slots[BATCH] = entry.count
            _end(entry, True)
        else:
            watch.seen(error, 2)
            tell_worker_exits()
    except Exception as problem:
        loaders.fail(problem)


def tell_worker_exits():
    """Exit codes of the workers that are no more; torch's own message does not tell them apart."""
    try:
        for iterator in list(book.multi):
            for index, worker in enumerate(getattr(iterator, "_workers", ())):
                if worker.pid is not None and worker.exitcode is not None:
                    emit("worker-exit", pid=worker.pid, index=index, code=worker.exitcode)
    except Exception as error:
        emit("probe-error", probe="worker-exit", error=repr(error)[:300])


def tell_open_passes():
    """At the end of the process: passes that are still in progress."""
    for entry in list(book.passes.values()):
        if entry.began and not entry.done:
            calls, backwards = modes.since(entry.modes)
            _tell("pass-open", entry, batches=entry.count, calls=calls, backwards=backwards,
                  steps=state.slots[STEPS] - entry.steps)


recorder.at_end.append(tell_worker_exits)
recorder.at_end.append(tell_open_passes)
recorder.at_end.append(tell_recent)


def _wrap_fetch(original):
    last = {"fetcher": None, "count": 0}

    def fetch(self, possibly_batched_index):
        try:
            _note_indices(possibly_batched_index)
            if book.worker is not None:
                _count_worker_batch(self, last, state.slots)
        except Exception as error:
            samples.fail(error)
        try:
            return original(self, possibly_batched_index)
        except BaseException as error:
            if book.worker is not None:
                watch.seen(error)
            excise(error)
            raise

    return fetch


def _note_indices(index):
    fetches[0] += 1
    book.indices = index  # as it is: made plain only when a failure is told


def _plain_indices(most=256):
    index = book.indices
    many = index if isinstance(index, (list, tuple)) else (index,)
    return [i for i in many[:most] if type(i) is int]


def _count_worker_batch(fetcher, last, slots):
    """Worker k of n serves batches k, k+n, …, in order, and has a new fetcher each epoch."""
    index, of = book.worker
    if last["fetcher"] is not fetcher:
        last["fetcher"] = fetcher
        last["count"] = 0
    slots[BATCH] = last["count"] * of + index + 1
    slots[PHASE] = DATA
    last["count"] += 1
    if recorder.written < 1 << 20:
        emit("fetch", batch=slots[BATCH], indices=_plain_indices(64))


def _wrap_worker_loop(original):
    def _worker_loop(*args, **kwargs):
        try:
            index, of = compat.worker_arguments(args)
            book.worker = None if index is None else (index, of)
            emit("worker", index=index, of=of, pid=recorder.pid)
            sampler.start()
        except Exception as error:
            workers.fail(error)
        result = original(*args, **kwargs)
        emit("ended", how="worker", code=0)
        return result

    return _worker_loop


def _wrap_worker_handlers(original):
    def _set_worker_signal_handlers(*args):
        result = original(*args)
        # torch's handlers took faulthandler's place; enabling alone would be a no-op.
        crash.take_over_again()
        return result

    return _set_worker_signal_handlers


def install(torch):
    module = compat.loader_module()
    if module is None or loaders.installed:
        return
    loaders.wrap(module.DataLoader, "__iter__", _wrap_iter)
    loaders.wrap(module._BaseDataLoaderIter, "__next__", _wrap_next)
    utils = torch.utils.data._utils
    workers.wrap(utils.worker, "_worker_loop", _wrap_worker_loop)
    workers.wrap(utils.signal_handling, "_set_worker_signal_handlers", _wrap_worker_handlers)
    for name in ("_MapDatasetFetcher", "_IterableDatasetFetcher"):
        samples.wrap(getattr(utils.fetch, name), "fetch", _wrap_fetch)


def uninstall():
    for probe in (loaders, workers, samples):
        probe.uninstall()
