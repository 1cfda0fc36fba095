"""Numbers in a row, and patterns made of them: arange, linspace, eye, triangles of indices."""

from __future__ import annotations

import builtins
import math
from typing import Any

from lucerne._src.base import dtype as dt
from lucerne._src.base.defaults import get_default_dtype
from lucerne._src.ir.convert import as_int, as_optional_dtype
from lucerne._src.ir.define import front
from lucerne._src.ir.op import Tensor
from lucerne._src.ir.symbolic.numbers import isfinite, to_int
from lucerne._src.ops.copy.cast import cast, counted
from lucerne._src.ops.copy.join import cat
from lucerne._src.ops.creation.fills import (
    device_or_default,
    make_filled,
    sized_out,
    strided_only,
    strided_options,
)
from lucerne._src.ops.pointwise.arithmetic import add_scaled


def number(value: Any) -> Any:
    """A Python number, also out of a tensor or NumPy scalar."""
    return value.item() if hasattr(value, "item") else value


def _delivered(made: Tensor, requires_grad: bool, out: Any, dtype: Any) -> Tensor:
    if out is not None:
        return sized_out(out, tuple(made.shape), as_optional_dtype(dtype)).copy_(made)
    return made.requires_grad_() if requires_grad else made


def _common_dtype(values: tuple[Any, ...], dtype: Any, out: Any) -> dt.dtype:
    """The dtype of a range: as told, else int64 for integers and the default float for the rest."""
    if dtype is not None:
        return dtype
    if out is not None:
        return out.dtype
    kinds = [v.dtype if hasattr(v, "_meta") else _kind(v) for v in values]
    if all(k in (int, bool) or getattr(k, "category", dt.FLOAT) <= dt.INTEGER for k in kinds):
        return dt.int64
    return get_default_dtype()


def _kind(value: Any) -> type:
    """The type of a number; sizes that know their formulas are integers as well."""
    return int if isinstance(value, int) and type(value) is not bool else type(value)


