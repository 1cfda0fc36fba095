"""Rows: folds, norms, losses and matrix products."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy import special

from tests.compiler.table import (
    Live,
    Maker,
    Op,
    anything,
    arithmetic,
    dim_of,
    dims,
    flags,
    floats,
    full,
    one,
    with_dim,
    within,
)

F = "torch.nn.functional."


def _long(x: Any) -> bool:
    """More than one element along every dimension, so that a variance is one."""
    return x.is_float and all(s > 1 for s in x.shape) and len(x.shape) > 0


def _softmax(x: Any, d: int) -> Any:
    return special.softmax(x, axis=d)


def _log_softmax(x: Any, d: int) -> Any:
    return special.log_softmax(x, axis=d)


def _logsumexp(x: Any, d: int, keep: bool) -> Any:
    return special.logsumexp(x, axis=d, keepdims=keep)


def _pair_of(best: Any, at: Any) -> Any:
    def run(x: Any, d: int, keep: bool) -> Any:
        return best(x, axis=d, keepdims=keep), at(x, axis=d, keepdims=keep)

    return run


def _several_dims(g: Maker) -> Any:
    x = g.pick(dims(2, 4, floats))
    if x is None:
        return None
    n = len(x.shape)
    chosen = tuple(sorted(g.rng.sample(range(n), g.rng.randrange(1, n + 1))))
    return (x.ref, chosen, g.rng.random() < 0.4)


def _last(wanted: Any = floats) -> Any:
    """A tensor with its last size, and a weight and a bias of that size."""

    def pick(g: Maker) -> Any:
        x = g.pick(dims(1, 4, full(wanted)))
        if x is None or x.shape[-1] < 2:
            return None
        w, b = g.fresh(x.shape[-1:], x.dtype), g.fresh(x.shape[-1:], x.dtype)
        return w and b and (x.ref, (x.shape[-1],), w.ref, b.ref)

    return pick


def _layer_norm(x: Any, shape: Any, w: Any, b: Any) -> Any:
    middle, spread = x.mean(-1, keepdims=True), x.var(-1, keepdims=True)
    return (x - middle) / np.sqrt(spread + 1e-5) * w + b


def _group(g: Maker) -> Any:
    x = g.pick(dims(3, 4, _long))
    if x is None:
        return None
    groups = g.rng.choice([k for k in (1, 2, 4) if x.shape[1] % k == 0])
    return (x.ref, groups)


def _group_norm(x: Any, groups: int) -> Any:
    y = x.reshape(x.shape[0], groups, -1)
    y = (y - y.mean(-1, keepdims=True)) / np.sqrt(y.var(-1, keepdims=True) + 1e-5)
    return y.reshape(x.shape)


def _channels(g: Maker) -> Any:
    x = g.pick(dims(2, 4, lambda v: _long(v) and v.dtype == "float32"))
    if x is None:
        return None
    c = (x.shape[1],)
    made = [g.fresh(c, "float32"), g.fresh(c, "float32", "positive"), g.fresh(c), g.fresh(c)]
    return (x.ref, *(m.ref for m in made)) if all(made) else None


def _batch_norm(x: Any, mean: Any, var: Any, w: Any, b: Any) -> Any:
    m, v, w, b = (a.reshape(1, -1, *[1] * (x.ndim - 2)) for a in (mean, var, w, b))
    return (x - m) / np.sqrt(v + 1e-5) * w + b


def _same(g: Maker) -> Any:
    x = g.pick(full(floats))
    y = x and (
        g.pick(lambda v: v.dtype == x.dtype and v.shape == x.shape and v.name != x.name)
        or g.fresh(x.shape, x.dtype)
    )
    return y and (x.ref, y.ref)


def _classes(g: Maker) -> Any:
    x = g.pick(dims(2, 2, full(floats)))
    y = x and g.fresh(x.shape[:1], "int64", f"index:{x.shape[1]}")
    return y and (x.ref, y.ref)


def _cross_entropy(x: Any, y: Any) -> Any:
    return -np.mean(np.take_along_axis(_log_softmax(x, 1), y[:, None], 1))


def _bce(x: Any, y: Any) -> Any:
    return np.mean(np.maximum(x, 0) - x * y + np.log1p(np.exp(-np.abs(x))))


def _smooth_l1(x: Any, y: Any) -> Any:
    d = np.abs(x - y)
    return np.mean(np.where(d < 1, 0.5 * d * d, d - 0.5))


def _top(g: Maker) -> Any:
    x = g.pick(dims(1, 3, full(lambda v: floats(v) and not v.t.requires_grad)), exact=True)
    return x and (x.ref, g.rng.randrange(1, x.shape[-1] + 1))


def _cosine(x: Any, y: Any) -> Any:
    return (x * y).sum(-1) / (np.linalg.norm(x, axis=-1) * np.linalg.norm(y, axis=-1))


def _vectors(g: Maker) -> Any:
    args = _same(g)
    shape = args and g.pick(lambda v: v.name == args[0].name)
    return args if shape and len(shape.shape) > 0 else None


def _var(x: Any, d: int, keep: bool) -> Any:
    return x.var(axis=d, keepdims=keep, ddof=1)


FOLDS: list[Op] = [
    Op("sum", "{0}.sum()", one(anything), lambda x: x.sum()),
    Op("sum_dim", "{0}.sum({1}, keepdim={2})", with_dim(anything, keep=True),
       lambda x, d, k: x.sum(axis=d, keepdims=k), weight=2),
    Op("sum_dims", "torch.sum({0}, dim={1}, keepdim={2})", _several_dims,
       lambda x, d, k: x.sum(axis=d, keepdims=k), weight=2),
    Op("mean", "{0}.mean()", one(full(floats)), lambda x: x.mean()),
    Op("mean_dim", "torch.mean({0}, {1}, {2})", with_dim(full(floats), keep=True),
       lambda x, d, k: x.mean(axis=d, keepdims=k), weight=2),
    Op("prod", "torch.prod({0}, {1}, {2})", with_dim(floats, keep=True),
       lambda x, d, k: x.prod(axis=d, keepdims=k)),
    Op("amax", "torch.amax({0}, {1}, {2})", with_dim(full(arithmetic), keep=True),
       lambda x, d, k: x.max(axis=d, keepdims=k), exact=True),
    Op("amin", "{0}.amin({1}, {2})", with_dim(full(arithmetic), keep=True),
       lambda x, d, k: x.min(axis=d, keepdims=k), exact=True),
    Op("max_all", "{0}.max()", one(full(arithmetic)), lambda x: x.max(), exact=True),
    Op("max_dim", "torch.max({0}, {1}, {2})", with_dim(full(arithmetic), exact=True, keep=True),
       _pair_of(np.max, np.argmax), exact=True, jumps=True),
    Op("min_dim", "{0}.min({1}, {2})", with_dim(full(arithmetic), exact=True, keep=True),
       _pair_of(np.min, np.argmin), exact=True, jumps=True),
    Op("argmax", "{0}.argmax({1}, {2})", with_dim(full(arithmetic), exact=True, keep=True),
       lambda x, d, k: np.argmax(x, axis=d, keepdims=k), exact=True, jumps=True),
    Op("argmin_all", "torch.argmin({0})", one(full(arithmetic), exact=True), np.argmin,
       exact=True, jumps=True),
    Op("any", "{0}.any({1}, {2})", with_dim(flags, keep=True),
       lambda x, d, k: x.any(axis=d, keepdims=k), exact=True),
    Op("all", "torch.all({0})", one(flags), lambda x: x.all(), exact=True),
    Op("count_nonzero", "torch.count_nonzero({0})", one(anything, exact=True), np.count_nonzero,
       exact=True, jumps=True),
    Op("var", "torch.var({0}, {1}, keepdim={2})", with_dim(_long, keep=True), _var),
    Op("std", "{0}.std({1}, keepdim={2})", with_dim(_long, keep=True),
       lambda x, d, k: np.sqrt(_var(x, d, k))),
    Op("var_mean", "torch.var_mean({0}, {1}, keepdim={2})", with_dim(_long, keep=True),
       lambda x, d, k: (_var(x, d, k), x.mean(axis=d, keepdims=k))),
    Op("logsumexp", "torch.logsumexp({0}, {1}, {2})", with_dim(full(floats), keep=True),
       _logsumexp),
    Op("norm", "{0}.norm()", one(full(floats)), lambda x: np.sqrt((x * x).sum())),
    Op("vector_norm", "torch.linalg.vector_norm({0}, 2, {1}, {2})",
       with_dim(full(floats), keep=True),
       lambda x, d, k: np.sqrt((x * x).sum(axis=d, keepdims=k))),
    Op("cumsum", "torch.cumsum({0}, {1})", with_dim(arithmetic), lambda x, d: x.cumsum(axis=d),
       weight=2),
    Op("cumprod", "{0}.cumprod({1})", with_dim(within(0.3, 2)), lambda x, d: x.cumprod(axis=d)),
    Op("cummax", "torch.cummax({0}, {1}).values", with_dim(full(floats)),
       lambda x, d: np.maximum.accumulate(x, axis=d), exact=True),
    Op("sort", "torch.sort({0}, dim={1}, stable=True).values", with_dim(full(floats)),
       lambda x, d: np.sort(x, axis=d), exact=True),
    Op("argsort", "torch.argsort({0}, {1}, stable=True)", lambda g: (x := g.pick(
        dims(1, 9, full(floats)), exact=True)) and (x.ref, dim_of(g, x)), None,
       exact=True, jumps=True),
    Op("topk", "torch.topk({0}, {1}).values", _top,
       lambda x, k: -np.sort(-x, axis=-1)[..., :k], exact=True, jumps=True),
    Op("softmax", "torch.softmax({0}, {1})", with_dim(), _softmax, weight=2),
    Op("log_softmax", F + "log_softmax({0}, {1})", with_dim(), _log_softmax, weight=2),
    Op("layer_norm", F + "layer_norm({0}, {1}, {2}, {3})", _last(_long), _layer_norm, weight=2),
    Op("rms_norm", F + "rms_norm({0}, {1}, {2}, 1e-5)",
       lambda g: (a := _last(_long)(g)) and a[:3],
       lambda x, s, w: x / np.sqrt((x * x).mean(-1, keepdims=True) + 1e-5) * w),
    Op("group_norm", F + "group_norm({0}, {1})", _group, _group_norm),
    Op("batch_norm", F + "batch_norm({0}, {1}, {2}, {3}, {4})", _channels, _batch_norm),
    Op("normalize", F + "normalize({0}, dim={1})", with_dim(full(floats)),
       lambda x, d: x / np.maximum(np.sqrt((x * x).sum(axis=d, keepdims=True)), 1e-12)),
    Op("cosine_similarity", F + "cosine_similarity({0}, {1}, -1)", _vectors, _cosine),
    Op("mse_loss", F + "mse_loss({0}, {1})", _same, lambda x, y: np.mean((x - y) ** 2)),
    Op("l1_loss", F + "l1_loss({0}, {1})", _same, lambda x, y: np.mean(np.abs(x - y))),
    Op("smooth_l1_loss", F + "smooth_l1_loss({0}, {1})", _same, _smooth_l1),
    Op("bce_with_logits", F + "binary_cross_entropy_with_logits({0}, {1})", _same, _bce),
    Op("cross_entropy", F + "cross_entropy({0}, {1})", _classes, _cross_entropy, weight=2),
    Op("nll_loss", F + "nll_loss({0}, {1})", _classes,
       lambda x, y: -np.mean(np.take_along_axis(x, y[:, None], 1))),
    Op("trace", "torch.trace({0})", one(dims(2, 2, floats)), np.trace),
]  # fmt: skip


# ---- matrix products


def _matrix(low: int = 2, high: int = 2) -> Any:
    return dims(low, high, lambda v: v.is_float and v.t.numel() > 0)


def _matched(g: Maker, shape: tuple[int, ...], like: Live) -> Live | None:
    """An operand of a shape and of another's dtype: one there is, or a new input."""
    found = g.pick(lambda v: v.shape == shape and v.dtype == like.dtype)
    return found or g.fresh(shape, like.dtype)


