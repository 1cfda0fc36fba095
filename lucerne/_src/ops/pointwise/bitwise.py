"""Bits and truth values."""

from __future__ import annotations

from typing import Any

import numpy as np

from lucerne._src.base import dtype as dt
from lucerne._src.ir.define import Decorator, pointwise
from lucerne._src.ir.op import Tensor
from lucerne._src.ir.scalar.protocol import s
from lucerne._src.ops.checks import refuse


def _of_bits(**fields: Any) -> Decorator:
    """Whole numbers by their bits: no gradient."""
    return pointwise(vjp={}, method=True, inplace=True, **fields)


@_of_bits(oracle=np.bitwise_and, exact=True, cost="light")
def bitwise_and(input: Tensor, other: Tensor) -> Tensor:
    """Bits set in both (for bools: both true)."""
    refuse(input, "bitwise_and_cpu", dt.FLOAT, dt.COMPLEX)
    return input & other


@_of_bits(oracle=np.bitwise_or, exact=True, cost="light")
def bitwise_or(input: Tensor, other: Tensor) -> Tensor:
    """Bits set in either (for bools: either true)."""
    refuse(input, "bitwise_or_cpu", dt.FLOAT, dt.COMPLEX)
    return input | other


@_of_bits(oracle=np.bitwise_xor, exact=True, cost="light")
def bitwise_xor(input: Tensor, other: Tensor) -> Tensor:
    """Bits set in one of them only."""
    refuse(input, "bitwise_xor_cpu", dt.FLOAT, dt.COMPLEX)
    return input ^ other


@_of_bits(out="exact", oracle=np.bitwise_not, exact=True, cost="light")
def bitwise_not(input: Tensor) -> Tensor:
    """All bits turned over (for bools: not)."""
    refuse(input, "bitwise_not_cpu", dt.FLOAT, dt.COMPLEX)
    return ~input


@_of_bits(oracle=np.left_shift)
def bitwise_left_shift(input: Tensor, other: Tensor) -> Tensor:
    """Bits moved up by `other` places; 0 when they are all moved out."""
    refuse(input, "lshift_cpu", dt.FLOAT, dt.COMPLEX, dt.BOOL)
    return s.shift_left(input, other)


@_of_bits(oracle=np.right_shift)
def bitwise_right_shift(input: Tensor, other: Tensor) -> Tensor:
    """Bits moved down by `other` places, the sign kept."""
    refuse(input, "rshift_cpu", dt.FLOAT, dt.COMPLEX, dt.BOOL)
    return s.shift_right(input, other)


# ---- truth values -------------------------------------------------------------------------------


def _truth(x: Any) -> Any:
    return x if x.dtype is dt.bool_ else x != 0


@_of_bits(numbers="none", promote="bool", oracle=np.logical_and, exact=True, cost="cheap")
def logical_and(input: Tensor, other: Tensor) -> Tensor:
    """Whether both are not zero.

    >>> import lucerne
    >>> lucerne.logical_and(lucerne.tensor([1, 0]), lucerne.tensor([2, 3]))
    tensor([ True, False])
    """
    return _truth(input) & _truth(other)


@_of_bits(numbers="none", promote="bool", oracle=np.logical_or, exact=True, cost="cheap")
def logical_or(input: Tensor, other: Tensor) -> Tensor:
    """Whether either is not zero."""
    return _truth(input) | _truth(other)


@_of_bits(numbers="none", promote="bool", oracle=np.logical_xor, exact=True, cost="light")
def logical_xor(input: Tensor, other: Tensor) -> Tensor:
    """Whether just one is not zero."""
    return _truth(input) ^ _truth(other)


@_of_bits(promote="bool", oracle=np.logical_not, exact=True, cost="cheap")
def logical_not(input: Tensor) -> Tensor:
    """Whether elements are zero."""
    return ~_truth(input)


# ---- whole numbers ------------------------------------------------------------------------------


@_of_bits(numbers="none", oracle=np.gcd, cost="heavy")
def gcd(input: Tensor, other: Tensor) -> Tensor:
    """The greatest common divisor."""
    refuse(input, "gcd_cpu", dt.FLOAT, dt.COMPLEX, dt.BOOL)
    return s.gcd(input, other)


@_of_bits(numbers="none", oracle=np.lcm, cost="heavy")
def lcm(input: Tensor, other: Tensor) -> Tensor:
    """The least common multiple."""
    refuse(input, "lcm_cpu", dt.FLOAT, dt.COMPLEX, dt.BOOL)
    return s.lcm(input, other)
