"""Small tools of the distributions: broadcasting, lazy parameters, logits and triangles."""

from __future__ import annotations

from collections.abc import Callable
from functools import update_wrapper
from itertools import count
from numbers import Number
from typing import Any

from lucerne._src.tensor import api as lu
from lucerne.nn import functional as F

EMPTY = lu.Size()
euler_constant = 0.57721566490153286060

__all__ = [
    "broadcast_all",
    "clamp_probs",
    "lazy_property",
    "logits_to_probs",
    "probs_to_logits",
    "tril_matrix_to_vec",
    "vec_to_tril_matrix",
]


def broadcast_all(*values: Any) -> tuple[Any, ...]:
    """Numbers and tensors as tensors of one shape; numbers take the first tensor's dtype."""
    tensors = [isinstance(v, lu.Tensor) or hasattr(v, "__torch_function__") for v in values]
    if not all(t or isinstance(v, Number) for t, v in zip(tensors, values, strict=True)):
        raise ValueError(
            "Input arguments must all be instances of Number, "
            "torch.Tensor or objects implementing __torch_function__."
        )
    first = next((v for t, v in zip(tensors, values, strict=True) if t), None)
    like: dict[str, Any] = {"dtype": lu.get_default_dtype()}
    if isinstance(first, lu.Tensor):
        like = {"dtype": first.dtype, "device": first.device}
    whole = (v if t else lu.tensor(v, **like) for t, v in zip(tensors, values, strict=True))
    return tuple(lu.broadcast_tensors(*whole))


def one_of(probs: Any, logits: Any) -> None:
    """Raise unless exactly one of the two parametrisations was given."""
    if (probs is None) == (logits is None):
        raise ValueError("Either `probs` or `logits` must be specified, but not both.")


def _standard_normal(shape: Any, dtype: Any, device: Any) -> Any:
    return lu.empty(tuple(shape), dtype=dtype, device=device).normal_()


def _sum_rightmost(value: Any, dim: int) -> Any:
    """Sum out the `dim` rightmost dimensions."""
    return value if dim == 0 else value.reshape((*value.shape[:-dim], -1)).sum(-1)


def logits_to_probs(logits: Any, is_binary: bool = False) -> Any:
    """Probabilities of log-odds, or of unnormalised log-probabilities in the last dimension."""
    return lu.sigmoid(logits) if is_binary else F.softmax(logits, dim=-1)


def clamp_probs(probs: Any) -> Any:
    """Probabilities moved off 0 and 1 by one rounding step."""
    eps = lu.finfo(probs.dtype).eps
    return probs.clamp(min=eps, max=1 - eps)


def probs_to_logits(probs: Any, is_binary: bool = False) -> Any:
    """Log-odds of probabilities, or their logarithms."""
    safe = clamp_probs(probs)
    return lu.log(safe) - lu.log1p(-safe) if is_binary else lu.log(safe)


def reads(path: str) -> Any:
    """A property that is another attribute, or an attribute of one: `mean = reads("loc")`."""
    names = path.split(".")

    def read(self: Any) -> Any:  # plain Python, which a compiled function looks into
        for name in names:
            self = getattr(self, name)
        return self

    return property(read)


class lazy_property:
    """An attribute computed from others when it is first read, and kept from then on.

    The value is recorded for autograd even when the first reader works under `no_grad`.
    """

    def __init__(self, wrapped: Callable[[Any], Any]) -> None:
        self.wrapped = wrapped
        update_wrapper(self, wrapped)  # type: ignore[arg-type]

    def __get__(self, instance: Any, obj_type: Any = None) -> Any:
        if instance is None:
            return _lazy_property_and_property(self.wrapped)
        with lu.enable_grad():
            value = self.wrapped(instance)
        setattr(instance, self.wrapped.__name__, value)
        return value


class _lazy_property_and_property(lazy_property, property):
    """What a lazy property is on the class: both kinds, so that checks for either succeed."""

    def __init__(self, wrapped: Callable[[Any], Any]) -> None:
        property.__init__(self, wrapped)


class ProbsOrLogits:
    """Of a distribution that is told by probabilities or by log-odds: the other of the two."""

    _is_binary = True
    """Log-odds; otherwise the logarithms of probabilities that add up to one."""
    _param: Any

    def _new(self, *args: Any, **kwargs: Any) -> Any:
        return self._param.new(*args, **kwargs)

    @lazy_property
    def logits(self) -> Any:
        return probs_to_logits(self.probs, self._is_binary)

    @lazy_property
    def probs(self) -> Any:
        return logits_to_probs(self.logits, self._is_binary)

    @property
    def param_shape(self) -> Any:
        return self._param.size()


def tril_matrix_to_vec(mat: Any, diag: int = 0) -> Any:
    """The lower triangles of (batched) square matrices, row by row, as vectors."""
    n = mat.shape[-1]
    if diag < -n or diag >= n:
        raise ValueError(f"diag ({diag}) provided is outside [{-n}, {n - 1}].")
    rows, columns = lu.tril_indices(n, n, offset=diag)
    return mat[..., rows, columns]


def _triangle(n: int, diag: int) -> int:
    """How many elements of an n x n matrix lie on or below a diagonal."""
    if diag <= 0:
        return (n + diag) * (n + diag + 1) // 2
    corner = max(n - 1 - diag, 0)
    return n * n - corner * (corner + 1) // 2


def vec_to_tril_matrix(vec: Any, diag: int = 0) -> Any:
    """The inverse of `tril_matrix_to_vec`: vectors as lower triangles of square matrices."""
    length = vec.shape[-1]
    n = next(n for n in count(max(-diag, 1)) if _triangle(n, diag) >= length)
    if _triangle(n, diag) != length:
        raise ValueError(
            f"The size of last dimension is {length} which cannot be expressed as "
            "the lower triangular part of a square D x D matrix."
        )
    matrix = vec.new_zeros((*vec.shape[:-1], n, n))
    rows, columns = lu.tril_indices(n, n, offset=diag)
    matrix[..., rows, columns] = vec
    return matrix
