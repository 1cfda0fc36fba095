# Made by `python -m tools.stubs` from the op table and the signatures of the package: do not edit.
"""`lucerne.fft`: the ops of that namespace, from the table."""

from builtins import bool as _bool
from builtins import float as _float
from builtins import int as _int

from lucerne._src.base.dtype import dtype
from lucerne._src.base.layout import layout
from lucerne._src.tensor.declared import Device, Sizes
from lucerne._src.tensor.tensor import Tensor as Tensor

def fft(
    input: Tensor,
    n: _int | None = None,
    dim: _int = -1,
    norm: str | None = None,
    *,
    out: Tensor | None = None,
) -> Tensor: ...
def fft2(
    input: Tensor,
    s: Sizes | None = None,
    dim: Sizes = (-2, -1),
    norm: str | None = None,
    *,
    out: Tensor | None = None,
) -> Tensor: ...
def fftfreq(
    n: _int,
    d: _float = 1.0,
    *,
    out: Tensor | None = None,
    dtype: dtype | None = None,
    layout: layout | None = None,
    device: Device | None = None,
    requires_grad: _bool = False,
    pin_memory: _bool | None = False,
) -> Tensor: ...
def fftn(
    input: Tensor,
    s: Sizes | None = None,
    dim: Sizes | None = None,
    norm: str | None = None,
    *,
    out: Tensor | None = None,
) -> Tensor: ...
def fftshift(input: Tensor, dim: Sizes | None = None) -> Tensor: ...
def hfft(
    input: Tensor,
    n: _int | None = None,
    dim: _int = -1,
    norm: str | None = None,
    *,
    out: Tensor | None = None,
) -> Tensor: ...
def hfft2(
    input: Tensor,
    s: Sizes | None = None,
    dim: Sizes = (-2, -1),
    norm: str | None = None,
    *,
    out: Tensor | None = None,
) -> Tensor: ...
def hfftn(
    input: Tensor,
    s: Sizes | None = None,
    dim: Sizes | None = None,
    norm: str | None = None,
    *,
    out: Tensor | None = None,
) -> Tensor: ...
def ifft(
    input: Tensor,
    n: _int | None = None,
    dim: _int = -1,
    norm: str | None = None,
    *,
    out: Tensor | None = None,
) -> Tensor: ...
def ifft2(
    input: Tensor,
    s: Sizes | None = None,
    dim: Sizes = (-2, -1),
    norm: str | None = None,
    *,
    out: Tensor | None = None,
) -> Tensor: ...
def ifftn(
    input: Tensor,
    s: Sizes | None = None,
    dim: Sizes | None = None,
    norm: str | None = None,
    *,
    out: Tensor | None = None,
) -> Tensor: ...
def ifftshift(input: Tensor, dim: Sizes | None = None) -> Tensor: ...
def ihfft(
    input: Tensor,
    n: _int | None = None,
    dim: _int = -1,
    norm: str | None = None,
    *,
    out: Tensor | None = None,
) -> Tensor: ...
def ihfft2(
    input: Tensor,
    s: Sizes | None = None,
    dim: Sizes = (-2, -1),
    norm: str | None = None,
    *,
    out: Tensor | None = None,
) -> Tensor: ...
def ihfftn(
    input: Tensor,
    s: Sizes | None = None,
    dim: Sizes | None = None,
    norm: str | None = None,
    *,
    out: Tensor | None = None,
) -> Tensor: ...
def irfft(
    input: Tensor,
    n: _int | None = None,
    dim: _int = -1,
    norm: str | None = None,
    *,
    out: Tensor | None = None,
) -> Tensor: ...
def irfft2(
    input: Tensor,
    s: Sizes | None = None,
    dim: Sizes = (-2, -1),
    norm: str | None = None,
    *,
    out: Tensor | None = None,
) -> Tensor: ...
def irfftn(
    input: Tensor,
    s: Sizes | None = None,
    dim: Sizes | None = None,
    norm: str | None = None,
    *,
    out: Tensor | None = None,
) -> Tensor: ...
def rfft(
    input: Tensor,
    n: _int | None = None,
    dim: _int = -1,
    norm: str | None = None,
    *,
    out: Tensor | None = None,
) -> Tensor: ...
def rfft2(
    input: Tensor,
    s: Sizes | None = None,
    dim: Sizes = (-2, -1),
    norm: str | None = None,
    *,
    out: Tensor | None = None,
) -> Tensor: ...
def rfftfreq(
    n: _int,
    d: _float = 1.0,
    *,
    out: Tensor | None = None,
    dtype: dtype | None = None,
    layout: layout | None = None,
    device: Device | None = None,
    requires_grad: _bool = False,
    pin_memory: _bool | None = False,
) -> Tensor: ...
def rfftn(
    input: Tensor,
    s: Sizes | None = None,
    dim: Sizes | None = None,
    norm: str | None = None,
    *,
    out: Tensor | None = None,
) -> Tensor: ...
