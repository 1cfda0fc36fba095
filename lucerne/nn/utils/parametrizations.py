"""Ready-made parametrisations: orthogonal, spectral norm, weight norm."""

from __future__ import annotations

from enum import Enum, auto
from typing import Any

from lucerne import linalg
from lucerne._src.tensor import api as lu
from lucerne.nn import functional as F
from lucerne.nn.modules.conv import ConvTranspose1d, ConvTranspose2d, ConvTranspose3d
from lucerne.nn.modules.module import Module
from lucerne.nn.utils import norms, parametrize


def _is_orthogonal(q: Any, eps: float | None = None) -> bool:
    n, k = q.size(-2), q.size(-1)
    identity = lu.eye(k, dtype=q.dtype, device=q.device)
    limit = 10.0 * n * lu.finfo(q.dtype).eps if eps is None else eps
    return bool(lu.allclose(q.mH @ q, identity, atol=limit))


def _make_orthogonal(a: Any) -> Any:
    """The orthogonal factor of `a`, with signs such that it is unique."""
    x, tau = lu.geqrf(a)
    q = linalg.householder_product(x, tau)
    return q * x.diagonal(dim1=-2, dim2=-1).sgn().unsqueeze(-2)


class _OrthMaps(Enum):
    matrix_exp = auto()
    cayley = auto()
    householder = auto()


class _Orthogonal(Module):
    """A matrix whose columns (or rows, if there are fewer) are orthonormal.

    With a `base`, the parameter describes the way from the base to the matrix, and starts at zero.
    """

    base: Any

    def __init__(
        self, weight: Any, orthogonal_map: _OrthMaps, *, use_trivialization: bool = True
    ) -> None:
        super().__init__()
        if weight.is_complex() and orthogonal_map is _OrthMaps.householder:
            raise ValueError("The householder parametrization does not support complex tensors.")
        self.shape = weight.shape
        self.orthogonal_map = orthogonal_map
        if use_trivialization:
            self.register_buffer("base", None)

    def forward(self, X: Any) -> Any:
        transposed = X.size(-2) < X.size(-1)
        x = X.mT if transposed else X
        q = self._reflect(x) if self.orthogonal_map is _OrthMaps.householder else self._rotate(x)
        if hasattr(self, "base"):
            q = self.base @ q
        return q.mT if transposed else q

    def _rotate(self, x: Any) -> Any:
        """From a skew matrix, by its exponential or by the Cayley map."""
        n, k = x.size(-2), x.size(-1)
        x = x.tril()
        if n != k:
            zeros = x.new_zeros(n, n - k).expand(*x.shape[:-2], -1, -1)
            x = lu.cat([x, zeros], dim=-1)
        a = x - x.mH
        if self.orthogonal_map is _OrthMaps.matrix_exp:
            q = lu.matrix_exp(a)
        else:
            identity = lu.eye(n, dtype=a.dtype, device=a.device)
            q = linalg.solve(lu.add(identity, a, alpha=-0.5), lu.add(identity, a, alpha=0.5))
        return q[..., :k] if n != k else q

    def _reflect(self, x: Any) -> Any:
        """From Householder vectors below the diagonal and signs on it."""
        a = x.tril(diagonal=-1)
        tau = 2.0 / (1.0 + (a * a).sum(dim=-2))
        q = linalg.householder_product(a, tau)
        return q * x.diagonal(dim1=-2, dim2=-1).int().unsqueeze(-2)

    def right_inverse(self, Q: Any) -> Any:
        """A parameter for (a matrix near) `Q`."""
        if Q.shape != self.shape:
            raise ValueError(
                f"Expected a matrix or batch of matrices of shape {self.shape}. Got a tensor of "
                f"shape {Q.shape}."
            )
        transposed = Q.size(-2) < Q.size(-1)
        q = Q.mT if transposed else Q
        n, k = q.size(-2), q.size(-1)
        if not hasattr(self, "base"):
            if self.orthogonal_map is not _OrthMaps.householder:
                raise NotImplementedError(
                    "It is not possible to assign to the matrix exponential or the Cayley "
                    "parametrizations when use_trivialization=False."
                )
            a, tau = lu.geqrf(q)
            diagonal = a.diagonal(dim1=-2, dim2=-1)
            diagonal.copy_(lu.where(tau == 0.0, -diagonal.sign(), diagonal.sign()))
            return a.mT if transposed else a
        if n != k:
            more = lu.randn(*q.size()[:-2], n, n - k, dtype=q.dtype, device=q.device)
            q = _make_orthogonal(lu.cat([q, more], dim=-1))
        else:
            q = q.clone() if _is_orthogonal(q) else _make_orthogonal(q)
        self.base = q
        negative = lu.zeros_like(Q)
        negative.diagonal(dim1=-2, dim2=-1).fill_(-1.0)
        return negative


