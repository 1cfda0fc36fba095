"""Integer draws: torch.randint and every spelling of Tensor.random_()."""

from __future__ import annotations

import numpy as np

from lucerne._src.base.process import notices
from lucerne._src.tensor.random.draws import Words
from lucerne._src.tensor.random.kinds import (
    DIGITS,
    I64,
    INT_RANGE,
    LARGEST,
    SPELLING,
    Array,
    round_scalar,
    store,
)

_INT64_MIN, _INT64_MAX = INT_RANGE["int64"]
_WIDE_RANGE = 1 << 28  # from here on a 32-bit word would favour some values by over five per cent


def randint(words: Words, n: int, lo: int, hi: int) -> I64:
    """Integers in [lo, hi): a word modulo the range, taken from 64 bits when the range is wide."""
    if lo >= hi:
        raise RuntimeError(
            f"random_ expects 'from' to be less than 'to', but got from={lo} >= to={hi}"
        )
    span = hi - lo
    if span >= _WIDE_RANGE:
        steps = words.words64(n) % np.uint64(span)
    else:
        steps = (words.words32(n) % np.uint32(span)).astype(np.uint64)
    return (steps + np.uint64(lo % 2**64)).view(np.int64)  # wraps as two's complement does


def _unsupported(n: int, kind: str, error: Exception) -> Array:
    """PyTorch looks for a kernel only when there is something to fill."""
    if n:
        raise error
    return store(np.empty(0), kind)


def _no_kernel(kernel: str, kind: str) -> NotImplementedError:
    return NotImplementedError(f"\"{kernel}\" not implemented for '{SPELLING[kind][1]}'")


def _natural(words: Words, n: int, kind: str) -> Array:
    """random_(): [0, largest] for integers, [0, 2^digits] for floats."""
    if kind in ("uint16", "uint32", "uint64"):
        return _unsupported(n, kind, _no_kernel("random_kernel_cpu", kind))
    if kind in ("float64", "int64"):
        wide = words.words64(n) % np.uint64(2**63 if kind == "int64" else 2**53 + 1)
        return store(wide.astype(np.int64), kind)
    if kind == "bool":
        return store((words.words32(n) & np.uint32(1)).astype(np.int64), kind)
    span = 2 ** DIGITS[kind] + 1 if kind in DIGITS else INT_RANGE[kind][1] + 1
    return store((words.words32(n) % np.uint32(span)).astype(np.int64), kind)


def _full_range(words: Words, n: int, kind: str) -> Array:
    """random_(from=-2^63, to=None): all 64 bits."""
    kernel = "random_full_64_bits_range_kernel_cpu"
    if kind in ("int64", "float64", "float32", "bfloat16"):
        return store(words.words64(n).view(np.int64), kind)
    if kind in ("int32", "int16", "int8", "uint8"):
        message = f"{kernel} handles only int64, double, float and bfloat16"
        return _unsupported(n, kind, RuntimeError(message))
    return _unsupported(n, kind, _no_kernel(kernel, kind))


def _inward(bound: int, probe: int, kind: str, side: int) -> int:
    """Move a bound to the next representable value when rounding would step over it.

    `probe` is the neighbour inside the range; `side` is 1 for the lower bound, -1 for the upper.
    """
    nearest = round_scalar(float(probe), kind)
    if not abs(nearest) < 2.0**63:
        return bound  # the C cast overflows to the lowest integer, which moves nothing
    rounded = int(nearest)
    over = rounded < bound if side == 1 else rounded >= bound
    if not over:
        return bound
    exponent = abs(probe).bit_length() - 1
    return rounded + side * (1 << (exponent - DIGITS[kind] + 1))


def _check_bounds(first: int, last: int, kind: str) -> None:
    """Refuse bounds that `kind` cannot hold, and warn where a float skips integers."""
    is_float = kind in DIGITS
    low, high = (-LARGEST[kind], LARGEST[kind]) if is_float else INT_RANGE[kind]
    for name, bound in (("from", first), ("to - 1", last)):
        if not low <= bound <= high:
            raise RuntimeError(f"{name} is out of bounds for {SPELLING[kind][0]}")
    digits = DIGITS.get(kind, 64)
    for name, bound in (("from", first), ("to - 1", last)):
        if abs(bound) > 1 << digits:
            notices.warn(
                f"{name} is out of bounds [-(2^{digits}), 2^{digits}]. Due to precision "
                f"limitations {SPELLING[kind][0]} can support discrete uniform distribution only "
                "within this range.",
                UserWarning,
                stacklevel=2,
            )


def _between(lo: int, hi: int, kind: str) -> tuple[int, int]:
    """The bounds random_(from, to) really uses."""
    if lo >= hi:
        raise RuntimeError(
            f"random_ expects 'from' to be less than 'to', but got from={lo} >= to={hi}"
        )
    if kind in DIGITS:
        lo, hi = _inward(lo, lo + 1, kind, 1), _inward(hi, hi - 1, kind, -1)
        if lo >= hi:
            raise RuntimeError(
                "random_ expects 'from' casted to dtype to be less than 'to' casted to dtype, "
                f"but got from={lo} >= to={hi}"
            )
    _check_bounds(lo, hi - 1, kind)
    return lo, hi


def _upwards(lo: int, kind: str) -> tuple[int, int]:
    """The bounds of random_(from, None): up to the largest value of the kind."""
    last = 1 << DIGITS[kind] if kind in DIGITS else INT_RANGE[kind][1]
    if kind == "uint64":
        last = -1  # its largest value does not fit the int64 that bounds travel in
    if kind in DIGITS:
        lo = _inward(lo, lo + 1, kind, 1)
        if lo >= last:
            raise RuntimeError(
                "random_ expects 'from' casted to dtype to be less than or equal to 'to_inc' "
                f"casted to dtype, but got from={lo} > to_inc={last}"
            )
    _check_bounds(lo, last, kind)
    return lo, last + 1


def random_full_range(
    words: Words, n: int, kind: str, lo: int | None = None, hi: int | None = None
) -> Array:
    """Tensor.random_(): no bounds, random_(to) as hi alone, random_(from, to), random_(from, None).

    The result has the dtype of `kind` (float32 standing for the narrow floats).
    """
    if kind not in SPELLING:
        raise NotImplementedError(f"\"random_kernel_cpu\" not implemented for '{kind}'")
    if hi is None and lo in (None, _INT64_MIN):
        return _natural(words, n, kind) if lo is None else _full_range(words, n, kind)
    lo = 0 if lo is None else lo
    first, end = _upwards(lo, kind) if hi is None else _between(lo, hi, kind)
    return store(randint(words, n, first, end), kind)
