"""Softmax and its kin: exponentials normalised along a dimension."""

from __future__ import annotations

from typing import Any

import numpy as np

from lucerne._src.base import defaults
from lucerne._src.base import dtype as dt
from lucerne._src.base import shape as sh
from lucerne._src.base.process import notices
from lucerne._src.ir.convert import Dtype, IntList
from lucerne._src.ir.define import composite, front
from lucerne._src.ir.op import Tensor
from lucerne._src.ops.checks import conj_of
from lucerne._src.ops.reduce.folds import restore


def _softmax_input(input: Tensor, dim: int, dtype: dt.dtype | None, name: str) -> Tensor:
    """The input as the type of the result, with torch's refusals."""
    sh.wrap_dim(dim, input.ndim)
    x = input if dtype is None else input.to(dtype)
    if not x.is_floating_point():
        last = "_lastdim" if dim in (-1, x.ndim - 1) else ""
        raise NotImplementedError(
            f"\"{name}{last}_kernel_impl\" not implemented for '{dt.cxx_name(x.dtype)}'"
        )
    return x


def _oracle_log_softmax(input: Any, dim: int, dtype: Any) -> Any:
    shifted = input - np.max(input, axis=dim, keepdims=True)
    return shifted - np.log(np.sum(np.exp(shifted), axis=dim, keepdims=True))


@composite(internal=True, opmath=True, out=False, fuse=True)
def softmax_double_backward(grad: Tensor, grad_output: Tensor, output: Tensor, dim: int) -> Tensor:
    """Gradient of `_softmax_backward_data` to the result of softmax."""
    inner = grad_output - (grad_output * output).sum(dim, True)
    return grad * inner - grad_output * (grad * output).sum(dim, True)


# The map is linear in `grad_output` and its own transpose: written so, not derived from the body,
# whose two parts would cancel to nan where the result is infinite.
@composite(
    opmath=True,
    out=False,
    fuse=True,
    vjp={
        "grad_output": lambda g, output, dim, input_dtype: _softmax_backward_data(
            g, output, dim, input_dtype
        ),
        "output": lambda g, grad_output, output, dim: softmax_double_backward(
            g, grad_output, output, dim
        ),
    },
)
def _softmax_backward_data(
    grad_output: Tensor, output: Tensor, dim: int, input_dtype: Dtype
) -> Tensor:
    """Gradient of softmax from its result."""
    # Not `g y - y sum`: two infinite products of large gradients would cancel to nan.
    return (grad_output - (grad_output * output).sum(dim, True)) * output


@composite(opmath=True, out=False, fuse=True)
def _log_softmax_backward_data(
    grad_output: Tensor, output: Tensor, dim: int, input_dtype: Dtype
) -> Tensor:
    """Gradient of log_softmax from its result."""
    return grad_output - output.exp() * grad_output.sum(dim, True)


@composite(
    method=True,
    out="exact",
    vjp={"input": lambda g, y, dim, y_meta: _softmax_backward_data(g, y, dim, y_meta.dtype)},
    oracle=lambda input, dim, dtype: np.exp(_oracle_log_softmax(input, dim, dtype)),
    fuse=True,
)
def softmax(input: Tensor, dim: int, dtype: Dtype | None = None) -> Tensor:
    """Exponentials that sum to one along `dim`.

    >>> import lucerne
    >>> lucerne.zeros(2, 4).softmax(dim=1)
    tensor([[0.2500, 0.2500, 0.2500, 0.2500],
            [0.2500, 0.2500, 0.2500, 0.2500]])
    """
    x = _softmax_input(input, dim, dtype, "softmax")
    if not x.numel():
        return x.clone()
    wide = x.to(x.dtype.compute)
    e = (wide - wide.amax(dim, True)).exp()
    return (e / e.sum(dim, True)).to(x.dtype)


@composite(
    method=True,
    out="exact",
    vjp={"input": lambda g, y, dim, y_meta: _log_softmax_backward_data(g, y, dim, y_meta.dtype)},
    oracle=_oracle_log_softmax,
    fuse=True,
)
def log_softmax(input: Tensor, dim: int, dtype: Dtype | None = None) -> Tensor:
    """Logarithm of softmax, without the rounding error of taking it afterwards."""
    x = _softmax_input(input, dim, dtype, "log_softmax")
    if not x.numel():
        return x.clone()
    wide = x.to(x.dtype.compute)
    shifted = wide - wide.amax(dim, True)
    return (shifted - shifted.exp().sum(dim, True).log()).to(x.dtype)


