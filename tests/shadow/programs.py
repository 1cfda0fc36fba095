"""Small programs that together use what the compiler does: each is called a few times.

A row gives a function to compile and the arguments of its calls. Rows are built from a seed, so
that every process sees the same numbers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import lucerne as torch

F = torch.nn.functional
nn = torch.nn
Call = tuple[Any, ...]
Row = Callable[[], tuple[Any, list[Call]]]
ROWS: list[Row] = []


def row(made: Row) -> Row:
    ROWS.append(made)
    return made


def _r(*shape: int, grad: bool = False) -> Any:
    return torch.randn(*shape).requires_grad_(grad)


@row
def training() -> tuple[Any, list[Call]]:
    model = nn.Sequential(nn.Linear(6, 19), nn.ReLU(), nn.LayerNorm(19), nn.Linear(19, 5))
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)

    def step(x: Any, y: Any) -> Any:
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        return loss

    return step, [(_r(9, 6), torch.randint(0, 5, (9,))) for _ in range(2)]


@row
def pointwise() -> tuple[Any, list[Call]]:
    def f(x: Any, y: Any) -> Any:
        a = torch.sin(x * 2.0 + y) - y / 3.0
        return a, (a * y).sum(1), torch.where(a > 0, x, y).sum(0, keepdim=True), a.t() + y.t()

    return f, [(_r(7, 33), _r(7, 33)), (_r(7, 33), _r(7, 33)), (_r(5, 33), _r(5, 33))]


@row
def numbers() -> tuple[Any, list[Call]]:
    def f(x: Any, k: Any) -> Any:
        return (x * 2.5 + k).exp() * (x - 3.25), (x * 2.0) * 1.0, 0 - x, torch.add(x, x, alpha=2)

    return f, [(_r(5, 4), 2), (_r(5, 4), 3), (_r(5, 4), 2)]


@row
def writes() -> tuple[Any, list[Call]]:
    def f(x: Any, y: Any) -> Any:
        part = x[1:, ::2]
        inner = part[:, 1:]
        part.mul_(3)
        z = inner * 2
        x[0] = y[0]
        y.add_(1.5)
        buffer = torch.zeros(4, 7)
        buffer[1:3, 2:5] = y[1:3, :3]
        buffer.t()[0] = 7
        row = buffer[2]
        buffer[2] += 5
        return z + inner, buffer, row * 2, y.clone()

    return f, [(_r(4, 7), _r(4, 7)) for _ in range(2)]


@row
def swapped() -> tuple[Any, list[Call]]:
    def f(x: Any, y: Any) -> Any:
        old = x.clone()
        x.copy_(y)
        y.copy_(old)
        half = x.to(torch.bfloat16)
        half.copy_(y)
        return half, (x + y)[1:], x[1:] * 1

    return f, [(_r(6, 5), _r(6, 5)) for _ in range(2)]


@row
def views() -> tuple[Any, list[Call]]:
    def f(x: Any) -> Any:
        a, b = x.chunk(2, 1)
        c = x.reshape(-1)[3:9]
        d = (a * b).t().contiguous()
        e = torch.cat([a, b[:, :0], b * 2, a[:, :0]], 1)
        g = d.as_strided((2, 2), (3, 1), 2) + 1
        h = (x * 2).view(4, 3, 2).permute(2, 0, 1)
        return c, d[1:], e, g, h, h.sum((0, 2)), x.unsqueeze(0).expand(3, 4, 6) * 2, (b * 1)[:, 1:]

    return f, [(_r(4, 6),) for _ in range(2)]


@row
def folds() -> tuple[Any, list[Call]]:
    def f(x: Any) -> Any:
        ones = torch.ones(3, 4)
        ramp = torch.arange(6).reshape(2, 3)
        const = torch.tensor([1.0, 2.0, 5.0, 9.0])
        total = ones.sum() + ones.sum(0).sum()
        joined = torch.cat([torch.zeros(2), torch.ones(2)])
        flag = torch.ones(4, dtype=torch.bool)
        return (
            x * total + const, x + joined, torch.where(flag, x, -x), torch.where(~flag, x, -x),
            ramp * 2, x / (x.abs().sum(1, keepdim=True) + 1), torch.softmax(x, 1), x.mean(0),
            x.var(1), x.amax(0), (x - x.mean()) * 1.0 + 0,
        )  # fmt: skip

    return f, [(_r(5, 4),) for _ in range(2)]


@row
def casts() -> tuple[Any, list[Call]]:
    def f(x: Any, k: Any) -> Any:
        half = x.to(torch.bfloat16)
        wide = half * 3 + half / 7 - half * half
        back = x.to(torch.bfloat16).to(torch.float32)
        small = k.to(torch.int8).to(torch.int64)
        return half, wide, wide.float() - 1, back, small, x.int().float(), half.sum(1), x.double()

    numbers = torch.randint(-3000, 3000, (6, 37))
    return f, [(_r(6, 37), numbers) for _ in range(2)]


@row
def backward() -> tuple[Any, list[Call]]:
    layer = nn.Linear(6, 5)

    def f(x: Any, y: Any) -> Any:
        h = torch.tanh(layer(x))
        g = (h * y).exp()
        return g, h.sum(0) * y[0], x * 2

    return f, [(_r(4, 6, grad=True), _r(4, 5, grad=True)) for _ in range(2)]


@row
def overwritten() -> tuple[Any, list[Call]]:
    scale = torch.ones(3)

    def f(x: Any, w: Any) -> Any:
        y = (x * w).sin() * x
        scale.mul_(2)
        q = y * scale
        w2 = w.detach()
        return q.sum(1) * 2, (y * y).cumsum(0), w2 + 1

    return f, [(_r(4, 3, grad=True), _r(4, 3, grad=True)) for _ in range(2)]


@row
def shared() -> tuple[Any, list[Call]]:
    def f(x: Any, y: Any) -> Any:
        x.add_(1)
        return y * 2, x.sum()

    base = _r(12)
    return f, [(_r(8), _r(8)), (base[:8], base[4:]), (base[2:10], base[2:10])]


@row
def needs_gradient() -> tuple[Any, list[Call]]:
    def f(x: Any, y: Any) -> Any:
        return (x * y).sum(1), x.t() @ y

    return f, [(_r(3, 4), _r(3, 4)), (_r(3, 4, grad=True), _r(3, 4)), (_r(3, 4), _r(3, 4))]


@row
def dropping() -> tuple[Any, list[Call]]:
    def f(x: Any) -> Any:
        return F.dropout(x, 0.4) + torch.rand_like(x), torch.randn(3)

    return f, [(_r(5, 6),) for _ in range(2)]


@row
def attending() -> tuple[Any, list[Call]]:
    def f(q: Any, k: Any, v: Any) -> Any:
        scores = torch.softmax(q @ k.transpose(1, 2) / 2.0, -1)
        out = scores @ v
        return out, F.layer_norm(out, (5,)), F.gelu(out.reshape(2, -1)), out.sum((0, 1))

    return f, [(_r(2, 4, 5), _r(2, 4, 5), _r(2, 4, 5)) for _ in range(2)]


@row
def gradients_inside() -> tuple[Any, list[Call]]:
    w = _r(4, 3, grad=True)

    def f(x: Any) -> Any:
        loss = (x @ w).tanh().square().sum()
        loss.backward()
        with torch.no_grad():
            w.sub_(0.1 * w.grad)
        return loss.detach()

    return f, [(_r(5, 4),) for _ in range(3)]


@row
def autocast() -> tuple[Any, list[Call]]:
    layer = nn.Linear(17, 9)

    def f(x: Any) -> Any:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return F.gelu(layer(x)), layer(x).softmax(1)

    return f, [(_r(6, 17),) for _ in range(2)]


@row
def sizes() -> tuple[Any, list[Call]]:
    def f(x: Any, flag: Any) -> Any:
        return (x * 2 if flag else x - 1).sum(0)

    return f, [(_r(n, 4), flag) for n, flag in ((5, True), (7, True), (9, True), (9, False))]


@row
def squares() -> tuple[Any, list[Call]]:
    def f(x: Any, y: Any, row: Any) -> Any:
        a = torch.zeros(5, 5)
        a.t().copy_(y)
        b = torch.empty(5, 5)
        b.copy_(row)
        c = torch.ones(5, 5)
        c.copy_(y.t())
        old = x.clone()
        x.copy_(x.t() + x)
        d = y.exp()
        e = d.clone()
        d[0] = 5
        first, second = a[0], a[1]
        first.fill_(3)
        second.mul_(2)
        return a, b * row, c + a, old @ y, d, e.sum(0), (y.sin().transpose(0, 1).cos() * 2).sum(0)

    return f, [(_r(5, 5), _r(5, 5), _r(5)) for _ in range(2)]


@row
def several() -> tuple[Any, list[Call]]:
    def f(x: Any) -> Any:
        which = x.max(1)[1]
        order = x.sort(1)[1]
        y = x * 2
        return which, order, torch.topk(x, 2, 1)[1], y, y[:], y.view(6, 8).detach()

    return f, [(_r(6, 8),) for _ in range(2)]


@row
def cancelled() -> tuple[Any, list[Call]]:
    def f(x: Any, k: Any) -> Any:
        a = (0 - x) * 3
        b = x.to(torch.bfloat16).to(torch.float32) * 2
        c = torch.cat([torch.zeros(30), torch.ones(30)]) + x[0]
        d = torch.tensor([float(n) for n in range(120)])[60:] * x[1]
        e = torch.exp(x) / x.abs().sum(1, keepdim=True)
        g = x / x.sum(1, keepdim=True)
        h = k + x * 0.1
        half = x.to(torch.bfloat16)
        return a, b, c, d, e, g, h, half * torch.tensor(0.3) + 0.7, half + k

    return f, [(_r(4, 60), torch.randint(0, 1 << 30, (4, 60))) for _ in range(2)]


@row
def long_lives() -> tuple[Any, list[Call]]:
    def f(x: Any, w: Any) -> Any:
        a = x.cumsum(0)
        b = a * 2
        c = b.cumsum(1)
        d = (c + a).sort(0)[0]
        e = d @ w
        g = e.relu().cumsum(0)
        h = (g - e) * 2
        return h.cumsum(1) + a @ w, (b + d).amax(0), x.mul_(2).sum()

    return f, [(_r(6, 6), _r(6, 6)) for _ in range(2)]


@row
def deep_rows() -> tuple[Any, list[Call]]:
    def f(x: Any) -> Any:
        y = x.permute(1, 0, 2)
        return (
            y.sum(-1), torch.softmax(y, -1), (x * 2).sum(0), (x * x).sum((0, 1)), y.amax(1),
            (y.sin() + 1).mean((0, 2)), x.transpose(1, 2).sum(-1), F.glu(x[..., :36], -1),
        )  # fmt: skip

    return f, [(_r(3, 5, 37),) for _ in range(2)]


@row
def orders() -> tuple[Any, list[Call]]:
    weight = _r(6, 5, grad=True)
    optimizer = torch.optim.SGD([weight], lr=0.1, momentum=0.9)

    def f(x: Any) -> Any:
        a = (x / 2.0 + x.abs().neg().neg()).permute(1, 2, 0).permute(2, 1, 0) * 2
        b = (x[:1].expand(4, 5, 6) * 1.5).sum(0) + (x[0] * 2).expand(7, 5, 6).sum(0)
        c = F.pad(x, (0, 2)) * 2 + 1
        d = torch.full((5, 6), 2.0)
        d.fill_(3.0)
        d.copy_(x[0] * 2)
        e = (x * 3)[1:2].reshape(5, 6) - x.reshape(-1)[30:60].reshape(5, 6) * 2
        g = F.layer_norm(x.reshape(4, 30), (30,)) + x.reshape(4, 30).cumsum(0)
        loss = (x[0] @ weight).square().sum()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return a, b, c, d + 1, e, g.cumsum(1), loss.detach()

    return f, [(_r(4, 5, 6),) for _ in range(3)]


@row
def recomputed() -> tuple[Any, list[Call]]:
    scale = torch.ones(4)

    def f(x: Any, w: Any) -> Any:
        s = (scale.expand(5, 4) * 0.5).exp()  # to be computed again from the smaller `scale`
        y = (x * s).sin() * w
        scale.mul_(2)
        return y, (y * s).cos().t()

    return f, [(_r(5, 4, grad=True), _r(5, 4, grad=True)) for _ in range(2)]


def gates() -> tuple[Any, list[Call]]:
    cell = nn.LSTMCell(5, 6)

    def f(x: Any, h: Any, c: Any) -> Any:
        a, b = cell(x, (h, c))
        return F.glu(a, -1), b, F.layer_norm(b, (6,)), F.softmax(a, 0), F.gelu(b) * F.silu(a)

    return f, [(_r(4, 5), _r(4, 6), _r(4, 6)) for _ in range(2)]


BITWISE: list[Row] = [gates, views, casts, attending, deep_rows]
"""Those that run in the mode "bitwise" as well, where composites stay whole."""


def calls(made: Row, seed: int, **options: Any) -> Iterator[tuple[Any, Call]]:
    """The compiled function of a row with each of its calls, in order."""
    torch.manual_seed(seed)
    fn, given = made()
    if made is recomputed:  # as little as possible is kept for the backward pass
        options["options"] = {**options.get("options", {}), "memory_budget": 0.0}
    compiled = torch.compile(fn, **options)
    for args in given:
        yield compiled, args
