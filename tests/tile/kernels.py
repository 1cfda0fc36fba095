"""The table of kernels: each with what it should compute, and inputs for a size."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import lucerne as torch
from lucerne import tiles

ROWS, BLOCK, WIDE, KEYS = 8, 16, 24, 5


@tiles.kernel
def rms_norm(x: tiles.In, w: tiles.In, y: tiles.Out, eps: float) -> None:
    row = tiles.program_id(0)
    a = tiles.load(x[row, :])
    r = tiles.rsqrt(tiles.mean(a * a) + eps)
    tiles.store(y[row, :], a * r * w[:])


def _parts(x: Any) -> int:
    return -(-int(x.shape[0]) // ROWS)


@tiles.kernel(out=lambda x: (x, tiles.empty((_parts(x), x.shape[1]), x.dtype)), grid=_parts)
def rms_norm_backward(
    g: tiles.In, x: tiles.In, w: tiles.In, dx: tiles.Out, dw: tiles.Out, eps: float
) -> None:
    part = tiles.program_id(0)
    first = part * ROWS
    total = tiles.variable(tiles.zeros(x.shape[1], x.dtype))
    for row in tiles.range(first, tiles.minimum(first + ROWS, x.shape[0])):
        a, ga = tiles.load(x[row, :]), tiles.load(g[row, :])
        gw = ga * w[:]
        square, slope = tiles.mean(a * a), tiles.mean(gw * a)
        r = tiles.rsqrt(square + eps)
        tiles.store(dx[row, :], r * gw - a * (r * r * r * slope))
        total += ga * a * r
    tiles.store(dw[part, :], total)


@tiles.kernel
def layer_norm(x: tiles.In, w: tiles.In, b: tiles.In, y: tiles.Out, eps: float) -> None:
    row = tiles.program_id(0)
    a = tiles.load(x[row, :])
    c = a - tiles.mean(a)
    r = tiles.rsqrt(tiles.mean(c * c) + eps)
    tiles.store(y[row, :], c * r * w[:] + b[:])


@tiles.kernel
def softmax(x: tiles.In, y: tiles.Out) -> None:
    row = tiles.program_id(0)
    a = tiles.load(x[row, :])
    e = tiles.exp(a - tiles.max(a))
    tiles.store(y[row, :], e / tiles.sum(e))


@tiles.kernel(grid=lambda x: _parts(x))
def softmax_of_tiles(x: tiles.In, y: tiles.Out) -> None:
    """The same, several rows at a time."""
    first = tiles.program_id(0) * ROWS
    a = tiles.load(x[first : first + ROWS, :])
    e = tiles.exp(a - tiles.max(a, axis=1, keepdims=True))
    tiles.store(y[first : first + ROWS, :], e / tiles.sum(e, axis=1, keepdims=True))


def _blocks(x: Any) -> tuple[int, int]:
    return -(-int(x.shape[0]) // BLOCK), -(-int(x.shape[1]) // WIDE)


@tiles.kernel(grid=_blocks)
def gelu_bias(x: tiles.In, b: tiles.In, y: tiles.Out) -> None:
    i, j = tiles.program_id(0) * BLOCK, tiles.program_id(1) * WIDE
    a = x[i : i + BLOCK, j : j + WIDE] + b[j : j + WIDE]
    tiles.store(y[i : i + BLOCK, j : j + WIDE], 0.5 * a * (1 + tiles.erf(a * 0.7071067811865476)))


@tiles.kernel(
    out=lambda a, b: tiles.empty((a.shape[0], b.shape[1]), a.dtype),
    grid=lambda c: _blocks(c),
)
def matmul(a: tiles.In, b: tiles.In, c: tiles.Out) -> None:
    i, j = tiles.program_id(0) * BLOCK, tiles.program_id(1) * WIDE
    total = tiles.variable(tiles.zeros((BLOCK, WIDE), a.dtype))
    for k in tiles.range(0, a.shape[1], BLOCK):
        total += tiles.dot(a[i : i + BLOCK, k : k + BLOCK], b[k : k + BLOCK, j : j + WIDE])
    tiles.store(c[i : i + BLOCK, j : j + WIDE], total)


@tiles.kernel(out=lambda x: tiles.empty(x.shape[0], x.dtype))
def cross_entropy(x: tiles.In, target: tiles.In, loss: tiles.Out) -> None:
    row = tiles.program_id(0)
    a = tiles.load(x[row, :])
    top = tiles.max(a)
    total = tiles.log(tiles.sum(tiles.exp(a - top))) + top
    tiles.store(loss[row], total - x[row, tiles.load(target[row])])


@tiles.kernel
def rotary(x: tiles.In, cos: tiles.In, sin: tiles.In, y: tiles.Out) -> None:
    t, half = tiles.program_id(0), x.shape[1] // 2
    a, b = tiles.load(x[t, :half]), tiles.load(x[t, half : 2 * half])
    c, s = tiles.load(cos[t, :]), tiles.load(sin[t, :])
    tiles.store(y[t, :half], a * c - b * s)
    tiles.store(y[t, half : 2 * half], a * s + b * c)


@tiles.kernel
def running_sum(x: tiles.In, y: tiles.Out) -> None:
    row = tiles.program_id(0)
    tiles.store(y[row, :], tiles.cumsum(x[row, :]))


@tiles.kernel(
    out=lambda x: (tiles.empty(x.shape[0], x.dtype), tiles.empty(x.shape[0], torch.int64))
)
def top1(x: tiles.In, value: tiles.Out, index: tiles.Out) -> None:
    row = tiles.program_id(0)
    tiles.store(value[row], tiles.max(x[row, :]))
    tiles.store(index[row], tiles.argmax(x[row, :]))


@tiles.kernel(out=lambda x: tiles.empty((x.shape[1], x.shape[0]), x.dtype), grid=_blocks)
def transpose(x: tiles.In, y: tiles.Out) -> None:
    i, j = tiles.program_id(0) * BLOCK, tiles.program_id(1) * WIDE
    tiles.store(y[j : j + WIDE, i : i + BLOCK], x[i : i + BLOCK, j : j + WIDE].T)


@tiles.kernel(out=lambda q, v: tiles.empty((q.shape[0], v.shape[1]), q.dtype))
def attention(q: tiles.In, k: tiles.In, v: tiles.In, y: tiles.Out, scale: float) -> None:
    """One row of queries for each program; keys come in blocks, as in flash attention."""
    row, width = tiles.program_id(0), v.shape[1]
    query = tiles.load(q[row, :]) * scale
    top = tiles.variable(tiles.full((), -1e30, q.dtype))
    total = tiles.variable(tiles.full((), 0.0, q.dtype))
    mixed = tiles.variable(tiles.zeros(width, q.dtype))
    for first in tiles.range(0, k.shape[0], KEYS):
        scores = tiles.sum(k[first : first + KEYS, :] * query, axis=1)
        best = tiles.maximum(top, tiles.max(scores))
        weights = tiles.keep(tiles.exp(scores - best))
        shrink = tiles.exp(top - best)
        total.set(total * shrink + tiles.sum(weights))
        mixed.set(mixed * shrink + tiles.dot(weights, v[first : first + KEYS, :]))
        top.set(best)
    tiles.store(y[row, :], mixed / total)


@tiles.kernel(out=lambda x, bins: tiles.empty(bins, torch.int64), grid=lambda bins: bins)
def histogram(x: tiles.In, counts: tiles.Out, bins: int) -> None:
    """How many elements of [0, 1) fall into each of so many equal pieces."""
    which = tiles.program_id(0)
    total = tiles.variable(tiles.full((), 0, torch.int64))
    for row in tiles.range(x.shape[0]):
        total += tiles.sum(tiles.where(tiles.floor(x[row, :] * bins) == which, 1, 0))
    tiles.store(counts[which], total)


@tiles.kernel(
    out=lambda x: tiles.empty(x.shape[1], x.dtype),
    grid=lambda x: -(-int(x.shape[1]) // WIDE),
)
def column_sums(x: tiles.In, y: tiles.Out) -> None:
    j = tiles.program_id(0) * WIDE
    total = tiles.variable(tiles.zeros(WIDE, x.dtype))
    for i in tiles.range(0, x.shape[0], BLOCK):
        total += tiles.sum(x[i : i + BLOCK, j : j + WIDE], axis=0)
    tiles.store(y[j : j + WIDE], total)


@tiles.kernel(grid=_blocks)
def outer_product(x: tiles.In, a: tiles.In, b: tiles.In, y: tiles.Out) -> None:
    i, j = tiles.program_id(0) * BLOCK, tiles.program_id(1) * WIDE
    outer = a[i : i + BLOCK, None] * b[None, j : j + WIDE]
    tiles.store(y[i : i + BLOCK, j : j + WIDE], x[i : i + BLOCK, j : j + WIDE] + outer)


class Row(NamedTuple):
    """A kernel, inputs for a size, what it should compute."""

    name: str
    inputs: Callable[..., tuple[Any, ...]]
    numbers: tuple[Any, ...]
    expected: Callable[..., Any]

    @property
    def kernel(self) -> Any:
        return globals()[self.name]

    def __str__(self) -> str:
        return self.name


def _matrix(n: int, m: int, dtype: Any) -> Any:
    return torch.randn(n, m).to(dtype)


def _rms(x: Any, w: Any, eps: float) -> Any:
    return x * torch.rsqrt((x * x).mean(-1, keepdim=True) + eps) * w


def _rms_grads(g: Any, x: Any, w: Any, eps: float) -> Any:
    a, b = x.detach().requires_grad_(), w.detach().requires_grad_()
    _rms(a, b, eps).backward(g)
    parts = [
        (g * x * torch.rsqrt((x * x).mean(-1, keepdim=True) + eps))[i : i + ROWS].sum(0)
        for i in range(0, x.shape[0], ROWS)
    ]
    return a.grad, torch.stack(parts)


def _rotated(x: Any, cos: Any, sin: Any) -> Any:
    half = cos.shape[1]
    a, b = x[:, :half], x[:, half:]
    return torch.cat([a * cos - b * sin, a * sin + b * cos], 1)


def _counts(x: Any, bins: int) -> Any:
    return torch.bincount((x * bins).floor().long().flatten(), minlength=bins)


def _attended(q: Any, k: Any, v: Any, scale: float) -> Any:
    return ((q @ k.T) * scale).softmax(-1) @ v


F = torch.nn.functional
TABLE = [
    Row("rms_norm", lambda n, m, t: (_matrix(n, m, t), torch.randn(m).to(t)), (1e-6,), _rms),
    Row(
        "rms_norm_backward",
        lambda n, m, t: (_matrix(n, m, t), _matrix(n, m, t), torch.randn(m).to(t)),
        (1e-6,),
        _rms_grads,
    ),
    Row(
        "layer_norm",
        lambda n, m, t: (_matrix(n, m, t), torch.randn(m).to(t), torch.randn(m).to(t)),
        (1e-5,),
        lambda x, w, b, eps: F.layer_norm(x, (x.shape[1],), w, b, eps),
    ),
    Row("softmax", lambda n, m, t: (_matrix(n, m, t),), (), lambda x: x.softmax(-1)),
    Row("softmax_of_tiles", lambda n, m, t: (_matrix(n, m, t),), (), lambda x: x.softmax(-1)),
    Row(
        "gelu_bias",
        lambda n, m, t: (_matrix(n, m, t), torch.randn(m).to(t)),
        (),
        lambda x, b: F.gelu(x + b),
    ),
    Row(
        "matmul",
        lambda n, m, t: (_matrix(n, m, t), _matrix(m, n + 3, t)),
        (),
        lambda a, b: a @ b,
    ),
    Row(
        "cross_entropy",
        lambda n, m, t: (_matrix(n, m, t), torch.randint(0, m, (n,))),
        (),
        lambda x, target: F.cross_entropy(x, target, reduction="none"),
    ),
    Row(
        "rotary",
        lambda n, m, t: (_matrix(n, 2 * m, t), _matrix(n, m, t), _matrix(n, m, t)),
        (),
        _rotated,
    ),
    Row("running_sum", lambda n, m, t: (_matrix(n, m, t),), (), lambda x: x.cumsum(1)),
    Row("top1", lambda n, m, t: (_matrix(n, m, t),), (), lambda x: tuple(x.max(1))),
    Row("transpose", lambda n, m, t: (_matrix(n, m, t),), (), lambda x: x.T),
    Row(
        "attention",
        lambda n, m, t: (_matrix(n, m, t), _matrix(n + 2, m, t), _matrix(n + 2, m + 1, t)),
        (0.3,),
        _attended,
    ),
    Row("histogram", lambda n, m, t: ((torch.rand(n, m) * 0.99).to(t),), (7,), _counts),
    Row("column_sums", lambda n, m, t: (_matrix(n, m, t),), (), lambda x: x.sum(0)),
    Row(
        "outer_product",
        lambda n, m, t: (_matrix(n, m, t), torch.randn(n).to(t), torch.randn(m).to(t)),
        (),
        lambda x, a, b: x + a[:, None] * b,
    ),
]
BY_NAME = {row.name: row for row in TABLE}


# ---- the same numbers, lying otherwise in memory ----------------------------------------------


def transposed(t: Any) -> Any:
    """Strides of a transpose."""
    return t.mT.contiguous().mT if t.ndim == 2 else t


def every_second(t: Any) -> Any:
    """Elements two apart, the last of them at the end of the memory."""
    wide = torch.zeros(*t.shape[:-1], 2 * t.shape[-1], dtype=t.dtype)
    wide[..., 1::2] = t
    return wide[..., 1::2]


def from_the_middle(t: Any) -> Any:
    """The end of a larger memory."""
    large = torch.zeros(*[n + 3 for n in t.shape], dtype=t.dtype)
    part = large[tuple(slice(3, None) for _ in t.shape)]
    part.copy_(t)
    return part


def spread(t: Any) -> Any:
    """One row for all (stride 0)."""
    return t[:1].expand(t.shape[0], -1) if t.ndim == 2 else t


LAYOUTS: dict[str, Callable[[Any], Any]] = {
    "dense": lambda t: t,
    "transposed": transposed,
    "every second": every_second,
    "from the middle": from_the_middle,
    "spread": spread,
}


def prepared(row: Row, n: int, m: int, dtype: Any, layout: str) -> tuple[Any, ...]:
    """Inputs of a size, laid out so; the same at each call."""
    torch.manual_seed(n * 1000 + m)
    return tuple(LAYOUTS[layout](t) for t in row.inputs(n, m, dtype))


def largest_difference(found: Any, expected: Any) -> float:
    """The largest relative difference of two results; infinite where one is nan only."""
    worst = 0.0
    pairs = zip(_several(found), _several(expected), strict=True)
    for a, b in pairs:
        assert tuple(a.shape) == tuple(b.shape), f"shapes {a.shape} and {b.shape}"
        if not a.numel():
            continue
        x, y = a.double(), b.double()
        if not torch.equal(x.isnan(), y.isnan()):
            return float("inf")
        gap = ((x - y).abs() / (1 + y.abs())).nan_to_num()
        worst = max(worst, float(gap.max()))
    return worst


def _several(x: Any) -> tuple[Any, ...]:
    return tuple(x) if isinstance(x, (tuple, list)) else (x,)