def _implicit_dim(name: str, ndim: int, stacklevel: int) -> int:
    notices.warn(
        f"Implicit dimension choice for {name} has been deprecated. Change the call to include "
        "dim=X as an argument.",
        stacklevel=stacklevel,
    )
    return 0 if ndim in (0, 1, 3) else 1


def _chosen(input: Tensor, dim: int | None, name: str, stacklevel: int) -> int:
    return _implicit_dim(name, input.ndim, stacklevel + 1) if dim is None else dim


@front(name="softmax", namespace="nn.functional")
def functional_softmax(
    input: Tensor, dim: int | None = None, _stacklevel: int = 3, dtype: Any = None
) -> Tensor:
    """Exponentials that sum to one along `dim`."""
    return softmax(input, _chosen(input, dim, "softmax", _stacklevel), dtype)


@front(name="log_softmax", namespace="nn.functional")
def functional_log_softmax(
    input: Tensor, dim: int | None = None, _stacklevel: int = 3, dtype: Any = None
) -> Tensor:
    """Logarithm of softmax along `dim`."""
    return log_softmax(input, _chosen(input, dim, "log_softmax", _stacklevel), dtype)


@front(namespace="nn.functional", torch=None)
def softmin(
    input: Tensor, dim: int | None = None, _stacklevel: int = 3, dtype: Any = None
) -> Tensor:
    """Softmax of the negated input: small values get the weight."""
    return softmax(-input, _chosen(input, dim, "softmin", _stacklevel), dtype)


@front(name="softmax", namespace="special")
def special_softmax(input: Tensor, dim: int, *, dtype: Any = None) -> Tensor:
    """Exponentials that sum to one along `dim`."""
    return softmax(input, dim, dtype)


@front(name="log_softmax", namespace="special")
def special_log_softmax(input: Tensor, dim: int, *, dtype: Any = None) -> Tensor:
    """Logarithm of softmax along `dim`."""
    return log_softmax(input, dim, dtype)


@front()
def _safe_softmax(input: Tensor, dim: int, dtype: Any = None) -> Tensor:
    """Softmax where a row of minus infinities gives zeros instead of nan."""
    found = softmax(input, dim, dtype)
    if not input.numel():
        return found
    return found.masked_fill(input.eq(float("-inf")).all(dim, True), 0)


# ---- logsumexp ---------------------------------------------------------------------------------


def _logsumexp_grad(g: Tensor, y: Tensor, input: Tensor, dim: Any, keepdim: bool) -> Tensor:
    if not input.numel():
        return restore(g, dim, keepdim, input._meta) * input
    g, y = (restore(t, dim, keepdim, input._meta) for t in (g, y))
    return g * conj_of((input - y).exp())


def _oracle_logsumexp(input: Any, dim: Any, keepdim: bool) -> Any:
    return np.log(np.sum(np.exp(input), axis=dim, keepdims=keepdim))


@composite(
    name="logsumexp",
    opmath=True,
    vjp={"input": _logsumexp_grad},
    oracle=_oracle_logsumexp,
    fuse=True,
)
def logsumexp_dims(input: Tensor, dim: IntList, keepdim: bool = False) -> Tensor:
    """Logarithm of the sum of exponentials, safe from overflow."""
    if not input.numel():
        return input.exp().sum(dim, keepdim).log()
    top = (input.real if input.is_complex() else input).amax(dim, True)
    top = top.masked_fill(top.abs().eq(float("inf")), 0)
    total = (input - top).exp().sum(dim, keepdim).log()
    return total + (top if keepdim else top.reshape(total.shape))


@front(method=True)
def logsumexp(input: Tensor, dim: Any, keepdim: bool = False, *, out: Any = None) -> Tensor:
    """Logarithm of the sum of exponentials over `dim`, safe from overflow.

    >>> import lucerne
    >>> lucerne.zeros(2, 1).logsumexp(dim=0)
    tensor([0.6931])
    """
    if dim is None:
        raise TypeError("logsumexp(): argument 'dim' (position 2) must be tuple of ints, not None")
    if input.dtype.category < dt.FLOAT:
        input = input.to(defaults.get_default_dtype())
    return logsumexp_dims(input, dim, keepdim, out=out)


@front(name="logsumexp", namespace="special")
def special_logsumexp(input: Tensor, dim: Any, keepdim: bool = False, *, out: Any = None) -> Tensor:
    """Logarithm of the sum of exponentials over `dim`."""
    return logsumexp(input, dim, keepdim, out=out)
