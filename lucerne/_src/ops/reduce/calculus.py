"""Differences and sums over sample points: diff, trapezoid, gradient."""

from __future__ import annotations

from typing import Any

import numpy as np

from lucerne._src.base import dtype as dt
from lucerne._src.base import shape as sh
from lucerne._src.ir.define import composite, front
from lucerne._src.ir.op import Tensor
from lucerne._src.ops.copy import join


@composite(
    internal=True,
    name="neighbour_difference",
    oracle=lambda input, n, dim: np.diff(input, n=n, axis=dim),
)
def neighbour_difference(input: Tensor, n: int, dim: int) -> Tensor:
    """Differences of neighbours along `dim`, taken `n` times."""
    for _ in range(min(n, input.shape[dim])):
        size = input.shape[dim]
        later, earlier = input.narrow(dim, 1, size - 1), input.narrow(dim, 0, size - 1)
        input = later.logical_xor(earlier) if input.dtype is dt.bool_ else later - earlier
    return input


@composite(internal=True, name="undifferenced", out="exact")
def undifferenced(input: Tensor) -> Tensor:
    """Differences taken no times: a copy."""
    return input.clone()


def _check_diff(input: Tensor, n: int, dim: int, ends: list[Any]) -> None:
    if not input.ndim:
        raise RuntimeError("diff expects input to be at least one-dimensional")
    if n < 0:
        raise RuntimeError(f"order must be non-negative but got {n}")
    d = sh.wrap_dim(dim, input.ndim)
    for end in ends:
        if end.ndim != input.ndim:
            raise RuntimeError("diff expects prepend or append to be the same dimension as input")
        for i in range(input.ndim):
            if i != d and end.shape[i] != input.shape[i]:
                raise RuntimeError(
                    "diff expects the shape of tensor to prepend or append to match that of input "
                    f"except along the differencing dimension; input.size({i}) = {input.shape[i]}, "
                    f"but got tensor.size({i}) = {end.shape[i]}"
                )


@front(method=True)
def diff(
    input: Tensor,
    n: int = 1,
    dim: int = -1,
    prepend: Any = None,
    append: Any = None,
    *,
    out: Any = None,
) -> Tensor:
    """Differences of neighbours along `dim`, taken `n` times.

    >>> import lucerne
    >>> lucerne.tensor([1, 4, 9]).diff()
    tensor([3, 5])
    """
    _check_diff(input, n, dim, [e for e in (prepend, append) if e is not None])
    pieces = [e for e in (prepend, input, append) if e is not None]
    if n == 0:
        return undifferenced(input, out=out)
    joined = join.cat(pieces, dim) if len(pieces) > 1 else input
    return neighbour_difference(joined, n, dim, out=out)


# ---- trapezoids --------------------------------------------------------------------------------


def _pairs(y: Tensor, dim: int) -> Tensor:
    """Sums of neighbours."""
    size = y.shape[dim]
    return y.narrow(dim, 0, size - 1) + y.narrow(dim, 1, size - 1)


def _steps(name: str, y: Tensor, x: Tensor, dim: int) -> Tensor:
    """Widths of the intervals, in a shape that broadcasts to the pairs of `y`."""
    if dt.bool_ in (x.dtype, y.dtype):
        raise RuntimeError(
            f"{name}: received a bool input for `x` or `y`, but bool is not supported"
        )
    d = sh.wrap_dim(dim, y.ndim)
    if x.ndim == 1:
        if x.shape[0] != y.shape[d]:
            raise RuntimeError(f"{name}: There must be one `x` value for each sample point")
        return x.diff().reshape([-1 if i == d else 1 for i in range(y.ndim)])
    if x.ndim < y.ndim:
        x = x.reshape([1] * (y.ndim - x.ndim) + list(x.shape))
    size = x.shape[d]
    return x.narrow(d, 1, size - 1) - x.narrow(d, 0, size - 1)


def _check_spacing(name: str, x: Any, dx: Any) -> None:
    if x is not None and dx is not None:
        raise TypeError(f"{name}() received an invalid combination of arguments: both x and dx")


@front(aliases=("trapz",))
def trapezoid(y: Tensor, x: Any = None, *, dx: Any = None, dim: int = -1) -> Tensor:
    """Integral along `dim` by the trapezoidal rule.

    >>> import lucerne
    >>> lucerne.trapezoid(lucerne.tensor([1.0, 2.0, 3.0]))
    tensor(4.)
    """
    _check_spacing("trapezoid", x, dx)
    d = sh.wrap_dim(dim, y.ndim)
    if not y.shape[d]:
        return y.sum(d)
    if x is not None:
        return (_pairs(y, d) * _steps("trapezoid", y, x, d)).sum(d) / 2.0
    if y.dtype is dt.bool_:
        raise RuntimeError("trapezoid: received a bool input for `y`, but bool is not supported")
    ends = (y.select(d, 0) + y.select(d, -1)) * 0.5
    return (y.sum(d) - ends) * (1 if dx is None else dx)


@front()
def cumulative_trapezoid(y: Tensor, x: Any = None, *, dx: Any = None, dim: int = -1) -> Tensor:
    """Running integral along `dim` by the trapezoidal rule."""
    _check_spacing("cumulative_trapezoid", x, dx)
    d = sh.wrap_dim(dim, y.ndim)
    if not y.shape[d]:
        return y.clone()
    if x is not None:
        steps = _steps("cumulative_trapezoid", y, x, d)
        return (_pairs(y, d) * steps).cumsum(d) / 2.0
    if y.dtype is dt.bool_:
        raise RuntimeError(
            "cumulative_trapezoid: received a bool input for `y`, but bool is not supported"
        )
    return ((1 if dx is None else dx) / 2.0 * _pairs(y, d)).cumsum(d)


