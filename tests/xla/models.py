"""Small models of the four kinds that are trained on the device and on the host."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import lucerne as torch
from lucerne import nn
from lucerne.nn import functional as F


class Block(nn.Module):
    """A layer of a GPT."""

    def __init__(self, width: int, heads: int, dropout: float) -> None:
        super().__init__()
        self.heads, self.dropout = heads, dropout
        self.first, self.second = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: Any) -> Any:
        b, t, c = x.shape
        q, k, v = self.qkv(self.first(x)).split(c, 2)
        q, k, v = (y.view(b, t, self.heads, c // self.heads).transpose(1, 2) for y in (q, k, v))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + F.dropout(self.out(y.transpose(1, 2).reshape(b, t, c)), self.dropout, self.training)
        return x + self.down(F.gelu(self.up(self.second(x))))


class GPT(nn.Module):
    """A small one: 64 tokens."""

    def __init__(
        self, layers: int = 2, width: int = 32, heads: int = 2, length: int = 16, dropout: float = 0
    ) -> None:
        super().__init__()
        self.tokens, self.places = nn.Embedding(64, width), nn.Embedding(length, width)
        self.blocks = nn.ModuleList(Block(width, heads, dropout) for _ in range(layers))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, 64, bias=False)

    def forward(self, x: Any) -> Any:
        y = self.tokens(x) + self.places.weight[: x.shape[1]]
        for block in self.blocks:
            y = block(y)
        return self.head(self.norm(y))


class Residual(nn.Module):
    """A basic block of ResNet-18."""

    def __init__(self, given: int, made: int, stride: int) -> None:
        super().__init__()
        self.one = nn.Conv2d(given, made, 3, stride, 1, bias=False)
        self.two = nn.Conv2d(made, made, 3, 1, 1, bias=False)
        self.norm_one, self.norm_two = nn.BatchNorm2d(made), nn.BatchNorm2d(made)
        self.short = nn.Conv2d(given, made, 1, stride, bias=False) if stride > 1 else nn.Identity()

    def forward(self, x: Any) -> Any:
        y = self.norm_two(self.two(F.relu(self.norm_one(self.one(x)))))
        return F.relu(y + self.short(x))


def resnet18(width: int = 8) -> Any:
    layers: list[Any] = [nn.Conv2d(3, width, 3, 1, 1, bias=False), nn.BatchNorm2d(width), nn.ReLU()]
    layers.append(nn.MaxPool2d(3, 2, 1))
    given = width
    for k in range(4):
        for stride in (2 if k else 1, 1):
            layers.append(Residual(given, width << k, stride))
            given = width << k
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(given, 10))


class Tagger(nn.Module):
    """An LSTM that reads tokens."""

    def __init__(self) -> None:
        super().__init__()
        self.tokens, self.cells = nn.Embedding(64, 16), nn.LSTM(16, 16, 2, batch_first=True)
        self.head = nn.Linear(16, 64)

    def forward(self, x: Any) -> Any:
        return self.head(self.cells(self.tokens(x))[0])


def convnet() -> Any:
    """What ResNet-18 is made of, small: a window's maximum, batch norm on either side of it."""
    return nn.Sequential(
        nn.Conv2d(3, 4, 3, 1, 1), nn.BatchNorm2d(4), nn.ReLU(), nn.MaxPool2d(3, 2, 1),
        nn.Conv2d(4, 4, 3, 2, 1, bias=False), nn.BatchNorm2d(4), nn.Flatten(), nn.Linear(16, 10),
    )  # fmt: skip


def mlp() -> Any:
    return nn.Sequential(
        nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 32), nn.Tanh(), nn.Linear(32, 10)
    )


def _tokens() -> tuple[Any, Any]:
    x = torch.randint(0, 64, (4, 17))
    return x[:, :-1], x[:, 1:]


def _images(count: int, side: int) -> Callable[[], tuple[Any, Any]]:
    return lambda: (torch.randn(count, 3, side, side), torch.randint(0, 10, (count,)))


def _points() -> tuple[Any, Any]:
    return torch.randn(16, 8), torch.randint(0, 10, (16,))


MODELS: dict[str, tuple[Callable[[], Any], Callable[[], tuple[Any, Any]]]] = {
    "MLP": (mlp, _points),
    "GPT": (GPT, _tokens),
    "GPT with dropout": (lambda: GPT(dropout=0.1), _tokens),
    "ResNet-18": (resnet18, _images(8, 32)),
    "LSTM": (Tagger, _tokens),
}
OTHERS = {"ConvNet": (convnet, _images(4, 8)), "ResNet-18 of few": (resnet18, _images(4, 16))}
"""Trained in float64. In the second, batch norm comes to see 4 numbers a channel."""
OPTIMIZERS: dict[str, Callable[[Any], Any]] = {
    "SGD": lambda params: torch.optim.SGD(params, lr=0.05, momentum=0.9),
    "AdamW": lambda params: torch.optim.AdamW(params, lr=1e-3),
}


class Training:
    """A model, its optimizer and one batch, on a device; `step` is compiled as one graph."""

    def __init__(
        self, name: str, optimizer: str, device: str, narrow: bool = False, dtype: Any = None
    ) -> None:
        torch.manual_seed(0)
        model, data = {**MODELS, **OTHERS}[name]
        self.model = model().to(device, dtype or torch.float32)
        self.optimizer = OPTIMIZERS[optimizer](self.model.parameters())
        x, y = data()
        self.batch = [x.to(device, dtype) if dtype else x.to(device), y.to(device)]
        self.device, self.narrow = device, narrow
        self.step = torch.compile(self._step, fullgraph=True)

    def _step(self, x: Any, y: Any) -> Any:
        self.optimizer.zero_grad()
        with torch.autocast(self.device, torch.bfloat16, enabled=self.narrow):
            found = self.model(x)
        found = found.float() if self.narrow else found
        loss = F.cross_entropy(found.reshape(-1, found.shape[-1]), y.reshape(-1))
        loss.backward()
        self.optimizer.step()
        return loss.detach()

    def losses(self, steps: int) -> list[float]:
        torch.manual_seed(1)
        return [self.step(*self.batch).item() for _ in range(steps)]

    def state(self) -> list[Any]:
        """Parameters and buffers (batch norm's running numbers) on the host."""
        return [t.detach().cpu() for t in self.model.state_dict().values()]
