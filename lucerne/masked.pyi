# Made by `python -m tools.stubs` from the op table and the signatures of the package: do not edit.
"""`lucerne.masked`: the ops of that namespace, from the table."""

from builtins import bool as _bool
from builtins import float as _float
from builtins import int as _int
from typing import Any

from lucerne._src.base.dtype import dtype
from lucerne._src.tensor.declared import Number, Sizes
from lucerne._src.tensor.tensor import Tensor

def _input_mask(input: Tensor, *args: Any, **kwargs: Any) -> Tensor: ...
def _output_mask(op: Any, input: Tensor, *args: Any, **kwargs: Any) -> Tensor: ...
def amax(
    input: Tensor,
    dim: Sizes | None = None,
    *,
    keepdim: _bool = False,
    dtype: dtype | None = None,
    mask: Any = None,
) -> Tensor: ...
def amin(
    input: Tensor,
    dim: Sizes | None = None,
    *,
    keepdim: _bool = False,
    dtype: dtype | None = None,
    mask: Any = None,
) -> Tensor: ...
def argmax(
    input: Tensor,
    dim: _int | None = None,
    *,
    keepdim: _bool = False,
    dtype: dtype | None = None,
    mask: Any = None,
) -> Tensor: ...
def argmin(
    input: Tensor,
    dim: _int | None = None,
    *,
    keepdim: _bool = False,
    dtype: dtype | None = None,
    mask: Any = None,
) -> Tensor: ...
def cumprod(
    input: Tensor, dim: _int, *, dtype: dtype | None = None, mask: Any = None
) -> Tensor: ...
def cumsum(input: Tensor, dim: _int, *, dtype: dtype | None = None, mask: Any = None) -> Tensor: ...
def log_softmax(
    input: Tensor, dim: _int, *, dtype: dtype | None = None, mask: Any = None
) -> Tensor: ...
def logaddexp(
    input: Tensor,
    other: Tensor,
    *,
    dtype: dtype | None = None,
    input_mask: Any = None,
    other_mask: Any = None,
) -> Tensor: ...
def logsumexp(
    input: Tensor,
    dim: Sizes | None = None,
    *,
    keepdim: _bool = False,
    dtype: dtype | None = None,
    mask: Any = None,
) -> Tensor: ...
def mean(
    input: Tensor,
    dim: Sizes | None = None,
    *,
    keepdim: _bool = False,
    dtype: dtype | None = None,
    mask: Any = None,
) -> Tensor: ...
def median(
    input: Tensor,
    dim: _int = -1,
    *,
    keepdim: _bool = False,
    dtype: dtype | None = None,
    mask: Any = None,
) -> Tensor: ...
def norm(
    input: Tensor,
    ord: Number | None = 2.0,
    dim: Sizes | None = None,
    *,
    keepdim: _bool = False,
    dtype: dtype | None = None,
    mask: Any = None,
) -> Tensor: ...
def normalize(
    input: Tensor,
    ord: _float,
    dim: _int,
    *,
    eps: _float = 1e-12,
    dtype: dtype | None = None,
    mask: Any = None,
) -> Tensor: ...
def prod(
    input: Tensor,
    dim: _int | None = None,
    *,
    keepdim: _bool = False,
    dtype: dtype | None = None,
    mask: Any = None,
) -> Tensor: ...
def softmax(
    input: Tensor, dim: _int, *, dtype: dtype | None = None, mask: Any = None
) -> Tensor: ...
def softmin(
    input: Tensor, dim: _int, *, dtype: dtype | None = None, mask: Any = None
) -> Tensor: ...
def std(
    input: Tensor,
    dim: Sizes | None = None,
    unbiased: _bool | None = None,
    *,
    correction: Number | None = None,
    keepdim: _bool = False,
    dtype: dtype | None = None,
    mask: Any = None,
) -> Tensor: ...
def sum(
    input: Tensor,
    dim: Sizes | None = None,
    *,
    keepdim: _bool = False,
    dtype: dtype | None = None,
    mask: Any = None,
) -> Tensor: ...
def var(
    input: Tensor,
    dim: Sizes | None = None,
    unbiased: _bool | None = None,
    *,
    correction: Number | None = None,
    keepdim: _bool = False,
    dtype: dtype | None = None,
    mask: Any = None,
) -> Tensor: ...
