"""A small training run that resumes from its last checkpoint: what a killed run must survive.

    python -m tests.runs.train FOLDER --steps 30 --workers 2

Everything that has state is in it: dropout, running statistics, momentum, a schedule, a scaler, an
average of the weights, shuffled and augmented data. Each step is announced on stdout; the end is a
digest of all parameters and buffers.
"""

from __future__ import annotations

import argparse
import hashlib
from typing import Any

import lucerne as torch
from lucerne import nn
from lucerne.run_state import RunState, latest
from lucerne.utils.data import DataLoader, Dataset


class Noisy(Dataset[Any]):
    """Points of two classes, with new noise each time one is read."""

    def __len__(self) -> int:
        return 50

    def __getitem__(self, index: int) -> Any:
        label = index % 2
        return torch.randn(8) + 2.0 * label, label


def make_model() -> Any:
    return nn.Sequential(
        nn.Linear(8, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Dropout(0.2), nn.Linear(16, 2)
    )


def digest(module: Any) -> str:
    found = hashlib.sha256()
    for name, value in module.state_dict().items():
        found.update(name.encode() + value.numpy().tobytes())
    return found.hexdigest()


def train(folder: str, steps: int, workers: int, stop: int | None = None, every: int = 4) -> str:
    """Train from the last checkpoint in the folder, to the end or to step `stop`."""
    torch.manual_seed(7)
    model = make_model()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    parts = {
        "model": model,
        "optimizer": optimizer,
        "scheduler": torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, steps),
        "scaler": torch.amp.GradScaler("cpu"),
        "average": torch.optim.swa_utils.AveragedModel(model),
        "loader": DataLoader(Noisy(), 8, True, num_workers=workers, reproducible=True),
    }
    state = RunState(**parts)
    if latest(folder):
        state.restore(folder)
    while True:
        for x, label in parts["loader"]:
            step(parts, x, label)
            state.step += 1
            if state.step % every == 0:
                state.save(folder)
            print(state.step, flush=True)
            if state.step == steps or state.step == stop:
                return digest(model) + digest(parts["average"])


def step(parts: dict[str, Any], x: Any, label: Any) -> None:
    """One step, as it is written with mixed precision."""
    scaler, optimizer = parts["scaler"], parts["optimizer"]
    optimizer.zero_grad()
    loss = nn.functional.cross_entropy(parts["model"](x), label)
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
    parts["scheduler"].step()
    parts["average"].update_parameters(parts["model"])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder")
    parser.add_argument("--steps", type=int, default=30)
    parser.add_argument("--workers", type=int, default=0)
    args = parser.parse_args()
    print("end", train(args.folder, args.steps, args.workers), flush=True)


if __name__ == "__main__":
    main()
