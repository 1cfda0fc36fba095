"""Fourier transforms by their definition: each result is a sum over all operands."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from lucerne._src.backends.formulas.frame import FormulaTensor, Frame
from lucerne._src.backends.formulas.table import formula
from lucerne._src.base import dtype as dt
from lucerne._src.ir.scalar.protocol import ScalarValue, s


def _turn(
    f: Frame, products: Sequence[tuple[Any, Any, int]], sign: float, real: dt.dtype
) -> ScalarValue:
    """exp(sign 2 pi i sum(j k / n)), each product reduced to one turn first."""
    angle = f.value(0, real)
    for j, k, n in products:
        part = f.rest(j * k, f.size(n))
        angle = angle + s.cast(part, real) * f.value(sign * 2 * math.pi / n, real)
    return s.complex(s.cos(angle), s.sin(angle))


def _scaled(total: ScalarValue, counts: Sequence[int], scale: int) -> ScalarValue:
    n = math.prod(counts)
    return total * (1.0, 1 / math.sqrt(n), 1 / n)[scale]


def _transform(f: Frame, input: FormulaTensor, dim: Any, scale: int, sign: float) -> None:
    dims = [d % input.ndim for d in dim]
    counts = [input.shape[d] for d in dims]
    real = f.out.dtype.to_real()
    with f.kernel(f.out.shape) as at:
        total = f.variable(0, f.out.dtype)
        with f.loops(counts) as inner:
            place = list(at)
            for d, i in zip(dims, inner, strict=True):
                place[d] = i
            products = [(at[d], i, n) for d, i, n in zip(dims, inner, counts, strict=True)]
            total.set(total.now + input(*place) * _turn(f, products, sign, real))
        f.out.put(at, _scaled(total.now, counts, scale))


@formula("fft_c2c")
def fft_c2c(f: Frame, input: FormulaTensor, dim: Any, scale: int, forward: bool) -> None:
    _transform(f, input, dim, scale, -1.0 if forward else 1.0)


@formula("fft_r2c")
def fft_r2c(f: Frame, input: FormulaTensor, dim: Any, scale: int) -> None:
    _transform(f, input, dim, scale, -1.0)


@formula("fft_c2r")
def fft_c2r(f: Frame, input: FormulaTensor, dim: Any, scale: int, size: int) -> None:
    """The half that is not there is the conjugate of the half that is."""
    dims = [d % input.ndim for d in dim]
    counts = [*(input.shape[d] for d in dims[:-1]), size]
    real = f.out.dtype
    with f.kernel(f.out.shape) as at:
        total = f.variable(0, real.to_complex())
        with f.loops(counts) as inner:
            half = f.size(size // 2) < inner[-1]
            place = list(at)
            for d, i, n in zip(dims, inner, counts, strict=True):
                mirrored = f.rest(f.size(n) - i, f.size(n))
                place[d] = s.where(half, mirrored, i)
            x = input(*place)
            products = [(at[d], i, n) for d, i, n in zip(dims, inner, counts, strict=True)]
            x = s.where(half, s.conj(x), x)
            total.set(total.now + x * _turn(f, products, 1.0, real))
        f.out.put(at, _scaled(s.real(total.now), counts, scale))
