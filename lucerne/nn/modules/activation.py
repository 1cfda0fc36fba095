"""Activations: functions of one element, and the softmax family.

>>> import lucerne as torch
>>> x = torch.tensor([-1.0, 2.0])
>>> torch.nn.ReLU()(x), torch.nn.LeakyReLU(0.1)(x)
(tensor([0., 2.]), tensor([-0.1000,  2.0000]))
>>> torch.nn.Hardtanh(-0.5, 1.0)(x), torch.nn.Softshrink()(x), torch.nn.Threshold(0.1, 20.0)(x)
(tensor([-0.5000,  1.0000]), tensor([-0.5000,  1.5000]), tensor([20.,  2.]))
"""

from __future__ import annotations

from typing import Any

from lucerne._src.base.process import notices
from lucerne._src.tensor import api as lu
from lucerne._src.tensor.tensor import Tensor
from lucerne.nn import functional as F
from lucerne.nn import init
from lucerne.nn.modules.module import Module
from lucerne.nn.modules.multihead import MultiheadAttention as MultiheadAttention
from lucerne.nn.parameter import Parameter


class _Activation(Module):
    """Shows its options in the order and form of `_shown`, a format of the layer."""

    _shown = ""

    def extra_repr(self) -> str:
        """Options."""
        text = self._shown.format(self)
        if not getattr(self, "inplace", False):
            return text
        return f"{text}, inplace=True" if text else "inplace=True"


class _OnlyInplace(_Activation):
    """An activation with one option: to write over its input."""

    __constants__ = ["inplace"]
    inplace: bool

    def __init__(self, inplace: bool = False) -> None:
        super().__init__()
        self.inplace = inplace


class _Alpha(_Activation):
    """An activation with the scale of what is below zero."""

    __constants__ = ["alpha", "inplace"]
    _shown = "alpha={0.alpha}"
    alpha: float
    inplace: bool

    def __init__(self, alpha: float = 1.0, inplace: bool = False) -> None:
        super().__init__()
        self.alpha = alpha
        self.inplace = inplace


class _Shrink(_Activation):
    """An activation that is zero near zero."""

    __constants__ = ["lambd"]
    _shown = "{0.lambd}"
    lambd: float

    def __init__(self, lambd: float = 0.5) -> None:
        super().__init__()
        self.lambd = lambd


class _AlongDim(_Activation):
    """An activation whose results depend on each other along a dimension."""

    __constants__ = ["dim"]
    _shown = "dim={0.dim}"
    dim: int | None

    def __init__(self, dim: int | None = None) -> None:
        super().__init__()
        self.dim = dim

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        self.__dict__.setdefault("dim", None)


class Threshold(_Activation):
    """`x` where it is greater than `threshold`, `value` elsewhere."""

    __constants__ = ["threshold", "value", "inplace"]
    _shown = "threshold={0.threshold}, value={0.value}"
    threshold: float
    value: float
    inplace: bool

    def __init__(self, threshold: float, value: float, inplace: bool = False) -> None:
        super().__init__()
        self.threshold = threshold
        self.value = value
        self.inplace = inplace

    def forward(self, input: Tensor) -> Tensor:
        """The activation of each element."""
        return F.threshold(input, self.threshold, self.value, self.inplace)


class ReLU(_OnlyInplace):
    """`max(0, x)`."""

    def forward(self, input: Tensor) -> Tensor:
        """The activation of each element."""
        return F.relu(input, self.inplace)


class RReLU(_Activation):
    """A leaky relu whose slope is drawn from [lower, upper) while training.

    >>> import lucerne as torch
    >>> torch.nn.RReLU(0.5, 0.5)(torch.tensor([-1.0, 2.0]))
    tensor([-0.5000,  2.0000])
    """

    __constants__ = ["lower", "upper", "inplace"]
    _shown = "lower={0.lower}, upper={0.upper}"
    lower: float
    upper: float
    inplace: bool

    def __init__(
        self, lower: float = 1.0 / 8, upper: float = 1.0 / 3, inplace: bool = False
    ) -> None:
        super().__init__()
        self.lower = lower
        self.upper = upper
        self.inplace = inplace

    def forward(self, input: Tensor) -> Tensor:
        """The activation of each element."""
        return F.rrelu(input, self.lower, self.upper, self.training, self.inplace)


