"""Complex numbers, their parts and their conjugates, which are views (see TensorMeta.flipped)."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from lucerne._src.base import dtype as dt
from lucerne._src.base import layout as lo
from lucerne._src.ir.define import Geometry, composite, front, pointwise, view
from lucerne._src.ir.meta import TensorMeta
from lucerne._src.ir.op import Tensor
from lucerne._src.ir.scalar.protocol import s
from lucerne._src.ops.checks import is_complex, need_tensors, zeros_of
from lucerne._src.ops.copy.cast import clone_as
from lucerne._src.ops.pointwise.select import choose


def _part(meta: TensorMeta, offset: int, flipped: bool) -> Geometry:
    """Every other number of the memory that holds complex elements."""
    strides = tuple(2 * n for n in meta.strides)
    return Geometry(tuple(meta.shape), strides, offset, meta.dtype.to_real(), flipped)


@view(
    internal=True,
    vjp={"input": lambda g: complex(g, zeros_of(g._meta))},
    torch="real",
    grad_fn="SelectBackward0",
)
def real_part(input: Tensor) -> Any:
    """The real parts, in place."""
    return _part(input, 0, False)


@view(
    internal=True,
    vjp={"input": lambda g: complex(zeros_of(g._meta), g)},
    torch="imag",
    grad_fn="SelectBackward0",
)
def imag_part(input: Tensor) -> Any:
    """The imaginary parts, in place: of a conjugate, the negatives of what is in memory."""
    return _part(input, 1, input.flipped)


@front()
def real(input: Tensor) -> Tensor:
    """The real parts: a view of complex memory, or a real tensor itself.

    >>> import lucerne
    >>> lucerne.real(lucerne.tensor([1 + 2j]))
    tensor([1.])
    """
    return real_part(input) if is_complex(input) else input


@front()
def imag(input: Tensor) -> Tensor:
    """The imaginary parts: a view of complex memory."""
    if not is_complex(input):
        raise RuntimeError("imag is not implemented for tensors with non-complex dtypes.")
    return imag_part(input)


@view(vjp={"input": lambda g: view_as_complex(g.contiguous())})
def view_as_real(input: Tensor) -> Any:
    """Complex memory as real numbers with a last dimension of size two."""
    meta: TensorMeta = input
    if meta.dtype.category != dt.COMPLEX:
        raise RuntimeError("view_as_real is only supported for complex tensors")
    if meta.flipped:
        raise RuntimeError(
            "view_as_real doesn't work on unresolved conjugated tensors.  To resolve the conjugate "
            "tensor so you can view it as real, use self.resolve_conj(); however, be warned that "
            "the resulting tensor will NOT alias the original."
        )
    strides = tuple(2 * n for n in meta.strides)
    return Geometry((*meta.shape, 2), (*strides, 1), 0, meta.dtype.to_real())


@view(vjp={"input": lambda g: view_as_real(g)}, autocast="full")
def view_as_complex(input: Tensor) -> Any:
    """Pairs of real numbers (a last dimension of size two) as complex ones."""
    meta: TensorMeta = input
    if meta.dtype not in (dt.float16, dt.float32, dt.float64):
        raise RuntimeError(
            "view_as_complex is only supported for half, float and double tensors, but got a "
            f"tensor of scalar type: {dt.cxx_name(meta.dtype)}"
        )
    if not meta.ndim:
        raise RuntimeError("Input tensor must have one or more dimensions")
    if meta.shape[-1] != 2:
        raise RuntimeError("Tensor must have a last dimension of size 2")
    if meta.strides[-1] != 1:
        raise RuntimeError("Tensor must have a last dimension with stride 1")
    if any(n % 2 for n in meta.strides[:-1]):
        raise RuntimeError("Tensor must have a stride divisible by 2 for all but last dimension")
    if meta.flipped:
        raise RuntimeError(
            "view_as_complex doesn't work on tensors with the negative bit set. Use "
            "self.resolve_neg(), which is a copy."
        )
    strides = tuple(n // 2 for n in meta.strides[:-1])
    return Geometry(tuple(meta.shape[:-1]), strides, 0, meta.dtype.to_complex())


@composite(out="exact")
def view_as_real_copy(input: Tensor) -> Tensor:
    """`view_as_real` on memory of its own."""
    return view_as_real(input).clone()


@composite(out="exact")
def view_as_complex_copy(input: Tensor) -> Tensor:
    """`view_as_complex` on memory of its own."""
    return view_as_complex(input).clone()


def _check_parts(first: Tensor, second: Tensor) -> None:
    for x in (first, second):
        if x.dtype not in (dt.float16, dt.float32, dt.float64):
            raise RuntimeError(
                "Expected both inputs to be Half, Float or Double tensors but got "
                f"{dt.cxx_name(first.dtype)} and {dt.cxx_name(second.dtype)}"
            )
    if first.dtype is not second.dtype:
        raise RuntimeError(
            f"Expected object of scalar type {dt.cxx_name(first.dtype)} but got scalar type "
            f"{dt.cxx_name(second.dtype)} for second argument"
        )


@pointwise(
    internal=True,
    name="complex_of",
    promote="complex",
    vjp={"real": lambda g: real(g), "imag": lambda g: imag(g)},
    oracle=lambda real, imag: real + 1j * imag,
    cost="light",
    torch="complex",
)
def complex_of(real: Tensor, imag: Tensor) -> Tensor:
    """Complex numbers from their parts."""
    return s.complex(real, imag)


@front()
def complex(real: Tensor, imag: Tensor, *, out: Any = None) -> Tensor:
    """Complex numbers from real and imaginary parts.

    >>> import lucerne
    >>> lucerne.complex(lucerne.tensor([1.0]), lucerne.tensor([2.0]))
    tensor([1.+2.j])
    """
    need_tensors("complex", real=real, imag=imag)
    _check_parts(real, imag)
    _check_complex_out(real, out)
    return complex_of(real, imag, out=out)


def _check_complex_out(part: Tensor, out: Any) -> None:
    want = part.dtype.to_complex()
    if out is not None and out.dtype is not want:
        raise RuntimeError(
            f"Expected object of scalar type {dt.cxx_name(want)} but got scalar type "
            f"{dt.cxx_name(out.dtype)} for argument 'out'"
        )


@composite(
    internal=True,
    name="polar_of",
    oracle=lambda abs, angle: abs * np.exp(1j * angle),
    autocast="full",
    torch="polar",
)
def polar_of(abs: Tensor, angle: Tensor) -> Tensor:
    """Complex numbers from length and angle."""
    return complex_of(abs * angle.cos(), abs * angle.sin())


@front(autocast="full")
def polar(abs: Tensor, angle: Tensor, *, out: Any = None) -> Tensor:
    """Complex numbers from length and angle."""
    need_tensors("polar", abs=abs, angle=angle)
    _check_parts(abs, angle)
    _check_complex_out(abs, out)
    return polar_of(abs, angle, out=out)


@pointwise(
    internal=True,
    out="exact",
    vjp={"input": lambda g: conj_physical(g)},
    oracle=np.conjugate,
    linear=True,
    cost="light",
    torch="conj_physical",
)
def conjugate(input: Tensor) -> Tensor:
    """The conjugate, computed."""
    return s.conj(input) if input.dtype.category == dt.COMPLEX else input


@front(method=True, inplace=True, sparse=True, linear=True)
def conj_physical(input: Tensor, *, out: Any = None) -> Tensor:
    """The conjugate, computed; a real tensor itself."""
    return conjugate(input, out=out) if is_complex(input) or out is not None else input


@view(internal=True, vjp={"input": lambda g: conjugate(g) if is_complex(g) else -g}, torch="conj")
def flip_view(input: Tensor) -> Any:
    """The conjugates (of real elements: the negatives) of a memory, or its elements again."""
    return Geometry(tuple(input.shape), input.strides, flipped=not input.flipped)


@front(method=True, sparse=True, linear=True)
def conj(input: Tensor) -> Tensor:
    """The conjugate, as a view; a real tensor itself.

    >>> import lucerne
    >>> z = lucerne.tensor([1 + 2j])
    >>> z.conj().mul_(2)
    tensor([2.-4.j])
    >>> z
    tensor([2.+4.j])
    """
    return flip_view(input) if is_complex(input) else input


@front(method=True, sparse=True, linear=True)
def resolve_conj(input: Tensor) -> Tensor:
    """A copy if the tensor is a conjugate view, else the tensor itself."""
    return clone_as(input, lo.preserve_format) if is_conj(input) else input


@front(method=True, sparse=True, linear=True)
def resolve_neg(input: Tensor) -> Tensor:
    """A copy if the tensor is a negated view, else the tensor itself."""
    return clone_as(input, lo.preserve_format) if is_neg(input) else input


@front(method=True, torch=None)
def is_conj(input: Tensor) -> bool:
    """Whether the memory holds the conjugates of the elements."""
    return bool(input._meta.flipped) and is_complex(input)


@front(method=True, torch=None)
def is_neg(input: Tensor) -> bool:
    """Whether the memory holds the negatives of the elements (`z.conj().imag`)."""
    return bool(input._meta.flipped) and not is_complex(input)


def _angle_gradient(g: Tensor, input: Tensor) -> Tensor:
    """A step turns the angle by its part across the radius, over the radius."""
    if not is_complex(input):
        return zeros_of(g._meta)
    squared = input.real * input.real + input.imag * input.imag
    turned = complex_of(-input.imag, input.real)
    return choose(squared == 0, 0.0, g * turned / squared)


@pointwise(
    promote="float_real", vjp={"input": _angle_gradient}, method=True, oracle=np.angle, sparse=True
)
def angle(input: Tensor) -> Tensor:
    """The angle of each element: for real ones 0, or pi when negative."""
    if input.dtype.category == dt.COMPLEX:
        return s.atan2(s.imag(input), s.real(input))
    return s.where(s.is_nan(input), input, s.where(input < 0, math.pi, 0.0))
