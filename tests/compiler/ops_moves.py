"""Rows: views, joins, copies, factories, indexing and writes in place."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from tests.compiler.program import Index, Ref
from tests.compiler.table import (
    Live,
    Maker,
    Op,
    anything,
    arithmetic,
    dim_of,
    dims,
    fits,
    floats,
    full,
    one,
    with_dim,
)


def _splits(n: int) -> list[tuple[int, ...]]:
    """Shapes of n elements."""
    found: list[tuple[int, ...]] = [(n,), (1, n), (n, 1)]
    found += [(k, n // k) for k in range(2, n) if n % k == 0][:6]
    return found


def _reshape(g: Maker) -> Any:
    x = g.pick()
    if x is None:
        return None
    shape = list(g.rng.choice(_splits(x.t.numel())))
    if x.t.numel() and g.rng.random() < 0.3:
        shape[g.rng.randrange(len(shape))] = -1
    return (x.ref, tuple(shape))


def _view(g: Maker) -> Any:
    x = g.pick(lambda v: v.t.is_contiguous())
    return x and (x.ref, g.rng.choice(_splits(x.t.numel())))


def _transpose(g: Maker) -> Any:
    x = g.pick(dims(2))
    return x and (x.ref, dim_of(g, x), dim_of(g, x))


def _permute(g: Maker) -> Any:
    x = g.pick(dims(2))
    return x and (x.ref, tuple(g.rng.sample(range(len(x.shape)), len(x.shape))))


def _expand(g: Maker) -> Any:
    x = g.pick(lambda v: 1 in v.shape or len(v.shape) < 3)
    if x is None:
        return None
    shape = tuple(g.rng.choice([3, 4]) if s == 1 else s for s in x.shape)
    return (x.ref, (g.rng.choice([2, 3]), *shape) if len(shape) < 3 else shape)


def _unsqueeze(g: Maker) -> Any:
    x = g.pick(dims(0, 3))
    return x and (x.ref, g.rng.randrange(-len(x.shape) - 1, len(x.shape) + 1))


def index_of(g: Maker, x: Live, most: int = 9) -> Index:
    """Slices with steps, numbers, None and Ellipsis."""
    items: list[Any] = []
    for s in x.shape[: g.rng.randrange(1, min(len(x.shape), most) + 1)]:
        r = g.rng.random()
        if r < 0.15 and s:
            items.append(g.rng.randrange(-s, s))
        elif r < 0.3:
            items.append(slice(None))
        elif r < 0.6:
            items.append(slice(g.rng.choice([1, None, -2]), None))
        elif r < 0.8:
            items.append(slice(None, g.rng.choice([-1, 2, 3])))
        else:
            items.append(slice(g.rng.choice([None, 1]), None, g.rng.choice([2, 3])))
    if g.rng.random() < 0.2 and len(x.shape) < 4:
        items.insert(g.rng.randrange(len(items) + 1), None)
    if g.rng.random() < 0.2 and len([i for i in items if i is not None]) < len(x.shape):
        items.insert(0, Ellipsis)
    return Index(tuple(items))


def _slice(g: Maker) -> Any:
    x = g.pick(dims(1))
    return x and (x.ref, index_of(g, x))


def _select(g: Maker) -> Any:
    x = g.pick(dims(1, 9, full(anything)))
    if x is None:
        return None
    d = dim_of(g, x)
    return (x.ref, d, g.rng.randrange(-x.shape[d], x.shape[d]))


def _narrow(g: Maker) -> Any:
    x = g.pick(dims(1, 9, full(anything)))
    if x is None:
        return None
    d = dim_of(g, x)
    start = g.rng.randrange(x.shape[d])
    return (x.ref, d, start, g.rng.randrange(1, x.shape[d] - start + 1))


def _unfold(g: Maker) -> Any:
    x = g.pick(dims(1, 3, full(anything)))
    d = x and dim_of(g, x)
    return (x.ref, d, 2, g.rng.choice([1, 2])) if x and x.shape[d] >= 2 else None


def _np_unfold(x: Any, d: int, size: int, step: int) -> Any:
    w = np.lib.stride_tricks.sliding_window_view(x, size, axis=d, writeable=x.flags.writeable)
    at = [slice(None)] * w.ndim
    at[d % x.ndim] = slice(None, None, step)
    return w[tuple(at)]


def _diagonal(g: Maker) -> Any:
    x = g.pick(dims(2, 4))
    return x and (x.ref, g.rng.randrange(-1, 2), 0, g.rng.choice([1, -1]))


def _np_diagonal(x: Any, offset: int, a: int, b: int) -> Any:
    """Writable, which NumPy's own is not."""
    a, b = a % x.ndim, b % x.ndim
    n = min(x.shape[a] + min(offset, 0), x.shape[b] - max(offset, 0))
    rest = [i for i in range(x.ndim) if i not in (a, b)]
    start: list[Any] = [slice(None)] * x.ndim
    start[a], start[b] = slice(max(-offset, 0), None), slice(max(offset, 0), None)
    x = x[tuple(start)]
    return np.lib.stride_tricks.as_strided(
        x,
        (*(x.shape[i] for i in rest), max(n, 0)),
        (*(x.strides[i] for i in rest), x.strides[a] + x.strides[b]),
        writeable=bool(x.flags.writeable),
    )