def _mm(g: Maker) -> Any:
    x = g.pick(_matrix())
    y = x and _matched(g, (x.shape[1], g.rng.choice([3, 4, 5])), x)
    return y and (x.ref, y.ref)


def _matmul(g: Maker) -> Any:
    x = g.pick(_matrix(1, 4))
    if x is None:
        return None
    k = x.shape[-1]
    shapes: list[tuple[int, ...]] = [(k,), (k, 4)]
    shapes += [(*x.shape[:-2], k, 3)] if len(x.shape) > 2 else [(2, k, 3)]
    y = _matched(g, g.rng.choice(shapes), x)
    return y and (x.ref, y.ref)


def _bmm(g: Maker) -> Any:
    x = g.pick(_matrix(3, 3))
    y = x and _matched(g, (x.shape[0], x.shape[2], g.rng.choice([3, 4])), x)
    return y and (x.ref, y.ref)


def _mv(g: Maker) -> Any:
    x = g.pick(_matrix())
    y = x and _matched(g, (x.shape[1],), x)
    return y and (x.ref, y.ref)


def _dot(g: Maker) -> Any:
    x = g.pick(_matrix(1, 1))
    y = x and _matched(g, x.shape, x)
    return y and (x.ref, y.ref)


def _outer(g: Maker) -> Any:
    x = g.pick(_matrix(1, 1))
    y = x and g.pick(lambda v: len(v.shape) == 1 and v.dtype == x.dtype)
    return y and (x.ref, y.ref)


