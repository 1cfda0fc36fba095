"""Ten models, each in a shape in which memory is mostly theirs."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Any

import lucerne as torch
from lucerne import nn
from lucerne.nn import functional as F
from lucerne.utils.checkpoint import checkpoint


class Stack(nn.Module):
    """A stem, blocks and a head; the blocks may be checkpointed."""

    def __init__(self, stem: Any, blocks: list[Any], head: Any) -> None:
        super().__init__()
        self.stem, self.blocks, self.head = stem, nn.ModuleList(blocks), head
        self.checkpointed = False

    def forward(self, x: Any) -> Any:
        h = self.stem(x)
        for block in self.blocks:
            h = checkpoint(block, h, use_reentrant=False) if self.checkpointed else block(h)
        return self.head(h)


class Residual(nn.Module):
    def __init__(self, channels: int) -> None:
        super().__init__()
        self.one = nn.Conv2d(channels, channels, 3, padding=1, bias=False)
        self.two = nn.Conv2d(channels, channels, 3, padding=1, bias=False)
        self.norm_one, self.norm_two = nn.BatchNorm2d(channels), nn.BatchNorm2d(channels)

    def forward(self, x: Any) -> Any:
        h = F.relu(self.norm_one(self.one(x)))
        return F.relu(x + self.norm_two(self.two(h)))


class Attention(nn.Module):
    def __init__(self, width: int, heads: int, causal: bool) -> None:
        super().__init__()
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.heads, self.causal = heads, causal

    def forward(self, x: Any) -> Any:
        n, t, c = x.shape
        q, k, v = self.qkv(x).view(n, t, 3, self.heads, c // self.heads).permute(2, 0, 3, 1, 4)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=self.causal)
        return self.out(y.transpose(1, 2).reshape(n, t, c))


class Block(nn.Module):
    def __init__(self, width: int, heads: int, causal: bool, feed: Any = None) -> None:
        super().__init__()
        self.attention = Attention(width, heads, causal)
        self.feed = feed or nn.Sequential(
            nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width)
        )
        self.before, self.between = nn.LayerNorm(width), nn.LayerNorm(width)

    def forward(self, x: Any) -> Any:
        x = x + self.attention(self.before(x))
        return x + self.feed(self.between(x))


class Tokens(nn.Module):
    """Words and their positions."""

    def __init__(self, words: int, width: int, length: int) -> None:
        super().__init__()
        self.word, self.position = nn.Embedding(words, width), nn.Embedding(length, width)

    def forward(self, x: Any) -> Any:
        return self.word(x) + self.position(torch.arange(x.shape[1]))


class Patches(nn.Module):
    def __init__(self, width: int, patch: int, count: int) -> None:
        super().__init__()
        self.cut = nn.Conv2d(3, width, patch, patch)
        self.token = nn.Parameter(torch.zeros(1, 1, width))
        self.position = nn.Parameter(torch.zeros(1, count + 1, width))

    def forward(self, x: Any) -> Any:
        h = self.cut(x).flatten(2).transpose(1, 2)
        return torch.cat([self.token.expand(len(x), -1, -1), h], 1) + self.position


class First(nn.Module):
    """The classifier of the first token."""

    def __init__(self, width: int, classes: int) -> None:
        super().__init__()
        self.norm, self.classes = nn.LayerNorm(width), nn.Linear(width, classes)

    def forward(self, x: Any) -> Any:
        return self.classes(self.norm(x[:, 0]))


class Experts(nn.Module):
    """Every expert for every token, weighted by a gate."""

    def __init__(self, width: int, count: int) -> None:
        super().__init__()
        self.gate = nn.Linear(width, count)
        self.up = nn.Parameter(torch.randn(count, width, 2 * width) * 0.05)
        self.down = nn.Parameter(torch.randn(count, 2 * width, width) * 0.05)

    def forward(self, x: Any) -> Any:
        flat = x.reshape(-1, x.shape[-1])
        best, which = self.gate(flat).topk(2, dim=-1)
        weights = torch.zeros(len(flat), self.up.shape[0]).scatter(1, which, best.softmax(-1))
        hidden = F.gelu(flat @ self.up)  # experts, tokens, 2 * width
        found = (hidden @ self.down) * weights.t().unsqueeze(-1)
        return found.sum(0).view(x.shape)


class Recurrent(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.cells = nn.LSTM(width, width, batch_first=True)

    def forward(self, x: Any) -> Any:
        return self.cells(x)[0]


class Bags(nn.Module):
    """Several embedding tables side by side, as recommenders have them."""

    def __init__(self, tables: int, rows: int, width: int) -> None:
        super().__init__()
        self.tables = nn.ModuleList(nn.Embedding(rows, width) for _ in range(tables))

    def forward(self, x: Any) -> Any:
        return torch.cat([table(x[:, k]) for k, table in enumerate(self.tables)], -1)


class Twice(nn.Module):
    def __init__(self, before: int, after: int) -> None:
        super().__init__()
        self.work = nn.Sequential(
            nn.Conv2d(before, after, 3, padding=1), nn.ReLU(),
            nn.Conv2d(after, after, 3, padding=1), nn.ReLU(),
        )  # fmt: skip

    def forward(self, x: Any) -> Any:
        return self.work(x)


class UNet(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        w = width
        self.down = nn.ModuleList([Twice(3, w), Twice(w, 2 * w), Twice(2 * w, 4 * w)])
        self.up = nn.ModuleList([Twice(6 * w, 2 * w), Twice(3 * w, w)])
        self.out = nn.Conv2d(w, 2, 1)
        self.checkpointed = False

    def _run(self, block: Any, x: Any) -> Any:
        return checkpoint(block, x, use_reentrant=False) if self.checkpointed else block(x)

    def forward(self, x: Any) -> Any:
        kept = []
        for block in self.down[:-1]:
            x = self._run(block, x)
            kept.append(x)
            x = F.max_pool2d(x, 2)
        x = self._run(self.down[-1], x)
        for block in self.up:
            x = F.interpolate(x, scale_factor=2, mode="nearest")
            x = self._run(block, torch.cat([kept.pop(), x], 1))
        return self.out(x)


def _mlp() -> Any:
    layers = [nn.Sequential(nn.Linear(768, 768), nn.GELU()) for _ in range(8)]
    return Stack(nn.Linear(256, 768), layers, nn.Linear(768, 10)), torch.randn(512, 256)


def _resnet() -> Any:
    stem = nn.Sequential(nn.Conv2d(3, 32, 3, padding=1), nn.BatchNorm2d(32), nn.ReLU())
    head = nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(32, 10))
    return Stack(stem, [Residual(32) for _ in range(4)], head), torch.randn(16, 3, 32, 32)


def _lstm() -> Any:
    stem, head = nn.Embedding(2000, 128), nn.Linear(128, 2000)
    return Stack(stem, [Recurrent(128), Recurrent(128)], head), torch.randint(2000, (16, 32))


def _gpt() -> Any:
    blocks = [Block(192, 4, True) for _ in range(4)]
    head = nn.Sequential(nn.LayerNorm(192), nn.Linear(192, 2000))
    return Stack(Tokens(2000, 192, 128), blocks, head), torch.randint(2000, (8, 128))


def _bert() -> Any:
    layers = [
        nn.TransformerEncoderLayer(192, 4, 768, batch_first=True, dropout=0.1) for _ in range(4)
    ]
    return Stack(Tokens(2000, 192, 96), layers, First(192, 3)), torch.randint(2000, (16, 96))


def _vit() -> Any:
    blocks = [Block(192, 3, False) for _ in range(4)]
    return Stack(Patches(192, 8, 64), blocks, First(192, 10)), torch.randn(16, 3, 64, 64)


def _autoencoder() -> Any:
    sizes = [784, 1024, 256, 32, 256, 1024, 784]
    layers = [nn.Sequential(nn.Linear(a, b), nn.ReLU()) for a, b in pairwise(sizes)]
    return Stack(nn.Flatten(), layers, nn.Sigmoid()), torch.rand(1024, 1, 28, 28)


def _embedding() -> Any:
    layers = [nn.Sequential(nn.Linear(256, 256), nn.ReLU()) for _ in range(3)]
    return Stack(Bags(8, 10000, 32), layers, nn.Linear(256, 1)), torch.randint(10000, (2048, 8))


def _experts() -> Any:
    blocks = [Block(128, 4, True, Experts(128, 4)) for _ in range(2)]
    return Stack(Tokens(1000, 128, 64), blocks, nn.Linear(128, 1000)), torch.randint(1000, (8, 64))


def _unet() -> Any:
    return UNet(16), torch.randn(4, 3, 64, 64)


MODELS: dict[str, Callable[[], Any]] = {
    "MLP": _mlp,
    "ResNet": _resnet,
    "LSTM": _lstm,
    "GPT": _gpt,
    "BERT-like": _bert,
    "ViT": _vit,
    "autoencoder": _autoencoder,
    "embeddings": _embedding,
    "MoE": _experts,
    "U-Net": _unet,
}
"""Each makes the model and a batch."""
WAYS = ("eager", "compiled", "checkpointed")


def made(name: str, way: str) -> Any:
    """A model as it is called in one of the ways, and its batch."""
    torch.manual_seed(0)
    model, batch = MODELS[name]()
    model.checkpointed = way == "checkpointed"
    return (torch.compile(model) if way == "compiled" else model), batch
