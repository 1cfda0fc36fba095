"""Sums of squares that neither overflow nor vanish, about a mean whose rounding is taken out.

What an ordinary row does not need is summed under a condition that is the same for all of the row:
kernels leave out the walk over its numbers where the condition does not hold.
"""

from __future__ import annotations

from typing import Any

from lucerne._src.base import dtype as dt
from lucerne._src.ir.op import Tensor
from lucerne._src.ops.pointwise.select import choose
from lucerne._src.ops.reduce.folds import folded_count

_POWERS = {dt.float32: (-100, 90, -100), dt.float64: (-900, 800, -900)}
"""Powers of two: finite sums of squares are exact above the first; the others scale numbers whose
squares are not, so that they are."""
_NEAR = {dt.float32: 2.0**-16, dt.float64: 2.0**-70}
"""A variance less than this times the squared mean is not exact if the mean is rounded."""
_EXACT = {dt.float32: dt.float64, dt.complex64: dt.complex128}
_MANY = 1 << 16
"""What such a variance of many numbers is summed in. They have few digits, and squares of few
digits end in 0, 1, 4 or 9 sixteenths, which sums in the same type round down more often than up."""


def squared(x: Tensor) -> Tensor:
    """`|x|^2` of each element."""
    return (x * x.conj_physical()).real if x.is_complex() else x * x


def without_folded(found: Tensor, folded: Any, keepdim: bool) -> Tensor:
    """A result whose folded dimensions have size one, without them unless they are wanted."""
    if keepdim:
        return found
    return found.reshape([n for d, n in enumerate(found.shape) if d not in folded])


class _Units:
    """In which units the squares of a row are summed: `odd` is where it is not 1."""

    def __init__(self, total: Tensor) -> None:
        low, up, down = (2.0**k for k in _POWERS[total.dtype])
        self.odd = _exceeds(total, low).logical_not()
        self.low = low
        small, one = total <= low, (total >= 0).to(total.dtype)
        self.unit, self.back = (
            choose(small, a, choose(self.odd, b, one)) for a, b in ((up, down), (1 / up, 1 / down))
        )


def root_of_squares(x: Tensor, dim: Any) -> Tensor:
    """The root of the sum of squares over `dim`, which stays at size one."""
    total = squared(x).sum(dim, True)
    if total.dtype not in _POWERS:  # integers wrap, and nothing helps them
        return total.sqrt()
    units = _Units(total)
    again = choose(units.odd, squared(x * units.unit), 0).sum(dim, True)
    return choose(units.odd, again.sqrt() * units.back, total.sqrt())


def centred_squares(wide: Tensor, dim: Any) -> Tensor:
    """The sum over `dim`, which stays at size one, of squared distances from the mean."""
    mean, away, total = _about_mean(wide, dim)
    near = total <= _nearness(total, mean, wide, dim)
    exact = _exact(away, dim)
    again = total if exact is away else choose(near, squared(exact), 0).sum(dim, True)
    slip = choose(near, exact, 0).sum(dim, True)
    near = near & (total != float("inf"))  # not inf - inf
    return choose(near, _corrected(again, slip, wide, dim).to(total.dtype), total)


def root_of_centred_squares(wide: Tensor, dim: Any, freedom: float) -> Tensor:
    """The root of `centred_squares / freedom`, which may fit the type where that does not."""
    mean, away, total = _about_mean(wide, dim)
    units = _Units(total)
    rare = _exceeds(total, _nearness(total, mean, wide, dim) + units.low).logical_not()
    scaled = _exact(away * units.unit, dim)
    again, slip = (choose(rare, x, 0).sum(dim, True) for x in (squared(scaled), scaled))
    found = _corrected(again, slip, wide, dim).to(total.dtype)
    return choose(rare, (found / freedom).sqrt() * units.back, (total / freedom).sqrt())


def _about_mean(wide: Tensor, dim: Any) -> tuple[Tensor, Tensor, Tensor]:
    mean = wide.mean(dim, True)
    away = wide - mean
    return mean, away, squared(away).sum(dim, True)


def _exact(away: Tensor, dim: Any) -> Tensor:
    few = folded_count(away.shape, dim) < _MANY
    return away if few else away.to(_EXACT.get(away.dtype, away.dtype))


def _nearness(total: Tensor, mean: Tensor, wide: Tensor, dim: Any) -> Tensor:
    """Sums up to this are of numbers so near together that the rounding of their mean counts."""
    count = folded_count(wide.shape, dim)
    return squared(mean) * (count * _NEAR[total.dtype])


def _exceeds(total: Tensor, least: Any) -> Tensor:
    """Whether it is more than `least` and finite, by one comparison: every row asks it, and a row
    of eight numbers takes no longer than ten of them. An infinite total less itself is nan."""
    return total > (total - total) + least


def _corrected(total: Tensor, slip: Tensor, wide: Tensor, dim: Any) -> Tensor:
    """The mean is rounded: the sum of the distances, which should be zero, tells by how much.

    Of equal numbers the distances are a few units in the last place, whose sums are exact: the
    result is zero. Otherwise the difference may miss zero by less than its rounding: hence `abs`.
    """
    return (total - squared(slip) / max(folded_count(wide.shape, dim), 1)).abs()
