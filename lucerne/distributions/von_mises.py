"""The von Mises distribution."""

from __future__ import annotations

import math
from typing import Any

from lucerne import special
from lucerne._src.tensor import api as lu
from lucerne.distributions import constraints
from lucerne.distributions.distribution import Distribution
from lucerne.distributions.utils import EMPTY, broadcast_all, lazy_property, reads

__all__ = ["VonMises"]


def _log_bessel(x: Any, order: int) -> Any:
    """The log of the modified Bessel function of order 0 or 1."""
    scaled = special.i0e(x) if order == 0 else special.i1e(x)
    return scaled.log() + x


class VonMises(Distribution):
    """Angles around `loc`: a bell curve on the circle.

    >>> import lucerne
    >>> one = lucerne.tensor(1.0)
    >>> lucerne.distributions.VonMises(one, one).mean
    tensor(1.)
    """

    arg_constraints = {"loc": constraints.real, "concentration": constraints.positive}
    support = constraints.real
    has_rsample = False
    _batched = {"loc": 0, "concentration": 0}

    def __init__(self, loc: Any, concentration: Any, validate_args: bool | None = None) -> None:
        self.loc, self.concentration = broadcast_all(loc, concentration)
        super().__init__(self.loc.shape, EMPTY, validate_args=validate_args)

    def log_prob(self, value: Any) -> Any:
        self._check_value(value)
        bell = self.concentration * lu.cos(value - self.loc)
        return bell - math.log(2 * math.pi) - _log_bessel(self.concentration, 0)

    @lazy_property
    def _loc(self) -> Any:
        return self.loc.to(lu.double)

    @lazy_property
    def _concentration(self) -> Any:
        return self.concentration.to(lu.double)

    @lazy_property
    def _proposal_r(self) -> Any:
        """The wrapped Cauchy that envelops the density (Best and Fisher, 1979)."""
        k = self._concentration
        tau = 1 + (1 + 4 * k**2).sqrt()
        rho = (tau - (2 * tau).sqrt()) / (2 * k)
        return lu.where(k < 1e-5, 1 / k + k, (1 + rho**2) / (2 * rho))

    def sample(self, sample_shape: Any = EMPTY) -> Any:
        """By rejection, in float64: all places try until all have succeeded."""
        with lu.no_grad():
            shape = self._extended_shape(sample_shape)
            angle = lu.empty(shape, dtype=self._loc.dtype, device=self.loc.device)
            k, r = self._concentration.expand(shape), self._proposal_r.expand(shape)
            done = lu.zeros(shape, dtype=lu.bool, device=self.loc.device)
            while not bool(done.all()):
                u = lu.rand((3, *shape), dtype=self._loc.dtype, device=self.loc.device)
                u1, u2, u3 = u.unbind()
                z = lu.cos(math.pi * u1)
                f = (1 + r * z) / (r + z)
                c = k * (r - f)
                accept = ((c * (2 - c) - u2) > 0) | ((c / u2).log() + 1 - c >= 0)
                angle = lu.where(accept, (u3 - 0.5).sign() * f.acos(), angle)
                done = done | accept
            wrapped = (angle + math.pi + self._loc.expand(shape)) % (2 * math.pi) - math.pi
            return wrapped.to(self.loc.dtype)

    mean = mode = reads("loc")

    @lazy_property
    def variance(self) -> Any:
        """Circular: one minus the mean resultant length."""
        ratio = _log_bessel(self.concentration, 1) - _log_bessel(self.concentration, 0)
        return 1 - ratio.exp()
