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
from lucerne._src.ir.signature import refuse_unknown
from lucerne._src.ops.copy import join
from lucerne._src.ops.creation import fills, ranges
from lucerne._src.ops.pointwise import select
from lucerne._src.ops.special import functions

# What every window function of `lucerne.signal.windows` also takes.
Options = dict[str, Any]


def _options(
    name: str,
    length: int,
    /,
    *,
    dtype: Any = None,
    layout: Any = lo.strided,
    device: Any = None,
    requires_grad: bool = False,
    **unknown: Any,
) -> Options:
    """Checked factory arguments."""
    refuse_unknown(name, unknown)
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


@front(namespace="signal.windows", options=_options)
def exponential(
    M: int, *, center: float | None = None, tau: float = 1.0, sym: bool = True, **options: Any
) -> Tensor:
    """Falls off as `exp(-|n - center| / tau)`."""
    made = _options("exponential", M, **options)
    if tau <= 0:
        raise ValueError(f"Tau must be positive, got: {tau} instead.")
    if sym and center is not None:
        raise ValueError("Center must be None for symmetric windows")
    if M == 0:
        return _short(M, made)
    if center is None:
        center = (M if not sym and M > 1 else M - 1) / 2.0
    return (-_line(-center, 1 / tau, M, made).abs()).exp()


@front(namespace="signal.windows", options=_options)
def cosine(M: int, *, sym: bool = True, **options: Any) -> Tensor:
    """Half a period of a sine."""
    made = _options("cosine", M, **options)
    if M == 0:
        return _short(M, made)
    return _line(0.5, math.pi / (M + 1 if not sym and M > 1 else M), M, made).sin()


@front(namespace="signal.windows", options=_options)
def gaussian(M: int, *, std: float = 1.0, sym: bool = True, **options: Any) -> Tensor:
    """The bell curve with standard deviation `std`."""
    made = _options("gaussian", M, **options)
    if std <= 0:
        raise ValueError(f"Standard deviation must be positive, got: {std} instead.")
    if M == 0:
        return _short(M, made)
    start = -(M if not sym and M > 1 else M - 1) / 2.0
    k = _line(start, 1 / (std * math.sqrt(2)), M, made)
    return (-(k * k)).exp()


@front(namespace="signal.windows", options=_options)
def kaiser(M: int, *, beta: float = 12.0, sym: bool = True, **options: Any) -> Tensor:
    """Kaiser's window, from a modified Bessel function."""
    made = _options("kaiser", M, **options)
    if beta < 0:
        raise ValueError(f"beta must be non-negative, got: {beta} instead.")
    if M < 2:
        return _short(M, made)
    # Rounded to the dtype first: else the root below may see a negative number.
    edge = fills.full((), beta, dtype=made["dtype"], device=made["device"])
    step = 2.0 * edge / (M if not sym else M - 1)
    end = select.minimum(edge, -edge + (M - 1) * step)
    k = ranges.linspace(-edge, end, M, **made)
    i0 = functions.i0
    return i0((edge * edge - k * k).sqrt()) / i0(edge)


@front(namespace="signal.windows", options=_options)
def bartlett(M: int, *, sym: bool = True, **options: Any) -> Tensor:
    """A triangle."""
    made = _options("bartlett", M, **options)
    if M < 2:
        return _short(M, made)
    step = 2 / (M if not sym else M - 1)
    k = ranges.linspace(-1, -1 + (M - 1) * step, M, **made)
    return 1 - k.abs()


@front(namespace="signal.windows", options=_options)
def general_cosine(M: int, *, a: Iterable[float], sym: bool = True, **options: Any) -> Tensor:
    """Sum of cosines with weights `a` and alternating signs."""
    made = _options("general_cosine", M, **options)
    if M < 2:
        return _short(M, made)
    if not isinstance(a, Iterable):
        raise TypeError("Coefficients must be a list/tuple")
    if not a:
        raise ValueError("Coefficients cannot be empty")
    k = _line(0, 2 * math.pi / (M if not sym else M - 1), M, made)
    parts = [(k * i).cos() * ((-1) ** i * w) for i, w in enumerate(a)]
    return join.stack(parts).sum(0)


def _cosines(name: str, M: int, weights: list[float], sym: bool, options: Options) -> Tensor:
    """A window by its weights; it has `general_cosine` check its options, as torch's does."""
    refuse_unknown(name, options.keys() - {"dtype", "layout", "device", "requires_grad"})
    return general_cosine(M, a=weights, sym=sym, **options)


