"""`torchmedic weights CHECKPOINT`: what is in a checkpoint, and what of it fits a model."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

from torchmedic import output, report
from torchmedic.output import UserError

if TYPE_CHECKING:
    from torchmedic.model import Diagnosis
    from torchmedic.observed import Checkpoint, Comparison

SUMMARY = "say what is in a checkpoint, and what of it fits a model"


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("checkpoint", type=Path, metavar="CHECKPOINT",
                        help="a file of torch.save or safetensors, an index of shards, a folder")
    output.add_options(parser, ("full", "json"))
    parser.add_argument("--key", metavar="KEYS",
                        help="the entry that holds the weights, such as ema or ema.module")
    model = parser.add_argument_group("a model to compare with")
    model.add_argument("--model", metavar="MODULE:FACTORY",
                       help="what builds it, such as net.resnet:build; it is run")
    model.add_argument("--model-args", metavar="JSON",
                       help="its arguments: an object by name, or a list")
    more = parser.add_argument_group("how")
    more.add_argument("--values", action="store_true",
                      help="read the tensors and look for NaN and Inf (with torch, weights only)")
    more.add_argument("--python", metavar="PATH", default=sys.executable,
                      help="the interpreter that has torch (default: this one)")


def execute(args: argparse.Namespace) -> int:
    from torchmedic import registry
    from torchmedic.diagnosis import conclude, diagnose_data
    from torchmedic.observed import Weights

    if args.model_args and not args.model:
        raise UserError("--model-args needs --model")
    checkpoint = _read(args, _keys(args.key))
    comparison = None
    if args.model and checkpoint.weights:
        checkpoint, comparison = _compared(checkpoint, args)
    notes: list[str] = []
    bad = _values(checkpoint, args, notes) if args.values else ()
    findings = diagnose_data(Weights(checkpoint, comparison, bad), registry.for_data(), notes)
    diagnosis = conclude("weights", findings, notes=tuple(notes))
    with output.opened(args.output_file) as stream:
        show = _json if args.output_format == "json" else _full
        show(diagnosis, checkpoint, comparison, stream)
    return 1 if findings else 0


def _keys(text: str | None) -> tuple[str, ...] | None:
    return tuple(text.split(".")) if text else None


def _read(args: argparse.Namespace, inside: tuple[str, ...] | None) -> Checkpoint:
    from torchmedic.data import checkpoints

    try:
        checkpoint = checkpoints.read(args.checkpoint, inside)
    except OSError as error:
        raise UserError(f"can't read {args.checkpoint}: {error.strerror or error}") from None
    except ValueError as error:  # such as a null byte in the name
        raise UserError(f"can't read this name: {error}") from None
    if inside and not checkpoint.weights and not checkpoint.defects:
        raise UserError(f"there is no state dict in {args.key}")
    return checkpoint


def _compared(checkpoint: Checkpoint, args: argparse.Namespace) -> tuple[Checkpoint, Comparison]:
    """With the state dict of the file that fits best, where none was asked for."""
    from torchmedic.data import asking, comparing

    model = asking.model(args.model, args.model_args, args.python)

    def beside(one: Checkpoint) -> Comparison:
        return comparing.compare(one.weights, model.tensors, model.name, model.tied)

    best = checkpoint, beside(checkpoint)
    for place in () if args.key else checkpoint.others[:20]:
        other = _read(args, place)
        found = beside(other)
        if found.loaded > 2 * best[1].loaded:  # averaged weights fit as well: not for these
            best = other, found
    return best


def _values(checkpoint: Checkpoint, args: argparse.Namespace, notes: list[str]
            ) -> tuple[tuple[str, int, int], ...]:
    """NaN and Inf in the tensors of a file that nothing is wrong with."""
    if checkpoint.defects:
        notes.append("its values were not read")
        return ()
    from torchmedic.data.asking import not_finite

    count, bad = not_finite(args.checkpoint, args.python)
    if not bad:
        notes.append(f"all values of {count} tensors are finite")
    return bad


def _full(diagnosis: Diagnosis, checkpoint: Checkpoint, comparison: Comparison | None,
          stream: TextIO) -> None:
    from torchmedic.data import telling
    from torchmedic.report.escape import write_encodable

    width = output.width(stream)
    text = telling.contents(checkpoint, width)
    if comparison is not None:
        text += "\n" + telling.compared(comparison, width)
    write_encodable(text + "\n", stream)
    if diagnosis.findings:
        report.write(diagnosis, "full", stream)
        return
    found = "nothing wrong found" if comparison is None else "all of the model would be loaded"
    write_encodable(f"torchmedic: {found}\n", stream)
    for note in diagnosis.notes:
        write_encodable(f"note: {note}\n", stream)


def _json(diagnosis: Diagnosis, checkpoint: Checkpoint, comparison: Comparison | None,
          stream: TextIO) -> None:
    import json

    from torchmedic.data import telling
    from torchmedic.report import jsonfile

    data = {**jsonfile.as_data(diagnosis), "weights": telling.as_data(checkpoint, comparison)}
    json.dump(data, stream, indent=2, allow_nan=False)
    stream.write("\n")