def _linear(g: Maker) -> Any:
    x = g.pick(_matrix(1, 4))
    n = g.rng.choice([3, 4, 5])
    w = x and _matched(g, (n, x.shape[-1]), x)
    b = w and _matched(g, (n,), x)
    return b and (x.ref, w.ref, b.ref)


def _linear_bare(g: Maker) -> Any:
    x = g.pick(_matrix(2, 3))
    w = x and _matched(g, (g.rng.choice([4, 5]), x.shape[-1]), x)
    return w and (x.ref, w.ref)


def _addmm(g: Maker) -> Any:
    args = _mm(g)
    if not args:
        return None
    x = g.pick(lambda v: v.name == args[0].name)
    y = g.pick(lambda v: v.name == args[1].name)
    if x is None or y is None:
        return None
    c = _matched(g, g.rng.choice([(y.shape[1],), (x.shape[0], y.shape[1])]), x)
    return c and (c.ref, *args)


def _einsum(g: Maker) -> Any:
    x = g.pick(_matrix(2, 3))
    if x is None:
        return None
    if len(x.shape) == 3:
        b, _, k = x.shape
        forms = [("bik,bjk->bij", (b, 4, k)), ("bik,kj->bij", (k, 3)), ("bik,bik->b", x.shape)]
    else:
        _, k = x.shape
        forms = [("ik,kj->ij", (k, 4)), ("ik,jk->ji", (3, k)), ("ij,ij->j", x.shape)]
    form, shape = g.rng.choice(forms)
    y = _matched(g, shape, x)
    return y and (form, x.ref, y.ref)


