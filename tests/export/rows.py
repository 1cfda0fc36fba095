"""Modules that tests export: each with arguments, what may change, and arguments of other sizes."""

from __future__ import annotations

from collections import namedtuple
from dataclasses import dataclass
from typing import Any

import lucerne as lu
from lucerne import nn
from lucerne.export import Dim
from lucerne.nn import functional as F

Pair = namedtuple("Pair", "first second")
batch, length = Dim("batch", min=1, max=64), Dim("length", min=2, max=40)


@dataclass
class Row:
    """`make()` gives the module, `args(n)` arguments for a size."""

    name: str
    make: Any
    args: Any
    dynamic: Any = None
    sizes: tuple[int, ...] = ()
    kwargs: dict[str, Any] | None = None


class Fn(nn.Module):
    """A function as a module."""

    def __init__(self, fn: Any) -> None:
        super().__init__()
        self.fn = fn

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        return self.fn(*args, **kwargs)


class Block(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.one = nn.Conv2d(width, width, 3, padding=1, bias=False)
        self.norm = nn.BatchNorm2d(width)
        self.two = nn.Conv2d(width, width, 3, padding=1)

    def forward(self, x: Any) -> Any:
        return F.relu(x + self.two(F.relu(self.norm(self.one(x)))))


def resnet() -> nn.Module:
    head = nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 5))
    return nn.Sequential(nn.Conv2d(3, 8, 3, stride=2), Block(8), Block(8), head)


