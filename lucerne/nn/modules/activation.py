"""Activations: functions of one element, and the softmax family."""

from __future__ import annotations

from typing import Any

from lucerne.base import notices
from lucerne.nn import functional as F
from lucerne.nn import init
from lucerne.nn.modules.module import Module
from lucerne.nn.modules.multihead import MultiheadAttention as MultiheadAttention
from lucerne.nn.parameter import Parameter
from lucerne.tensor import api as lu
from lucerne.tensor.tensor import Tensor


def _inplace(layer: Any) -> str:
    return "inplace=True" if layer.inplace else ""


class Threshold(Module):
    """`x` where it is greater than `threshold`, `value` elsewhere.

    >>> import lucerne as torch
    >>> torch.nn.Threshold(0.1, 20.0)(torch.tensor([-1.0, 2.0]))
    tensor([20.,  2.])
    """

    __constants__ = ["threshold", "value", "inplace"]
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

    def extra_repr(self) -> str:
        """Options."""
        return f"threshold={self.threshold}, value={self.value}" + (
            ", inplace=True" if self.inplace else ""
        )


class ReLU(Module):
    """`max(0, x)`.

    >>> import lucerne as torch
    >>> torch.nn.ReLU()(torch.tensor([-1.0, 2.0]))
    tensor([0., 2.])
    """

    __constants__ = ["inplace"]
    inplace: bool

    def __init__(self, inplace: bool = False) -> None:
        super().__init__()
        self.inplace = inplace

    def forward(self, input: Tensor) -> Tensor:
        """The activation of each element."""
        return F.relu(input, self.inplace)

    def extra_repr(self) -> str:
        """Options."""
        return _inplace(self)


class RReLU(Module):
    """A leaky relu whose slope is drawn from [lower, upper) while training.

    >>> import lucerne as torch
    >>> torch.nn.RReLU(0.5, 0.5)(torch.tensor([-1.0, 2.0]))
    tensor([-0.5000,  2.0000])
    """

    __constants__ = ["lower", "upper", "inplace"]
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

    def extra_repr(self) -> str:
        """Options."""
        return f"lower={self.lower}, upper={self.upper}" + (
            ", inplace=True" if self.inplace else ""
        )


class Hardtanh(Module):
    """`x` cut off below `min_val` and above `max_val`.

    >>> import lucerne as torch
    >>> torch.nn.Hardtanh(-0.5, 1.0)(torch.tensor([-1.0, 2.0]))
    tensor([-0.5000,  1.0000])
    """

    __constants__ = ["min_val", "max_val", "inplace"]
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

    def extra_repr(self) -> str:
        """Options."""
        bounds = f"min_val={self.min_val}, max_val={self.max_val}"
        return bounds + (", inplace=True" if self.inplace else "")


class ReLU6(Hardtanh):
    """`min(max(0, x), 6)`.

    >>> import lucerne as torch
    >>> torch.nn.ReLU6()(torch.tensor([-1.0, 8.0]))
    tensor([0., 6.])
    """

    def __init__(self, inplace: bool = False) -> None:
        super().__init__(0.0, 6.0, inplace)

    def extra_repr(self) -> str:
        """Options."""
        return _inplace(self)


class Sigmoid(Module):
    """`1 / (1 + exp(-x))`.

    >>> import lucerne as torch
    >>> torch.nn.Sigmoid()(torch.zeros(2))
    tensor([0.5000, 0.5000])
    """

    def forward(self, input: Tensor) -> Tensor:
        """The activation of each element."""
        return lu.sigmoid(input)


class Hardsigmoid(Module):
    """A sigmoid of straight lines: 0 below -3, 1 above 3.

    >>> import lucerne as torch
    >>> torch.nn.Hardsigmoid()(torch.tensor([-3.0, 0.0, 3.0]))
    tensor([0.0000, 0.5000, 1.0000])
    """

    __constants__ = ["inplace"]
    inplace: bool

    def __init__(self, inplace: bool = False) -> None:
        super().__init__()
        self.inplace = inplace

    def forward(self, input: Tensor) -> Tensor:
        """The activation of each element."""
        return F.hardsigmoid(input, self.inplace)


