"""Training steps and a digest of what they compute, for a process of its own.

Prints one line per program: its name, and a digest of losses, parameters and gradients.
"""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Callable
from typing import Any

import lucerne as torch
from lucerne import nn
from lucerne.nn import functional as F


def perceptron() -> Any:
    return nn.Sequential(nn.Linear(40, 64), nn.GELU(), nn.LayerNorm(64), nn.Linear(64, 10))


def convolutions() -> Any:
    return nn.Sequential(
        nn.Conv2d(3, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(16, 24, 3, stride=2), nn.ReLU(), nn.Flatten(), nn.Linear(24 * 9, 10),
    )  # fmt: skip


def attention() -> Any:
    torch.manual_seed(0)
    layer = nn.TransformerEncoderLayer(48, 4, 96, dropout=0.1, batch_first=True)
    return nn.Sequential(layer, nn.Flatten(), nn.Linear(48 * 20, 10))


PROGRAMS: dict[str, tuple[Callable[[], Any], tuple[int, ...]]] = {
    "perceptron": (perceptron, (32, 40)),
    "convolutions": (convolutions, (8, 3, 16, 16)),
    "attention": (attention, (8, 20, 48)),
}


def digest(name: str, compiled: bool, steps: int = 4) -> str:
    """Train and digest every bit of the losses, the gradients and the parameters."""
    make, shape = PROGRAMS[name]
    torch.manual_seed(1)
    model = make()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    x, y = torch.randn(*shape), torch.randint(0, 10, shape[:1])
    run = torch.compile(model) if compiled else model
    found = hashlib.sha256()
    for step in range(steps):
        loss = F.cross_entropy(run(x + step), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        for t in (loss, *(p.grad for p in model.parameters()), *model.parameters()):
            found.update(t.detach().numpy().tobytes())
    return found.hexdigest()[:16]


def main() -> None:
    for name in sys.argv[1:] or PROGRAMS:
        for compiled in (False, True):
            print(f"{name}{', compiled' if compiled else ''}: {digest(name, compiled)}")


if __name__ == "__main__":
    main()