def _flatten(g: Maker) -> Any:
    x = g.pick(dims(2))
    if x is None:
        return None
    start = g.rng.randrange(len(x.shape))
    return (x.ref, start, g.rng.randrange(start, len(x.shape)))


def _np_flatten(x: Any, a: int, b: int) -> Any:
    return x.reshape(*x.shape[:a], math.prod(x.shape[a : b + 1]), *x.shape[b + 1 :])


def _split(g: Maker) -> Any:
    x = g.pick(dims(1, 9, full(anything)))
    d = x and dim_of(g, x)
    return x and (x.ref, g.rng.choice([1, 2, 3]), d) if x and x.shape[d] <= 5 else None


def _np_split(x: Any, size: int, d: int) -> Any:
    return tuple(np.split(x, range(size, x.shape[d], size), axis=d))


def _chunk(g: Maker) -> Any:
    x = g.pick(dims(1, 9, full(anything)))
    return x and (x.ref, 2, dim_of(g, x))


def _np_chunk(x: Any, n: int, d: int) -> Any:
    return _np_split(x, -(-x.shape[d] // n), d)


def _unbind(g: Maker) -> Any:
    x = g.pick(dims(1, 9, lambda v: 0 < v.shape[0] <= 4))
    return x and (x.ref, 0)


def _np_unbind(x: Any, d: int) -> Any:
    return tuple(x[i, ...] for i in range(x.shape[0]))


def _cat(g: Maker) -> Any:
    x = g.pick(dims(1, 9, lambda v: v.shape != (0,)))
    if x is None:
        return None
    d = dim_of(g, x)
    k = d % len(x.shape)
    others = [
        v
        for v in g.live()
        if len(v.shape) == len(x.shape)
        and v.shape != (0,)  # which PyTorch leaves out, and its gradient with it
        and all(a == b for i, (a, b) in enumerate(zip(v.shape, x.shape, strict=True)) if i != k)
    ]
    more = [g.rng.choice(others).ref for _ in range(g.rng.randrange(1, 3))]
    return ((x.ref, *more), d)


def _stack(g: Maker) -> Any:
    x = g.pick(dims(0, 3))
    y = x and g.pick(lambda v: v.shape == x.shape and v.dtype == x.dtype)
    return y and ((x.ref, y.ref), g.rng.randrange(-len(x.shape) - 1, len(x.shape) + 1))


def _flip(g: Maker) -> Any:
    x = g.pick(dims(1))
    return x and (
        x.ref,
        tuple(g.rng.sample(range(len(x.shape)), g.rng.randrange(1, len(x.shape) + 1))),
    )


def _roll(g: Maker) -> Any:
    x = g.pick(dims(1))
    return x and (x.ref, g.rng.choice([1, -2, 3]), dim_of(g, x))


def _repeat(g: Maker) -> Any:
    x = g.pick(dims(1, 3, lambda v: v.t.numel() < 200))
    return x and (x.ref, tuple(g.rng.choice([1, 2]) for _ in x.shape))


def _pad(g: Maker) -> Any:
    x = g.pick(dims(1, 4))
    return x and (x.ref, (1, 2), g.rng.choice([0.0, 1.5]) if x.is_float else 0)


def _np_pad(x: Any, by: Any, value: Any) -> Any:
    return np.pad(x, [(0, 0)] * (x.ndim - 1) + [by], constant_values=value)


def _expand_as(g: Maker) -> Any:
    y = g.pick(dims(1))
    x = y and g.pick(
        lambda v: (
            len(v.shape) <= len(y.shape)
            and all(a in (1, b) for a, b in zip(v.shape[::-1], y.shape[::-1], strict=False))
        )
    )
    return x and (x.ref, y.ref)


VIEWS: list[Op] = [
    Op("reshape", "{0}.reshape({1})", _reshape, lambda x, s: x.reshape(s), loose=True, weight=2),
    Op("view", "{0}.view({1})", _view, lambda x, s: x.reshape(s), loose=True, weight=2),
    Op("transpose", "{0}.transpose({1}, {2})", _transpose, lambda x, a, b: x.swapaxes(a, b),
       weight=3),
    Op("mT", "{0}.mT", one(dims(2)), lambda x: x.swapaxes(-1, -2)),
    Op("permute", "{0}.permute({1})", _permute, lambda x, d: x.transpose(d), weight=2),
    Op("movedim", "torch.movedim({0}, 0, {1})", lambda g: (x := g.pick(dims(2))) and (
        x.ref, dim_of(g, x)), lambda x, d: np.moveaxis(x, 0, d)),
    Op("expand", "{0}.expand({1})", _expand, lambda x, s: np.broadcast_to(x, s), weight=2),
    Op("expand_as", "{0}.expand_as({1})", _expand_as, lambda x, y: np.broadcast_to(x, y.shape)),
    Op("unsqueeze", "{0}.unsqueeze({1})", _unsqueeze, np.expand_dims, weight=2),
    Op("squeeze", "{0}.squeeze()", one(dims(1)), lambda x: x.reshape(
        [s for s in x.shape if s != 1])),
    Op("squeeze_dim", "{0}.squeeze({1})", with_dim(anything), lambda x, d: x.squeeze(d)
       if x.shape[d] == 1 else x[...]),
    Op("slice", "{0}[{1}]", _slice, lambda x, i: x[i.items] if isinstance(
        x[i.items], np.ndarray) else x[(..., *i.items)], weight=4),
    Op("select", "{0}.select({1}, {2})", _select, lambda x, d, i: np.moveaxis(x, d, 0)[i, ...],
       weight=2),
    Op("narrow", "{0}.narrow({1}, {2}, {3})", _narrow,
       lambda x, d, s, n: np.moveaxis(np.moveaxis(x, d, 0)[s : s + n], 0, d)),
    Op("unfold", "{0}.unfold({1}, {2}, {3})", _unfold, _np_unfold),
    Op("diagonal", "torch.diagonal({0}, {1}, {2}, {3})", _diagonal, _np_diagonal),
    Op("flatten", "torch.flatten({0}, {1}, {2})", _flatten, _np_flatten, loose=True),
    Op("split", "torch.split({0}, {1}, {2})", _split, _np_split),
    Op("chunk", "{0}.chunk({1}, {2})", _chunk, _np_chunk),
    Op("unbind", "torch.unbind({0}, {1})", _unbind, _np_unbind),
    Op("detach", "{0}.detach()", one(floats), lambda x: x[...]),
    Op("view_as", "{0}.view_as({0})", one(anything), lambda x: x[...]),
]  # fmt: skip

# ---- a value with a part of itself


def _own_part(g: Maker) -> Any:
    """A part that broadcasts over the whole, most often from its beginning."""
    x = g.pick(dims(1, 4, full(arithmetic)))
    if x is None:
        return None
    at = g.rng.choice([0, 0, x.shape[0] - 1])
    first, last = slice(at, at + 1), slice(None, 1)
    kinds: list[tuple[Any, ...]] = [(at,), (first,), (Ellipsis, last), (Ellipsis, 0, None)]
    return (x.ref, Index(g.rng.choice(kinds)))


def _own_turned(g: Maker) -> Any:
    x = g.pick(dims(2, 4, full(lambda v: arithmetic(v) and len(set(v.shape)) < len(v.shape))))
    if x is None:
        return None
    n = len(x.shape)
    alike = [(a, b) for a in range(n) for b in range(a) if x.shape[a] == x.shape[b]]
    return (x.ref, *g.rng.choice(alike))


WITH_ITSELF: list[Op] = [
    Op("minus_part", "{0} - {0}[{1}]", _own_part, lambda x, i: x - x[i.items], weight=0),
    Op("plus_part", "{0} + {0}[{1}] * 2", _own_part, lambda x, i: x + x[i.items] * 2, weight=0),
    Op("most_of_part", "torch.maximum({0}, {0}[{1}])", _own_part,
       lambda x, i: np.maximum(x, x[i.items]), weight=0),
    Op("minus_expanded", "{0} - {0}[{1}].expand({0}.shape)", _own_part,
       lambda x, i: x - x[i.items], weight=0),
    Op("plus_turned", "{0} + {0}.transpose({1}, {2})", _own_turned,
       lambda x, a, b: x + x.swapaxes(a, b), weight=0),
]  # fmt: skip
"""`generate` adds them to a program that is made, so that seeds keep theirs: hence no weight."""


COPIES: list[Op] = [
    Op("contiguous", "{0}.contiguous()", one(anything), lambda x: x, loose=True),
    Op("clone", "{0}.clone()", one(anything), np.copy, weight=2),
    Op("cat", "torch.cat({0}, {1})", _cat, lambda xs, d: np.concatenate(xs, axis=d), weight=3),
    Op("stack", "torch.stack({0}, {1})", _stack, lambda xs, d: np.stack(xs, axis=d), weight=2),
    Op("flip", "torch.flip({0}, {1})", _flip, np.flip),
    Op("roll", "torch.roll({0}, {1}, {2})", _roll, lambda x, n, d: np.roll(x, n, axis=d)),
    Op("repeat", "{0}.repeat({1})", _repeat, np.tile),
    Op("pad", "torch.nn.functional.pad({0}, {1}, value={2})", _pad, _np_pad),
]  # fmt: skip


def _sized(g: Maker) -> Any:
    x = g.pick()
    return x and (x.shape, g.rng.choice([0.5, 2.0, -1.0]))


def _count(g: Maker) -> Any:
    x = g.pick(dims(1))
    return x and (x.shape[-1],)


FACTORIES: list[Op] = [
    Op("zeros_like", "torch.zeros_like({0})", one(anything), np.zeros_like),
    Op("ones_like", "torch.ones_like({0})", one(anything), np.ones_like),
    Op("full_like", "torch.full_like({0}, 2)", one(anything), lambda x: np.full_like(x, 2)),
    Op("full", "torch.full({0}, {1})", _sized, np.full),
    Op("arange", "torch.arange({0})", _count, np.arange),
    Op("arange_float", "torch.arange({0}, dtype=torch.float32)", _count,
       lambda n: np.arange(n, dtype=np.float64)),
    Op("eye", "torch.eye({0})", _count, np.eye),
    Op("new_zeros", "{0}.new_zeros(({1},))", lambda g: (x := g.pick(dims(1))) and (
        x.ref, x.shape[0]), lambda x, n: np.zeros((n,), x.dtype)),
]  # fmt: skip


# ---- by index


def _index(g: Maker, shape: tuple[int, ...], size: int) -> Ref | None:
    """An index tensor below `size`."""
    made = g.fresh(shape, "int64", f"index:{size}") if size else None
    return made and made.ref


def _gather(g: Maker) -> Any:
    x = g.pick(dims(1, 3, full(anything)))
    if x is None:
        return None
    d = dim_of(g, x)
    i = _index(g, x.shape, x.shape[d])
    return i and (x.ref, d, i)


def _index_select(g: Maker) -> Any:
    x = g.pick(dims(1, 4, full(anything)))
    if x is None:
        return None
    d = dim_of(g, x)
    i = _index(g, (4,), x.shape[d])
    return i and (x.ref, d, i)


def _advanced(g: Maker) -> Any:
    x = g.pick(dims(1, 4, full(anything)))
    if x is None:
        return None
    i = _index(g, g.rng.choice([(3,), (4,), (2, 3)]), x.shape[0])
    rest = g.rng.choice([(), (slice(None),), (Ellipsis, slice(1, None))])
    return i and (x.ref, Index((i, *rest[: max(0, len(x.shape) - 1)])))


def _two_indices(g: Maker) -> Any:
    x = g.pick(dims(2, 3, full(anything)))
    i = x and _index(g, (4,), x.shape[0])
    j = i and _index(g, (4,), x.shape[1])
    return j and (x.ref, Index((i, j)))


def _embedding(g: Maker) -> Any:
    x = g.pick(dims(2, 2, full(floats)))
    i = x and _index(g, g.rng.choice([(3,), (2, 4)]), x.shape[0])
    return i and (i, x.ref)


def _scatter(g: Maker) -> Any:
    """Each place at most once, so that the order doesn't matter."""
    x = g.pick(dims(1, 3, full(floats)))
    y = x and g.fresh(x.shape, x.dtype)
    i = y and _index(g, x.shape, x.shape[-1])
    return i and (x.ref, -1, i, y.ref)


def _np_scatter_add(x: Any, d: int, i: Any, y: Any) -> Any:
    out = x.copy()
    where = list(np.indices(i.shape))
    where[d] = i
    np.add.at(out, tuple(where), y)
    return out


def _index_add(g: Maker) -> Any:
    x = g.pick(dims(1, 3, full(floats)))
    i = x and _index(g, (4,), x.shape[0])
    y = i and g.fresh((4, *x.shape[1:]), x.dtype)
    return y and (x.ref, 0, i, y.ref)


def _np_index_add(x: Any, d: int, i: Any, y: Any) -> Any:
    out = x.copy()
    np.add.at(out, i, y)
    return out


def _index_put(g: Maker) -> Any:
    x = g.pick(dims(1, 3, full(floats)))
    i = x and _index(g, (3,), x.shape[0])
    return i and (x.ref, i, g.rng.choice([0.5, 2.0]))


def _np_index_put(x: Any, i: Any, v: float) -> Any:
    out = x.copy()
    out[i] = v
    return out


def _mask_for(g: Maker, x: Live) -> Live | None:
    found = g.pick(
        lambda v: v.is_bool and fits(v.shape, x.shape) and len(v.shape) <= len(x.shape)
        and all(a in (1, b) for a, b in zip(v.shape[::-1], x.shape[::-1], strict=False))
    )  # fmt: skip
    return found or g.fresh(x.shape, "bool")


def _masked_fill(g: Maker) -> Any:
    x = g.pick(arithmetic)
    m = x and _mask_for(g, x)
    return m and (x.ref, m.ref, g.rng.choice([0.0, -1.5]) if x.is_float else 1)


def _one_hot(g: Maker) -> Any:
    i = _index(g, (4,), 5)
    return i and (i, 5)


INDEXED: list[Op] = [
    Op("gather", "torch.gather({0}, {1}, {2})", _gather,
       lambda x, d, i: np.take_along_axis(x, i, axis=d), weight=2),
    Op("take_along_dim", "torch.take_along_dim({0}, {2}, dim={1})", _gather,
       lambda x, d, i: np.take_along_axis(x, i, axis=d)),
    Op("index_select", "torch.index_select({0}, {1}, {2})", _index_select,
       lambda x, d, i: np.take(x, i, axis=d), weight=2),
    Op("advanced", "{0}[{1}]", _advanced, lambda x, i: x[i.items], weight=2),
    Op("advanced_two", "{0}[{1}]", _two_indices, lambda x, i: x[i.items]),
    Op("embedding", "torch.nn.functional.embedding({0}, {1})", _embedding, lambda i, w: w[i],
       weight=2),
    Op("scatter_add", "torch.scatter_add({0}, {1}, {2}, {3})", _scatter, _np_scatter_add),
    Op("index_add", "torch.index_add({0}, {1}, {2}, {3})", _index_add, _np_index_add),
    Op("index_put", "torch.index_put({0}, [{1}], torch.tensor({2}, dtype={0}.dtype))", _index_put,
       _np_index_put),
    Op("index_fill", "{0}.index_fill(0, {1}, {2})", _index_put, _np_index_put),
    Op("masked_fill", "{0}.masked_fill({1}, {2})", _masked_fill,
       lambda x, m, v: np.where(m, v, x), weight=2),
    Op("one_hot", "torch.nn.functional.one_hot({0}, {1})", _one_hot, lambda i, n: np.eye(
        n, dtype=np.int64)[i]),
]  # fmt: skip


# ---- writes in place


def _overlaps(v: Live) -> bool:
    """Two elements in one place (`expand`, `unfold`): what a write does there is not defined."""
    where = np.zeros((), dtype=np.int64)
    for n, step in zip(v.shape, v.t.stride(), strict=True):
        where = where[..., None] + np.arange(n) * step
    return len(np.unique(where)) < where.size


def _target(g: Maker, wanted: Any = floats) -> Live | None:
    """Something that may be written to: no two of its elements share memory."""
    return g.pick(
        lambda v: wanted(v) and not _overlaps(v) and (not v.t.requires_grad or not v.t.is_leaf)
    )


def _written(wanted: Any = floats) -> Any:
    def pick(g: Maker) -> Any:
        x = _target(g, wanted)
        return x and (x.ref,)

    return pick


def _into(g: Maker, x: Live) -> Live | None:
    """An operand that broadcasts to x and converts to its dtype."""
    rank = {"bool": 0, "int32": 1, "int64": 1}

    def suits(v: Live) -> bool:
        return (
            len(v.shape) <= len(x.shape)
            and all(a in (1, b) for a, b in zip(v.shape[::-1], x.shape[::-1], strict=False))
            and rank.get(v.dtype, 2) <= rank.get(x.dtype, 2)
        )

    found = g.pick(suits)
    if found is not None and g.rng.random() < 0.8:
        return found
    return g.fresh(x.shape[g.rng.randrange(2) :], x.dtype)


def _written_two(wanted: Any = floats) -> Any:
    def pick(g: Maker) -> Any:
        x = _target(g, wanted)
        y = x and _into(g, x)
        return y and (x.ref, y.ref)

    return pick


def _written_number(g: Maker) -> Any:
    x = _target(g, arithmetic)
    return x and (x.ref, g.number(whole=not x.is_float))


def _part(values: bool) -> Any:
    """A part of a tensor by slices, and what is put there."""

    def pick(g: Maker) -> Any:
        x = _target(g, lambda v: arithmetic(v) and len(v.shape) >= 1)
        if x is None:
            return None
        i = index_of(g, x)
        part = x.t[tuple(i.items)]
        if not values:
            return (x.ref, i, g.number(whole=not x.is_float))
        y = _into(g, Live("", part))
        return y and (x.ref, i, y.ref)

    return pick


def _part_by_index(g: Maker) -> Any:
    x = _target(g, lambda v: v.is_float and len(v.shape) >= 1 and v.t.numel() > 0)
    i = x and _index(g, (3,), x.shape[0])
    return i and (x.ref, i, g.rng.choice([0.5, 2.0]))


def _part_by_mask(g: Maker) -> Any:
    x = _target(g)
    m = x and g.fresh(x.shape, "bool")
    return m and (x.ref, m.ref, g.rng.choice([0.5, 2.0]))


def _index_add_(g: Maker) -> Any:
    x = _target(g, lambda v: v.is_float and len(v.shape) >= 1 and v.t.numel() > 0)
    i = x and _index(g, (4,), x.shape[0])
    y = i and g.fresh((4, *x.shape[1:]), x.dtype)
    return y and (x.ref, 0, i, y.ref)


def _put(f: Any) -> Any:
    """A NumPy write: all of x becomes f(x, ...)."""

    def run(x: Any, *args: Any) -> Any:
        x[...] = f(x, *args)
        return x

    return run


def _put_part(f: Any) -> Any:
    def run(x: Any, i: Any, *args: Any) -> None:
        at = (*i.items, Ellipsis) if isinstance(i, Index) and Ellipsis not in i.items else i
        at = at.items if isinstance(at, Index) else at
        x[at] = f(x[at], *args)

    return run


def _np_index_add_(x: Any, d: int, i: Any, y: Any) -> None:
    np.add.at(x, i, y)


WRITES: list[Op] = [
    Op("add_", "{0}.add_({1})", _written_two(arithmetic), _put(np.add), writes=True, weight=3),
    Op("iadd", "{0} += {1}", _written_two(arithmetic), _put(np.add), writes=True),
    Op("add_alpha_", "{0}.add_({1}, alpha=2)", _written_two(arithmetic),
       _put(lambda x, y: x + 2 * y), writes=True),
    Op("sub_", "{0}.sub_({1})", _written_two(arithmetic), _put(
        lambda x, y: x - (y * 1)), writes=True),
    Op("mul_", "{0}.mul_({1})", _written_two(arithmetic), _put(np.multiply), writes=True, weight=2),
    Op("copy_", "{0}.copy_({1})", _written_two(arithmetic), _put(lambda x, y: y), writes=True,
       weight=3),
    Op("add_number_", "{0}.add_({1})", _written_number, _put(np.add), writes=True),
    Op("mul_number_", "{0} *= {1}", _written_number, _put(np.multiply), writes=True),
    Op("fill_", "{0}.fill_({1})", _written_number, _put(lambda x, n: n), writes=True, exact=True),
    Op("zero_", "{0}.zero_()", _written(anything), _put(lambda x: 0), writes=True, exact=True),
    Op("relu_", "torch.relu_({0})", _written(arithmetic), _put(lambda x: np.maximum(x, 0)),
       writes=True, exact=True),
    Op("neg_", "{0}.neg_()", _written(arithmetic), _put(np.negative), writes=True, exact=True),
    Op("sigmoid_", "{0}.sigmoid_()", _written(), _put(lambda x: 1 / (1 + np.exp(-x))),
       writes=True),
    Op("tanh_", "torch.tanh_({0})", _written(), _put(np.tanh), writes=True),
    Op("clamp_", "{0}.clamp_(-1, 1)", _written(arithmetic), _put(lambda x: np.clip(x, -1, 1)),
       writes=True, exact=True),
    Op("lerp_", "{0}.lerp_({1}, 0.25)", lambda g: (a := _written_two()(g)) and (
        x := g.pick(lambda v: v.name == a[0].name)) and (
        y := g.pick(lambda v: v.name == a[1].name)) and x.dtype == y.dtype and a,
       _put(lambda x, y: x + 0.25 * (y - x)), writes=True),
    Op("masked_fill_", "{0}.masked_fill_({1}, {2})", _part_by_mask,
       _put(lambda x, m, v: np.where(m, v, x)), writes=True, exact=True),
    Op("index_put_", "{0}[{1}] = {2}", _part_by_index, _put_part(lambda p, v: v), writes=True,
       exact=True),
    Op("mask_put_", "{0}[{1}] = {2}", _part_by_mask, _put_part(lambda p, v: v), writes=True,
       exact=True),
    Op("index_add_", "{0}.index_add_({1}, {2}, {3})", _index_add_, _np_index_add_, writes=True),
    Op("set_part", "{0}[{1}] = {2}", _part(True), _put_part(lambda p, y: y), writes=True,
       weight=3),
    Op("set_part_number", "{0}[{1}] = {2}", _part(False), _put_part(lambda p, n: n), writes=True,
       weight=2),
    Op("add_part", "{0}[{1}] += {2}", _part(True), _put_part(np.add), writes=True, weight=3),
    Op("mul_part", "{0}[{1}] *= {2}", _part(False), _put_part(np.multiply), writes=True),
]  # fmt: skip


# ---- gradients inside the program


def _needs_grad(v: Live) -> bool:
    return v.is_float and bool(v.t.requires_grad)


def _leaf(v: Live) -> bool:
    return _needs_grad(v) and bool(v.t.is_leaf)


def _grad(g: Maker) -> Any:
    y = g.pick(lambda v: _needs_grad(v) and not v.t.is_leaf)
    leaves = [v.ref for v in g.live() if _leaf(v)]
    return (y.ref, tuple(leaves[:3])) if y and leaves else None


def _backward(g: Maker) -> Any:
    y = g.pick(lambda v: _needs_grad(v) and not v.t.is_leaf)
    return y and (y.ref,)


def _has_grad(g: Maker) -> Any:
    x = g.pick(lambda v: _leaf(v) and v.t.grad is not None)
    return x and (x.ref,)


INSIDE: list[Op] = [
    Op("grad", "torch.autograd.grad({0}.sum(), {1}, retain_graph=True)", _grad, None, weight=2),
    Op("backward", "{0}.sum().backward(retain_graph=True)", _backward, None, weight=3),
    Op("backward_square", "({0} * {0}).mean().backward(retain_graph=True)", _backward, None),
    Op("read_grad", "{0}.grad * 1.0", _has_grad, None, weight=2),
    Op("update", "with torch.no_grad():\n    {0}.sub_({0}.grad, alpha=0.1)", _has_grad, None,
       weight=2),
    Op("zero_grad", "{0}.grad = None", _has_grad, None),
]  # fmt: skip

ROWS: list[Op] = [
    *(Op(**{**vars(o), "exact": True}) for o in (*VIEWS, *COPIES, *FACTORIES)),
    *(Op(**{**vars(o), "exact": o.name not in ("scatter_add", "index_add")}) for o in INDEXED),
    *WITH_ITSELF,
    *WRITES,
]
