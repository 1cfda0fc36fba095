"""Exponential families: densities `h(x) exp(<eta, t(x)> - F(eta))`."""

from __future__ import annotations

from typing import Any

from lucerne._src.tensor.autograd.api import grad
from lucerne.distributions.distribution import Distribution

__all__ = ["ExponentialFamily"]


class ExponentialFamily(Distribution):
    """Entropy (and divergence) by differentiating the log-normaliser `F` at the natural parameters.

    A subclass gives `_natural_params`, `_log_normalizer` and the mean of `log h(x)`.
    """

    @property
    def _natural_params(self) -> tuple[Any, ...]:
        raise NotImplementedError

    def _log_normalizer(self, *natural_params: Any) -> Any:
        raise NotImplementedError

    @property
    def _mean_carrier_measure(self) -> Any:
        raise NotImplementedError

    def entropy(self) -> Any:
        """`F(eta) - <eta, grad F(eta)> - E[log h]`."""
        result = -self._mean_carrier_measure
        params = [p.detach().requires_grad_() for p in self._natural_params]
        normalizer = self._log_normalizer(*params)
        slopes = grad(normalizer.sum(), params, create_graph=True)
        result += normalizer
        for param, slope in zip(params, slopes, strict=True):
            result -= (param * slope).reshape((*self._batch_shape, -1)).sum(-1)
        return result
