"""Layers that measure how far or how alike two inputs are."""

from __future__ import annotations

from lucerne._src.tensor.tensor import Tensor
from lucerne.nn import functional as F
from lucerne.nn.modules.module import Module


class PairwiseDistance(Module):
    """The p-norm of the difference of each pair of rows.

    >>> import lucerne as torch
    >>> torch.nn.PairwiseDistance(p=1.0, eps=0.0)(torch.zeros(2, 3), torch.ones(2, 3))
    tensor([3., 3.])
    """

    __constants__ = ["norm", "eps", "keepdim"]
    norm: float
    eps: float
    keepdim: bool

    def __init__(self, p: float = 2.0, eps: float = 1e-6, keepdim: bool = False) -> None:
        super().__init__()
        self.norm = p
        self.eps = eps
        self.keepdim = keepdim

    def forward(self, x1: Tensor, x2: Tensor) -> Tensor:
        """One distance for each pair."""
        return F.pairwise_distance(x1, x2, self.norm, self.eps, self.keepdim)


class CosineSimilarity(Module):
    """The cosine of the angle between two inputs along a dimension.

    >>> import lucerne as torch
    >>> torch.nn.CosineSimilarity()(torch.tensor([[1.0, 0.0]]), torch.tensor([[0.0, 1.0]]))
    tensor([0.])
    """

    __constants__ = ["dim", "eps"]
    dim: int
    eps: float

    def __init__(self, dim: int = 1, eps: float = 1e-8) -> None:
        super().__init__()
        self.dim = dim
        self.eps = eps

    def forward(self, x1: Tensor, x2: Tensor) -> Tensor:
        """One similarity for each pair."""
        return F.cosine_similarity(x1, x2, self.dim, self.eps)
