"""Window functions: `lucerne.signal.windows` and the older `lucerne.hann_window` and its kin."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

from lucerne._src.base import dtype as dt
from lucerne._src.base import layout as lo
from lucerne._src.base.defaults import get_default_dtype
from lucerne._src.base.refusals import no_pinned_memory
from lucerne._src.ir.define import front
from lucerne._src.ir.op import Tensor
from lucerne._src.ops.copy import join
from lucerne._src.ops.creation import fills, ranges
from lucerne._src.ops.pointwise import select
from lucerne._src.ops.special import functions

# What every window function of `lucerne.signal.windows` also takes.
Options = dict[str, Any]


def _options(
    name: str, length: int, dtype: Any, layout: Any, device: Any, requires_grad: bool
) -> Options:
    """Checked factory arguments."""
    dtype = dtype or get_default_dtype()
    if length < 0:
        raise ValueError(f"{name} requires non-negative window length, got M={length}")
    if layout is not lo.strided:
        raise ValueError(f"{name} is implemented for strided tensors only, got: {layout}")
    if dtype not in (dt.float32, dt.float64):
        raise ValueError(f"{name} expects float32 or float64 dtypes, got: {dtype}")
    return {"dtype": dtype, "device": device, "requires_grad": requires_grad}


def _line(start: float, constant: float, length: int, options: Options) -> Tensor:
    """`length` points from `start`, one apart, times `constant`."""
    end = (start + (length - 1)) * constant
    return ranges.linspace(start * constant, end, length, **options)


def _short(length: int, options: Options) -> Tensor:
    """Windows of no or one element."""
    return fills.ones((length,), **options)


@front(namespace="signal.windows")
def exponential(
    M: int,
    *,
    center: float | None = None,
    tau: float = 1.0,
    sym: bool = True,
    dtype: Any = None,
    layout: Any = lo.strided,
    device: Any = None,
    requires_grad: bool = False,
) -> Tensor:
    """Falls off as `exp(-|n - center| / tau)`."""
    options = _options("exponential", M, dtype, layout, device, requires_grad)
    if tau <= 0:
        raise ValueError(f"Tau must be positive, got: {tau} instead.")
    if sym and center is not None:
        raise ValueError("Center must be None for symmetric windows")
    if M == 0:
        return _short(M, options)
    if center is None:
        center = (M if not sym and M > 1 else M - 1) / 2.0
    return (-_line(-center, 1 / tau, M, options).abs()).exp()


@front(namespace="signal.windows")
def cosine(
    M: int,
    *,
    sym: bool = True,
    dtype: Any = None,
    layout: Any = lo.strided,
    device: Any = None,
    requires_grad: bool = False,
) -> Tensor:
    """Half a period of a sine."""
    options = _options("cosine", M, dtype, layout, device, requires_grad)
    if M == 0:
        return _short(M, options)
    return _line(0.5, math.pi / (M + 1 if not sym and M > 1 else M), M, options).sin()


@front(namespace="signal.windows")
def gaussian(
    M: int,
    *,
    std: float = 1.0,
    sym: bool = True,
    dtype: Any = None,
    layout: Any = lo.strided,
    device: Any = None,
    requires_grad: bool = False,
) -> Tensor:
    """The bell curve with standard deviation `std`."""
    options = _options("gaussian", M, dtype, layout, device, requires_grad)
    if std <= 0:
        raise ValueError(f"Standard deviation must be positive, got: {std} instead.")
    if M == 0:
        return _short(M, options)
    start = -(M if not sym and M > 1 else M - 1) / 2.0
    k = _line(start, 1 / (std * math.sqrt(2)), M, options)
    return (-(k * k)).exp()


@front(namespace="signal.windows")
def kaiser(
    M: int,
    *,
    beta: float = 12.0,
    sym: bool = True,
    dtype: Any = None,
    layout: Any = lo.strided,
    device: Any = None,
    requires_grad: bool = False,
) -> Tensor:
    """Kaiser's window, from a modified Bessel function."""
    options = _options("kaiser", M, dtype, layout, device, requires_grad)
    if beta < 0:
        raise ValueError(f"beta must be non-negative, got: {beta} instead.")
    if M < 2:
        return _short(M, options)
    # Rounded to the dtype first: else the root below may see a negative number.
    edge = fills.full((), beta, dtype=options["dtype"], device=device)
    step = 2.0 * edge / (M if not sym else M - 1)
    end = select.minimum(edge, -edge + (M - 1) * step)
    k = ranges.linspace(-edge, end, M, **options)
    i0 = functions.i0
    return i0((edge * edge - k * k).sqrt()) / i0(edge)


