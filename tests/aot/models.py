"""Models that are built: each with an example, what may change, and some sizes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import lucerne as torch
import lucerne.nn.functional as F
from lucerne import nn
from lucerne.export import Dim, ExportedProgram, export

Sizes = list[dict[str, int]] | None


class Block(nn.Module):
    def __init__(self, d: int, heads: int, causal: bool) -> None:
        super().__init__()
        self.heads, self.causal = heads, causal
        self.before, self.after = nn.LayerNorm(d), nn.LayerNorm(d)
        self.qkv, self.out = nn.Linear(d, 3 * d), nn.Linear(d, d)
        self.up, self.down = nn.Linear(d, 4 * d), nn.Linear(4 * d, d)

    def forward(self, x: Any) -> Any:
        b, t, d = x.shape
        parts = self.qkv(self.before(x)).chunk(3, -1)
        q, k, v = (p.reshape(b, t, self.heads, d // self.heads).transpose(1, 2) for p in parts)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=self.causal)
        x = x + self.out(y.transpose(1, 2).reshape(b, t, d))
        return x + self.down(F.gelu(self.up(self.after(x))))


class Transformer(nn.Module):
    """A GPT, or an encoder like BERT's."""

    def __init__(self, causal: bool, d: int = 64, words: int = 100, length: int = 64) -> None:
        super().__init__()
        self.words, self.places = nn.Embedding(words, d), nn.Embedding(length, d)
        self.blocks = nn.ModuleList(Block(d, 4, causal) for _ in range(2))
        self.norm, self.head = nn.LayerNorm(d), nn.Linear(d, words, bias=False)

    def forward(self, ids: Any) -> Any:
        x = self.words(ids) + self.places(torch.arange(ids.shape[1]))
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x))


class Residual(nn.Module):
    def __init__(self, a: int, b: int, stride: int) -> None:
        super().__init__()
        self.one, self.two = nn.Conv2d(a, b, 3, stride, 1), nn.Conv2d(b, b, 3, 1, 1)
        self.norm, self.norm2 = nn.BatchNorm2d(b), nn.BatchNorm2d(b)
        self.turn = nn.Conv2d(a, b, 1, stride) if stride > 1 or a != b else nn.Identity()

    def forward(self, x: Any) -> Any:
        y = F.relu(self.norm(self.one(x)))
        return F.relu(self.norm2(self.two(y)) + self.turn(x))


class ResNet(nn.Module):
    """ResNet-18 in its widths, for small images."""

    def __init__(self, width: int = 64) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, width, 3, 1, 1)
        pairs = [(width << max(k - 1, 0), width << k) for k in range(4)]
        blocks = [(Residual(a, b, 1 + (a != b)), Residual(b, b, 1)) for a, b in pairs]
        self.body = nn.Sequential(*(block for pair in blocks for block in pair))
        self.head = nn.Linear(width * 8, 10)

    def forward(self, x: Any) -> Any:
        x = F.max_pool2d(self.body(F.relu(self.stem(x))), 2)
        return self.head(F.adaptive_avg_pool2d(x, 1).flatten(1))


def _mlp() -> nn.Module:
    layers = nn.Linear(96, 256), nn.ReLU(), nn.Linear(256, 256), nn.GELU(), nn.Linear(256, 10)
    return nn.Sequential(*layers, nn.Softmax(-1))


def _batch() -> Any:
    return {0: Dim("batch", min=1, max=64)}


def _batches(*numbers: int) -> Sizes:
    return [{"batch": n} for n in numbers]


_TEXT = [{"batch": b, "t": t} for b, t in ((1, 64), (1, 16), (2, 32), (4, 8), (1, 7))]
MODELS: dict[str, Callable[[], tuple[nn.Module, Any, Any, Sizes]]] = {
    "mlp": lambda: (_mlp(), torch.randn(64, 96), (_batch(),), _batches(1, 7, 64)),
    "resnet": lambda: (ResNet(), torch.randn(2, 3, 32, 32), (_batch(),), _batches(1, 2)),
    "encoder": lambda: (Transformer(False), torch.randint(0, 100, (2, 64)), None, None),
    "gpt": lambda: (
        Transformer(True), torch.randint(0, 100, (2, 32)),
        ({0: Dim("batch", min=1, max=8), 1: Dim("t", min=2, max=64)},), _TEXT,
    ),
}  # fmt: skip


def exported(name: str) -> tuple[ExportedProgram, Sizes]:
    torch.manual_seed(0)
    net, x, dynamic, sizes = MODELS[name]()
    for buffer_name, buffer in net.named_buffers():
        if buffer_name.endswith(("running_mean", "running_var")):
            buffer.uniform_(0.5, 1.5)
    return export(net.eval(), (x,), dynamic_shapes=dynamic, check=False), sizes
