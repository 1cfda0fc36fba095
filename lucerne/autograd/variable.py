"""`Variable`: what tensors with a gradient were called before every tensor could have one."""

from __future__ import annotations

from typing import Any

from lucerne._src.base.process import notices
from lucerne._src.tensor.tensor import Tensor


class VariableMeta(type):
    """Every tensor is a Variable."""

    def __instancecheck__(cls, other: Any) -> bool:
        return isinstance(other, Tensor)


class Variable(metaclass=VariableMeta):
    """`Variable(t, requires_grad)` is another tensor on the memory of `t`, without its history.

    >>> import lucerne as torch
    >>> torch.autograd.Variable(torch.ones(2), requires_grad=True)
    tensor([1., 1.], requires_grad=True)
    """

    def __new__(cls, data: Any = None, requires_grad: Any = False, volatile: Any = False) -> Any:
        if volatile:
            notices.warn(
                "volatile was removed and now has no effect. Use `with torch.no_grad():` instead."
            )
        if data is None:
            return Tensor()
        if not isinstance(data, Tensor):
            raise TypeError(f"Variable data has to be a tensor, but got {type(data).__name__}")
        made = data.detach()
        return made.requires_grad_() if requires_grad else made
