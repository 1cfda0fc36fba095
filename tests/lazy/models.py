"""Models for long-running checks: an MLP, a small GPT, a small ResNet, an LSTM."""

from __future__ import annotations

from typing import Any

import lucerne as torch

nn, F = torch.nn, torch.nn.functional


def mlp(width: int = 256) -> tuple[Any, Any]:
    model = nn.Sequential(
        nn.Linear(64, width), nn.GELU(), nn.Linear(width, width), nn.GELU(), nn.Linear(width, 10)
    )
    return model, (torch.randn(64, 64), torch.randint(0, 10, (64,)))


class Block(nn.Module):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.first, self.second = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        self.drop = nn.Dropout(0.1)

    def forward(self, x: Any) -> Any:
        b, t, c = x.shape
        parts = self.qkv(self.first(x)).view(b, t, 3, self.heads, c // self.heads)
        q, k, v = parts.permute(2, 0, 3, 1, 4)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.drop(self.out(y.transpose(1, 2).reshape(b, t, c)))
        return x + self.down(F.gelu(self.up(self.second(x))))


class GPT(nn.Module):
    def __init__(self, words: int, width: int, depth: int, length: int) -> None:
        super().__init__()
        self.token, self.place = nn.Embedding(words, width), nn.Embedding(length, width)
        self.blocks = nn.Sequential(*(Block(width, 4) for _ in range(depth)))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, words)

    def forward(self, x: Any) -> Any:
        h = self.token(x) + self.place(torch.arange(x.shape[1]))
        return self.head(self.norm(self.blocks(h))).flatten(0, 1)


def gpt(width: int = 128, depth: int = 4, length: int = 64, batch: int = 8) -> tuple[Any, Any]:
    words = torch.randint(0, 96, (batch, length + 1))
    return GPT(96, width, depth, length), (words[:, :-1], words[:, 1:].reshape(-1))


class Residual(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(width, width, 3, padding=1, bias=False), nn.BatchNorm2d(width), nn.ReLU(),
            nn.Conv2d(width, width, 3, padding=1, bias=False), nn.BatchNorm2d(width),
        )  # fmt: skip

    def forward(self, x: Any) -> Any:
        return F.relu(x + self.body(x))


def resnet() -> tuple[Any, Any]:
    model = nn.Sequential(
        nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), Residual(8), nn.MaxPool2d(2),
        Residual(8), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 10),
    )  # fmt: skip
    return model, (torch.randn(4, 3, 12, 12), torch.randint(0, 10, (4,)))


class Tagger(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.words, self.lstm = nn.Embedding(50, 12), nn.LSTM(12, 16, batch_first=True)
        self.head = nn.Linear(16, 7)

    def forward(self, x: Any) -> Any:
        return self.head(self.lstm(self.words(x))[0]).flatten(0, 1)


def lstm() -> tuple[Any, Any]:
    return Tagger(), (torch.randint(0, 50, (4, 9)), torch.randint(0, 7, (36,)))
