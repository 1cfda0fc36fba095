"""`lucerne.nn.init`: fill parameters with their first values, in place and outside autograd.

Under the same seed each function draws the same numbers as PyTorch's.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from lucerne._src.base.process import notices
from lucerne._src.ops.linalg.systems import qr as _qr
from lucerne._src.tensor import api as lu

_UNIT_GAIN = frozenset(
    ["linear", "sigmoid"] + [f"conv{kind}{n}d" for kind in ("", "_transpose") for n in (1, 2, 3)]
)
_GAINS = {"tanh": 5.0 / 3, "relu": math.sqrt(2.0), "selu": 3.0 / 4}
_MODES = ["fan_in", "fan_out"]


def calculate_gain(nonlinearity: str, param: float | None = None) -> float:
    """The factor that keeps the size of a signal the same across a nonlinearity.

    `param` is the slope of a leaky relu (0.01 if not given).

    >>> calculate_gain("leaky_relu", 1.0)
    1.0
    """
    if nonlinearity in _UNIT_GAIN:
        return 1
    if nonlinearity in _GAINS:
        return _GAINS[nonlinearity]
    if nonlinearity != "leaky_relu":
        raise ValueError(f"Unsupported nonlinearity {nonlinearity}")
    if param is None:
        param = 0.01
    elif isinstance(param, bool) or not isinstance(param, int | float):
        raise ValueError(f"negative_slope {param} not a valid number")
    return math.sqrt(2.0 / (1 + param**2))


# ---- plain distributions and constants -----------------------------------------------------------


def uniform_(tensor: Any, a: float = 0.0, b: float = 1.0, generator: Any = None) -> Any:
    """Fill with numbers drawn evenly from [a, b).

    >>> from lucerne._src.tensor import api as lu
    >>> bool((uniform_(lu.empty(5), 2.0, 3.0) >= 2.0).all())
    True
    """
    with lu.no_grad():
        return tensor.uniform_(a, b, generator=generator)


def normal_(tensor: Any, mean: float = 0.0, std: float = 1.0, generator: Any = None) -> Any:
    """Fill with numbers drawn from a normal distribution."""
    with lu.no_grad():
        return tensor.normal_(mean, std, generator=generator)


def trunc_normal_(
    tensor: Any,
    mean: float = 0.0,
    std: float = 1.0,
    a: float = -2.0,
    b: float = 2.0,
    generator: Any = None,
) -> Any:
    """Fill from a normal distribution of which only the part within [a, b] is kept.

    >>> from lucerne._src.tensor import api as lu
    >>> bool((trunc_normal_(lu.empty(100), std=2.0, a=-1.0, b=1.0).abs() <= 1.0).all())
    True
    """
    if tensor.is_meta:
        return tensor
    if not a - 2 * std <= mean <= b + 2 * std:
        notices.warn(
            "mean is more than 2 std from [a, b] in nn.init.trunc_normal_. "
            "The distribution of values may be incorrect."
        )
    kept = _below((b - mean) / std) - _below((a - mean) / std)
    draw = _redraw_outside if kept > 0.3 else _reject_under_density
    with lu.no_grad():
        draw(tensor, mean, std, a, b, generator)
    return tensor


def _below(z: float) -> float:
    """The share of a standard normal distribution below `z`."""
    return (1.0 + math.erf(z / math.sqrt(2.0))) / 2.0


def _redraw_outside(x: Any, mean: float, std: float, a: float, b: float, generator: Any) -> None:
    """Draw all; while some are outside, draw all anew and take those for the outsiders."""
    low, high = x.new_tensor(a).item(), x.new_tensor(b).item()
    x.normal_(mean, std, generator=generator)
    while True:
        outside = (x < low) | (x > high)
        if not outside.any():
            return
        again = lu.empty_like(x).normal_(mean, std, generator=generator)
        x.copy_(lu.where(outside, again, x))


def _reject_under_density(
    x: Any, mean: float, std: float, a: float, b: float, generator: Any
) -> None:
    """Even draws from [a, b], accepted as often as the density there is to the highest in [a, b].

    Right for windows that hold little of the distribution, where redrawing would take forever.
    """
    peak = -0.5 * ((max(a, min(mean, b)) - mean) / std) ** 2
    pending = None
    while pending is None or pending.any():
        found = lu.empty_like(x).uniform_(a, b, generator=generator)
        x.copy_(found if pending is None else lu.where(pending, found, x))
        density = found.sub_(mean).div_(std).pow_(2).mul_(-0.5).sub_(peak)
        refused = lu.empty_like(x).uniform_(generator=generator).log_() > density
        pending = refused if pending is None else pending & refused


def constant_(tensor: Any, val: float) -> Any:
    """Fill with one value."""
    with lu.no_grad():
        return tensor.fill_(val)


def ones_(tensor: Any) -> Any:
    """Fill with ones."""
    return constant_(tensor, 1.0)


def zeros_(tensor: Any) -> Any:
    """Fill with zeros."""
    with lu.no_grad():
        return tensor.zero_()


def eye_(tensor: Any) -> Any:
    """Make a matrix the identity: a linear layer that passes its input through.

    >>> from lucerne._src.tensor import api as lu
    >>> eye_(lu.empty(2, 3))
    tensor([[1., 0., 0.],
            [0., 1., 0.]])
    """
    if tensor.ndimension() != 2:
        raise ValueError("Only tensors with 2 dimensions are supported")
    with lu.no_grad():
        tensor.copy_(lu.eye(*tensor.shape, dtype=tensor.dtype, device=tensor.device))
    return tensor


def dirac_(tensor: Any, groups: int = 1) -> Any:
    """Make a convolution's weight pass as many channels of each group through as it can."""
    if not 3 <= tensor.ndimension() <= 5:
        raise ValueError("Only tensors with 3, 4, or 5 dimensions are supported")
    rows, channels, *kernel = tensor.shape
    if rows % groups != 0:
        raise ValueError("dim 0 must be divisible by groups")
    center = tuple(k // 2 for k in kernel)
    per_group = rows // groups
    with lu.no_grad():
        tensor.zero_()
        for group in range(groups):
            for channel in range(min(per_group, channels)):
                tensor[(group * per_group + channel, channel, *center)] = 1
    return tensor


# ---- sizes from the number of connections --------------------------------------------------------


def _calculate_fan_in_and_fan_out(tensor: Any) -> tuple[int, int]:
    """How many inputs an output of this weight has, and how many outputs an input has."""
    if tensor.dim() < 2:
        raise ValueError(
            "Fan in and fan out can not be computed for tensor with fewer than 2 dimensions"
        )
    outputs, inputs, *kernel = tensor.shape
    places = math.prod(kernel)
    return inputs * places, outputs * places


def _calculate_correct_fan(tensor: Any, mode: str) -> int:
    mode = mode.lower()
    if mode not in _MODES:
        raise ValueError(f"Mode {mode} not supported, please use one of {_MODES}")
    return _calculate_fan_in_and_fan_out(tensor)[_MODES.index(mode)]


def _xavier_std(tensor: Any, gain: float) -> float:
    return gain * math.sqrt(2.0 / float(sum(_calculate_fan_in_and_fan_out(tensor))))


def xavier_uniform_(tensor: Any, gain: float = 1.0, generator: Any = None) -> Any:
    """Even draws that keep activations and gradients alike in size (Glorot and Bengio, 2010).

    >>> from lucerne._src.tensor import api as lu
    >>> bool((xavier_uniform_(lu.empty(3, 3)).abs() <= 1.0).all())
    True
    """
    bound = math.sqrt(3.0) * _xavier_std(tensor, gain)
    return uniform_(tensor, -bound, bound, generator)


def xavier_normal_(tensor: Any, gain: float = 1.0, generator: Any = None) -> Any:
    """Normal draws that keep activations and gradients alike in size (Glorot and Bengio, 2010)."""
    return normal_(tensor, 0.0, _xavier_std(tensor, gain), generator)


def _kaiming_std(tensor: Any, a: float, mode: str, nonlinearity: str) -> float | None:
    """None for a tensor without elements, which needs no values."""
    if 0 in tensor.shape:
        notices.warn("Initializing zero-element tensors is a no-op")
        return None
    fan = _calculate_correct_fan(tensor, mode)
    return calculate_gain(nonlinearity, a) / math.sqrt(fan)


def kaiming_uniform_(
    tensor: Any,
    a: float = 0,
    mode: str = "fan_in",
    nonlinearity: str = "leaky_relu",
    generator: Any = None,
) -> Any:
    """Even draws for layers that feed a (leaky) relu of slope `a` (He et al., 2015).

    >>> from lucerne._src.tensor import api as lu
    >>> bool((kaiming_uniform_(lu.empty(2, 6)).abs() <= 1.0).all())
    True
    """
    std = _kaiming_std(tensor, a, mode, nonlinearity)
    if std is None:
        return tensor
    bound = math.sqrt(3.0) * std
    return uniform_(tensor, -bound, bound, generator)


def kaiming_normal_(
    tensor: Any,
    a: float = 0,
    mode: str = "fan_in",
    nonlinearity: str = "leaky_relu",
    generator: Any = None,
) -> Any:
    """Normal draws for layers that feed a (leaky) relu of slope `a` (He et al., 2015)."""
    std = _kaiming_std(tensor, a, mode, nonlinearity)
    return tensor if std is None else normal_(tensor, 0, std, generator)


# ---- matrices with structure ---------------------------------------------------------------------


def orthogonal_(tensor: Any, gain: float = 1, generator: Any = None) -> Any:
    """Rows (or columns, if there are fewer) of length `gain`, each at right angles to the others.

    >>> from lucerne._src.tensor import api as lu
    >>> w = orthogonal_(lu.empty(2, 5))
    >>> lu.allclose(w @ w.T, lu.eye(2), atol=1e-6)
    True
    """
    if tensor.ndimension() < 2:
        raise ValueError("Only tensors with 2 or more dimensions are supported")
    if tensor.numel() == 0:
        return tensor
    rows = tensor.size(0)
    columns = tensor.numel() // rows
    with lu.no_grad():
        flat = tensor.new_empty((rows, columns)).normal_(0, 1, generator=generator)
        wide = rows < columns
        q, r = _qr(flat.T if wide else flat)
        q = q * lu.diag(r, 0).sign()  # makes Q evenly distributed
        tensor.view_as(flat).copy_(q.T if wide else q)
        return tensor.mul_(gain)


def sparse_(tensor: Any, sparsity: float, std: float = 0.01, generator: Any = None) -> Any:
    """A normal matrix with the share `sparsity` of each column set to zero.

    >>> from lucerne._src.tensor import api as lu
    >>> int((sparse_(lu.empty(10, 4), sparsity=0.3) == 0).sum())
    12
    """
    if tensor.ndimension() != 2:
        raise ValueError("Only tensors with 2 dimensions are supported")
    rows, columns = tensor.shape
    zeros = math.ceil(sparsity * rows)
    with lu.no_grad():
        tensor.normal_(0, std, generator=generator)
        for column in range(columns):
            tensor[lu.randperm(rows)[:zeros], column] = 0
    return tensor


# ---- the names without underscore, which PyTorch has deprecated ----------------------------------


def _deprecated(function: Callable[..., Any]) -> Callable[..., Any]:
    new = function.__name__
    old = new.removesuffix("_")

    def call(*args: Any, **kwargs: Any) -> Any:
        notices.warn(
            f"`nn.init.{old}` is now deprecated in favor of `nn.init.{new}`.", FutureWarning
        )
        return function(*args, **kwargs)

    call.__name__ = call.__qualname__ = old
    call.__doc__ = f"Deprecated name of `{new}`."
    return call


uniform = _deprecated(uniform_)
normal = _deprecated(normal_)
constant = _deprecated(constant_)
eye = _deprecated(eye_)
dirac = _deprecated(dirac_)
xavier_uniform = _deprecated(xavier_uniform_)
xavier_normal = _deprecated(xavier_normal_)
kaiming_uniform = _deprecated(kaiming_uniform_)
kaiming_normal = _deprecated(kaiming_normal_)
orthogonal = _deprecated(orthogonal_)
sparse = _deprecated(sparse_)
