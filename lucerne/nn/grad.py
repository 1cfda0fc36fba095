"""`lucerne.nn.grad`: gradients of convolutions with respect to one argument."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from lucerne._src.tensor import api as lu
from lucerne._src.tensor.autograd import api as autograd
from lucerne.nn import functional as F


def _gradient(conv: Callable[..., Any], inputs: list[Any], at: int, grad_output: Any) -> Any:
    """The gradient of `conv(*inputs)` for the tensor at place `at`."""
    with lu.enable_grad():
        wanted = inputs[at] = inputs[at].detach().requires_grad_()
        (found,) = autograd.grad(conv(*inputs), wanted, grad_output)
    return found


def _for_input(conv: Callable[..., Any], name: str) -> Callable[..., Any]:
    def gradient(
        input_size: Any,
        weight: Any,
        grad_output: Any,
        stride: Any = 1,
        padding: Any = 0,
        dilation: Any = 1,
        groups: int = 1,
    ) -> Any:
        """The gradient with respect to the input, of which only the size matters."""
        empty = grad_output.new_zeros(1).expand(tuple(input_size))
        rest = [None, stride, padding, dilation, groups]
        return _gradient(conv, [empty, weight, *rest], 0, grad_output)

    gradient.__name__ = gradient.__qualname__ = name
    return gradient


def _for_weight(conv: Callable[..., Any], name: str) -> Callable[..., Any]:
    def gradient(
        input: Any,
        weight_size: Any,
        grad_output: Any,
        stride: Any = 1,
        padding: Any = 0,
        dilation: Any = 1,
        groups: int = 1,
    ) -> Any:
        """The gradient with respect to the weight, of which only the size matters."""
        empty = grad_output.new_zeros(1).expand(tuple(weight_size))
        rest = [None, stride, padding, dilation, groups]
        return _gradient(conv, [input, empty, *rest], 1, grad_output)

    gradient.__name__ = gradient.__qualname__ = name
    return gradient


conv1d_input = _for_input(F.conv1d, "conv1d_input")
conv2d_input = _for_input(F.conv2d, "conv2d_input")
conv3d_input = _for_input(F.conv3d, "conv3d_input")
conv1d_weight = _for_weight(F.conv1d, "conv1d_weight")
conv2d_weight = _for_weight(F.conv2d, "conv2d_weight")
conv3d_weight = _for_weight(F.conv3d, "conv3d_weight")