class Tanh(Module):
    """The hyperbolic tangent.

    >>> import lucerne as torch
    >>> torch.nn.Tanh()(torch.zeros(2))
    tensor([0., 0.])
    """

    def forward(self, input: Tensor) -> Tensor:
        """The activation of each element."""
        return lu.tanh(input)


class SiLU(Module):
    """`x * sigmoid(x)`, also called swish.

    >>> import lucerne as torch
    >>> torch.nn.SiLU()(torch.zeros(2))
    tensor([0., 0.])
    """

    __constants__ = ["inplace"]
    inplace: bool

    def __init__(self, inplace: bool = False) -> None:
        super().__init__()
        self.inplace = inplace

    def forward(self, input: Tensor) -> Tensor:
        """The activation of each element."""
        return F.silu(input, self.inplace)

    def extra_repr(self) -> str:
        """Options."""
        return _inplace(self)


class Mish(Module):
    """`x * tanh(softplus(x))`.

    >>> import lucerne as torch
    >>> torch.nn.Mish()(torch.zeros(2))
    tensor([0., 0.])
    """

    __constants__ = ["inplace"]
    inplace: bool

    def __init__(self, inplace: bool = False) -> None:
        super().__init__()
        self.inplace = inplace

    def forward(self, input: Tensor) -> Tensor:
        """The activation of each element."""
        return F.mish(input, self.inplace)

    def extra_repr(self) -> str:
        """Options."""
        return _inplace(self)


class Hardswish(Module):
    """`x * hardsigmoid(x)`.

    >>> import lucerne as torch
    >>> torch.nn.Hardswish()(torch.tensor([-3.0, 3.0]))
    tensor([-0.,  3.])
    """

    __constants__ = ["inplace"]
    inplace: bool

    def __init__(self, inplace: bool = False) -> None:
        super().__init__()
        self.inplace = inplace

    def forward(self, input: Tensor) -> Tensor:
        """The activation of each element."""
        return F.hardswish(input, self.inplace)


class ELU(Module):
    """`x` above zero, `alpha * (exp(x) - 1)` below.

    >>> import lucerne as torch
    >>> torch.nn.ELU()(torch.tensor([0.0, 2.0]))
    tensor([0., 2.])
    """

    __constants__ = ["alpha", "inplace"]
    alpha: float
    inplace: bool

    def __init__(self, alpha: float = 1.0, inplace: bool = False) -> None:
        super().__init__()
        self.alpha = alpha
        self.inplace = inplace

    def forward(self, input: Tensor) -> Tensor:
        """The activation of each element."""
        return F.elu(input, self.alpha, self.inplace)

    def extra_repr(self) -> str:
        """Options."""
        return f"alpha={self.alpha}" + (", inplace=True" if self.inplace else "")


class CELU(Module):
    """`max(0, x) + min(0, alpha * (exp(x / alpha) - 1))`.

    >>> import lucerne as torch
    >>> torch.nn.CELU()(torch.tensor([0.0, 2.0]))
    tensor([0., 2.])
    """

    __constants__ = ["alpha", "inplace"]
    alpha: float
    inplace: bool

    def __init__(self, alpha: float = 1.0, inplace: bool = False) -> None:
        super().__init__()
        self.alpha = alpha
        self.inplace = inplace

    def forward(self, input: Tensor) -> Tensor:
        """The activation of each element."""
        return F.celu(input, self.alpha, self.inplace)

    def extra_repr(self) -> str:
        """Options."""
        return f"alpha={self.alpha}" + (", inplace=True" if self.inplace else "")


class SELU(Module):
    """A scaled `ELU` that keeps mean 0 and variance 1 from layer to layer.

    >>> import lucerne as torch
    >>> torch.nn.SELU()(torch.zeros(2))
    tensor([0., 0.])
    """

    __constants__ = ["inplace"]
    inplace: bool

    def __init__(self, inplace: bool = False) -> None:
        super().__init__()
        self.inplace = inplace

    def forward(self, input: Tensor) -> Tensor:
        """The activation of each element."""
        return F.selu(input, self.inplace)

    def extra_repr(self) -> str:
        """Options."""
        return _inplace(self)