# ---- gradient ----------------------------------------------------------------------------------


def _check_gradient(input: Tensor, spacing: Any, dims: Any, edge_order: int) -> None:
    if input.dtype is dt.uint8:
        raise RuntimeError("torch.gradient does not support uint8 input.")
    if isinstance(spacing, (list, tuple)):
        count = input.ndim if dims is None else len(dims)
        if len(spacing) != count:
            kind = (
                f"a list of length equal to 'self.dim() = {input.ndim}', but got a list of length "
                f"{len(spacing)}."
                if dims is None
                else "it's spacing and dim arguments to have the same length, but got a spacing "
                f"argument of length {len(spacing)} and a dim argument of length {len(dims)}."
            )
            raise RuntimeError(
                f"torch.gradient expected spacing to be unspecified, a scalar or {kind}"
            )
    if edge_order not in (1, 2):
        raise RuntimeError("torch.gradient only supports edge_order=1 and edge_order=2.")
    for d in range(input.ndim) if dims is None else sh.wrap_dims(dims, input.ndim):
        if input.shape[d] < edge_order + 1:
            raise RuntimeError(
                "torch.gradient expected each dimension size to be at least edge_order+1"
            )


def _even_gradient(x: Tensor, step: Any, dim: int, edge_order: int) -> Tensor:
    """Central differences of samples at equal distances."""
    size = x.shape[dim]

    def at(i: int) -> Tensor:
        return x.narrow(dim, i % size, 1)

    center = (x.narrow(dim, 2, size - 2) - x.narrow(dim, 0, size - 2)) / step
    if edge_order == 1:
        first, last = (at(1) - at(0)) / step, (at(-1) - at(-2)) / step
    else:
        first = (-1.5 * at(0) + 2 * at(1) - 0.5 * at(2)) / step
        last = (0.5 * at(-3) - 2 * at(-2) + 1.5 * at(-1)) / step
    return join.cat([first, center / 2, last], dim)


def _uneven_gradient(x: Tensor, points: Tensor, dim: int, edge_order: int) -> Tensor:
    """Differences of samples at given points, exact for parabolas inside."""
    if points.device != x.device:
        raise RuntimeError(
            "torch.gradient expected each tensor to be on the same device, but got devices "
            f"{points.device} and {x.device}!"
        )
    size = x.shape[dim]
    steps = points.diff()
    before, after = steps.narrow(0, 0, size - 2), steps.narrow(0, 1, size - 2)

    def shaped(t: Tensor) -> Tensor:
        return t.reshape([-1 if i == dim else 1 for i in range(x.ndim)])

    def at(i: int) -> Tensor:
        return x.narrow(dim, i % size, 1)

    a = shaped(-after / (before * (before + after)))
    b = shaped((after - before) / (before * after))
    c = shaped(before / (after * (before + after)))
    inner = [x.narrow(dim, i, size - 2) for i in range(3)]
    center = a * inner[0] + b * inner[1] + c * inner[2]
    first, last = _edges(at, steps, edge_order)
    return join.cat([first, center, last], dim)


def _edges(at: Any, steps: Tensor, edge_order: int) -> tuple[Tensor, Tensor]:
    if edge_order == 1:
        first = (at(1) - at(0)) / steps.narrow(0, 0, 1).squeeze(0)
        return first, (at(-1) - at(-2)) / steps.narrow(0, steps.shape[0] - 1, 1).squeeze(0)
    d1, d2 = (steps.select(0, i) for i in (0, 1))
    first = (
        at(0) * -((2 * d1 + d2) / (d1 * (d1 + d2)))
        + at(1) * ((d1 + d2) / (d1 * d2))
        - at(2) * (d1 / (d2 * (d1 + d2)))
    )
    d1, d2 = (steps.select(0, i) for i in (-2, -1))
    last = (
        at(-3) * (d2 / (d1 * (d1 + d2)))
        - at(-2) * ((d1 + d2) / (d1 * d2))
        + at(-1) * ((2 * d2 + d1) / (d2 * (d1 + d2)))
    )
    return first, last


@front()
def gradient(
    input: Tensor, *, spacing: Any = None, dim: Any = None, edge_order: int = 1
) -> tuple[Tensor, ...]:
    """Slope along each dimension, by central differences.

    >>> import lucerne
    >>> lucerne.gradient(lucerne.tensor([1.0, 4.0, 9.0]))
    (tensor([3., 4., 5.]),)
    """
    dims = (dim,) if isinstance(dim, int) else dim
    spacing = 1 if spacing is None else spacing
    _check_gradient(input, spacing, dims, edge_order)
    chosen = range(input.ndim) if dims is None else sh.wrap_dims(dims, input.ndim)
    each = spacing if isinstance(spacing, (list, tuple)) else [spacing] * len(chosen)
    found = []
    for d, step in zip(chosen, each, strict=True):
        uneven = hasattr(step, "_meta") and step.ndim
        run = _uneven_gradient if uneven else _even_gradient
        found.append(run(input, step, d, edge_order))
    return tuple(found)
