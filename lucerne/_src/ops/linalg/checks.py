"""What the functions of `lucerne.linalg` ask of their arguments, in torch's words."""

from __future__ import annotations

from typing import Any

from lucerne._src.base import dtype as dt
from lucerne._src.base.errors import LinAlgError
from lucerne._src.ir.dispatch import every_value
from lucerne._src.ir.op import Tensor

_LOW = (dt.float16, dt.bfloat16, dt.complex32)


def check_float(A: Tensor, name: str, low: bool = False) -> None:
    """Floating point or complex; the 16-bit ones only where `low` allows them."""
    if A.dtype.category not in (dt.FLOAT, dt.COMPLEX):
        raise RuntimeError(
            f"{name}: Expected a floating point or complex tensor as input. Got "
            f"{dt.cxx_name(A.dtype)}"
        )
    if not low and A.dtype in _LOW:
        raise RuntimeError(
            f"{name}: Low precision dtypes not supported. Got {dt.cxx_name(A.dtype)}"
        )


def check_matrix(A: Tensor, name: str, called: str = "A") -> None:
    if A.ndim < 2:
        raise RuntimeError(f"{name}: The input tensor {called} must have at least 2 dimensions.")


def check_square(A: Tensor, name: str, called: str = "A") -> None:
    check_matrix(A, name, called)
    m, n = A.shape[-2:]
    if m != n:
        raise RuntimeError(
            f"{name}: {called} must be batches of square matrices, but they are {m} by {n} matrices"
        )


def check_same_dtype(name: str, **tensors: Any) -> None:
    (first, a), (second, b) = tensors.items()
    if a.dtype is not b.dtype:
        raise RuntimeError(
            f"{name}: Expected {first} and {second} to have the same dtype, but found {first} of "
            f"type {dt.cxx_name(a.dtype)} and {second} of type {dt.cxx_name(b.dtype)} instead"
        )


def check_system(A: Tensor, B: Tensor, left: bool, name: str) -> None:
    """Whether the sizes of a linear system fit."""
    check_matrix(A, name, "A")
    check_matrix(B, name, "B")
    check_same_dtype(name, A=A, B=B)
    check_square(A, name)
    check_sizes(A, B, left, name)


def check_sizes(A: Tensor, B: Tensor, left: bool, name: str) -> None:
    (m, n), (p, q) = A.shape[-2:], B.shape[-2:]
    if (m != p) if left else (n != q):
        raise RuntimeError(
            f"{name}: Incompatible shapes of A and B for the equation "
            f"{'AX = B' if left else 'XA = B'} ({m}x{n} and {p}x{q})"
        )


_REASONS = {
    "cholesky": "The factorization could not be completed because the input is not "
    "positive-definite (the leading minor of order {0} is not positive-definite).",
    "inv": "The diagonal element {0} is zero, the inversion could not be completed because the "
    "input matrix is singular.",
    "solve": "The solver failed because the input matrix is singular.",
    "lu": "U[{0},{0}] is zero and using it on lu_solve would result in a division by zero.",
    "ldl": "The factorization could not be completed because D[{0},{0}] is zero.",
}


def failed(name: str, kind: str, at: int, number: int, batched: bool) -> LinAlgError:
    """The error of a factorisation whose matrix `at` ended with this info number."""
    where = f"(Batch element {at}): " if batched else ""
    return LinAlgError(f"{name}: {where}{_REASONS[kind].format(number)}")


def raise_if_failed(info: Tensor, name: str, kind: str) -> None:
    """Read the info numbers of a factorisation and complain about the first that isn't zero."""
    if info.device.type == "meta" or not info.numel():
        return
    numbers = every_value(info).reshape(-1).tolist()
    at = next((i for i, n in enumerate(numbers) if n), None)
    if at is None:
        return
    raise failed(name, kind, at, numbers[at], info.ndim > 0)


def is_vector_case(A: Tensor, B: Tensor) -> bool:
    """Whether B stands for one vector per matrix of A."""
    return bool(B.ndim == 1 or (A.ndim - 1 == B.ndim and tuple(B.shape) == tuple(A.shape[:-1])))
