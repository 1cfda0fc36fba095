"""`lucerne.sparse`: functions of sparse tensors."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from lucerne._src.base.process import notices
from lucerne._src.tensor import api as lu
from lucerne._src.tensor.sparse.create import Invariants
from lucerne._src.tensor.sparse.create import spdiags as spdiags
from lucerne._src.tensor.sparse.folds import log_softmax as log_softmax
from lucerne._src.tensor.sparse.folds import softmax as softmax
from lucerne._src.tensor.sparse.folds import sum as sum
from lucerne._src.tensor.sparse.kinds import SparseTensor
from lucerne._src.tensor.sparse.products import addmm as addmm
from lucerne._src.tensor.sparse.products import mm as mm
from lucerne._src.tensor.sparse.products import sampled_addmm as sampled_addmm


class check_sparse_tensor_invariants:
    """Whether constructors check that indices are sorted and distinct: as a context, a decorator,
    or a switch.

    >>> import lucerne
    >>> with lucerne.sparse.check_sparse_tensor_invariants():
    ...     lucerne.sparse.check_sparse_tensor_invariants.is_enabled()
    True
    >>> lucerne.sparse.check_sparse_tensor_invariants.is_enabled()
    False
    """

    def __init__(self, enable: bool = True) -> None:
        self.state = enable
        self.saved: list[bool] = []

    @staticmethod
    def is_enabled() -> bool:
        return Invariants.enabled

    @staticmethod
    def enable() -> None:
        Invariants.enabled = True

    @staticmethod
    def disable() -> None:
        Invariants.enabled = False

    def __enter__(self) -> None:
        self.saved.append(Invariants.enabled)
        Invariants.enabled = self.state

    def __exit__(self, *exc: object) -> None:
        Invariants.enabled = self.saved.pop()

    def __call__(self, function: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(function)
        def checked(*args: Any, **kwargs: Any) -> Any:
            with type(self)(self.state):
                return function(*args, **kwargs)

        return checked


def as_sparse_gradcheck(check: Callable[..., bool]) -> Callable[..., bool]:
    """A gradcheck that takes sparse inputs: their stored elements are varied.

    >>> import lucerne
    >>> s = lucerne.eye(2, dtype=lucerne.float64).to_sparse().requires_grad_()
    >>> check = lucerne.sparse.as_sparse_gradcheck(lucerne.autograd.gradcheck)
    >>> check(lambda s: s.to_dense().exp(), (s,), masked=True)
    True
    """

    def checked(func: Callable[..., Any], inputs: Any, **options: Any) -> bool:
        options.pop("masked", None)
        given = inputs if isinstance(inputs, (tuple, list)) else (inputs,)
        patterns = [x.detach() if isinstance(x, SparseTensor) else None for x in given]

        def on_values(*parts: Any) -> Any:
            pairs = zip(patterns, parts, strict=True)
            found = func(*[p if s is None else s.with_values(p) for s, p in pairs])
            several = isinstance(found, (tuple, list))
            plain = [
                x._values() if isinstance(x, SparseTensor) else x
                for x in (found if several else [found])
            ]
            return tuple(plain) if several else plain[0]

        parts = [
            x._vals.detach().clone().requires_grad_(x.requires_grad) if s is not None else x
            for x, s in zip(given, patterns, strict=True)
        ]
        return check(on_values, tuple(parts), **options)

    return checked


def to_sparse_semi_structured(original_tensor: Any, transposed: bool = False) -> Any:
    """Two of four elements kept, as some accelerators' tensor units read them. No device here has
    such units, so this refuses as torch does without them."""
    if transposed:
        notices.warn(
            "Setting transpose from `to_sparse_semi_structured` is deprecated and will be removed "
            "in a future release. `SparseSemiStructuredTensor` only support contiguous input "
            "tensors.",
            FutureWarning,
        )
    return SparseSemiStructuredTensor.from_dense(original_tensor)


class SparseSemiStructuredTensor(lu.Tensor):
    """A matrix that stores two of each four elements of a row, for tensor units that skip the rest.

    >>> import lucerne
    >>> lucerne.sparse.SparseSemiStructuredTensor.from_dense(lucerne.ones(4, 4))
    Traceback (most recent call last):
    RuntimeError: Error original_tensor.device= cpu is not supported! Only CUDA tensors ...
    """

    BACKEND = ""

    def __new__(
        cls, shape: Any, packed: Any, meta: Any, packed_t: Any, meta_t: Any,
        compressed_swizzled_bitmask: Any, **options: Any,
    ) -> Any:  # fmt: skip
        if packed is None and packed_t is None:
            raise ValueError("At least one of packed or packed_t must be provided")
        given = packed if packed is not None else packed_t
        raise _no_units(given)

    @classmethod
    def from_dense(cls, original_tensor: Any) -> Any:
        raise _no_units(original_tensor)


class SparseSemiStructuredTensorCUTLASS(SparseSemiStructuredTensor):
    """The form that the CUTLASS library reads (see `SparseSemiStructuredTensor`)."""

    BACKEND = "cutlass"


class SparseSemiStructuredTensorCUSPARSELT(SparseSemiStructuredTensor):
    """The form that the cuSPARSELt library reads (see `SparseSemiStructuredTensor`)."""

    BACKEND = "cusparselt"


def _no_units(t: Any) -> RuntimeError:
    return RuntimeError(
        f"Error original_tensor.device= {t.device} is not supported! Only CUDA tensors are "
        "currently supported. Hint: `x.to_sparse_bsr(...)` and `x.to_sparse_csr()` work everywhere."
    )
