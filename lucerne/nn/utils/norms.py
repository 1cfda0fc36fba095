"""What weight norm and spectral norm compute, shared by their old and new forms."""

from __future__ import annotations

from typing import Any

from lucerne import linalg
from lucerne._src.tensor import api as lu
from lucerne.nn import functional as F


def norm_except_dim(v: Any, pow: int = 2, dim: int = 0) -> Any:
    """The norm over all dimensions but one, with size 1 where it went; over all if `dim` is -1."""
    if dim == -1:
        return linalg.vector_norm(v, pow)
    others = [d for d in range(v.dim()) if d != dim]
    return linalg.vector_norm(v, pow, dim=others, keepdim=True) if others else v.abs()


def weight_norm(v: Any, g: Any, dim: int = 0) -> Any:
    """`v` scaled to the norm `g`."""
    return v * (g / norm_except_dim(v, 2, dim))


def as_matrix(weight: Any, dim: int) -> Any:
    """The weight with `dim` as rows and everything else as columns."""
    if dim != 0:
        weight = weight.permute(dim, *[d for d in range(weight.dim()) if d != dim])
    return weight.reshape(weight.size(0), -1)


def power_method(matrix: Any, u: Any, v: Any, steps: int, eps: float) -> None:
    """Bring `u` and `v` closer to the first singular vectors, in place."""
    with lu.no_grad():
        for _ in range(steps):
            u.copy_(F.normalize(lu.mv(matrix, v), dim=0, eps=eps))
            v.copy_(F.normalize(lu.mv(matrix.H, u), dim=0, eps=eps))


def out_dim(module: Any, transposed: tuple[type, ...]) -> int:
    """The dimension of a weight that counts outputs."""
    return 1 if isinstance(module, transposed) else 0