@front(namespace="signal.windows")
def bartlett(
    M: int,
    *,
    sym: bool = True,
    dtype: Any = None,
    layout: Any = lo.strided,
    device: Any = None,
    requires_grad: bool = False,
) -> Tensor:
    """A triangle."""
    options = _options("bartlett", M, dtype, layout, device, requires_grad)
    if M < 2:
        return _short(M, options)
    step = 2 / (M if not sym else M - 1)
    k = ranges.linspace(-1, -1 + (M - 1) * step, M, **options)
    return 1 - k.abs()


@front(namespace="signal.windows")
def general_cosine(
    M: int,
    *,
    a: Iterable[float],
    sym: bool = True,
    dtype: Any = None,
    layout: Any = lo.strided,
    device: Any = None,
    requires_grad: bool = False,
) -> Tensor:
    """Sum of cosines with weights `a` and alternating signs."""
    options = _options("general_cosine", M, dtype, layout, device, requires_grad)
    if M < 2:
        return _short(M, options)
    if not isinstance(a, Iterable):
        raise TypeError("Coefficients must be a list/tuple")
    if not a:
        raise ValueError("Coefficients cannot be empty")
    k = _line(0, 2 * math.pi / (M if not sym else M - 1), M, options)
    parts = [(k * i).cos() * ((-1) ** i * w) for i, w in enumerate(a)]
    return join.stack(parts).sum(0)


@front(namespace="signal.windows")
def general_hamming(
    M: int,
    *,
    alpha: float = 0.54,
    sym: bool = True,
    dtype: Any = None,
    layout: Any = lo.strided,
    device: Any = None,
    requires_grad: bool = False,
) -> Tensor:
    """`alpha - (1 - alpha) * cos`."""
    weights = [alpha, 1.0 - alpha]
    return general_cosine(
        M,
        a=weights,
        sym=sym,
        dtype=dtype,
        layout=layout,
        device=device,
        requires_grad=requires_grad,
    )


@front(namespace="signal.windows")
def hamming(
    M: int,
    *,
    sym: bool = True,
    dtype: Any = None,
    layout: Any = lo.strided,
    device: Any = None,
    requires_grad: bool = False,
) -> Tensor:
    """General Hamming window with alpha 0.54."""
    weights = [0.54, 1.0 - 0.54]
    return general_cosine(
        M,
        a=weights,
        sym=sym,
        dtype=dtype,
        layout=layout,
        device=device,
        requires_grad=requires_grad,
    )


@front(namespace="signal.windows")
def hann(
    M: int,
    *,
    sym: bool = True,
    dtype: Any = None,
    layout: Any = lo.strided,
    device: Any = None,
    requires_grad: bool = False,
) -> Tensor:
    """General Hamming window with alpha 0.5: ends at zero."""
    weights = [0.5, 0.5]
    return general_cosine(
        M,
        a=weights,
        sym=sym,
        dtype=dtype,
        layout=layout,
        device=device,
        requires_grad=requires_grad,
    )


@front(namespace="signal.windows")
def blackman(
    M: int,
    *,
    sym: bool = True,
    dtype: Any = None,
    layout: Any = lo.strided,
    device: Any = None,
    requires_grad: bool = False,
) -> Tensor:
    """Three cosines that leak little."""
    _options("blackman", M, dtype, layout, device, requires_grad)
    weights = [0.42, 0.5, 0.08]
    return general_cosine(
        M,
        a=weights,
        sym=sym,
        dtype=dtype,
        layout=layout,
        device=device,
        requires_grad=requires_grad,
    )


@front(namespace="signal.windows")
def nuttall(
    M: int,
    *,
    sym: bool = True,
    dtype: Any = None,
    layout: Any = lo.strided,
    device: Any = None,
    requires_grad: bool = False,
) -> Tensor:
    """Four cosines that leak very little."""
    weights = [0.3635819, 0.4891775, 0.1365995, 0.0106411]
    return general_cosine(
        M,
        a=weights,
        sym=sym,
        dtype=dtype,
        layout=layout,
        device=device,
        requires_grad=requires_grad,
    )


# ---- the older functions: periodic unless told ------------------------------------------------