class Hardtanh(_Activation):
    """`x` cut off below `min_val` and above `max_val`."""

    __constants__ = ["min_val", "max_val", "inplace"]
    _shown = "min_val={0.min_val}, max_val={0.max_val}"
    min_val: float
    max_val: float
    inplace: bool

    def __init__(
        self,
        min_val: float = -1.0,
        max_val: float = 1.0,
        inplace: bool = False,
        min_value: float | None = None,
        max_value: float | None = None,
    ) -> None:
        super().__init__()
        for old, new, given in (
            ("min_value", "min_val", min_value),
            ("max_value", "max_val", max_value),
        ):
            if given is not None:
                notices.warn(
                    f"keyword argument `{old}` is deprecated and renamed to `{new}`", FutureWarning
                )
        self.min_val = min_val if min_value is None else min_value
        self.max_val = max_val if max_value is None else max_value
        self.inplace = inplace
        if not self.max_val > self.min_val:
            raise AssertionError(
                f"max_val ({self.max_val}) must be greater than min_val ({self.min_val})"
            )

    def forward(self, input: Tensor) -> Tensor:
        """The activation of each element."""
        return F.hardtanh(input, self.min_val, self.max_val, self.inplace)


class ReLU6(Hardtanh):
    """`min(max(0, x), 6)`."""

    _shown = ""

    def __init__(self, inplace: bool = False) -> None:
        super().__init__(0.0, 6.0, inplace)


class Sigmoid(Module):
    """`1 / (1 + exp(-x))`."""

    def forward(self, input: Tensor) -> Tensor:
        """The activation of each element."""
        return lu.sigmoid(input)


class Hardsigmoid(_OnlyInplace):
    """A sigmoid of straight lines: 0 below -3, 1 above 3."""

    extra_repr = Module.extra_repr  # as in torch, which does not show the option

    def forward(self, input: Tensor) -> Tensor:
        """The activation of each element."""
        return F.hardsigmoid(input, self.inplace)


class Tanh(Module):
    """The hyperbolic tangent."""

    def forward(self, input: Tensor) -> Tensor:
        """The activation of each element."""
        return lu.tanh(input)


class SiLU(_OnlyInplace):
    """`x * sigmoid(x)`, also called swish."""

    def forward(self, input: Tensor) -> Tensor:
        """The activation of each element."""
        return F.silu(input, self.inplace)


class Mish(_OnlyInplace):
    """`x * tanh(softplus(x))`."""

    def forward(self, input: Tensor) -> Tensor:
        """The activation of each element."""
        return F.mish(input, self.inplace)


class Hardswish(_OnlyInplace):
    """`x * hardsigmoid(x)`."""

    extra_repr = Module.extra_repr  # as in torch, which does not show the option

    def forward(self, input: Tensor) -> Tensor:
        """The activation of each element."""
        return F.hardswish(input, self.inplace)


class ELU(_Alpha):
    """`x` above zero, `alpha * (exp(x) - 1)` below."""

    def forward(self, input: Tensor) -> Tensor:
        """The activation of each element."""
        return F.elu(input, self.alpha, self.inplace)


class CELU(_Alpha):
    """`max(0, x) + min(0, alpha * (exp(x / alpha) - 1))`."""

    def forward(self, input: Tensor) -> Tensor:
        """The activation of each element."""
        return F.celu(input, self.alpha, self.inplace)


class SELU(_OnlyInplace):
    """A scaled `ELU` that keeps mean 0 and variance 1 from layer to layer."""

    def forward(self, input: Tensor) -> Tensor:
        """The activation of each element."""
        return F.selu(input, self.inplace)


class GLU(_Activation):
    """The first half of a dimension times the sigmoid of the second.

    >>> import lucerne as torch
    >>> torch.nn.GLU()(torch.tensor([[4.0, 0.0]]))
    tensor([[2.]])
    """

    __constants__ = ["dim"]
    _shown = "dim={0.dim}"
    dim: int

    def __init__(self, dim: int = -1) -> None:
        super().__init__()
        self.dim = dim

    def forward(self, input: Tensor) -> Tensor:
        """The activation of each element."""
        return F.glu(input, self.dim)


class GELU(_Activation):
    """`x` times the share of a standard normal distribution below `x`."""

    __constants__ = ["approximate"]
    _shown = "approximate={0.approximate!r}"
    approximate: str

    def __init__(self, approximate: str = "none") -> None:
        super().__init__()
        self.approximate = approximate

    def forward(self, input: Tensor) -> Tensor:
        """The activation of each element."""
        return F.gelu(input, approximate=self.approximate)