class GLU(Module):
    """The first half of a dimension times the sigmoid of the second.

    >>> import lucerne as torch
    >>> torch.nn.GLU()(torch.tensor([[4.0, 0.0]]))
    tensor([[2.]])
    """

    __constants__ = ["dim"]
    dim: int

    def __init__(self, dim: int = -1) -> None:
        super().__init__()
        self.dim = dim

    def forward(self, input: Tensor) -> Tensor:
        """The activation of each element."""
        return F.glu(input, self.dim)

    def extra_repr(self) -> str:
        """Options."""
        return f"dim={self.dim}"


class GELU(Module):
    """`x` times the share of a standard normal distribution below `x`.

    >>> import lucerne as torch
    >>> torch.nn.GELU()(torch.zeros(2))
    tensor([0., 0.])
    """

    __constants__ = ["approximate"]
    approximate: str

    def __init__(self, approximate: str = "none") -> None:
        super().__init__()
        self.approximate = approximate

    def forward(self, input: Tensor) -> Tensor:
        """The activation of each element."""
        return F.gelu(input, approximate=self.approximate)

    def extra_repr(self) -> str:
        """Options."""
        return f"approximate={self.approximate!r}"


class Hardshrink(Module):
    """`x`, or 0 within `lambd` of zero.

    >>> import lucerne as torch
    >>> torch.nn.Hardshrink()(torch.tensor([-1.0, 0.2]))
    tensor([-1.,  0.])
    """

    __constants__ = ["lambd"]
    lambd: float

    def __init__(self, lambd: float = 0.5) -> None:
        super().__init__()
        self.lambd = lambd

    def forward(self, input: Tensor) -> Tensor:
        """The activation of each element."""
        return F.hardshrink(input, self.lambd)

    def extra_repr(self) -> str:
        """Options."""
        return f"{self.lambd}"


class LeakyReLU(Module):
    """`x` above zero, `negative_slope * x` below.

    >>> import lucerne as torch
    >>> torch.nn.LeakyReLU(0.1)(torch.tensor([-1.0, 2.0]))
    tensor([-0.1000,  2.0000])
    """

    __constants__ = ["inplace", "negative_slope"]
    negative_slope: float
    inplace: bool

    def __init__(self, negative_slope: float = 1e-2, inplace: bool = False) -> None:
        super().__init__()
        self.negative_slope = negative_slope
        self.inplace = inplace

    def forward(self, input: Tensor) -> Tensor:
        """The activation of each element."""
        return F.leaky_relu(input, self.negative_slope, self.inplace)

    def extra_repr(self) -> str:
        """Options."""
        return f"negative_slope={self.negative_slope}" + (", inplace=True" if self.inplace else "")


class LogSigmoid(Module):
    """`log(sigmoid(x))`.

    >>> import lucerne as torch
    >>> torch.nn.LogSigmoid()(torch.zeros(1))
    tensor([-0.6931])
    """

    def forward(self, input: Tensor) -> Tensor:
        """The activation of each element."""
        return F.logsigmoid(input)


class Softplus(Module):
    """`log(1 + exp(beta * x)) / beta`, a smooth relu; `x` itself above `threshold / beta`.

    >>> import lucerne as torch
    >>> torch.nn.Softplus()(torch.zeros(1))
    tensor([0.6931])
    """

    __constants__ = ["beta", "threshold"]
    beta: float
    threshold: float

    def __init__(self, beta: float = 1.0, threshold: float = 20.0) -> None:
        super().__init__()
        self.beta = beta
        self.threshold = threshold

    def forward(self, input: Tensor) -> Tensor:
        """The activation of each element."""
        return F.softplus(input, self.beta, self.threshold)

    def extra_repr(self) -> str:
        """Options."""
        return f"beta={self.beta}, threshold={self.threshold}"