def _image(v: Live) -> bool:
    return len(v.shape) == 4 and v.is_float and v.t.numel() > 0 and min(v.shape[2:]) >= 3


def _conv(g: Maker) -> Any:
    x = g.pick(_image)
    if x is None:
        return None
    out = g.rng.choice([2, 4])
    w, b = g.fresh((out, x.shape[1], 3, 3), x.dtype), g.fresh((out,), x.dtype)
    return w and b and (x.ref, w.ref, b.ref, g.rng.choice([1, 2]), g.rng.choice([0, 1]))


def _np_conv(x: Any, w: Any, b: Any, stride: int, pad: int) -> Any:
    x = np.pad(x, ((0, 0), (0, 0), (pad, pad), (pad, pad)))
    fields = np.lib.stride_tricks.sliding_window_view(x, (3, 3), axis=(2, 3))
    fields = fields[:, :, ::stride, ::stride]
    return np.einsum("nchwij,ocij->nohw", fields, w) + b[:, None, None]


def _pool(fold: Any) -> Any:
    def run(x: Any) -> Any:
        fields = np.lib.stride_tricks.sliding_window_view(x, (2, 2), axis=(-2, -1))
        return fold(fields[..., ::2, ::2, :, :], axis=(-2, -1))

    return run


def _attention(g: Maker) -> Any:
    x = g.pick(dims(4, 4, full(lambda v: v.dtype == "float32")))
    k = x and g.fresh(x.shape)
    v = k and g.fresh(x.shape)
    return v and (x.ref, k.ref, v.ref, g.rng.random() < 0.4)