def _length(start: Any, end: Any, step: Any, dtype: dt.dtype) -> int:
    if step == 0:
        raise RuntimeError("step must be nonzero")
    if not isfinite(start) or not isfinite(end):
        raise RuntimeError(f"unsupported range: {start:g} -> {end:g}")
    if (step > 0 and end < start) or (step < 0 and end > start):
        raise RuntimeError("upper bound and lower bound inconsistent with step sign")
    if dtype is dt.int64:
        start, end, step = to_int(start), to_int(end), to_int(step)
        if step == 0:
            raise ValueError("step must be nonzero")
        return max(-((start - end) // step), 0)
    return math.ceil((end - start) / step)


@front(options=strided_options)
def arange(
    *args: Any,
    start: Any = None,
    end: Any = None,
    step: Any = None,
    out: Any = None,
    **options: Any,
) -> Tensor:
    """Numbers from `start` (0) to before `end`, `step` (1) apart.

    >>> import lucerne
    >>> lucerne.arange(1, 7, 2)
    tensor([1, 3, 5])
    """
    dtype, device, requires_grad = strided_options("arange", **options)
    start, end, step = _range_arguments("arange", args, start, end, step)
    target = _common_dtype((start, end, step), as_optional_dtype(dtype), out)
    if target is dt.bool_:
        raise NotImplementedError("\"arange_cpu\" not implemented for 'Bool'")
    first, last, gap = number(start), number(end), number(step)
    length = _length(first, last, gap, target)
    return _delivered(_counted(first, gap, length, target, device), requires_grad, out, dtype)


def _counted(first: Any, gap: Any, length: int, dtype: dt.dtype, device: Any) -> Tensor:
    if dtype.category == dt.INTEGER:
        first, gap = to_int(first), to_int(gap)
    return counted(first, gap, length, dtype, device_or_default(device))


def _range_arguments(name: str, args: tuple[Any, ...], start: Any, end: Any, step: Any) -> Any:
    """`(end)`, `(start, end)` or `(start, end, step)`, each also by keyword."""
    if len(args) == 1 and start is None and end is None:
        end = args[0]
    elif args:
        given = builtins.list(args)
        start = given.pop(0) if start is None else start
        end = given.pop(0) if given and end is None else end
        step = given.pop(0) if given and step is None else step
        if given:
            raise TypeError(f"{name}() received an invalid combination of arguments")
    if end is None:
        raise TypeError(f"{name}() missing required argument: 'end'")
    for v in (start, end, step):
        if isinstance(v, (str, list, tuple)):
            raise TypeError(f"{name}(): expected numbers, got {type(v).__name__}")
    return 0 if start is None else start, end, 1 if step is None else step


@front()
def range(
    start: Any = 0,
    end: Any = None,
    step: Any = 1,
    *,
    out: Any = None,
    dtype: Any = None,
    layout: Any = None,
    device: Any = None,
    requires_grad: bool = False,
) -> Tensor:
    """Numbers from `start` to `end` with `end` included (old; use `arange`)."""
    strided_only("range", layout)
    start, end = (0, start) if end is None else (start, end)
    first, last, gap = number(start), number(end), number(step)
    target = as_optional_dtype(dtype) or (out.dtype if out is not None else get_default_dtype())
    _length(first, last, gap, dt.float64)
    length = math.floor((last - first) / gap) + 1
    return _delivered(_counted(first, gap, length, target, device), requires_grad, out, dtype)


# ---- evenly spaced ----------------------------------------------------------------------------


def _steps(name: str, start: Any, end: Any, steps: Any) -> int:
    for v in (start, end):
        if hasattr(v, "_meta") and v.ndim:
            raise RuntimeError(
                f"{name} only supports 0-dimensional start and end tensors, but got start with "
                f"{getattr(start, 'ndim', 0)} dimension(s) and end with "
                f"{getattr(end, 'ndim', 0)} dimension(s)."
            )
    if isinstance(steps, float):
        kinds = ", ".join(type(v).__name__ for v in (start, end, steps))
        raise TypeError(f"{name}() received an invalid combination of arguments - got ({kinds})")
    count = as_int(number(steps))
    if count < 0:
        raise RuntimeError("number of steps must be non-negative")
    return count


def _spaced_dtype(name: str, values: tuple[Any, ...], dtype: Any, out: Any) -> dt.dtype:
    target: dt.dtype | None = as_optional_dtype(dtype) or (out.dtype if out is not None else None)
    floating = get_default_dtype()
    is_complex = any(isinstance(number(v), complex) for v in values)
    if target is None:
        return floating.to_complex() if is_complex else floating
    if is_complex and target.category != dt.COMPLEX:
        raise RuntimeError(
            f"torch.{name}(): inferred dtype {floating.to_complex()} can't be safely cast to "
            f"passed dtype {target}"
        )
    if target is dt.bool_:
        raise NotImplementedError(f"\"{name}_cpu\" not implemented for 'Bool'")
    return target


def _spaced(start: Any, end: Any, count: int, target: dt.dtype, device: Any) -> Tensor:
    """`count` values from both ends towards the middle, so that both ends are exact."""
    work = target if target.category >= dt.FLOAT else dt.float64
    first, last = number(start), number(end)
    if target.category == dt.INTEGER:
        first, last = to_int(first), to_int(last)
    real, place = work.compute.to_real(), device_or_default(device)
    if count < 2:
        return cast(counted(0, 1, count, real, place) * 0 + first, target)
    step, half = (last - first) / (count - 1), count // 2
    rising = add_scaled(first, counted(0, 1, half, real, place), step)
    falling = add_scaled(last, counted(count - 1 - half, -1, count - half, real, place), -step)
    return cast(cat([rising, falling]), target)


@front(options=strided_options)
def linspace(start: Any, end: Any, steps: Any, *, out: Any = None, **options: Any) -> Tensor:
    """`steps` numbers evenly spaced from `start` to `end`, both included.

    >>> import lucerne
    >>> lucerne.linspace(0, 1, 5)
    tensor([0.0000, 0.2500, 0.5000, 0.7500, 1.0000])
    """
    dtype, device, requires_grad = strided_options("linspace", **options)
    count = _steps("linspace", start, end, steps)
    target = _spaced_dtype("linspace", (start, end), dtype, out)
    return _delivered(_spaced(start, end, count, target, device), requires_grad, out, dtype)


@front(options=strided_options)
def logspace(
    start: Any, end: Any, steps: Any, base: float = 10.0, *, out: Any = None, **options: Any
) -> Tensor:
    """`base` to the powers evenly spaced from `start` to `end`."""
    dtype, device, requires_grad = strided_options("logspace", **options)
    count = _steps("logspace", start, end, steps)
    target = _spaced_dtype("logspace", (start, end), dtype, out)
    work = target.compute if target.category >= dt.FLOAT else dt.float64
    first, last = (to_int(number(v)) if target.category == dt.INTEGER else v for v in (start, end))
    powers = _spaced(first, last, count, work, device)
    made = cast(make_filled((), base, work, device, False).pow(powers), target)
    return _delivered(made, requires_grad, out, dtype)


# ---- patterns ---------------------------------------------------------------------------------


@front(options=strided_options)
def eye(n: int, m: int | None = None, *, out: Any = None, **options: Any) -> Tensor:
    """Ones on the diagonal, zeros elsewhere.

    >>> import lucerne
    >>> lucerne.eye(2)
    tensor([[1., 0.],
            [0., 1.]])
    """
    dtype, device, requires_grad = strided_options("eye", **options)
    rows = as_int(n)
    cols = rows if m is None else as_int(m)
    for name, size in (("n", rows), ("m", cols)):
        if size < 0:
            raise RuntimeError(f"{name} must be greater or equal to 0, got {size}")
    target = as_optional_dtype(dtype) or (out.dtype if out is not None else get_default_dtype())
    where = device_or_default(device)
    i, j = (counted(0, 1, k, dt.int64, where) for k in (rows, cols))
    return _delivered(cast(i.unsqueeze(1) == j, target), requires_grad, out, dtype)


def triangle(rows: int, cols: int, diagonal: int, device: Any, lower: bool) -> Tensor:
    """The mask of a triangle: on and below (or above) the given diagonal."""
    i, j = (counted(0, 1, n, dt.int64, device) for n in (rows, cols))
    i = i.unsqueeze(1) + diagonal
    return j <= i if lower else j >= i


def _triangle_indices(name: str, row: int, col: int, offset: int, options: dict[str, Any]) -> Any:
    dtype, device, _ = strided_options(name, **options)
    for side, n in (("row", row), ("col", col)):
        if n < 0:
            raise RuntimeError(f"{side} must be non-negative, got{n}")
    lower = name == "tril_indices"
    found = triangle(row, col, offset, device_or_default(device), lower).nonzero()
    target = as_optional_dtype(dtype) or dt.int64
    if target not in (dt.int64, dt.int32):
        raise NotImplementedError(f"\"{name}\" not implemented for '{dt.cxx_name(target)}'")
    return cast(found.t(), target).contiguous()


@front()
def tril_indices(
    row: int,
    col: int,
    offset: int = 0,
    *,
    dtype: Any = None,
    device: Any = None,
    layout: Any = None,
    pin_memory: bool = False,
) -> Tensor:
    """Row and column numbers of the lower triangle of a matrix."""
    where = {"dtype": dtype, "layout": layout, "device": device, "pin_memory": pin_memory}
    return _triangle_indices("tril_indices", row, col, offset, where)


@front()
def triu_indices(
    row: int,
    col: int,
    offset: int = 0,
    *,
    dtype: Any = None,
    device: Any = None,
    layout: Any = None,
    pin_memory: bool = False,
) -> Tensor:
    """Row and column numbers of the upper triangle of a matrix."""
    where = {"dtype": dtype, "layout": layout, "device": device, "pin_memory": pin_memory}
    return _triangle_indices("triu_indices", row, col, offset, where)
