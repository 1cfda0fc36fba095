"""`make_tensor`: random test data, the same as torch's from the same seed."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from lucerne._src.base import dtype as dt
from lucerne._src.base.numeric import finfo, iinfo
from lucerne._src.ir.convert import as_dtype
from lucerne._src.ops.creation.fills import empty
from lucerne._src.ops.pointwise.complexes import view_as_real
from lucerne._src.ops.random.draws import randint

_INTERVALS = {dt.BOOL: (0, 2), dt.INTEGER: (-9, 10), dt.FLOAT: (-9, 9), dt.COMPLEX: (-9, 9)}


def make_tensor(
    *shape: Any,
    dtype: Any,
    device: Any,
    low: float | None = None,
    high: float | None = None,
    requires_grad: bool = False,
    noncontiguous: bool = False,
    exclude_zero: bool = False,
    memory_format: Any = None,
) -> Any:
    """A tensor of uniform values from `[low, high)`; by default from about -9 to 9.

    >>> import lucerne
    >>> lucerne.testing.make_tensor(2, 3, dtype=lucerne.int64, device="cpu").shape
    torch.Size([2, 3])
    """
    kind: dt.dtype = as_dtype(dtype)
    sizes = tuple(shape[0]) if len(shape) == 1 and isinstance(shape[0], Sequence) else shape
    if noncontiguous and memory_format is not None:
        raise ValueError(
            f"The parameters `noncontiguous` and `memory_format` are mutually exclusive, but got "
            f"{noncontiguous=} and {memory_format=}"
        )
    if requires_grad and kind.category <= dt.INTEGER:
        raise ValueError(
            "`requires_grad=True` is not supported for boolean and integral dtypes, but got "
            f"{dtype=}"
        )
    strided = noncontiguous and math.prod(sizes) > 1
    if strided:
        sizes = (*sizes[:-1], 2 * sizes[-1])
    result = _draw(sizes, kind, device, *_interval(kind, low, high))
    if strided:
        result = result[..., 1::2]
    elif memory_format is not None:
        result = result.clone(memory_format=memory_format)
    if exclude_zero:
        result[result == 0] = 1 if kind.category <= dt.INTEGER else finfo(kind).tiny
    return result.requires_grad_(requires_grad) if requires_grad else result


def _draw(shape: tuple[int, ...], dtype: dt.dtype, device: Any, low: Any, high: Any) -> Any:
    if dtype.category <= dt.INTEGER:
        return randint(low, high, shape, dtype=dtype, device=device)
    result = empty(shape, dtype=dtype, device=device)
    real = view_as_real(result) if dtype.category == dt.COMPLEX else result
    if high - low >= finfo(real.dtype).max:
        real.uniform_(low / 2, high / 2).mul_(2)
    else:
        real.uniform_(low, high)
    return result


def _interval(dtype: dt.dtype, low: float | None, high: float | None) -> tuple[Any, Any]:
    default = _INTERVALS[dtype.category]
    low = default[0] if low is None else low
    high = default[1] if high is None else high
    lowest, highest = _range(dtype)
    if any(isinstance(v, float) and math.isnan(v) for v in (low, high)):
        raise ValueError(f"`low` and `high` cannot be NaN, but got {low=} and {high=}")
    if low > high or (low == high and dtype.category <= dt.INTEGER):
        raise ValueError(f"`low` must be less than `high`, but got {low} >= {high}")
    if high < lowest or low >= highest:
        raise ValueError(
            f"The value interval specified by `low` and `high` is [{low}, {high}), but {dtype} "
            f"only supports [{lowest}, {highest})"
        )
    low, high = min(max(low, lowest), highest), min(max(high, lowest), highest)
    if dtype.category <= dt.INTEGER:
        return math.ceil(low), math.ceil(high)
    return low, high


def _range(dtype: dt.dtype) -> tuple[float, float]:
    if dtype.category == dt.BOOL:
        return 0, 2
    if dtype.category == dt.INTEGER:
        info = iinfo(dtype)
        return info.min, info.max + (dtype is not dt.int64)
    return finfo(dtype).min, finfo(dtype).max
