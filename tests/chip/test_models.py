"""The table of what models need is what they run."""

from __future__ import annotations

from typing import Any

import lucerne as torch
import lucerne.nn.functional as F
from lucerne import nn
from lucerne._src.conformance.models import MODELS
from lucerne._src.ir.dispatch import Interpreter
from lucerne._src.ir.op import RANDOM, REDUCTION, STRUCTURAL, Op


class Names(Interpreter):
    """Which primitives run."""

    level = "kernel"

    def __init__(self) -> None:
        self.seen: set[str] = set()

    def run(self, op: Op, args: tuple[Any, ...], out: Any, proceed: Any) -> Any:
        if op.is_primitive and op.kind in (STRUCTURAL, REDUCTION, RANDOM):
            self.seen.add(op.qualified)
        return proceed(op, args, out)


class Words(nn.Module):
    """Tokens to tokens, by attention or by an LSTM."""

    def __init__(self, *, attends: bool) -> None:
        super().__init__()
        self.words, self.head = nn.Embedding(9, 8), nn.Linear(8, 9)
        self.attend = nn.Linear(8, 24) if attends else None
        self.norm = nn.LayerNorm(8)
        self.lstm = None if attends else nn.LSTM(8, 8)

    def forward(self, tokens: Any) -> Any:
        x = self.words(tokens)
        if self.lstm is not None:
            return self.head(self.lstm(x)[0]).flatten(0, 1)
        assert self.attend is not None
        q, k, v = self.attend(self.norm(x)).split(8, -1)
        seen = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.head(x + F.gelu(seen)).flatten(0, 1)


def needed(model: Any, x: Any, y: Any) -> set[str]:
    """Primitives of one training step."""
    optimizer = torch.optim.AdamW(model.parameters())
    with Names() as names:
        F.cross_entropy(model(x), y).backward()
        optimizer.step()
    return names.seen


def test_the_table_is_true() -> None:
    tokens = torch.arange(8).view(2, 4)
    images, labels = torch.rand(2, 1, 4, 4), torch.tensor([0, 1])
    conv = nn.Sequential(
        nn.Conv2d(1, 4, 3, padding=1), nn.BatchNorm2d(4), nn.ReLU(), nn.MaxPool2d(2),
        nn.Flatten(), nn.Linear(16, 3),
    )  # fmt: skip
    perceptron = nn.Sequential(nn.Flatten(), nn.Linear(16, 8), nn.ReLU(), nn.Linear(8, 3))
    found = {
        "a perceptron": needed(perceptron, images, labels),
        "a convolutional net": needed(conv, images, labels),
        "an LSTM": needed(Words(attends=False), tokens, tokens.flatten()),
        "a GPT": needed(Words(attends=True), tokens, tokens.flatten()),
    }
    assert found == {name: set(ops) for name, ops in MODELS.items()}
