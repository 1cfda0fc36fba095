"""Helpers that families of element-wise ops share: dtype checks, conjugates, zero gradients."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from lucerne._src.base import dtype as dt
from lucerne._src.ir.op import Tensor
from lucerne._src.ops.copy.cast import filled


def refuse(x: Any, name: str, *categories: int) -> None:
    """Raise as torch does when a kernel lacks a type; `x` is an operand of a body or a tensor."""
    if x.dtype.category in categories:
        raise NotImplementedError(f"\"{name}\" not implemented for '{dt.cxx_name(x.dtype)}'")


def need(holds: Any, text: Callable[[], str]) -> None:
    """What an op's meta demands of its arguments, be they a user's, a file's or the compiler's."""
    if not holds:
        raise RuntimeError(text())  # (made only now: sizes of a capture may not be printed)


def is_tensor(x: Any) -> bool:
    return hasattr(x, "_meta")


def need_tensors(name: str, **operands: Any) -> None:
    """torch's TypeError when a number stands where only a tensor may."""
    for i, (argument, x) in enumerate(operands.items()):
        if not is_tensor(x):
            raise TypeError(
                f"{name}(): argument '{argument}' (position {i + 1}) must be Tensor, not "
                f"{type(x).__name__}"
            )


def need_dtype_of(input: Any, other: Any) -> None:
    """Refuse an operand (or none) of another type, in torch's words."""
    if other is not None and other.dtype is not input.dtype:
        raise RuntimeError(
            f"expected scalar type {dt.cxx_name(input.dtype)} but found {dt.cxx_name(other.dtype)}"
        )


def is_complex(x: Any) -> bool:
    """Whether a tensor or a number is complex."""
    if is_tensor(x):
        return bool(x._meta.dtype.category == dt.COMPLEX)
    return isinstance(x, complex)


def conj_of(x: Any) -> Any:
    """The conjugate of a tensor or number; real ones as they are."""
    if is_tensor(x):
        return x.conj_physical() if x._meta.dtype.category == dt.COMPLEX else x
    return x.conjugate() if isinstance(x, complex) else x


def zeros_of(meta: Any) -> Tensor:
    """Zeros in the shape, dtype and place of a meta: the gradient of what is flat."""
    return filled(tuple(meta.shape), 0, meta.dtype, meta.device, None)


def flat(g: Any) -> Tensor:
    """The derivative of a step function."""
    return zeros_of(g._meta)


def is_integral(dtype: dt.dtype) -> bool:
    return dtype.category in (dt.BOOL, dt.INTEGER)


def computing(x: Tensor) -> Tensor:
    """A tensor as the dtype that its values are computed in."""
    return x if x.dtype.compute is x.dtype else x.to(x.dtype.compute)