def orthogonal(
    module: Any,
    name: str = "weight",
    orthogonal_map: str | None = None,
    *,
    use_trivialization: bool = True,
) -> Any:
    """Keep a weight orthogonal (unitary) by a parametrisation.

    >>> import lucerne as torch
    >>> from lucerne.nn.utils.parametrizations import orthogonal
    >>> w = orthogonal(torch.nn.Linear(3, 3)).weight
    >>> torch.allclose(w @ w.T, torch.eye(3), atol=1e-5)
    True
    """
    weight = getattr(module, name, None)
    if not isinstance(weight, lu.Tensor):
        raise ValueError(f"Module '{module}' has no parameter or buffer with name '{name}'")
    if weight.dim() < 2:
        raise ValueError(
            f"Expected a matrix or batch of matrices. Got a tensor of {weight.dim()} dimensions."
        )
    if orthogonal_map is None:
        square = weight.size(-2) == weight.size(-1)
        orthogonal_map = "matrix_exp" if square or weight.is_complex() else "householder"
    kind = getattr(_OrthMaps, orthogonal_map, None)
    if kind is None:
        raise ValueError(
            'orthogonal_map has to be one of "matrix_exp", "cayley", "householder". '
            f"Got: {orthogonal_map}"
        )
    made = _Orthogonal(weight, kind, use_trivialization=use_trivialization)
    parametrize.register_parametrization(module, name, made, unsafe=True)
    return module


class _WeightNorm(Module):
    """A weight as length times direction."""

    def __init__(self, dim: int | None = 0) -> None:
        super().__init__()
        self.dim = -1 if dim is None else dim

    def forward(self, weight_g: Any, weight_v: Any) -> Any:
        return norms.weight_norm(weight_v, weight_g, self.dim)

    def right_inverse(self, weight: Any) -> tuple[Any, Any]:
        """Length and direction of a weight."""
        return norms.norm_except_dim(weight, 2, self.dim), weight


def weight_norm(module: Any, name: str = "weight", dim: int = 0) -> Any:
    """Train length and direction of a weight apart; state dicts of the old form load, too."""
    parametrize.register_parametrization(module, name, _WeightNorm(dim), unsafe=True)

    def rename_old_keys(state_dict: Any, prefix: str, *rest: Any) -> None:
        old_g, old_v = f"{prefix}{name}_g", f"{prefix}{name}_v"
        if old_g in state_dict and old_v in state_dict:
            start = f"{prefix}parametrizations.{name}.original"
            state_dict[f"{start}0"] = state_dict.pop(old_g)
            state_dict[f"{start}1"] = state_dict.pop(old_v)

    module._register_load_state_dict_pre_hook(rename_old_keys)
    return module


class _SpectralNorm(Module):
    """A weight divided by its largest singular value, which power iteration keeps track of."""

    _u: Any
    _v: Any

    def __init__(
        self, weight: Any, n_power_iterations: int = 1, dim: int = 0, eps: float = 1e-12
    ) -> None:
        super().__init__()
        ndim = weight.dim()
        if dim >= ndim or dim < -ndim:
            raise IndexError(
                f"Dimension out of range (expected to be in range of [-{ndim}, {ndim - 1}] but got "
                f"{dim})"
            )
        if n_power_iterations <= 0:
            raise ValueError(
                "Expected n_power_iterations to be positive, but got "
                f"n_power_iterations={n_power_iterations}"
            )
        self.dim = dim if dim >= 0 else dim + ndim
        self.eps = eps
        if ndim > 1:
            self.n_power_iterations = n_power_iterations
            matrix = self._reshape_weight_to_matrix(weight).detach()
            u = matrix.new_empty(matrix.size(0)).normal_(0, 1)
            v = matrix.new_empty(matrix.size(1)).normal_(0, 1)
            self.register_buffer("_u", F.normalize(u, dim=0, eps=eps))
            self.register_buffer("_v", F.normalize(v, dim=0, eps=eps))
            self._power_method(matrix, 15)

    def _reshape_weight_to_matrix(self, weight: Any) -> Any:
        return norms.as_matrix(weight, self.dim)

    def _power_method(self, weight_mat: Any, n_power_iterations: int) -> None:
        norms.power_method(weight_mat, self._u, self._v, n_power_iterations, self.eps)

    def forward(self, weight: Any) -> Any:
        if weight.dim() == 1:
            return F.normalize(weight, dim=0, eps=self.eps)
        matrix = self._reshape_weight_to_matrix(weight)
        if self.training:
            self._power_method(matrix, self.n_power_iterations)
        # Copies: the next forward writes over the vectors, and this backward still needs them.
        u, v = self._u.clone(), self._v.clone()
        return weight / lu.vdot(u, lu.mv(matrix, v))

    def right_inverse(self, value: Any) -> Any:
        """The value itself: it may already have norm one."""
        return value


def spectral_norm(
    module: Any,
    name: str = "weight",
    n_power_iterations: int = 1,
    eps: float = 1e-12,
    dim: int | None = None,
) -> Any:
    """Keep the largest singular value of a weight at one."""
    weight = getattr(module, name, None)
    if not isinstance(weight, lu.Tensor):
        raise ValueError(f"Module '{module}' has no parameter or buffer with name '{name}'")
    if dim is None:
        dim = norms.out_dim(module, (ConvTranspose1d, ConvTranspose2d, ConvTranspose3d))
    made = _SpectralNorm(weight, n_power_iterations, dim, eps)
    parametrize.register_parametrization(module, name, made)
    return module
