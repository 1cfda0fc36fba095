"""Numbers that are given at each call, where native code takes them.

A `GivenFloat` is a float to all who don't know better, and a `GivenInt` is no integer at all. Ops
of floating tensors take both as numbers that are read anew at each call. Everybody else gets the
plain number, and what is done with it holds for this value only.
"""

from __future__ import annotations

from typing import Any

from lucerne._src.base import dtype as dt
from lucerne._src.base.raw import is_a
from lucerne._src.base.unspecialized import GivenFloat, Guarding
from lucerne._src.base.unspecialized_ints import GivenInt
from lucerne._src.capture.bytecode.frame import PythonFrame
from lucerne._src.ir.symbolic.numbers import call, is_symbolic
from lucerne._src.tensor.base import TensorBase
from lucerne._src.tensor.interop.outside import number

_OPERATORS = frozenset(("+", "-", "*", "/", "**", "//", "%", "<", "<=", "==", "!=", ">", ">="))
_OPS = frozenset(
    (
        "add", "sub", "subtract", "mul", "multiply", "div", "divide", "true_divide", "pow",
        "remainder", "fmod", "eq", "ne", "lt", "le", "gt", "ge", "rsub", "floor_divide",
    )
)  # fmt: skip
"""Ops of two operands for which an integer is the same as a float, if the other one is floating."""
_KINDS = (dt.float32, dt.float64)
"""Narrower ones round an integer before they compute."""
_MOST = 4


def by_value(fn: Any, args: Any, kwargs: Any) -> Any:
    """A call of something that knows nothing of such numbers: it gets plain ones, and what it does
    with them holds for these values only."""
    if fn is type and len(args) == 1 and type(args[0]) in _CLASSES:
        return _CLASSES[type(args[0])]
    if Guarding.count and not kwargs:  # perhaps sizes that are symbolic
        if fn is len and len(args) == 1 and is_a(args[0], TensorBase) and args[0]._meta.ndim:
            return args[0]._meta.shape[0]
        if fn is int and len(args) == 1 and is_a(args[0], TensorBase):
            return number(args[0], int)
        if any(map(is_symbolic, args)):
            return call(fn, args)
    given = any(type(a) in _CLASSES for a in args)
    if given and not kwargs:
        if fn is isinstance:
            return is_a(args[0].value if type(args[0]) is GivenInt else args[0], args[1])
        if fn is float and type(args[0]) is GivenInt:
            return args[0].as_float()
        if fn is abs:
            return abs(args[0])
        if fn in (min, max) and len(args) > 1 and all(type(a) in _NUMBERS for a in args):
            return _extreme(fn, args)
    if fn is not isinstance:
        args = tuple([plain_number(a) for a in args])
        kwargs = {name: plain_number(a) for name, a in kwargs.items()}
        plain_number(getattr(fn, "__self__", None))
    return fn(*args, **kwargs)


_CLASSES: dict[type, type] = {GivenFloat: float, GivenInt: int}
_NUMBERS = (bool, int, float, GivenFloat, GivenInt)


def _extreme(fn: Any, args: Any) -> Any:
    """`min` and `max` of numbers: which one it is must come out the same at each call."""
    best = args[0]
    for a in args[1:]:
        if (a < best) if fn is min else (a > best):
            best = a
    return best


def plain_number(x: Any, depth: int = 0) -> Any:
    """A number as it is; a list, tuple, dict or slice with plain numbers in it."""
    kind = type(x)
    if kind in _CLASSES:
        return x.by_value()
    if depth < _MOST and (kind is list or kind is tuple):
        parts = [plain_number(part, depth + 1) for part in x]
        same = all(a is b or type(b) is GivenFloat for a, b in zip(parts, x, strict=True))
        return x if same else kind(parts)
    if depth < _MOST and kind is dict and any(type(v) is GivenInt for v in x.values()):
        return {k: plain_number(v, depth + 1) for k, v in x.items()}
    if kind is slice and any(type(v) is GivenInt for v in (x.start, x.stop, x.step)):
        return slice(*(plain_number(v) for v in (x.start, x.stop, x.step)))
    return x


def for_ops(fn: Any, args: Any, kwargs: Any) -> tuple[Any, Any]:
    """The arguments of a function of ours."""
    if not any(_has_int(a) for a in (*args, *kwargs.values())):
        return args, kwargs
    owner = getattr(fn, "__self__", None)
    tensors = [a for a in (owner, *args) if is_a(a, TensorBase)]
    name = getattr(fn, "__name__", "").rstrip("_")
    if name in _OPS and len(tensors) == 1 and tensors[0]._meta.dtype in _KINDS and not kwargs:
        return tuple([a.as_float() if type(a) is GivenInt else a for a in args]), kwargs
    return tuple([_ints_plain(a) for a in args]), {k: _ints_plain(a) for k, a in kwargs.items()}


def _has_int(x: Any, depth: int = 0) -> bool:
    kind = type(x)
    if kind is GivenInt:
        return True
    if kind is list or kind is tuple:
        return depth < _MOST and any(_has_int(v, depth + 1) for v in x)
    if kind is dict:
        return depth < _MOST and any(_has_int(v, depth + 1) for v in x.values())
    return kind is slice and any(type(v) is GivenInt for v in (x.start, x.stop, x.step))


def _ints_plain(x: Any) -> Any:
    return x if type(x) is GivenFloat or not _has_int(x) else plain_number(x)


def before_operator(frame: PythonFrame) -> None:
    """Operands of the next instruction, if it is an op of tensors or an index."""
    op, stack = frame.decoded.ops[frame.ip], frame.stack
    if op.name in ("BINARY_OP", "COMPARE_OP"):
        _operands(str(op.argument), stack)
    elif op.name in _INDEXED:
        kept = op.name == "STORE_SUBSCR" and type(stack[-2]) in (list, dict)
        count = 1 if kept else _INDEXED[op.name]  # a list may keep a number as it is
        stack[-count:] = [_ints_plain(x) for x in stack[-count:]]


_INDEXED = {
    "BINARY_SUBSCR": 1, "STORE_SUBSCR": 3, "DELETE_SUBSCR": 1, "BINARY_SLICE": 2, "STORE_SLICE": 4,
}  # fmt: skip


def _operands(symbol: str, stack: list[Any]) -> None:
    """`x * k`: as a float if the tensor is floating, else by its value."""
    left, right = stack[-2], stack[-1]
    other = left if type(right) is GivenInt else right if type(left) is GivenInt else None
    if not isinstance(other, TensorBase):
        return
    symbol = symbol.removeprefix("bool(").removesuffix(")")
    if symbol not in _OPERATORS:
        symbol = symbol.removesuffix("=")
    fits = symbol in _OPERATORS and other._meta.dtype in _KINDS
    at = -1 if type(right) is GivenInt else -2
    stack[at] = stack[at].as_float() if fits else stack[at].by_value()