def _np_attention(q: Any, k: Any, v: Any, causal: bool) -> Any:
    s = q @ k.swapaxes(-1, -2) / np.sqrt(q.shape[-1])
    if causal:
        s = np.where(np.tri(*s.shape[-2:], dtype=bool), s, -np.inf)
    return special.softmax(s, axis=-1) @ v


def _triangle(g: Maker) -> Any:
    x = g.pick(dims(2, 4))
    return x and (x.ref, g.rng.randrange(-2, 3))


PRODUCTS: list[Op] = [
    Op("mm", "torch.mm({0}, {1})", _mm, np.matmul),
    Op("matmul", "{0} @ {1}", _matmul, np.matmul, weight=3),
    Op("bmm", "torch.bmm({0}, {1})", _bmm, np.matmul, weight=2),
    Op("mv", "torch.mv({0}, {1})", _mv, np.matmul),
    Op("dot", "torch.dot({0}, {1})", _dot, np.dot),
    Op("outer", "torch.outer({0}, {1})", _outer, np.outer),
    Op("linear", F + "linear({0}, {1}, {2})", _linear, lambda x, w, b: x @ w.T + b, weight=3),
    Op("linear_bare", F + "linear({0}, {1})", _linear_bare, lambda x, w: x @ w.T),
    Op("addmm", "torch.addmm({0}, {1}, {2})", _addmm, lambda c, x, y: c + x @ y, weight=2),
    Op("addmm_scaled", "torch.addmm({0}, {1}, {2}, beta=0.5, alpha=2)", _addmm,
       lambda c, x, y: 0.5 * c + 2 * (x @ y)),
    Op("einsum", "torch.einsum({0}, {1}, {2})", _einsum, np.einsum, weight=2),
    Op("conv2d", F + "conv2d({0}, {1}, {2}, {3}, {4})", _conv, _np_conv, weight=3),
    Op("max_pool2d", F + "max_pool2d({0}, 2)", one(_image), _pool(np.max), exact=True),
    Op("avg_pool2d", F + "avg_pool2d({0}, 2)", one(_image), _pool(np.mean)),
    Op("adaptive_avg_pool2d", F + "adaptive_avg_pool2d({0}, 1)", one(_image),
       lambda x: x.mean((2, 3), keepdims=True)),
    Op("interpolate", F + "interpolate({0}, scale_factor=2)", one(_image),
       lambda x: x.repeat(2, axis=2).repeat(2, axis=3)),
    Op("attention", F + "scaled_dot_product_attention({0}, {1}, {2}, is_causal={3})", _attention,
       _np_attention, weight=2),
    Op("tril", "torch.tril({0}, {1})", _triangle, lambda x, k: np.tril(x, k), exact=True),
    Op("triu", "{0}.triu({1})", _triangle, lambda x, k: np.triu(x, k), exact=True),
]  # fmt: skip

ROWS: list[Op] = [*FOLDS, *PRODUCTS]