class Attention(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.qkv, self.out = nn.Linear(16, 48), nn.Linear(16, 16)

    def forward(self, x: Any) -> Any:
        b, t, c = x.shape
        q, k, v = (y.view(b, t, 4, 4).transpose(1, 2) for y in self.qkv(x).chunk(3, -1))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.out(y.transpose(1, 2).reshape(b, t, c))


class Tied(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Embedding(11, 6)
        self.head = nn.Linear(6, 11, bias=False)
        self.head.weight = self.table.weight

    def forward(self, ids: Any) -> Any:
        return self.head(self.table(ids).mean(1))


class Counter(nn.Module):
    """Buffers that are written to, one of which is not saved."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("count", lu.zeros((), dtype=lu.int64))
        self.register_buffer("last", lu.zeros(3), persistent=False)

    def forward(self, x: Any) -> Any:
        self.count += 1
        old = self.last.clone()
        self.last.copy_(x.sum(0))
        return x * self.count + old


class Named(nn.Module):
    def forward(self, x: Any, *, scale: Any, flip: bool = False) -> Any:
        y = x * scale
        return {"y": y.flip(0) if flip else y, "n": (y.shape[0], 2.5, None, "text")}


class Held(nn.Module):
    """Tensors that are no parameters: an attribute, a constant of the code."""

    def __init__(self) -> None:
        super().__init__()
        self.shift = lu.tensor([1.0, 2.0, 3.0])

    def forward(self, x: Any) -> Any:
        return x + self.shift * lu.tensor([0.5, 0.25, 0.125]) + lu.arange(3)


def _regions(x: Any) -> Any:
    y = x.clone()
    y[:, 1:3] = x[:, :2] * 2
    y[0].add_(1)
    z = y.t()
    z.mul_(2)
    return y, z


def _images(n: int) -> Any:
    return (lu.randn(n, 3, 17, 17),)


def _rows(*shape: int) -> Any:
    return lambda n: (lu.randn(n, *shape),)


_B = ({0: batch},)

ROWS = [
    Row("linear", lambda: nn.Linear(4, 3), _rows(4)),
    Row(
        "mlp",
        lambda: nn.Sequential(nn.Linear(4, 8), nn.GELU(), nn.Linear(8, 2)),
        _rows(4),
        _B,
        (1, 2, 9),
    ),
    Row("resnet in training", resnet, _images, _B, (2, 5)),
    Row("resnet", lambda: resnet().eval(), _images, _B, (1, 6)),
    Row(
        "image sizes",
        lambda: resnet().eval(),
        lambda n: (lu.randn(2, 3, n + 9, 2 * n),),
        ({2: Dim("h", min=6), 3: Dim("w", min=6)},),
        (8, 13),
    ),
    Row("attention", Attention, lambda n: (lu.randn(2, n, 16),), ({1: length},), (2, 7)),
    Row(
        "both sizes",
        Attention,
        lambda n: (lu.randn(n + 1, n, 16),),
        ({0: batch, 1: length},),
        (2, 9),
    ),
    Row(
        "encoder",
        lambda: nn.TransformerEncoderLayer(8, 2, 16, batch_first=True).eval(),
        _rows(5, 8),
        _B,
        (3, 6),
    ),
    Row("lstm", lambda: nn.LSTM(4, 5, batch_first=True), _rows(6, 4), _B, (2, 7)),
    Row(
        "gru, all of it",
        lambda: nn.GRU(4, 5, num_layers=2),
        lambda n: (lu.randn(6, n, 4),),
        ({1: batch},),
        (2, 5),
    ),
    Row("tied", Tied, lambda n: (lu.randint(0, 11, (n, 4)),), _B, (2, 5)),
    Row("counter", Counter, _rows(3), _B, (2, 5)),
    Row("held", Held, _rows(3), _B, (2, 5)),
    Row(
        "named",
        Named,
        _rows(3),
        {"x": {0: batch}, "scale": None},
        (2, 5),
        {"scale": lu.tensor(3.0), "flip": True},
    ),
    Row(
        "tree",
        lambda: Fn(lambda d, p: (d["a"] + p.first, [p.second * 2, d["b"][1]])),
        lambda n: ({"a": lu.ones(n), "b": [1, lu.ones(2)]}, Pair(lu.ones(n), lu.ones(3))),
        None,
    ),
    Row("record out", lambda: Fn(lambda x: Pair(x + 1, x * 2)), _rows(3), None),
    Row(
        "sizes out",
        lambda: Fn(lambda x: (x.shape[0] * 2 + 1, x.sum())),
        _rows(3),
        ({0: batch},),
        (2, 7),
    ),
    Row(
        "two dims add",
        lambda: Fn(lambda x, y: lu.cat([x, y])),
        lambda n: (lu.randn(n, 2), lu.randn(n + 3, 2)),
        ({0: batch}, {0: length}),
        (3, 8),
    ),
    Row(
        "derived",
        lambda: Fn(lambda x, y: x.reshape(-1, 2).sum(1) + y),
        lambda n: (lu.randn(2 * n), lu.randn(n)),
        ({0: 2 * length}, {0: length}),
        (3, 8),
    ),
    Row(
        "plus one",
        lambda: Fn(lambda x, y: x[1:] - y),
        lambda n: (lu.randn(n + 1), lu.randn(n)),
        ({0: length + 1}, {0: length}),
        (3, 8),
    ),
    Row("regions", lambda: Fn(_regions), _rows(4), None),
    Row("view out", lambda: Fn(lambda x: (x.t(), x, x.view(-1))), _rows(4), _B, (2, 5)),
    Row("argument written", lambda: Fn(lambda x: x.mul_(2).add_(1)), _rows(4), _B, (2, 5)),
    Row("dropout", lambda: nn.Sequential(nn.Linear(4, 4), nn.Dropout(0.5)), _rows(4), _B, (2, 5)),
    Row("noise", lambda: Fn(lambda x: x + lu.randn_like(x) * lu.rand(4)), _rows(4), _B, (2, 5)),
    Row(
        "softmax",
        lambda: Fn(lambda x: x.softmax(-1).log() - x.log_softmax(0)),
        _rows(4),
        _B,
        (2, 5),
    ),
    Row(
        "mean and variance",
        lambda: Fn(lambda x: (x - x.mean(0)) / x.std(0)),
        _rows(4),
        ({0: length},),
        (2, 5),
    ),
    Row(
        "half",
        lambda: Fn(lambda x: x[::2].sum() + x[: x.shape[0] // 2].prod()),
        _rows(4),
        ({0: length},),
        (4, 7, 10),
    ),
    Row(
        "linear algebra",
        lambda: Fn(lambda x: lu.linalg.qr(x)[1].abs()),
        lambda n: (lu.randn(5, 3),),
        None,
    ),
    Row("autograd inside", lambda: Fn(_slope), _rows(4), None),
    Row("cond", lambda: Fn(_decides), _rows(4), _B, (2, 5)),
    Row("checked index", lambda: nn.Embedding(5, 3), lambda n: (lu.arange(n) % 5,), _B, (2, 9)),
    Row(
        "bfloat16",
        lambda: nn.Linear(4, 3, dtype=lu.bfloat16),
        lambda n: (lu.randn(n, 4, dtype=lu.bfloat16),),
        _B,
        (2,),
    ),
    Row("complex", lambda: Fn(lambda x: lu.fft.fft(x).abs() + (x * (1 + 2j)).real), _rows(4), None),
    Row(
        "channels last",
        lambda: nn.Conv2d(3, 4, 3).to(memory_format=lu.channels_last),
        lambda n: (lu.randn(2, 3, 6, 6).to(memory_format=lu.channels_last),),
        None,
    ),
]


def _slope(x: Any) -> Any:
    with lu.enable_grad():
        y = x.detach().requires_grad_()
        return lu.autograd.grad((y**3).sum(), y)[0]


def _decides(x: Any) -> Any:
    return lu.cond(x.sum() > 0, lambda x: x.sqrt().nan_to_num(), lambda x: x * x.shape[0], (x,))
