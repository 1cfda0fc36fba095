"""Random correlation matrices."""

from __future__ import annotations

import math
from typing import Any

from lucerne._src.tensor import api as lu
from lucerne.distributions import constraints
from lucerne.distributions.beta import Beta
from lucerne.distributions.distribution import Distribution
from lucerne.distributions.utils import EMPTY, broadcast_all

__all__ = ["LKJCholesky"]


class LKJCholesky(Distribution):
    """Cholesky factors of correlation matrices with density `det(matrix)^(concentration - 1)`.

    Drawn by the onion method (Lewandowski, Kurowicka and Joe, 2009): each row is a point inside
    the unit ball, its radius beta, its direction uniform.

    >>> import lucerne
    >>> lucerne.distributions.LKJCholesky(3, 0.5).sample().shape
    torch.Size([3, 3])
    """

    arg_constraints = {"concentration": constraints.positive}
    support = constraints.corr_cholesky

    def __init__(
        self, dim: int, concentration: Any = 1.0, validate_args: bool | None = None
    ) -> None:
        if dim < 2:
            raise ValueError(
                f"Expected dim to be an integer greater than or equal to 2. Found dim={dim}."
            )
        self.dim = dim
        (self.concentration,) = broadcast_all(concentration)
        like = {"dtype": self.concentration.dtype, "device": self.concentration.device}
        rows = lu.arange(dim, **like)
        above = (rows - 1).clamp(min=0)
        marginal = self.concentration + 0.5 * (dim - 2)
        self._beta = Beta(above + 0.5, marginal.unsqueeze(-1) - 0.5 * above)
        event = lu.Size((dim, dim))
        super().__init__(self.concentration.size(), event, validate_args)

    def expand(self, batch_shape: Any, _instance: Any = None) -> Any:
        new = self._get_checked_instance(LKJCholesky, _instance)
        batch_shape = lu.Size(batch_shape)
        new.dim = self.dim
        new.concentration = self.concentration.expand(batch_shape)
        new._beta = self._beta.expand((*batch_shape, self.dim))
        return self._expanded(new, batch_shape)

    def sample(self, sample_shape: Any = EMPTY) -> Any:
        squared_radius = self._beta.sample(sample_shape).unsqueeze(-1)
        like = {"dtype": squared_radius.dtype, "device": squared_radius.device}
        normal = lu.randn(self._extended_shape(sample_shape), **like).tril(-1)
        direction = normal / normal.norm(dim=-1, keepdim=True)
        direction[..., 0, :].fill_(0.0)  # the first row has no direction
        rows = lu.sqrt(squared_radius) * direction
        tiny = lu.finfo(rows.dtype).tiny
        return rows + lu.diag_embed(lu.clamp(1 - lu.sum(rows**2, dim=-1), min=tiny).sqrt())

    def log_prob(self, value: Any) -> Any:
        """The diagonal of the factor, to powers that fall from row to row."""
        self._check_value(value)
        diagonal = value.diagonal(dim1=-1, dim2=-2)[..., 1:]
        rows = lu.arange(2, self.dim + 1, device=self.concentration.device)
        order = 2 * (self.concentration - 1).unsqueeze(-1) + self.dim - rows
        weights = lu.sum(order * diagonal.log(), dim=-1)
        alpha = self.concentration + 0.5 * (self.dim - 1)
        n = self.dim - 1
        normalizer = (
            0.5 * n * math.log(math.pi) + lu.mvlgamma(alpha - 0.5, n) - lu.lgamma(alpha) * n
        )
        return weights - normalizer
