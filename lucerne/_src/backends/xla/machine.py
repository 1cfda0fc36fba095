"""The scalar protocol on XLA: an instruction is a call of jax.numpy on operands of one type."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

import lucerne._src.ir.scalar.special  # noqa: F401 - enters its formulas
from lucerne._src.backends.xla.types import cast, common, fit
from lucerne._src.base import dtype as dt
from lucerne._src.ir.scalar.protocol import Scalar, ScalarValue


def _alike(fn: Callable[..., Any]) -> Any:
    """Operands of their common type."""

    def run(self: Any, *xs: Any) -> Any:
        kind = common(*xs)
        return fn(*[fit(x, kind) for x in xs])

    return run


def _floats(fn: Callable[..., Any]) -> Any:
    """Operands of their common type, which is a floating one."""

    def run(self: Any, *xs: Any) -> Any:
        kind = common(*xs)
        kind = kind if kind.kind in "fc" else np.dtype(np.float64)
        return fn(*[fit(x, kind) for x in xs])

    return run


def _plain(fn: Callable[..., Any]) -> Any:
    return staticmethod(fn)


class XlaScalar(Scalar):
    """Values are arrays of JAX, or Python numbers."""

    add = _alike(jnp.add)
    sub = _alike(jnp.subtract)
    mul = _alike(jnp.multiply)
    neg = _alike(jnp.negative)
    abs = _alike(jnp.abs)
    minimum = _alike(jnp.minimum)
    maximum = _alike(jnp.maximum)
    lt = _alike(jnp.less)
    le = _alike(jnp.less_equal)
    gt = _alike(jnp.greater)
    ge = _alike(jnp.greater_equal)
    eq = _alike(jnp.equal)
    ne = _alike(jnp.not_equal)
    bit_and = _alike(jnp.bitwise_and)
    bit_or = _alike(jnp.bitwise_or)
    bit_xor = _alike(jnp.bitwise_xor)
    bit_not = _alike(jnp.bitwise_not)
    shift_left = _alike(jnp.left_shift)
    shift_right = _alike(jnp.right_shift)
    gcd = _alike(jnp.gcd)
    lcm = _alike(jnp.lcm)
    fmod = _alike(jnp.fmod)
    floor_div_int = _alike(jnp.floor_divide)

    div = _floats(jnp.true_divide)
    floor = _floats(jnp.floor)
    ceil = _floats(jnp.ceil)
    trunc = _floats(jnp.trunc)
    round = _floats(jnp.rint)
    sqrt = _floats(jnp.sqrt)
    rsqrt = _floats(lax.rsqrt)
    exp = _floats(jnp.exp)
    expm1 = _floats(jnp.expm1)
    exp2 = _floats(jnp.exp2)
    log = _floats(jnp.log)
    log1p = _floats(jnp.log1p)
    log2 = _floats(jnp.log2)
    log10 = _floats(jnp.log10)
    sin = _floats(jnp.sin)
    cos = _floats(jnp.cos)
    tan = _floats(jnp.tan)
    asin = _floats(jnp.arcsin)
    acos = _floats(jnp.arccos)
    atan = _floats(jnp.arctan)
    atan2 = _floats(jnp.arctan2)
    sinh = _floats(jnp.sinh)
    cosh = _floats(jnp.cosh)
    tanh = _floats(jnp.tanh)
    asinh = _floats(jnp.arcsinh)
    acosh = _floats(jnp.arccosh)
    atanh = _floats(jnp.arctanh)
    hypot = _floats(jnp.hypot)
    copysign = _floats(jnp.copysign)
    nextafter = _floats(jnp.nextafter)
    is_nan = _floats(jnp.isnan)
    is_inf = _floats(jnp.isinf)
    signbit = _floats(jnp.signbit)
    erf = _floats(lax.erf)
    erfc = _floats(lax.erfc)
    lgamma = _floats(lax.lgamma)
    frexp_mantissa = _floats(lambda x: jnp.frexp(x)[0])
    frexp_exponent = _floats(lambda x: jnp.frexp(x)[1])

    real = _plain(jnp.real)
    imag = _plain(jnp.imag)
    conj = _plain(jnp.conj)

    @staticmethod
    def pow(a: Any, b: Any) -> Any:
        """Power; a negative power of an integer is 0 unless the base is 1 or -1."""
        kind = common(a, b)
        a, b = fit(a, kind), fit(b, kind)
        if kind.kind not in "iu":
            return jnp.power(a, b)
        if kind.kind == "u":
            return _whole_power(a, b)
        unit = jnp.where(a == 1, 1, jnp.where(a == -1, 1 - 2 * (b & 1), 0))
        return jnp.where(b < 0, unit, _whole_power(a, jnp.where(b < 0, 0, b))).astype(kind)

    @staticmethod
    def where(condition: Any, a: Any, b: Any) -> Any:
        kind = common(a, b)
        return jnp.where(fit(condition, np.dtype(bool)), fit(a, kind), fit(b, kind))

    @staticmethod
    def cast(x: Any, dtype: dt.dtype) -> Any:
        return fit(x, dtype.compute.storage)

    @staticmethod
    def dtype_of(x: Any) -> dt.dtype:
        return dt.from_numpy_dtype(common(x))

    @staticmethod
    def complex(re: Any, im: Any) -> Any:
        kind = common(re, im)
        kind = kind if kind.kind == "f" else np.dtype(np.float32)
        return lax.complex(*jnp.broadcast_arrays(fit(re, kind), fit(im, kind)))

    def repeat(self, step: Any, state: list[Any]) -> list[Any]:
        """`step` on all elements until none goes on; those that have come to rest are kept."""
        kept = jnp.broadcast_arrays(*state)

        def turn(now: list[Any]) -> list[Any]:
            going, *old = now
            again, *made = step(*[ScalarValue(self, x) for x in old])
            pairs = zip(made, old, strict=True)
            return [
                going & again.raw,
                *[jnp.where(going, cast(jnp.asarray(m.raw), o.dtype), o) for m, o in pairs],
            ]

        first = jnp.ones(kept[0].shape, bool)
        found: list[Any] = lax.while_loop(lambda now: jnp.any(now[0]), turn, [first, *kept])
        return found[1:]

    def _formula(self, name: str, *operands: Any) -> Any:
        """Special functions are computed in float64, whatever they are stored in."""
        kind = common(*operands)
        wide = [fit(x, np.dtype(np.float64)) for x in operands]
        return super()._formula(name, *wide).astype(kind if kind.kind == "f" else np.float64)


def _whole_power(a: Any, b: Any) -> Any:
    """By squaring, as often as the exponents have bits."""

    def turn(now: tuple[Any, Any, Any]) -> tuple[Any, Any, Any]:
        found, factor, left = now
        return jnp.where(left & 1 == 1, found * factor, found), factor * factor, left >> 1

    a, b = jnp.broadcast_arrays(a, b)
    first = jnp.ones_like(a), a, b
    return jax.lax.while_loop(lambda now: jnp.any(now[2] != 0), turn, first)[0]


MACHINE = XlaScalar()
