"""Methods that change a tensor's own shape or memory: squeeze_, resize_; and T, mT, H, mH."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from lucerne._src.base import layout as lo
from lucerne._src.base import shape as sh
from lucerne._src.base.process import notices
from lucerne._src.ir import dispatch
from lucerne._src.ir.convert import as_int_list
from lucerne._src.ir.define import front
from lucerne._src.ops.copy.cast import copy
from lucerne._src.ops.view.reshape import sizes, squeeze, t, transpose, unsqueeze
from lucerne._src.ops.view.slicing import as_strided
from lucerne._src.tensor.autograd import record
from lucerne._src.tensor.autograd.state import requires_grad, set_history, state_of
from lucerne._src.tensor.base import Maker, TensorBase
from lucerne._src.tensor.eager.inplace import InPlace, bump, set_geometry
from lucerne._src.tensor.eager.specialize import spoil

Function = Callable[..., Any]


def become(target: Any, view: Any) -> Any:
    """Give a tensor the geometry (and the history) of a view of itself."""
    spoil()
    target._offset, target._meta, target._array = view._offset, view._meta, None
    if target._view is not None:
        target._view = view._view
    if requires_grad(view):
        new = state_of(view)
        set_history(target, new.grad_fn, new.output_nr)
    bump(target)
    return target


def _in_place_view(fn: Function, *names: str) -> None:
    """Enter `fn`, a view, as a method that changes the tensor itself."""

    def method(self: Any, *args: Any, **kwargs: Any) -> Any:
        if dispatch.state.grad_enabled and requires_grad(self):
            record.check_in_place(self)
        return become(self, fn(self, *args, **kwargs))

    method.__doc__ = f"`{names[0][:-1]}` of the tensor itself: its shape changes, its memory stays."
    method.__name__ = names[0]
    front(name=names[0], namespace="Tensor", method=True, aliases=names[1:])(method)


_in_place_view(squeeze, "squeeze_")
_in_place_view(unsqueeze, "unsqueeze_")
_in_place_view(transpose, "transpose_", "swapaxes_", "swapdims_")
_in_place_view(t, "t_")
_in_place_view(as_strided, "as_strided_")
front(name="as_strided_")(lambda input, *args, **kw: input.as_strided_(*args, **kw))


@front(namespace="Tensor", method=True)
def copy_(input: Any, src: Any, non_blocking: bool = False) -> Any:
    """Write the values of `src` into this tensor, broadcasting and converting them.

    >>> import lucerne
    >>> lucerne.zeros(2).copy_(lucerne.tensor([1, 2]))
    tensor([1., 2.])
    """
    if isinstance(src, TensorBase) and src._meta.device != input._meta.device:
        src = src.to(input._meta.device)  # type: ignore[attr-defined]
    return copy(input, src, out=InPlace(input))


# ---- size and storage -------------------------------------------------------------------------


@front(namespace="Tensor", method=True)
def resize_(input: Any, *args: Any, size: Any = None, memory_format: Any = None) -> Any:
    """Another size in place; the storage grows when it must, new elements are undefined."""
    if requires_grad(input):
        raise RuntimeError("cannot resize variables that require grad")
    shape = as_int_list(sizes(args, size))
    if any(n < 0 for n in shape):
        raise RuntimeError(
            f"Trying to create tensor with negative dimension {min(shape)}: {list(shape)}"
        )
    if memory_format is lo.preserve_format:
        raise RuntimeError("Unsupported memory format Preserve")
    if tuple(input.shape) == shape and memory_format is None:
        return input
    strides = sh.format_strides(shape, memory_format or lo.contiguous_format)
    set_geometry(input, input._meta.like(shape=shape, strides=strides))
    return input


@front(method=True)
def resize_as_(input: Any, other: Any, *, memory_format: Any = None) -> Any:
    """`resize_` to the size of another tensor."""
    if memory_format is lo.preserve_format:
        memory_format = sh.suggested_format(other.shape, other.stride())
    return input.resize_(other.shape, memory_format=memory_format)


# ---- transposes as attributes -----------------------------------------------------------------


def reversed_dims(x: Any) -> Any:
    """All dimensions in reverse (`x.T`)."""
    if x.ndim not in (0, 2):
        notices.warn(
            f"The use of `x.T` on tensors of dimension other than 2 to reverse their shape is "
            f"deprecated (got {x.ndim} dimensions). Use `x.mT` to transpose batches of matrices or "
            "`x.permute(*range(x.ndim)[::-1])`.",
            stacklevel=2,
        )
    return t(x) if x.ndim == 2 else x.permute(*range(x.ndim)[::-1])


def matrix_transpose(x: Any) -> Any:
    """The last two dimensions exchanged (`x.mT`)."""
    return transpose(x, -2, -1) if _matrices(x, "mT") else x


def matrix_adjoint(x: Any) -> Any:
    """The conjugate of `x.mT` (`x.mH`)."""
    return x.adjoint() if _matrices(x, "mH") else x


def adjoint_2d(x: Any) -> Any:
    """The conjugate transpose of a matrix (`x.H`)."""
    if x.ndim not in (0, 2):
        more = " For batches of matrices, consider using tensor.mH" if x.ndim > 2 else ""
        raise RuntimeError(
            f"tensor.H is only supported on matrices (2-D tensors). Got {x.ndim}-D tensor.{more}"
        )
    return x.adjoint() if x.ndim else (x.conj() if x.is_complex() else x)


def _matrices(x: Any, name: str) -> bool:
    if x.ndim == 1:
        raise RuntimeError(
            f"tensor.{name} is only supported on matrices or batches of matrices. Got {x.ndim}-D "
            "tensor."
        )
    if not x.ndim:
        notices.warn(
            f"Tensor.{name} is deprecated on 0-D tensors. This function is the identity in these "
            "cases.",
            stacklevel=3,
        )
    return bool(x.ndim)


PROPERTIES = {
    "T": reversed_dims,
    "mT": matrix_transpose,
    "mH": matrix_adjoint,
    "H": adjoint_2d,
}


def install() -> None:
    """Give Tensor its transposes."""
    for name, fn in PROPERTIES.items():
        setattr(Maker.cls, name, property(fn))
