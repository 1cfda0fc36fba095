"""Operators that move elements: shapes, slices, joins, positions."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from lucerne._src.base import dtype as dt
from lucerne._src.tensor import api as lu
from lucerne.export.onnx.errors import OnnxImportError
from lucerne.export.onnx.reading.step import Step, tensor
from lucerne.export.onnx.reading.table import operator
from lucerne.export.onnx.types import DTYPES
from lucerne.nn import functional as F


@operator("Shape")
def shape(n: Step, x: Any, *, start: int = 0, end: int | None = None) -> Any:
    sizes = list(x.shape)[start:end]
    plain = all(type(s) is int for s in sizes)
    return np.array(sizes, np.int64 if plain else object)


@operator("Size")
def size(n: Step, x: Any) -> Any:
    count = math.prod(x.shape)
    return np.array(count, np.int64 if type(count) is int else object)


@operator("Reshape", numbers=(1,))
def reshape(n: Step, x: Any, sizes: Any, *, allowzero: int = 0) -> Any:
    listed = n.ints(sizes)
    kept = [x.shape[k] if type(s) is int and s == 0 and not allowzero else s
            for k, s in enumerate(listed)]  # fmt: skip
    return x.reshape(kept)


@operator("Flatten")
def flatten(n: Step, x: Any, *, axis: int = 1) -> Any:
    axis = axis + x.ndim if axis < 0 else axis
    return x.reshape(math.prod(x.shape[:axis]), math.prod(x.shape[axis:]))


@operator("Transpose")
def transpose(n: Step, x: Any, *, perm: Any = None) -> Any:
    return x.permute(perm if perm is not None else list(range(x.ndim))[::-1])


@operator("Squeeze", numbers=(1,))
def squeeze(n: Step, x: Any, axes: Any = None, **old: Any) -> Any:
    dims = old.get("axes") if axes is None else n.ints(axes)
    if dims is None:
        return x.squeeze()
    return x.squeeze(tuple(dims)) if dims else x


@operator("Unsqueeze", numbers=(1,))
def unsqueeze(n: Step, x: Any, axes: Any = None, **old: Any) -> Any:
    dims = old["axes"] if axes is None else n.ints(axes)
    whole = x.ndim + len(dims)
    for d in sorted(d % whole for d in dims):
        x = x.unsqueeze(d)
    return x


@operator("Concat")
def concat(n: Step, *xs: Any, axis: int) -> Any:
    return lu.cat(xs, axis)


@operator("Split", numbers=(1,))
def split(n: Step, x: Any, sizes: Any = None, *, axis: int = 0, num_outputs: int | None = None,
          **old: Any) -> Any:  # fmt: skip
    listed = old.get("split") if sizes is None else n.ints(sizes)
    if listed is None:
        whole = -(-x.shape[axis] // n.count)
        left = x.shape[axis] - whole * (n.count - 1)
        listed = [whole] * (n.count - 1) + [left]
    return list(lu.split(x, listed, axis))


@operator("Slice", numbers=(1, 2, 3, 4))
def slice_(n: Step, x: Any, starts: Any = None, ends: Any = None, axes: Any = None,
           steps: Any = None, **old: Any) -> Any:  # fmt: skip
    first, last = (n.ints(given) if given is not None else old[name]
                   for given, name in ((starts, "starts"), (ends, "ends")))  # fmt: skip
    listed = n.ints(axes) if axes is not None else old.get("axes", list(range(len(first))))
    by = n.ints(steps) if steps is not None else [1] * len(first)
    for a, b, d, s in zip(first, last, listed, by, strict=True):
        x = _sliced(x, d % x.ndim, a, b, s)
    return x


def _sliced(x: Any, d: int, a: Any, b: Any, s: int) -> Any:
    whole = (slice(None),) * d
    if s > 0:
        if type(a) is int and type(b) is int:
            b = min(b, 2**62)
            a = max(a, -(2**62))
        return x[(*whole, slice(a, b, s))]
    at = range(*slice(a, max(b, -(2**62)), s).indices(x.shape[d]))
    return x.index_select(d, lu.tensor(list(at), dtype=lu.int64))


@operator("Expand", numbers=(1,))
def expand(n: Step, x: Any, sizes: Any) -> Any:
    want = n.ints(sizes)
    missing = max(0, x.ndim - len(want))
    want = [1] * missing + want
    have = [1] * (len(want) - x.ndim) + list(x.shape)
    return x.expand(
        [h if type(w) is int and w == 1 else w for w, h in zip(want, have, strict=True)]
    )


@operator("Tile", numbers=(1,))
def tile(n: Step, x: Any, repeats: Any) -> Any:
    return x.repeat(n.ints(repeats))


@operator("Constant")
def constant(n: Step, *, value: Any = None, **other: Any) -> Any:
    if value is not None:
        return value
    [(name, given)] = other.items()
    if name not in ("value_int", "value_ints", "value_float", "value_floats"):
        raise OnnxImportError(f"{n.where()}: {name} is not read here")
    return np.array(given, np.float32 if "float" in name else np.int64)


@operator("ConstantOfShape", numbers=(0,))
def constant_of_shape(n: Step, sizes: Any, *, value: Any = None) -> Any:
    one = tensor(np.zeros(1, np.float32) if value is None else value).reshape(())
    return one.expand(n.ints(sizes)) if n.ints(sizes) else one


@operator("Range", numbers=(0, 1, 2))
def range_(n: Step, start: Any, limit: Any, delta: Any) -> Any:
    kind = next((x.dtype for x in (start, limit, delta) if isinstance(x, lu.Tensor)), None)
    if kind is None:
        name = np.asarray(delta).dtype.name
        kind = lu.int64 if name == "object" else getattr(lu, name)
    return lu.arange(n.number(start), n.number(limit), n.number(delta), dtype=kind)


@operator("EyeLike")
def eye_like(n: Step, x: Any, *, dtype: int | None = None, k: int = 0) -> Any:
    kind = x.dtype if dtype is None else DTYPES[dtype]
    rows, columns = lu.arange(x.shape[0])[:, None], lu.arange(x.shape[1])
    return (columns - rows == k).to(kind)


@operator("Trilu", numbers=(1,))
def trilu(n: Step, x: Any, k: Any = None, *, upper: int = 1) -> Any:
    return (lu.triu if upper else lu.tril)(x, 0 if k is None else n.number(k))


@operator("Pad", numbers=(1, 3))
def pad(n: Step, x: Any, pads: Any = None, value: Any = None, axes: Any = None, *,
        mode: str = "constant", **old: Any) -> Any:  # fmt: skip
    listed = old["pads"] if pads is None else n.ints(pads)
    dims = [d % x.ndim for d in (range(x.ndim) if axes is None else n.ints(axes))]
    half = len(dims)
    ends = {d: (listed[k], listed[k + half]) for k, d in enumerate(dims)}
    if mode == "constant":
        fill = old.get("value", 0) if value is None else value.item()
        flat = [e for d in reversed(range(x.ndim)) for e in ends.get(d, (0, 0))]
        return F.pad(x, flat, value=fill)
    for d, (low, high) in ends.items():
        x = _mirrored(x, d, low, high, mode)
    return x


def _mirrored(x: Any, d: int, low: int, high: int, mode: str) -> Any:
    size = x.shape[d]
    at = np.arange(-low, size + high)
    if mode == "edge":
        at = at.clip(0, size - 1)
    elif mode == "wrap":
        at = at % size
    elif mode == "reflect":
        turn = max(1, 2 * (size - 1))
        at = at % turn
        at = np.where(at >= size, turn - at, at)
    else:
        raise OnnxImportError(f"Pad by {mode!r} is not read here")
    return x.index_select(d, lu.tensor(at))


# ---- by positions ----------------------------------------------------------------------------


def wrapped(i: Any, size: Any) -> Any:
    """Positions from the end as positions from the beginning."""
    return lu.where(i < 0, i + size, i)


@operator("Gather", numbers=(1,))
def gather(n: Step, x: Any, i: Any, *, axis: int = 0) -> Any:
    axis = axis % x.ndim
    if isinstance(i, np.ndarray) and i.ndim == 0:
        return x.select(axis, n.number(i))
    i = tensor(i).to(lu.int64)
    at = wrapped(i, x.shape[axis])
    if axis == 0 and x.ndim == 2 and x.is_floating_point():
        return F.embedding(at, x)
    found = lu.index_select(x, axis, at.reshape(-1))
    return found.reshape((*x.shape[:axis], *i.shape, *x.shape[axis + 1 :]))


@operator("GatherElements")
def gather_elements(n: Step, x: Any, i: Any, *, axis: int = 0) -> Any:
    return lu.gather(x, axis, wrapped(i.to(lu.int64), x.shape[axis]))


@operator("GatherND")
def gather_nd(n: Step, x: Any, i: Any, *, batch_dims: int = 0) -> Any:
    b, depth = batch_dims, i.shape[-1]
    front = [lu.arange(s).reshape([-1 if k == d else 1 for k in range(i.ndim - 1)])
             for d, s in enumerate(x.shape[:b])]  # fmt: skip
    parts = [wrapped(i.select(-1, k).to(lu.int64), x.shape[b + k]) for k in range(depth)]
    return x[(*front, *parts)]


@operator("ScatterElements", "Scatter")
def scatter_elements(n: Step, x: Any, i: Any, updates: Any, *, axis: int = 0,
                     reduction: str = "none") -> Any:  # fmt: skip
    at = wrapped(i.to(lu.int64), x.shape[axis])
    if reduction == "none":
        return x.scatter(axis, at, updates)
    kind = {"add": "sum", "mul": "prod", "max": "amax", "min": "amin"}[reduction]
    return x.scatter_reduce(axis, at, updates, kind)


@operator("ScatterND")
def scatter_nd(n: Step, x: Any, i: Any, updates: Any, *, reduction: str = "none") -> Any:
    depth = i.shape[-1]
    parts = tuple(wrapped(i.select(-1, k).to(lu.int64), x.shape[k]) for k in range(depth))
    if reduction in ("none", "add"):
        return x.index_put(parts, updates, accumulate=reduction == "add")
    at = lu.zeros(parts[0].shape, dtype=lu.int64)
    for k, part in enumerate(parts):
        at = at + part * math.prod(x.shape[k + 1 : depth])
    rest = math.prod(x.shape[depth:])
    flat = x.reshape(-1, rest)
    rows = at.reshape(-1, 1).expand(-1, rest)
    kind = {"mul": "prod", "max": "amax", "min": "amin"}[reduction]
    return flat.scatter_reduce(0, rows, updates.reshape(-1, rest), kind).reshape(x.shape)


@operator("TensorScatter")
def tensor_scatter(n: Step, past: Any, update: Any, starts: Any = None, *, axis: int = -2,
                   mode: str = "linear") -> Any:  # fmt: skip
    axis, length = axis % past.ndim, past.shape[axis]
    first = lu.zeros(past.shape[0], dtype=lu.int64) if starts is None else starts
    at = first[:, None] + lu.arange(update.shape[axis])
    at = at % length if mode == "circular" else at
    index = at.reshape([at.shape[k] if k == 0 else -1 if k == axis else 1
                        for k in range(past.ndim)])  # fmt: skip
    return past.scatter(axis, index.expand(update.shape), update)


@operator("OneHot", numbers=(1,))
def one_hot(n: Step, i: Any, depth: Any, values: Any, *, axis: int = -1) -> Any:
    count = int(n.number(depth))
    at = lu.remainder(i.to(lu.int64), count)
    hot = (at.unsqueeze(axis) == lu.arange(count).reshape(
        [-1 if k == axis % (i.ndim + 1) else 1 for k in range(i.ndim + 1)]))  # fmt: skip
    return lu.where(hot, values[1], values[0])


@operator("NonZero")
def non_zero(n: Step, x: Any) -> Any:
    return lu.nonzero(x).t()


@operator("Compress")
def compress(n: Step, x: Any, condition: Any, *, axis: int | None = None) -> Any:
    x = x.reshape(-1) if axis is None else x
    d = 0 if axis is None else axis
    return x.index_select(d, lu.nonzero(condition).reshape(-1))


@operator("Unique")
def unique(n: Step, x: Any, *, axis: int | None = None, sorted: int = 1) -> Any:
    array = x.numpy()
    found, first, inverse, counts = np.unique(array, True, True, True, axis=axis)
    if not sorted:
        order = np.argsort(first)
        found = np.take(found, order, axis=0 if axis is None else axis)
        back = np.empty_like(order)
        back[order] = np.arange(len(order))
        first, inverse, counts = first[order], back[inverse], counts[order]
    return [lu.tensor(np.ascontiguousarray(a)) for a in (found, first, inverse.reshape(-1), counts)]


@operator("TopK", numbers=(1,))
def top_k(n: Step, x: Any, k: Any, *, axis: int = -1, largest: int = 1, sorted: int = 1) -> Any:
    order = lu.sort(x, dim=axis, descending=bool(largest), stable=True)
    count = n.number(k)
    return order[0].narrow(axis, 0, count), order[1].narrow(axis, 0, count)


@operator("DepthToSpace")
def depth_to_space(n: Step, x: Any, *, blocksize: int, mode: str = "DCR") -> Any:
    b, c, h, w = x.shape
    s = blocksize
    if mode == "DCR":
        y = x.reshape(b, s, s, c // (s * s), h, w).permute(0, 3, 4, 1, 5, 2)
    else:
        y = x.reshape(b, c // (s * s), s, s, h, w).permute(0, 1, 4, 2, 5, 3)
    return y.reshape(b, c // (s * s), h * s, w * s)


@operator("SpaceToDepth")
def space_to_depth(n: Step, x: Any, *, blocksize: int, mode: str = "DCR") -> Any:
    b, c, h, w = x.shape
    s = blocksize
    y = x.reshape(b, c, h // s, s, w // s, s)
    y = y.permute(0, 3, 5, 1, 2, 4) if mode == "DCR" else y.permute(0, 1, 3, 5, 2, 4)
    return y.reshape(b, c * s * s, h // s, w // s)


@operator("ReverseSequence", numbers=(1,))
def reverse_sequence(n: Step, x: Any, lengths: Any, *, batch_axis: int = 1,
                     time_axis: int = 0) -> Any:  # fmt: skip
    y = x.transpose(0, batch_axis) if batch_axis else x
    t = time_axis if batch_axis == 0 else (time_axis or batch_axis)
    rows = []
    for row, k in zip(y, n.ints(lengths), strict=True):
        parts = row.narrow(t - 1, 0, k).flip(t - 1), row.narrow(t - 1, k, row.shape[t - 1] - k)
        rows.append(lu.cat(parts, t - 1))
    made = lu.stack(rows)
    return made.transpose(0, batch_axis) if batch_axis else made


@operator("BitCast")
def bit_cast(n: Step, x: Any, *, to: int) -> Any:
    if to not in DTYPES or DTYPES[to] is dt.bool_:
        raise OnnxImportError(f"{n.where()}: to a type that is not read here ({to})")
    return x.view(DTYPES[to])


@operator("CumSum", "CumProd", numbers=(1,))
def running(n: Step, x: Any, axis: Any, *, exclusive: int = 0, reverse: int = 0) -> Any:
    d = n.number(axis) % x.ndim
    x = x.flip(d) if reverse else x
    sums = n.kind == "CumSum"
    made = (lu.cumsum if sums else lu.cumprod)(x, d).to(x.dtype)
    if exclusive:
        first = (lu.zeros_like if sums else lu.ones_like)(made.narrow(d, 0, 1))
        made = lu.cat([first, made.narrow(d, 0, x.shape[d] - 1)], d)
    return made.flip(d) if reverse else made