@front(namespace="signal.windows", options=_options)
def general_hamming(M: int, *, alpha: float = 0.54, sym: bool = True, **options: Any) -> Tensor:
    """`alpha - (1 - alpha) * cos`."""
    return _cosines("general_hamming", M, [alpha, 1.0 - alpha], sym, options)


@front(namespace="signal.windows", options=_options)
def hamming(M: int, *, sym: bool = True, **options: Any) -> Tensor:
    """General Hamming window with alpha 0.54."""
    return _cosines("hamming", M, [0.54, 1.0 - 0.54], sym, options)


@front(namespace="signal.windows", options=_options)
def hann(M: int, *, sym: bool = True, **options: Any) -> Tensor:
    """General Hamming window with alpha 0.5: ends at zero."""
    return _cosines("hann", M, [0.5, 0.5], sym, options)


@front(namespace="signal.windows", options=_options)
def blackman(M: int, *, sym: bool = True, **options: Any) -> Tensor:
    """Three cosines that leak little."""
    _options("blackman", M, **options)
    return _cosines("blackman", M, [0.42, 0.5, 0.08], sym, options)


@front(namespace="signal.windows", options=_options)
def nuttall(M: int, *, sym: bool = True, **options: Any) -> Tensor:
    """Four cosines that leak very little."""
    return _cosines("nuttall", M, [0.3635819, 0.4891775, 0.1365995, 0.0106411], sym, options)


# ---- the older functions: periodic unless told ------------------------------------------------


def _old_options(
    name: str,
    length: int,
    /,
    *,
    dtype: Any = None,
    layout: Any = lo.strided,
    device: Any = None,
    pin_memory: bool = False,
    requires_grad: bool = False,
    **unknown: Any,
) -> Options:
    refuse_unknown(name, unknown)
    if pin_memory:
        no_pinned_memory()
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


@front(options=_old_options)
def hamming_window(
    window_length: int,
    periodic: bool = True,
    alpha: float = 0.54,
    beta: float = 0.46,
    **options: Any,
) -> Tensor:
    """`alpha - beta * cos`."""
    made = _old_options("hamming_window", window_length, **options)
    if window_length < 2:
        return _short(window_length, made)
    n, last = _steps(window_length, periodic, made)
    return _finished((n * (2 * math.pi / last)).cos() * -beta + alpha, made)


@front(options=_old_options)
def hann_window(window_length: int, periodic: bool = True, **options: Any) -> Tensor:
    """`0.5 - 0.5 * cos`.

    >>> import lucerne
    >>> lucerne.hann_window(4)
    tensor([0.0000, 0.5000, 1.0000, 0.5000])
    """
    _old_options("hann_window", window_length, **options)
    return hamming_window(window_length, periodic, 0.5, 0.5, **options)


@front(options=_old_options)
def blackman_window(window_length: int, periodic: bool = True, **options: Any) -> Tensor:
    """Three cosines that leak little."""
    made = _old_options("blackman_window", window_length, **options)
    if window_length < 2:
        return _short(window_length, made)
    n, last = _steps(window_length, periodic, made)
    angle = n * (math.pi / last)
    return _finished((angle * 4).cos() * 0.08 - (angle * 2).cos() * 0.5 + 0.42, made)


@front(options=_old_options)
def bartlett_window(window_length: int, periodic: bool = True, **options: Any) -> Tensor:
    """A triangle."""
    made = _old_options("bartlett_window", window_length, **options)
    if window_length < 2:
        return _short(window_length, made)
    n, last = _steps(window_length, periodic, made)
    rising = n * (2.0 / last)
    return _finished(select.minimum(rising, 2 - rising), made)


@front(options=_old_options)
def kaiser_window(
    window_length: int, periodic: bool = True, beta: float = 12.0, **options: Any
) -> Tensor:
    """Kaiser's window, from a modified Bessel function."""
    made = _old_options("kaiser_window", window_length, **options)
    if window_length < 2:
        return _short(window_length, made)
    n, last = _steps(window_length, periodic, made)
    x = n * (2.0 / last) - 1
    i0 = functions.i0
    height = i0(fills.full((), beta, dtype=made["dtype"], device=made["device"]))
    return _finished(i0((1 - x * x).clamp(min=0).sqrt() * beta) / height, made)
