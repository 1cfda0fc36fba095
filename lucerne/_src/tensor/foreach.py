"""`_foreach_*`: an op over lists of tensors, as libraries and optimizers call it.

Each row of the tables below gives two functions, one that makes new tensors and one in place. They
are loops over methods of Tensor: what is fast here is the call of an op itself.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from lucerne._src.ir.define import entries
from lucerne._src.tensor.base import TensorBase
from lucerne._src.tensor.bootstrap import families as families  # the methods must be there
from lucerne._src.tensor.tensor import Tensor

UNARY = [entry.name for entry in entries() if entry.foreach]
BINARY = ["add", "sub", "mul", "div", "clamp_max", "clamp_min", "maximum", "minimum", "pow"]
"""The other operand: a number, a tensor, or a list of either."""
TERNARY = ("addcmul", "addcdiv")
"""Two lists and a factor: a number, a list of numbers, or a tensor of them."""

Function = Callable[..., Any]


def _listed(name: str, tensors: Any) -> list[Any]:
    if isinstance(tensors, TensorBase) or not isinstance(tensors, (list, tuple)):
        raise TypeError(
            f"{name}(): argument 'self' (position 1) must be tuple of Tensors, not "
            f"{type(tensors).__name__}"
        )
    if not tensors:
        raise RuntimeError("Tensor list must have at least one tensor.")
    return list(tensors)


def _matched(count: int, other: Any) -> Sequence[Any]:
    """The other operand of each tensor."""
    if isinstance(other, TensorBase):
        if other.ndim:  # type: ignore[attr-defined]
            raise RuntimeError(
                "scalar tensor expected to be 0 dim but it has "
                f"{other._meta.ndim} dimensions and {other._meta.numel} elements."
            )
        return [other] * count
    if not isinstance(other, (list, tuple)):
        return [other] * count
    if len(other) == count:
        return other
    if other and not isinstance(other[0], TensorBase):
        raise RuntimeError("Tensor list must have same number of elements as scalar list.")
    raise RuntimeError(
        f"Tensor lists must have the same number of tensors, got {count} and {len(other)}"
    )


def _pair(name: str, fn: Function, over: Function) -> dict[str, Function]:
    """The function `_foreach_name` and the one in place, from what each does to one tensor."""

    def fresh(self: Any, *args: Any, **kwargs: Any) -> tuple[Any, ...]:
        tensors = _listed(f"_foreach_{name}", self)
        rows = [_matched(len(tensors), a) for a in args]
        return tuple(fn(t, *row, **kwargs) for t, *row in zip(tensors, *rows, strict=True))

    def in_place(self: Any, *args: Any, **kwargs: Any) -> Any:
        tensors = _listed(f"_foreach_{name}_", self)
        rows = [_matched(len(tensors), a) for a in args]
        for t, *row in zip(tensors, *rows, strict=True):
            over(t, *row, **kwargs)
        return self

    fresh.__name__ = fresh.__qualname__ = f"_foreach_{name}"
    in_place.__name__ = in_place.__qualname__ = f"_foreach_{name}_"
    fresh.__doc__ = f"`t.{name}(...)` for each tensor of a list."
    in_place.__doc__ = f"`t.{name}_(...)` for each tensor of a list."
    return {f.__name__: f for f in (fresh, in_place)}


def _extremum(name: str) -> tuple[Function, Function]:
    """maximum and minimum take numbers too here."""
    clamp = "clamp_min" if name == "maximum" else "clamp_max"

    def fn(t: Any, other: Any) -> Any:
        is_tensor = isinstance(other, TensorBase)
        return getattr(t, name)(other) if is_tensor else getattr(t, clamp)(other)

    def over(t: Any, other: Any) -> Any:
        is_tensor = isinstance(other, TensorBase)
        return t.copy_(fn(t, other)) if is_tensor else getattr(t, f"{clamp}_")(other)

    return fn, over


def _ternary(name: str) -> dict[str, Function]:
    method, method_ = getattr(Tensor, name), getattr(Tensor, f"{name}_")

    def factors(count: int, value: Any) -> Sequence[Any]:
        if not isinstance(value, TensorBase):
            return _matched(count, value)
        given: Any = value
        if given.numel() != count:
            raise RuntimeError(
                f"Expected length of scalars to match input of length {count} but got "
                f"{given.numel()} instead."
            )
        found: list[Any] = given.reshape(-1).tolist()
        return found

    def rows(self: Any, tensor1: Any, tensor2: Any, value: Any) -> Any:
        tensors = _listed(f"_foreach_{name}", self)
        n = len(tensors)
        parts = _matched(n, tensor1), _matched(n, tensor2), factors(n, value)
        return zip(tensors, *parts, strict=True)

    def fresh(self: Any, tensor1: Any, tensor2: Any, value: Any = 1, scalars: Any = None) -> Any:
        value = value if scalars is None else scalars
        return tuple(method(t, a, b, value=v) for t, a, b, v in rows(self, tensor1, tensor2, value))

    def in_place(self: Any, tensor1: Any, tensor2: Any, value: Any = 1, scalars: Any = None) -> Any:
        value = value if scalars is None else scalars
        for t, a, b, v in rows(self, tensor1, tensor2, value):
            method_(t, a, b, value=v)
        return self

    fresh.__name__, in_place.__name__ = f"_foreach_{name}", f"_foreach_{name}_"
    return {f.__name__: f for f in (fresh, in_place)}


def _add(t: Any, other: Any, *, alpha: Any = 1) -> Any:
    return t.add(_number(other), alpha=alpha)


def _add_over(t: Any, other: Any, *, alpha: Any = 1) -> Any:
    return t.add_(_number(other), alpha=alpha)


def _number(x: Any) -> Any:
    """One tensor that is added to all counts as a number: it does not widen their dtype."""
    alone = isinstance(x, TensorBase) and not x._meta.ndim and not x._needs_grad
    return x.item() if alone else x


def _pow(t: Any, exponent: Any) -> Any:
    return t**exponent


def _foreach_pow(self: Any, exponent: Any) -> tuple[Any, ...]:
    """`t ** exponent` for each tensor of a list, or `number ** t` for each exponent of one."""
    if isinstance(self, (int, float, complex)):
        return tuple(self**t for t in _listed("_foreach_pow", exponent))
    tensors = _listed("_foreach_pow", self)
    exponents = _matched(len(tensors), exponent)
    return tuple(map(_pow, tensors, exponents))


def _foreach_norm(self: Any, ord: float = 2, dtype: Any = None) -> tuple[Any, ...]:
    """The norm of each tensor of a list."""
    from_all: Any = Tensor.norm
    found = []
    for t in _listed("_foreach_norm", self):
        if not (t.is_floating_point() or t.is_complex()):
            kind = t.type().split(".")[-1].removesuffix("Tensor")
            raise RuntimeError(
                "linalg.vector_norm: Expected a floating point or complex tensor as input. "
                f"Got {kind}"
            )
        found.append(from_all(t, ord, dtype=dtype))
    return tuple(found)


def _foreach_powsum(self: Any, ord: float = 2, dtype: Any = None) -> tuple[Any, ...]:
    """The sum of the absolute values to a power, for each tensor of a list."""
    tensors = _listed("_foreach_powsum", self)
    if any(not (t.is_floating_point() or t.is_complex()) for t in tensors):
        raise NotImplementedError("_foreach_powsum: expected floating point or complex tensors")
    return tuple((t.abs() ** ord).sum(dtype=dtype) for t in tensors)


def _foreach_max(self: Any) -> tuple[Any, ...]:
    """The largest element of each tensor of a list."""
    tensors = _listed("_foreach_max", self)
    if any(not t.numel() for t in tensors):
        raise RuntimeError(
            "_foreach_max cannot compute the maximum of an empty tensor; max over zero elements "
            "is undefined."
        )
    return tuple(t.max() for t in tensors)


def _foreach_mm(self: Any, mat2: Any) -> tuple[Any, ...]:
    """The matrix product of each pair of two lists."""
    tensors = _listed("_foreach_mm", self)
    return tuple(a.mm(b) for a, b in zip(tensors, _matched(len(tensors), mat2), strict=True))


def _foreach_clone(self: Any, *, memory_format: Any = None) -> tuple[Any, ...]:
    """A copy of each tensor of a list."""
    options = {} if memory_format is None else {"memory_format": memory_format}
    return tuple(t.clone(**options) for t in _listed("_foreach_clone", self))


def _foreach_zero_(self: Any) -> Any:
    """Fill each tensor of a list with zeros."""
    for t in _listed("_foreach_zero_", self):
        t.zero_()
    return self


def _foreach_copy_(self: Any, src: Any, non_blocking: bool = False) -> Any:
    """Copy each tensor of a list over the one at its place in another."""
    tensors = _listed("_foreach_copy_", self)
    for t, source in zip(tensors, _matched(len(tensors), src), strict=True):
        t.copy_(source)
    return self


def functions() -> dict[str, Function]:
    """All of them, by name."""
    found: dict[str, Function] = {}
    for name in UNARY:
        found.update(_pair(name, getattr(Tensor, name), getattr(Tensor, f"{name}_")))
    for name in BINARY:
        if name in ("maximum", "minimum"):
            found.update(_pair(name, *_extremum(name)))
        elif name == "add":
            found.update(_pair(name, _add, _add_over))
        else:
            found.update(_pair(name, getattr(Tensor, name), getattr(Tensor, f"{name}_")))
    found.update(_pair("lerp", getattr(Tensor, "lerp"), getattr(Tensor, "lerp_")))  # noqa: B009
    for name in TERNARY:
        found.update(_ternary(name))
    for own in (
        _foreach_pow, _foreach_norm, _foreach_powsum, _foreach_max, _foreach_mm, _foreach_clone,
        _foreach_zero_, _foreach_copy_,
    ):  # fmt: skip
        found[own.__name__] = own
    return found