class Softshrink(Module):
    """`x` moved towards zero by `lambd`, at most to zero.

    >>> import lucerne as torch
    >>> torch.nn.Softshrink()(torch.tensor([-1.0, 0.2]))
    tensor([-0.5000,  0.0000])
    """

    __constants__ = ["lambd"]
    lambd: float

    def __init__(self, lambd: float = 0.5) -> None:
        super().__init__()
        self.lambd = lambd

    def forward(self, input: Tensor) -> Tensor:
        """The activation of each element."""
        return F.softshrink(input, self.lambd)

    def extra_repr(self) -> str:
        """Options."""
        return str(self.lambd)


class PReLU(Module):
    """A leaky relu whose slope is learned, one for all channels or one for each.

    >>> import lucerne as torch
    >>> torch.nn.PReLU()(torch.tensor([-1.0, 2.0]))
    tensor([-0.2500,  2.0000], grad_fn=<PreluKernelBackward0>)
    """

    __constants__ = ["num_parameters"]
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

    def extra_repr(self) -> str:
        """Options."""
        return f"num_parameters={self.num_parameters}"


class Softsign(Module):
    """`x / (1 + |x|)`.

    >>> import lucerne as torch
    >>> torch.nn.Softsign()(torch.tensor([1.0]))
    tensor([0.5000])
    """

    def forward(self, input: Tensor) -> Tensor:
        """The activation of each element."""
        return F.softsign(input)


class Tanhshrink(Module):
    """`x - tanh(x)`.

    >>> import lucerne as torch
    >>> torch.nn.Tanhshrink()(torch.zeros(2))
    tensor([0., 0.])
    """

    def forward(self, input: Tensor) -> Tensor:
        """The activation of each element."""
        return F.tanhshrink(input)


class Softmin(Module):
    """`softmax(-x)`.

    >>> import lucerne as torch
    >>> torch.nn.Softmin(dim=1)(torch.zeros(1, 2))
    tensor([[0.5000, 0.5000]])
    """

    __constants__ = ["dim"]
    dim: int | None

    def __init__(self, dim: int | None = None) -> None:
        super().__init__()
        self.dim = dim

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        self.__dict__.setdefault("dim", None)

    def forward(self, input: Tensor) -> Tensor:
        """Normalised along `dim`."""
        return F.softmin(input, self.dim)

    def extra_repr(self) -> str:
        """Options."""
        return f"dim={self.dim}"


class Softmax(Module):
    """`exp(x)`, scaled to sum to one along a dimension.

    >>> import lucerne as torch
    >>> torch.nn.Softmax(dim=1)(torch.zeros(1, 2))
    tensor([[0.5000, 0.5000]])
    """

    __constants__ = ["dim"]
    dim: int | None

    def __init__(self, dim: int | None = None) -> None:
        super().__init__()
        self.dim = dim

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        self.__dict__.setdefault("dim", None)

    def forward(self, input: Tensor) -> Tensor:
        """Normalised along `dim`."""
        return F.softmax(input, self.dim)

    def extra_repr(self) -> str:
        """Options."""
        return f"dim={self.dim}"


class Softmax2d(Module):
    """Softmax over the channels of images (N, C, H, W) or (C, H, W).

    >>> import lucerne as torch
    >>> torch.nn.Softmax2d()(torch.zeros(1, 4, 1, 1)).flatten()
    tensor([0.2500, 0.2500, 0.2500, 0.2500])
    """

    def forward(self, input: Tensor) -> Tensor:
        """Normalised at each place."""
        if input.dim() not in (3, 4):
            raise ValueError(
                f"Softmax2d: expected input to be 3D or 4D, got {input.dim()}D instead"
            )
        return F.softmax(input, -3)


class LogSoftmax(Module):
    """`log(softmax(x))`, computed stably.

    >>> import lucerne as torch
    >>> torch.nn.LogSoftmax(dim=1)(torch.zeros(1, 2))
    tensor([[-0.6931, -0.6931]])
    """

    __constants__ = ["dim"]
    dim: int | None

    def __init__(self, dim: int | None = None) -> None:
        super().__init__()
        self.dim = dim

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        self.__dict__.setdefault("dim", None)

    def forward(self, input: Tensor) -> Tensor:
        """Normalised along `dim`."""
        return F.log_softmax(input, self.dim)

    def extra_repr(self) -> str:
        """Options."""
        return f"dim={self.dim}"
