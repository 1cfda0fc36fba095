"""Tensor's methods, in-place methods and operators, made from the op table."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from lucerne._src.ir import namespaces
from lucerne._src.ir import op as op_
from lucerne._src.ir.argument_errors import NotATensorError
from lucerne._src.ir.define import fronts
from lucerne._src.ir.scalar.protocol import COMPARISONS
from lucerne._src.ops.linalg import matmul
from lucerne._src.ops.pointwise import arithmetic, compare
from lucerne._src.ops.view import slicing
from lucerne._src.tensor.eager.inplace import InPlace
from lucerne._src.tensor.interop.construct import tensor
from lucerne._src.tensor.storage import FAST
from lucerne._src.tensor.tensor import Tensor

Function = Callable[..., Any]


def install() -> None:
    """Give Tensor one method per entry that asks for it."""
    for op in op_.table().values():
        _install(op.public, op.name, op.aliases, op.method, op.inplace)
    for front in fronts().values():
        _install(front.function, front.name, front.aliases, front.method, front.inplace)


def _install(
    fn: Function, name: str, aliases: tuple[str, ...], method: bool, inplace: bool
) -> None:
    for spelled in (name, *aliases):
        if method and spelled not in Tensor.__dict__:
            setattr(Tensor, spelled, namespaces.wrapped(fn))
        if inplace and f"{spelled}_" not in Tensor.__dict__:
            over: Any = namespaces.wrapped(in_place(fn, f"{spelled}_"))
            if FAST is not None:  # what may be done with a float is the same in place
                over.by_value = getattr(fn, "by_value", 1)
            setattr(Tensor, f"{spelled}_", over)


def in_place(fn: Function, name: str) -> Function:
    """The form that writes its result over its first argument."""

    def method(self: Any, *args: Any, **kwargs: Any) -> Any:
        return fn(self, *args, out=InPlace(self), **kwargs)

    method.__name__ = name
    method.__qualname__ = f"Tensor.{name}"
    method.__doc__ = f"In-place version of `{fn.__name__}`."
    return method


_BINARY = {
    "add": "add", "sub": "sub", "mul": "mul", "truediv": "div", "floordiv": "floor_divide",
    "mod": "remainder", "pow": "pow", "matmul": "matmul", "and": "bitwise_and", "or": "bitwise_or",
    "xor": "bitwise_xor", "lshift": "bitwise_left_shift", "rshift": "bitwise_right_shift",
}  # fmt: skip
_UNARY = {"neg": "neg", "pos": "positive", "abs": "abs", "invert": "bitwise_not"}


# `a + b` has no alpha and `a / b` no rounding mode: go straight to the op.
_SHORTCUTS: dict[str, Function] = {"add": arithmetic.add2, "div": arithmetic.true_divide}


def fast_operators() -> dict[str, Any]:
    """The primitives behind operators, for an engine that runs them without Python."""
    found = {
        "add": arithmetic.add2, "sub": arithmetic.sub2, "mul": arithmetic.mul,
        "truediv": arithmetic.true_divide, "neg": arithmetic.neg, "matmul": matmul.batch_matmul,
        "getitem": slicing.select_at, **{name: getattr(compare, name) for name in COMPARISONS},
    }  # fmt: skip
    return {name: fn.op for name, fn in found.items()}


def install_operators() -> None:
    """`a + b` and its kin; unknown operand types get NotImplemented, as Python wants it."""
    for dunder, name in _BINARY.items():
        fn = _SHORTCUTS.get(name) or getattr(Tensor, name)
        setattr(Tensor, f"__{dunder}__", _binary(fn, f"__{dunder}__", getattr(Tensor, name)))
        setattr(Tensor, f"__r{dunder}__", _reflected(fn, f"__r{dunder}__"))
        over = getattr(Tensor, f"{name}_", None)
        if over is not None:
            setattr(Tensor, f"__i{dunder}__", _over(over, f"__i{dunder}__"))
    for prefix in ("", "i"):
        setattr(Tensor, f"__{prefix}div__", getattr(Tensor, f"__{prefix}truediv__"))
    Tensor.__rdiv__ = Tensor.__rtruediv__ = _divided  # type: ignore[method-assign]
    for name in ("real", "imag"):
        setattr(Tensor, name, _part(fronts()[name].function))
    for name in COMPARISONS:
        if hasattr(Tensor, name):
            setattr(Tensor, f"__{name}__", _binary(getattr(Tensor, name), f"__{name}__"))
    Tensor.__ne__ = _or_identity(Tensor.__ne__)  # type: ignore[method-assign]
    for dunder, name in _UNARY.items():
        if hasattr(Tensor, name):
            setattr(Tensor, f"__{dunder}__", getattr(Tensor, name))

    Tensor.__eq__ = _or_identity(_equal(Tensor.__eq__))  # type: ignore[method-assign]


def _divided(self: Any, other: Any) -> Any:
    """`other / self`, which torch rounds twice: once for the reciprocal."""
    if isinstance(other, _FOREIGN) and not isinstance(other, np.ndarray):
        return NotImplemented
    return self.reciprocal() * other


def _over(fn: Function, name: str) -> Function:
    """`a += b`: beside an array Python goes on to `a + b`, which NumPy computes, as for torch."""

    def operator(self: Any, other: Any) -> Any:
        if type(other) is not Tensor and isinstance(other, _FOREIGN):
            return NotImplemented
        return fn(self, other)

    operator.__name__ = name
    made: Any = namespaces.wrapped(operator)
    made.stands_for = fn
    if FAST is not None:
        made.by_value = getattr(fn, "by_value", 1)
    return made


def _equal(compared: Any) -> Function:
    """`a == b`: NumPy leaves this one to us, and without an answer Python compares identities."""

    def operator(self: Any, other: Any) -> Any:
        if isinstance(other, np.ndarray) and other.dtype.kind in "biufc":
            other = tensor(other)
        return compared(self, other)

    operator.__name__ = "__eq__"
    operator.stands_for = compared.stands_for  # type: ignore[attr-defined]
    return operator


def _or_identity(compared: Any) -> Function:
    """`a == ...`: beside what is neither tensor nor number Python compares identities."""

    def operator(self: Any, other: Any) -> Any:
        try:
            return compared(self, other)
        except NotATensorError:
            return NotImplemented

    operator.__name__ = compared.__name__
    operator.stands_for = compared.stands_for  # type: ignore[attr-defined]
    return operator


def _part(fn: Function) -> property:
    """`x.real` and `x.imag`: views that may also be written."""
    return property(fn, lambda self, value: fn(self).copy_(value))


_FOREIGN = (str, bytes, list, dict, set, tuple, type(None), np.ndarray)


def _binary(fn: Function, name: str, stands_for: Function | None = None) -> Function:
    def operator(self: Any, other: Any) -> Any:
        if type(other) is not Tensor and isinstance(other, _FOREIGN):
            return NotImplemented
        return fn(self, other)

    operator.__name__ = name
    operator.stands_for = stands_for or fn  # type: ignore[attr-defined]
    return operator


# torch implements these in C: called on something else than a tensor, they refuse.
_STRICT = frozenset(("__radd__", "__rmul__", "__rand__", "__ror__", "__rxor__"))


def _reflected(fn: Function, name: str) -> Function:
    strict = name in _STRICT
    turned = name == "__rmul__"  # as torch has it: beside 16-bit floats the second factor is whole

    def operator(self: Any, other: Any) -> Any:
        if isinstance(other, _FOREIGN):
            return NotImplemented
        if strict and not isinstance(self, Tensor):
            raise TypeError(
                f"descriptor '{name}' for Tensor objects doesn't apply to a "
                f"'{type(self).__name__}' object"
            )
        return fn(self, other) if turned else fn(other, self)

    operator.__name__ = name
    return operator
