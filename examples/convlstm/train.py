"""Train the 3D-CNN + LSTM on real clips: how is this clip played?

    python train.py --epochs 4 --out run

Every random choice follows from --seed and the epoch's number, so that a run gives the same bits
again, and a resumed run the same as one that was never interrupted.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from pathlib import Path

import torch
from clips import CLASSES, ClipWindows, default_folder
from model import ConvLSTM
from torch import Tensor, nn
from torch.optim import Optimizer
from torch.utils.data import DataLoader, RandomSampler, Subset
from tqdm import tqdm

Batch = tuple[Tensor, Tensor]


def parse_args(argv: Sequence[str] | None = None) -> argparse.Namespace:
    """Command line; --width 1 --size 112 is the network as published, the defaults suit a CPU."""
    parser = argparse.ArgumentParser(description="Train a 3D-CNN + LSTM video classifier.")
    parser.add_argument("--clips", type=Path, metavar="FOLDER", help="folder with video files")
    parser.add_argument("--epochs", type=int, default=4)
    parser.add_argument("--batch-size", type=int, default=8)
    parser.add_argument("--frames", type=int, default=16, help="frames in a clip, 8 or more")
    parser.add_argument("--size", type=int, default=32, help="pixels a side, 16 or more")
    parser.add_argument("--width", type=float, default=0.25, help="factor on all channel counts")
    parser.add_argument("--lr", type=float, default=1e-3)
    parser.add_argument("--workers", type=int, default=1, help="processes for each loader")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--max-batches", type=int, help="at most so many batches in an epoch")
    parser.add_argument("--threads", type=int, default=1, help="CPU threads of the arithmetic")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--out", type=Path, default=Path("run"), metavar="FOLDER")
    parser.add_argument("--resume", type=Path, metavar="CHECKPOINT")
    return parser.parse_args(argv)


def limit(args: argparse.Namespace, samples: int) -> int:
    """Number of samples that --max-batches leaves of an epoch."""
    return min(samples, (args.max_batches or samples) * args.batch_size)


def train_loader(dataset: ClipWindows, args: argparse.Namespace) -> DataLoader[Batch]:
    """Shuffled by a generator of its own, so that the order is independent of --workers."""
    sampler = RandomSampler(
        dataset, num_samples=limit(args, len(dataset)), generator=torch.Generator()
    )
    return DataLoader(
        dataset,
        args.batch_size,
        sampler=sampler,
        num_workers=args.workers,
        persistent_workers=args.workers > 0,  # keeps what the workers have decoded
    )


def validation_loader(dataset: ClipWindows, args: argparse.Namespace) -> DataLoader[Batch]:
    """In order; with --max-batches, samples spread evenly over all files."""
    count = limit(args, len(dataset))
    spread = [i * len(dataset) // count for i in range(count)]
    return DataLoader(
        Subset(dataset, spread),
        args.batch_size,
        num_workers=args.workers,
        persistent_workers=args.workers > 0,
    )


def set_learning_rate(optimizer: Optimizer, rate: float) -> None:
    """A rate that follows from the epoch alone needs no scheduler state to resume."""
    for group in optimizer.param_groups:
        group["lr"] = rate


def train_step(model: nn.Module, clips: Tensor, labels: Tensor, optimizer: Optimizer) -> float:
    """One update from clips (batch, 3, time, height, width), labels (batch,); returns the loss."""
    optimizer.zero_grad()
    loss = nn.functional.cross_entropy(model(clips), labels)
    loss.backward()
    optimizer.step()
    return loss.item()


def train_one_epoch(
    model: nn.Module, loader: DataLoader[Batch], optimizer: Optimizer, device: torch.device
) -> float:
    """One pass over the training clips; returns the mean loss of its batches."""
    model.train()
    losses = []
    bar = tqdm(loader, desc="train", unit="batch")
    for clips, labels in bar:
        losses.append(train_step(model, clips.to(device), labels.to(device), optimizer))
        bar.set_postfix(loss=f"{losses[-1]:.3f}")
    return sum(losses) / len(losses)


@torch.no_grad()
def evaluate(model: nn.Module, loader: DataLoader[Batch], device: torch.device) -> tuple[int, int]:
    """Numbers of rightly classified and of all validation clips."""
    model.eval()
    right = total = 0
    for clips, labels in tqdm(loader, desc="validate", unit="batch", leave=False):
        answers = model(clips.to(device)).argmax(dim=1)
        right += int((answers == labels.to(device)).sum())
        total += len(labels)
    return right, total


def save_checkpoint(path: Path, model: nn.Module, optimizer: Optimizer, epoch: int) -> None:
    """Write the state under another name first: a killed run leaves no half-written file."""
    state = {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "epoch": epoch}
    partial = path.with_suffix(".partial")
    torch.save(state, partial)
    partial.replace(path)


def load_checkpoint(path: Path, model: nn.Module, optimizer: Optimizer) -> int:
    """Restore the state; returns the number of epochs already done."""
    state = torch.load(path, map_location="cpu", weights_only=True)
    model.load_state_dict(state["model"])
    optimizer.load_state_dict(state["optimizer"])
    return state["epoch"]


def main(
    argv: Sequence[str] | None = None,
    *,
    model_class: Callable[..., nn.Module] = ConvLSTM,
    dataset_class: Callable[..., ClipWindows] = ClipWindows,
    train_one_epoch: Callable[..., float] = train_one_epoch,
) -> None:
    """Train, validate and write a checkpoint after each epoch."""
    args = parse_args(argv)
    torch.set_num_threads(args.threads)
    torch.manual_seed(args.seed)
    device = torch.device(args.device)
    folder = args.clips or default_folder()
    train = train_loader(dataset_class(folder, "train", args.frames, args.size), args)
    validation = validation_loader(
        dataset_class(folder, "validation", args.frames, args.size), args
    )
    model = model_class(len(CLASSES), args.width).to(device)
    optimizer = torch.optim.Adam(model.parameters(), lr=args.lr)
    done = load_checkpoint(args.resume, model, optimizer) if args.resume else 0
    args.out.mkdir(parents=True, exist_ok=True)
    for epoch in range(done + 1, args.epochs + 1):
        train.sampler.generator.manual_seed(args.seed + epoch)
        set_learning_rate(optimizer, args.lr * (1 - (epoch - 1) / args.epochs))
        loss = train_one_epoch(model, train, optimizer, device)
        right, total = evaluate(model, validation, device)
        save_checkpoint(args.out / "checkpoint.pt", model, optimizer, epoch)
        print(
            f"epoch {epoch}/{args.epochs}: train loss {loss:.4f}, "
            f"validation accuracy {right / total:.1%} ({right} of {total})",
            flush=True,
        )


if __name__ == "__main__":
    main()