class Hardshrink(_Shrink):
    """`x`, or 0 within `lambd` of zero."""

    def forward(self, input: Tensor) -> Tensor:
        """The activation of each element."""
        return F.hardshrink(input, self.lambd)


class LeakyReLU(_Activation):
    """`x` above zero, `negative_slope * x` below."""

    __constants__ = ["inplace", "negative_slope"]
    _shown = "negative_slope={0.negative_slope}"
    negative_slope: float
    inplace: bool

    def __init__(self, negative_slope: float = 1e-2, inplace: bool = False) -> None:
        super().__init__()
        self.negative_slope = negative_slope
        self.inplace = inplace

    def forward(self, input: Tensor) -> Tensor:
        """The activation of each element."""
        return F.leaky_relu(input, self.negative_slope, self.inplace)


class LogSigmoid(Module):
    """`log(sigmoid(x))`."""

    def forward(self, input: Tensor) -> Tensor:
        """The activation of each element."""
        return F.logsigmoid(input)


class Softplus(_Activation):
    """`log(1 + exp(beta * x)) / beta`, a smooth relu; `x` itself above `threshold / beta`."""

    __constants__ = ["beta", "threshold"]
    _shown = "beta={0.beta}, threshold={0.threshold}"
    beta: float
    threshold: float

    def __init__(self, beta: float = 1.0, threshold: float = 20.0) -> None:
        super().__init__()
        self.beta = beta
        self.threshold = threshold

    def forward(self, input: Tensor) -> Tensor:
        """The activation of each element."""
        return F.softplus(input, self.beta, self.threshold)


class Softshrink(_Shrink):
    """`x` moved towards zero by `lambd`, at most to zero."""

    def forward(self, input: Tensor) -> Tensor:
        """The activation of each element."""
        return F.softshrink(input, self.lambd)


class PReLU(_Activation):
    """A leaky relu whose slope is learned, one for all channels or one for each.

    >>> import lucerne as torch
    >>> torch.nn.PReLU()(torch.tensor([-1.0, 2.0]))
    tensor([-0.2500,  2.0000], grad_fn=<PreluKernelBackward0>)
    """

    __constants__ = ["num_parameters"]
    _shown = "num_parameters={0.num_parameters}"
    num_parameters: int
    weight: Any

    def __init__(
        self, num_parameters: int = 1, init: float = 0.25, device: Any = None, dtype: Any = None
    ) -> None:
        super().__init__()
        self.num_parameters = num_parameters
        self.init = init
        self.weight = Parameter(lu.empty(num_parameters, device=device, dtype=dtype))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """All slopes as at first."""
        init.constant_(self.weight, self.init)

    def forward(self, input: Tensor) -> Tensor:
        """The activation of each element."""
        return F.prelu(input, self.weight)


class Softsign(Module):
    """`x / (1 + |x|)`."""

    def forward(self, input: Tensor) -> Tensor:
        """The activation of each element."""
        return F.softsign(input)


class Tanhshrink(Module):
    """`x - tanh(x)`."""

    def forward(self, input: Tensor) -> Tensor:
        """The activation of each element."""
        return F.tanhshrink(input)


class Softmin(_AlongDim):
    """`softmax(-x)`."""

    def forward(self, input: Tensor) -> Tensor:
        """Normalised along `dim`."""
        return F.softmin(input, self.dim)


class Softmax(_AlongDim):
    """`exp(x)`, scaled to sum to one along a dimension.

    >>> import lucerne as torch
    >>> torch.nn.Softmax(dim=1)(torch.zeros(1, 2))
    tensor([[0.5000, 0.5000]])
    """

    def forward(self, input: Tensor) -> Tensor:
        """Normalised along `dim`."""
        return F.softmax(input, self.dim)


class Softmax2d(Module):
    """Softmax over the channels of images (N, C, H, W) or (C, H, W)."""

    def forward(self, input: Tensor) -> Tensor:
        """Normalised at each place."""
        if input.dim() not in (3, 4):
            raise ValueError(
                f"Softmax2d: expected input to be 3D or 4D, got {input.dim()}D instead"
            )
        return F.softmax(input, -3)


class LogSoftmax(_AlongDim):
    """`log(softmax(x))`, computed stably."""

    def forward(self, input: Tensor) -> Tensor:
        """Normalised along `dim`."""
        return F.log_softmax(input, self.dim)
