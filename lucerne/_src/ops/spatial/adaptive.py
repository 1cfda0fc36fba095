"""Pooling to a given size: windows as even as they can be."""

from __future__ import annotations

import math
from typing import Any

from lucerne._src.base import dtype as dt
from lucerne._src.base import shape as sh
from lucerne._src.ir.convert import IntList
from lucerne._src.ir.define import composite, front
from lucerne._src.ir.meta import TensorMeta
from lucerne._src.ir.op import Tensor
from lucerne._src.ir.symbolic.numbers import to_int
from lucerne._src.ops.spatial.pool import avg_pool, is_volume, max_pool, pooled_meta, suggested
from lucerne._src.ops.spatial.taps import resample_back


def _bounds(size: int, out: int) -> list[tuple[int, int]]:
    """Where the windows of a row begin and end."""
    return [(i * size // out, -(-(i + 1) * size // out)) for i in range(out)]


def _window_indices(size: int, out: int) -> tuple[list[int], list[int], int]:
    """Source index of each place of each window (repeating its last), window sizes, the widest."""
    bounds = _bounds(size, out)
    wide = max((end - start for start, end in bounds), default=1)
    index = [min(start + j, end - 1) for start, end in bounds for j in range(wide)]
    return index, [end - start for start, end in bounds], wide


def _is_even(input: Tensor, size: sh.Shape) -> bool:
    return all(m and n % m == 0 for n, m in zip(input.shape[2:], size, strict=True))


def _spread_means(g: Tensor, size: sh.Shape, input_meta: TensorMeta) -> Tensor:
    """Every element of a window gets its share of the gradient."""
    x = resample_back(g, tuple(input_meta.shape[2:]), "area", False, (None,) * len(size))
    return x.contiguous(memory_format=suggested(input_meta))


@composite(
    autocast=("full", is_volume),
    internal=True,
    name="adaptive_avg_pool",
    opmath=True,
    out=False,
    meta=pooled_meta,
    vjp={"input": lambda g, size, input_meta: _spread_means(g, size, input_meta)},
    linear=True,
    images=(0,),
    torch="_adaptive_avg_pool2d",
)
def adaptive_avg_pool(input: Tensor, size: IntList) -> Tensor:
    """(N, C, n...) to (N, C, size...), each the mean of its window."""
    x = input
    for d, (n, m) in enumerate(zip(input.shape[2:], size, strict=True)):
        index, counts, wide = _window_indices(n, m)
        parts = x.index_select(2 + d, x.new_tensor(index, dtype=dt.int64))
        parts = parts.reshape(*x.shape[: 2 + d], m, wide, *x.shape[3 + d :])
        if len(set(counts)) > 1:
            inside = x.new_tensor([[j < c for j in range(wide)] for c in counts], dtype=dt.bool_)
            tail = (1,) * (x.ndim - 3 - d)
            parts = parts.masked_fill(inside.logical_not().reshape(m, wide, *tail), 0)
        share = x.new_tensor(counts).reshape(m, *((1,) * (x.ndim - 3 - d)))
        x = parts.sum(3 + d) / share
    return x


def _check(input: Tensor, n: int, name: str, channels: bool) -> None:
    """`channels`: each image of a batch must have some."""
    if input.ndim not in (n + 1, n + 2):
        raise RuntimeError(
            f"{name}(): Expected {n + 1}D or {n + 2}D tensor, but got {list(input.shape)}"
        )
    for d in range(1 if channels else input.ndim - n, input.ndim):
        if input.shape[d] == 0:
            raise RuntimeError(
                f"{name}(): Expected input to have non-zero size for non-batch dimensions, but "
                f"input has sizes {list(input.shape)} with dimension {d} being empty"
            )


def _wanted(output_size: Any, input: Tensor, n: int, name: str, internal: bool = False) -> sh.Shape:
    """The output size as `n` ints; None means the input's size there."""
    if n > 1 and input.ndim <= n and not isinstance(output_size, int):
        raise ValueError(f"Input dimension should be at least {n + 1}")
    given = (output_size,) * n if isinstance(output_size, int) else tuple(output_size)
    if len(given) != n:
        if n == 1:
            raise RuntimeError(
                f"{name}() argument 'output_size' should contain one int (got {len(given)})"
            )
        text = (
            f"internal error: output_size.size() must be {n}"
            if internal
            else f"output_size must be {n}"
        )
        raise RuntimeError(f"{name}(): {text}" if internal else f"{name}: {text}")
    have = input.shape[-n:]
    return tuple(to_int(m) if m is not None else h for m, h in zip(given, have, strict=True))


def _means(n: int, input: Tensor, output_size: Any) -> Tensor:
    name = f"adaptive_avg_pool{n}d"
    size = _wanted(output_size, input, n, name)
    if min(size) < 0:
        raise RuntimeError(
            f"{name}: elements of output_size must be greater than or equal to 0 but received "
            f"{{{', '.join(map(str, size))}}}"
        )
    if not input.numel() and set(size) == {1} and n < input.ndim <= n + 2:
        return input.mean(tuple(range(-n, 0)), keepdim=True)
    _check(input, n, name, channels=n == 3)
    if input.dtype.category < dt.FLOAT:
        raise NotImplementedError(f"\"{name}\" not implemented for '{dt.cxx_name(input.dtype)}'")
    batched = input.ndim == n + 2
    x = input if batched else input.unsqueeze(0)
    layout = suggested(x._meta)
    x = x.contiguous(memory_format=layout)
    if _is_even(x, size):
        kernel = tuple(h // m for h, m in zip(x.shape[2:], size, strict=True))
        counts = tuple((k,) * m for k, m in zip(kernel, size, strict=True))
        result = avg_pool(x, kernel, kernel, (0,) * n, counts, math.prod(kernel))
    else:
        result = adaptive_avg_pool(x, size)
    result = result.contiguous(memory_format=layout)
    return result if batched else result.squeeze(0)


@front(namespace="nn.functional")
def adaptive_avg_pool1d(input: Tensor, output_size: Any) -> Tensor:
    """Means over windows such that `output_size` of them cover the last dimension."""
    return _means(1, input, output_size)


@front(namespace="nn.functional")
def adaptive_avg_pool2d(input: Tensor, output_size: Any) -> Tensor:
    """Means over windows such that `output_size` of them cover the last two dimensions.

    >>> import lucerne as torch
    >>> torch.nn.functional.adaptive_avg_pool2d(torch.arange(16.0).reshape(1, 4, 4), 1)
    tensor([[[7.5000]]])
    """
    return _means(2, input, output_size)


@front(namespace="nn.functional")
def adaptive_avg_pool3d(input: Tensor, output_size: Any) -> Tensor:
    """Means over windows such that `output_size` of them cover the last three dimensions."""
    return _means(3, input, output_size)


# ---- maxima -----------------------------------------------------------------------------------


def windows_of(
    x: Tensor, starts: list[list[int]], kernels: list[int], with_places: bool = True
) -> tuple[Tensor, Any]:
    """Values (N, C, m..., taps) of windows, and flat positions (m..., taps) in the input or None.

    `starts[d]` lists the source index of each place of each window along dimension d.
    """
    n = len(starts)
    spatial = x.shape[2:]
    values, sizes = x, []
    for d, (index, k) in enumerate(zip(starts, kernels, strict=True)):
        values = values.index_select(2 + d, x.new_tensor(index, dtype=dt.int64))
        sizes.append(len(index) // k)
    split = [v for m, k in zip(sizes, kernels, strict=True) for v in (m, k)]
    order = (0, 1, *range(2, 2 + 2 * n, 2), *range(3, 3 + 2 * n, 2))
    values = values.reshape(*x.shape[:2], *split).permute(order)
    values = values.reshape(*x.shape[:2], *sizes, math.prod(kernels))
    if not with_places:
        return values, None
    at = x.new_zeros((), dtype=dt.int64)
    for d, (index, k) in enumerate(zip(starts, kernels, strict=True)):
        shape = [1] * (2 * n)
        shape[d], shape[n + d] = len(index) // k, k
        at = at * spatial[d] + x.new_tensor(index, dtype=dt.int64).reshape(shape)
    return values, at.reshape(*sizes, math.prod(kernels))


def largest_of(x: Tensor, values: Tensor, at: Tensor) -> tuple[Tensor, Tensor]:
    """The greatest of each window and its flat position; gradients go through a gather."""
    where = values.detach().max(-1)[1]
    at = at.expand(values.shape)
    indices = at.gather(-1, where.unsqueeze(-1)).squeeze(-1)
    rows = indices.reshape(*x.shape[:2], math.prod(indices.shape[2:]))
    flat = x.reshape(*x.shape[:2], math.prod(x.shape[2:])).gather(2, rows)
    return flat.reshape(indices.shape), indices


def _maxima(n: int, input: Tensor, output_size: Any, return_indices: bool) -> Any:
    """The maxima, with their flat positions when these are asked for."""
    name = f"adaptive_max_pool{n}d"
    size = _wanted(output_size, input, n, name, internal=True)
    if min(size) < 0:
        raise RuntimeError(
            f"Trying to create tensor with negative dimension {min(size)}: "
            f"{[*input.shape[:-n], *size]}"
        )
    _check(input, n, name, channels=True)
    if input.dtype.category < dt.FLOAT:
        raise NotImplementedError(f"\"{name}\" not implemented for '{dt.cxx_name(input.dtype)}'")
    batched = input.ndim == n + 2
    x = input if batched else input.unsqueeze(0)
    layout = suggested(x._meta)
    x = x.contiguous(memory_format=layout)
    if _is_even(x, size):
        kernel = tuple(h // m for h, m in zip(x.shape[2:], size, strict=True))
        found = max_pool(x, kernel, kernel, (0,) * n, (1,) * n, size)
    elif 0 in size:
        shape = (*x.shape[:2], *size)
        found = (x.new_empty(shape), x.new_empty(shape, dtype=dt.int64))
    else:
        rows = [_window_indices(h, m) for h, m in zip(x.shape[2:], size, strict=True)]
        values, at = windows_of(x, [r[0] for r in rows], [r[2] for r in rows], return_indices)
        found = values.max(-1) if at is None else largest_of(x, values, at)
    kept = [r.contiguous(memory_format=layout) for r in found[: 1 + return_indices]]
    made = kept if batched else [r.squeeze(0) for r in kept]
    return tuple(made) if return_indices else made[0]


@front(namespace="nn.functional")
def adaptive_max_pool1d(input: Tensor, output_size: Any, return_indices: bool = False) -> Tensor:
    """Maxima over windows such that `output_size` of them cover the last dimension."""
    return _maxima(1, input, output_size, bool(return_indices))


@front(namespace="nn.functional")
def adaptive_max_pool2d(input: Tensor, output_size: Any, return_indices: bool = False) -> Tensor:
    """Maxima over windows such that `output_size` of them cover the last two dimensions."""
    return _maxima(2, input, output_size, bool(return_indices))


@front(namespace="nn.functional")
def adaptive_max_pool3d(input: Tensor, output_size: Any, return_indices: bool = False) -> Tensor:
    """Maxima over windows such that `output_size` of them cover the last three dimensions."""
    return _maxima(3, input, output_size, bool(return_indices))


front()(adaptive_avg_pool1d)


@front(name="adaptive_max_pool1d")
def torch_adaptive_max_pool1d(input: Tensor, output_size: Any) -> Any:
    """Maxima and where they were."""
    return _maxima(1, input, output_size, True)


def _with_indices(n: int) -> None:
    """`adaptive_max_pool{n}d_with_indices`, which returns them whatever it is told."""

    def call(
        input: Tensor, output_size: Any, return_indices: bool = False
    ) -> tuple[Tensor, Tensor]:
        return _maxima(n, input, output_size, True)

    call.__name__ = call.__qualname__ = f"adaptive_max_pool{n}d_with_indices"
    call.__doc__ = f"What `adaptive_max_pool{n}d(..., return_indices=True)` returns."
    front(namespace="nn.functional")(call)


for _n in (1, 2, 3):
    _with_indices(_n)
