"""Padding: around a tensor, between its elements, by a constant or by its own values."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from lucerne._src.base import dtype as dt
from lucerne._src.base import shape as sh
from lucerne._src.ir.convert import IntList, as_int_list
from lucerne._src.ir.define import composite, front, structural
from lucerne._src.ir.meta import TensorMeta
from lucerne._src.ir.op import Scalar, Tensor
from lucerne._src.ops.checks import need
from lucerne._src.ops.copy.cast import counted, filled


def _pad_meta(input: TensorMeta, value: Any, low: Any, high: Any, interior: Any) -> TensorMeta:
    need(
        len(low) == len(high) == len(interior) == input.ndim
        and all(n >= 0 for n in (*low, *high, *interior)),
        lambda: (
            f"padding {list(low)} before, {list(high)} after and {list(interior)} between the "
            f"elements of {list(input.shape)}"
        ),
    )
    shape = tuple(
        lo + hi + n + max(n - 1, 0) * gap
        for n, lo, hi, gap in zip(input.shape, low, high, interior, strict=True)
    )
    strides = sh.format_strides(shape, sh.suggested_format(input.shape, input.strides))
    return input.like(shape=shape, strides=strides)


def _pad_vjp(g: Tensor, input_meta: TensorMeta, low: Any, interior: Any) -> Tensor:
    for d, (n, start, gap) in enumerate(zip(input_meta.shape, low, interior, strict=True)):
        end = start + (n - 1) * (gap + 1) + 1 if n else start
        if start or gap or end != g.shape[d]:
            g = g.narrow(d, start, end - start)
            g = g[(slice(None),) * d + (slice(None, None, gap + 1),)] if gap else g
    return g


@structural(
    internal=True,
    meta=_pad_meta,
    vjp={"input": _pad_vjp},
    out=False,
    cost="memory",
    folds=True,
    torch="constant_pad_nd",
)
def padded(input: Tensor, value: Scalar, low: IntList, high: IntList, interior: IntList) -> Tensor:
    """`value` before, after and between the elements, per dimension (all counts non-negative)."""


def embed_slice(g: Tensor, shape: Any, dim: int, start: int, step: int) -> Tensor:
    """Zeros of `shape` with `g` at `start, start + step, ...` of one dimension."""
    n, have = shape[dim], g.shape[dim]
    if have == n:
        return g
    if not have:
        return filled(tuple(shape), 0, g.dtype, g.device, None)
    zero = (0,) * len(shape)
    low, high, gap = ((*zero[:dim], k, *zero[dim + 1 :]) for k in _room(n, have, start, step))
    return padded(g, 0, low, high, gap)


def _room(n: int, have: int, start: int, step: int) -> tuple[int, int, int]:
    return start, n - start - (have - 1) * step - 1, step - 1


def embed_diagonal(g: Tensor, shape: Any, offset: int, dim1: int, dim2: int) -> Tensor:
    """Zeros of `shape` with the last dimension of `g` on a diagonal of two dimensions."""
    ndim = len(shape)
    a, b = sh.wrap_dim(dim1, ndim), sh.wrap_dim(dim2, ndim)
    rows, cols, size = shape[a], shape[b], g.shape[-1]
    if not size or not g.numel():
        nothing = filled(tuple(shape), 0, g.dtype, g.device, None)
        return nothing + g.sum() if g.dtype.category >= dt.FLOAT else nothing  # with its history
    # Row by row, the diagonal is every (cols + 1)-th element.
    start = offset if offset >= 0 else -offset * cols
    rest = tuple(g.shape[:-1])
    flat = embed_slice(g, (*rest, rows * cols), ndim - 2, start, cols + 1)
    return flat.reshape(*rest, rows, cols).movedim((-2, -1), (a, b))


# ---- nn.functional.pad ------------------------------------------------------------------------


@composite(out=False)
def constant_pad_nd(input: Tensor, pad: IntList, value: Scalar = 0) -> Tensor:
    """A constant around the tensor; negative counts cut off.

    `pad` counts from the last dimension: (left, right, top, bottom, ...).
    """
    _check_pad(input, pad)
    low, high = _sides(pad, input.ndim)
    for d in range(input.ndim):
        first, last = max(-low[d], 0), input.shape[d] - max(-high[d], 0)
        if first or last != input.shape[d]:
            input = input.narrow(d, first, last - first)
    low, high = ([max(n, 0) for n in side] for side in (low, high))
    if not any(low) and not any(high):
        return input.clone()
    return padded(input, value, low, high, (0,) * input.ndim)


def _sides(pad: Any, ndim: int) -> tuple[list[int], list[int]]:
    """Counts before and after each dimension, first dimension first."""
    low, high = [0] * ndim, [0] * ndim
    for i in range(len(pad) // 2):
        low[ndim - 1 - i], high[ndim - 1 - i] = pad[2 * i], pad[2 * i + 1]
    return low, high


def _check_pad(input: Tensor, pad: Any) -> None:
    if len(pad) % 2:
        raise RuntimeError(f"Length of pad must be even but instead it equals {len(pad)}")
    if len(pad) > 2 * input.ndim:
        raise RuntimeError(
            "Length of pad should be no more than twice the number of dimensions of the input. Pad "
            f"length is {len(pad)} while the input has {input.ndim} dimensions."
        )
    low, high = _sides(pad, input.ndim)
    for d in range(input.ndim):
        size = input.shape[d] + low[d] + high[d]
        if size < 0:
            raise RuntimeError(
                f"The input size {input.shape[d]}, plus negative padding {low[d]} and {high[d]}, "
                "resulted in a negative output size, which is invalid. Check dimension "
                f"{d} of your input."
            )


def _reflected(at: Tensor, n: int) -> Tensor:
    return (n - 1) - ((n - 1) - at.abs()).abs()


_MODES: dict[str, Callable[[Tensor, int], Tensor]] = {
    "reflect": _reflected,
    "replicate": lambda at, n: at.clamp(0, n - 1),
    "circular": lambda at, n: at.remainder(n),
}


def _check_mode(input: Tensor, pad: Any, mode: str) -> None:
    count = len(pad) // 2
    if len(pad) not in (2, 4, 6) or input.ndim not in (count + 1, count + 2):
        raise NotImplementedError(
            f"Padding size {len(pad)} is not supported for {input.ndim}D input tensor."
        )
    low, high = _sides(pad, input.ndim)
    for d in range(input.ndim):
        n = input.shape[d]
        if d and not n and mode != "circular":
            raise RuntimeError(
                f"Expected {input.ndim}D tensor with possibly 0 batch size and other non-zero "
                f"dimensions for input, but got: {list(input.shape)}"
            )
        if mode == "reflect" and (low[d] or high[d]) and max(low[d], high[d]) >= n:
            raise RuntimeError(
                "Argument #4: Padding size should be less than the corresponding input dimension, "
                f"but got: padding ({low[d]}, {high[d]}) at dimension {d} of input "
                f"{list(input.shape)}"
            )
        if mode == "circular":
            if max(low[d], high[d]) > n:
                raise RuntimeError("Padding value causes wrapping around more than once.")
            if n + min(low[d], 0) + min(high[d], 0) < max(low[d], high[d], 0):
                raise RuntimeError("Negative padding value is resulting in an empty dimension")
        elif n + low[d] + high[d] < (1 if n else 0):
            raise RuntimeError(f"input (size: {n}) with padding {low[d]}, {high[d]} leaves nothing")


def _loses_in_low_precision(args: tuple[Any, ...]) -> bool:
    _, sizes, mode = args[:3]
    return mode == "replicate" or (mode == "reflect" and len(sizes) <= 4)


@composite(
    autocast=("full", _loses_in_low_precision),
    internal=True,
    namespace="nn.functional",
    name="pad_mode",
    out=False,
    torch=None,
)
def pad_mode(input: Tensor, pad: IntList, mode: str) -> Tensor:
    """The tensor continued beyond its edges by its own values."""
    _check_mode(input, pad, mode)
    low, high = _sides(pad, input.ndim)
    for d in range(input.ndim):
        if low[d] or high[d]:
            input = input.index_select(d, _source(input, d, low[d], high[d], mode))
    return input


def _source(input: Tensor, dim: int, low: int, high: int, mode: str) -> Tensor:
    """Where each element of the padded dimension comes from."""
    n = input.shape[dim]
    cut = 0
    if mode == "circular":  # what negative counts cut off doesn't come back on the other side
        cut = max(-low, 0)
        n, low, high = n - cut - max(-high, 0), max(low, 0), max(high, 0)
    at = counted(-low, 1, n + low + high, dt.int64, input.device)
    found = _MODES[mode](at, n)
    return found + cut if cut else found


@front(namespace="nn.functional", name="pad")
def pad_function(input: Tensor, pad: Any, mode: str = "constant", value: Any = None) -> Tensor:
    """The tensor made larger at its edges: by a constant, or by its own values.

    >>> import lucerne
    >>> lucerne.nn.functional.pad(lucerne.ones(2), (1, 1))
    tensor([0., 1., 1., 0.])
    """
    counts = as_int_list(pad)
    if len(counts) % 2:
        raise RuntimeError("Padding length must be divisible by 2")
    if len(counts) > 2 * input.ndim:
        raise RuntimeError(
            f"Padding length should be less than or equal to two times the input dimension but got "
            f"padding length {len(counts)} and input of dimension {input.ndim}"
        )
    if mode == "constant":
        return constant_pad_nd(input, counts, 0 if value is None else value)
    if value is not None and value != 0:
        raise RuntimeError(f'Padding mode "{mode}" doesn\'t take in value argument')
    if mode not in _MODES:
        raise NotImplementedError(f"Unrecognised padding mode {mode}")
    return pad_mode(input, counts, mode)
