"""The element types of XLA, and conversions with C's meaning."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from lucerne._src.base import dtype as dt

jax.config.update("jax_enable_x64", True)  # without it int64 becomes int32 without a word

_NARROW = (
    "bfloat16",
    "float8_e4m3fn",
    "float8_e4m3fnuz",
    "float8_e5m2",
    "float8_e5m2fnuz",
    "float8_e8m0fnu",
)
_TYPES: dict[dt.dtype, Any] = {dt.by_name(n): jnp.dtype(getattr(jnp, n)) for n in _NARROW}


def is_known(dtype: dt.dtype) -> bool:
    """Whether XLA has this dtype at all."""
    return dtype.native or dtype in _TYPES


def jtype(dtype: dt.dtype) -> Any:
    """What XLA calls one of our dtypes."""
    return _TYPES.get(dtype) or dtype.storage


def is_array(x: Any) -> bool:
    """Whether it is an array or a tracer, not a Python number."""
    return isinstance(x, (jax.Array, np.ndarray, np.generic))


def common(*xs: Any) -> np.dtype[Any]:
    """The type that operands meet in: NumPy's rule, in which JAX's differs for int64 x float32."""
    return np.result_type(*[x.dtype if is_array(x) else x for x in xs])


def is_floating(x: Any) -> bool:
    return bool(jnp.issubdtype(x.dtype, jnp.floating))


def cast(x: Any, kind: Any) -> Any:
    """C's conversion: complex to real drops a part, anything but zero is true, what does not fit
    into a small integer starts anew."""
    if x.dtype == kind:
        return x
    if kind == np.bool_:
        return x != 0
    if jnp.issubdtype(x.dtype, jnp.complexfloating):
        x = x if jnp.issubdtype(kind, jnp.complexfloating) else jnp.real(x)
    whole = np.dtype(kind).kind in "iu"
    if whole and jnp.issubdtype(x.dtype, jnp.floating):
        return _float_to_int(x, np.dtype(kind))
    return x.astype(kind)


def _float_to_int(x: Any, kind: np.dtype[Any]) -> Any:
    """As machine code has it: through int64, whose least number stands for what does not fit."""
    wide = x.astype(jnp.float64)
    fits = (wide >= -(2.0**63)) & (wide < 2.0**63)
    least = jnp.int64(-(1 << 63))
    if kind == np.uint64:
        high = (wide - 2.0**63).astype(jnp.int64).astype(kind) + jnp.uint64(1 << 63)
        low = jnp.where(fits, wide.astype(jnp.int64), least).astype(kind)
        return jnp.where((wide >= 2.0**63) & (wide < 2.0**64), high, low)
    return jnp.where(fits, wide.astype(jnp.int64), least).astype(kind)


def fit(x: Any, kind: np.dtype[Any]) -> Any:
    """An operand of a type; Python's integers start anew where they do not fit."""
    if is_array(x):
        return cast(x, kind)
    if kind.kind in "iu" and isinstance(x, int) and not isinstance(x, bool):
        bits = 8 * kind.itemsize
        x &= (1 << bits) - 1
        x -= (1 << bits) if kind.kind == "i" and x >> (bits - 1) else 0
    return jnp.asarray(np.asarray(x).astype(kind))


def stored(x: Any, dtype: dt.dtype) -> Any:
    """A number or an array as elements of a dtype."""
    if is_array(x):
        return cast(x, jtype(dtype))
    return fit(x, dtype.compute.storage).astype(jtype(dtype))


def retyped(x: Any, kind: Any) -> Any:
    """The same bytes as another type: the last dimension becomes longer or shorter."""
    kind = np.dtype(kind)
    if x.dtype == kind:
        return x
    if x.dtype == np.bool_:
        return retyped(x.astype(np.uint8), kind)
    if kind == np.bool_:
        return retyped(x, np.uint8) != 0
    if np.dtype(x.dtype).kind == "c":
        parts = jnp.stack([jnp.real(x), jnp.imag(x)], -1)
        return retyped(parts.reshape(*x.shape[:-1], -1) if x.ndim else parts, kind)
    if kind.kind == "c":
        half = retyped(x, np.float32 if kind.itemsize == 8 else np.float64)
        half = half.reshape(*half.shape[:-1], -1, 2)
        return jax.lax.complex(half[..., 0], half[..., 1])
    have, want = np.dtype(x.dtype).itemsize, kind.itemsize
    if have < want:
        x = x.reshape(*x.shape[:-1], -1, want // have)
    found = jax.lax.bitcast_convert_type(x, kind)
    return found.reshape(*found.shape[:-2], -1) if have > want else found
