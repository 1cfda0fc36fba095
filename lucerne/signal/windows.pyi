# Made by `python -m tools.stubs` from the op table and the signatures of the package: do not edit.
"""`lucerne.signal.windows`: window functions, from the op table."""

from builtins import bool as _bool
from builtins import float as _float
from builtins import int as _int
from collections.abc import Iterable

from lucerne._src.base.dtype import dtype
from lucerne._src.base.layout import layout
from lucerne._src.tensor.declared import Device
from lucerne._src.tensor.tensor import Tensor

def bartlett(
    M: _int,
    *,
    sym: _bool = True,
    dtype: dtype | None = None,
    layout: layout | None = ...,
    device: Device | None = None,
    requires_grad: _bool = False,
) -> Tensor: ...
def blackman(
    M: _int,
    *,
    sym: _bool = True,
    dtype: dtype | None = None,
    layout: layout | None = ...,
    device: Device | None = None,
    requires_grad: _bool = False,
) -> Tensor: ...
def cosine(
    M: _int,
    *,
    sym: _bool = True,
    dtype: dtype | None = None,
    layout: layout | None = ...,
    device: Device | None = None,
    requires_grad: _bool = False,
) -> Tensor: ...
def exponential(
    M: _int,
    *,
    center: _float | None = None,
    tau: _float = 1.0,
    sym: _bool = True,
    dtype: dtype | None = None,
    layout: layout | None = ...,
    device: Device | None = None,
    requires_grad: _bool = False,
) -> Tensor: ...
def gaussian(
    M: _int,
    *,
    std: _float = 1.0,
    sym: _bool = True,
    dtype: dtype | None = None,
    layout: layout | None = ...,
    device: Device | None = None,
    requires_grad: _bool = False,
) -> Tensor: ...
def general_cosine(
    M: _int,
    *,
    a: Iterable[_float],
    sym: _bool = True,
    dtype: dtype | None = None,
    layout: layout | None = ...,
    device: Device | None = None,
    requires_grad: _bool = False,
) -> Tensor: ...
def general_hamming(
    M: _int,
    *,
    alpha: _float = 0.54,
    sym: _bool = True,
    dtype: dtype | None = None,
    layout: layout | None = ...,
    device: Device | None = None,
    requires_grad: _bool = False,
) -> Tensor: ...
def hamming(
    M: _int,
    *,
    sym: _bool = True,
    dtype: dtype | None = None,
    layout: layout | None = ...,
    device: Device | None = None,
    requires_grad: _bool = False,
) -> Tensor: ...
def hann(
    M: _int,
    *,
    sym: _bool = True,
    dtype: dtype | None = None,
    layout: layout | None = ...,
    device: Device | None = None,
    requires_grad: _bool = False,
) -> Tensor: ...
def kaiser(
    M: _int,
    *,
    beta: _float = 12.0,
    sym: _bool = True,
    dtype: dtype | None = None,
    layout: layout | None = ...,
    device: Device | None = None,
    requires_grad: _bool = False,
) -> Tensor: ...
def nuttall(
    M: _int,
    *,
    sym: _bool = True,
    dtype: dtype | None = None,
    layout: layout | None = ...,
    device: Device | None = None,
    requires_grad: _bool = False,
) -> Tensor: ...