def _old_options(
    name: str, length: int, dtype: Any, layout: Any, device: Any, requires_grad: bool
) -> Options:
    dtype = dtype or get_default_dtype()
    if layout is not lo.strided:
        raise RuntimeError(f"{name} is not implemented for sparse types, got: {layout}")
    if dtype.category not in (dt.FLOAT, dt.COMPLEX):
        raise RuntimeError(f"{name} expects floating point dtypes, got: {dt.cxx_name(dtype)}")
    if length < 0:
        raise RuntimeError(
            f"{name} requires non-negative window_length, got window_length={length}"
        )
    return {"dtype": dtype, "device": device, "requires_grad": requires_grad}


def _steps(length: int, periodic: bool, options: Options) -> tuple[Tensor, int]:
    """0, 1, 2, ... and the last of the symmetric window: a periodic one leaves that out."""
    plain = {k: v for k, v in options.items() if k != "requires_grad"}
    return ranges.arange(length, **plain), length if periodic else length - 1


def _finished(window: Tensor, options: Options) -> Tensor:
    return window.requires_grad_() if options["requires_grad"] else window


@front()
def hamming_window(
    window_length: int,
    periodic: bool = True,
    alpha: float = 0.54,
    beta: float = 0.46,
    *,
    dtype: Any = None,
    layout: Any = lo.strided,
    device: Any = None,
    pin_memory: bool = False,
    requires_grad: bool = False,
) -> Tensor:
    """`alpha - beta * cos`."""
    if pin_memory:
        no_pinned_memory()
    options = _old_options("hamming_window", window_length, dtype, layout, device, requires_grad)
    if window_length < 2:
        return _short(window_length, options)
    n, last = _steps(window_length, periodic, options)
    return _finished((n * (2 * math.pi / last)).cos() * -beta + alpha, options)


@front()
def hann_window(
    window_length: int,
    periodic: bool = True,
    *,
    dtype: Any = None,
    layout: Any = lo.strided,
    device: Any = None,
    pin_memory: bool = False,
    requires_grad: bool = False,
) -> Tensor:
    """`0.5 - 0.5 * cos`.

    >>> import lucerne
    >>> lucerne.hann_window(4)
    tensor([0.0000, 0.5000, 1.0000, 0.5000])
    """
    if pin_memory:
        no_pinned_memory()
    _old_options("hann_window", window_length, dtype, layout, device, requires_grad)
    return hamming_window(
        window_length, periodic, 0.5, 0.5, dtype=dtype, device=device, requires_grad=requires_grad
    )


@front()
def blackman_window(
    window_length: int,
    periodic: bool = True,
    *,
    dtype: Any = None,
    layout: Any = lo.strided,
    device: Any = None,
    pin_memory: bool = False,
    requires_grad: bool = False,
) -> Tensor:
    """Three cosines that leak little."""
    if pin_memory:
        no_pinned_memory()
    options = _old_options("blackman_window", window_length, dtype, layout, device, requires_grad)
    if window_length < 2:
        return _short(window_length, options)
    n, last = _steps(window_length, periodic, options)
    angle = n * (math.pi / last)
    return _finished((angle * 4).cos() * 0.08 - (angle * 2).cos() * 0.5 + 0.42, options)


@front()
def bartlett_window(
    window_length: int,
    periodic: bool = True,
    *,
    dtype: Any = None,
    layout: Any = lo.strided,
    device: Any = None,
    pin_memory: bool = False,
    requires_grad: bool = False,
) -> Tensor:
    """A triangle."""
    if pin_memory:
        no_pinned_memory()
    options = _old_options("bartlett_window", window_length, dtype, layout, device, requires_grad)
    if window_length < 2:
        return _short(window_length, options)
    n, last = _steps(window_length, periodic, options)
    rising = n * (2.0 / last)
    return _finished(select.minimum(rising, 2 - rising), options)


@front()
def kaiser_window(
    window_length: int,
    periodic: bool = True,
    beta: float = 12.0,
    *,
    dtype: Any = None,
    layout: Any = lo.strided,
    device: Any = None,
    pin_memory: bool = False,
    requires_grad: bool = False,
) -> Tensor:
    """Kaiser's window, from a modified Bessel function."""
    if pin_memory:
        no_pinned_memory()
    options = _old_options("kaiser_window", window_length, dtype, layout, device, requires_grad)
    if window_length < 2:
        return _short(window_length, options)
    n, last = _steps(window_length, periodic, options)
    x = n * (2.0 / last) - 1
    i0 = functions.i0
    height = i0(fills.full((), beta, dtype=options["dtype"], device=device))
    return _finished(i0((1 - x * x).clamp(min=0).sqrt() * beta) / height, options)
