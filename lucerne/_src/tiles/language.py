"""What a tile kernel is written in.

The functions here run on whatever engine is current: the tracer, which writes down what happens
(then the CPU engine compiles it), or the interpreter, which does it with NumPy at once.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any, Protocol

from lucerne._src.base import dtype as dt
from lucerne._src.ir import tile as ir
from lucerne._src.tiles.types import FUNCTIONS


class Engine(Protocol):
    """Who runs a kernel. Nodes are its own; a Block carries one."""

    def point(self, name: str, args: list[Any]) -> Any: ...
    def cast(self, x: Any, dtype: dt.dtype) -> Any: ...
    def fold(self, how: str, x: Any, axis: int, keep: bool) -> Any: ...
    def scan(self, how: str, x: Any) -> Any: ...
    def dot(self, a: Any, b: Any) -> Any: ...
    def keep(self, x: Any) -> Any: ...
    def swap(self, x: Any) -> Any: ...
    def count(self, x: Any, axis: int) -> Any: ...
    def iota(self, length: int) -> Any: ...
    def full(self, lengths: tuple[int, ...], value: Any, dtype: dt.dtype) -> Any: ...
    def load(self, tensor: Any, index: tuple[Any, ...]) -> Any: ...
    def store(self, tensor: Any, index: tuple[Any, ...], value: Any) -> None: ...
    def variable(self, initial: Any) -> Any: ...
    def read(self, variable: Any) -> Any: ...
    def write(self, variable: Any, value: Any) -> None: ...
    def loop(self, start: Any, stop: Any, step: int) -> Iterator[Any]: ...
    def program_id(self, axis: int) -> Any: ...
    def lengths(self, x: Any) -> tuple[int, ...]: ...
    def dtype_of(self, x: Any) -> dt.dtype: ...


class _Current(threading.local):
    engine: Engine | None = None


current = _Current()


def engine() -> Engine:
    found = current.engine
    if found is None:
        raise RuntimeError(
            "functions of lucerne.tiles are for the inside of a kernel: decorate a function with "
            "@tiles.kernel and call that"
        )
    return found


class Operand:
    """Python's operators on what a kernel computes with."""

    __slots__ = ()

    def __add__(self, other: Any) -> Block:
        return _point("add", self, other)

    def __radd__(self, other: Any) -> Block:
        return _point("add", other, self)

    def __sub__(self, other: Any) -> Block:
        return _point("sub", self, other)

    def __rsub__(self, other: Any) -> Block:
        return _point("sub", other, self)

    def __mul__(self, other: Any) -> Block:
        return _point("mul", self, other)

    def __rmul__(self, other: Any) -> Block:
        return _point("mul", other, self)

    def __truediv__(self, other: Any) -> Block:
        return _point("div", self, other)

    def __rtruediv__(self, other: Any) -> Block:
        return _point("div", other, self)

    def __pow__(self, other: Any) -> Block:
        if other == 2:
            return _point("mul", self, self)
        return _point("pow", self, other)

    def __neg__(self) -> Block:
        return _point("neg", self)

    def __abs__(self) -> Block:
        return _point("abs", self)

    def __and__(self, other: Any) -> Block:
        return _point("bit_and", self, other)

    def __or__(self, other: Any) -> Block:
        return _point("bit_or", self, other)

    def __xor__(self, other: Any) -> Block:
        return _point("bit_xor", self, other)

    def __invert__(self) -> Block:
        return _point("bit_not", self)

    def __lt__(self, other: Any) -> Block:
        return _point("lt", self, other)

    def __le__(self, other: Any) -> Block:
        return _point("le", self, other)

    def __gt__(self, other: Any) -> Block:
        return _point("gt", self, other)

    def __ge__(self, other: Any) -> Block:
        return _point("ge", self, other)

    def __eq__(self, other: Any) -> Block:  # type: ignore[override]
        return _point("eq", self, other)

    def __ne__(self, other: Any) -> Block:  # type: ignore[override]
        return _point("ne", self, other)

    __hash__ = object.__hash__

    def __bool__(self) -> bool:
        raise TypeError(
            "a kernel is traced before its numbers exist, so it can't branch on them: use "
            "tiles.where(condition, a, b)"
        )


class Block(Operand):
    """Numbers that a program holds: one, a row, or a matrix."""

    __slots__ = ("node",)

    def __init__(self, node: Any) -> None:
        self.node = node

    @property
    def shape(self) -> tuple[int, ...]:
        """The extents; at the edge of a tensor there may be fewer elements."""
        return engine().lengths(self.node)

    @property
    def dtype(self) -> dt.dtype:
        return engine().dtype_of(self.node)

    @property
    def T(self) -> Block:
        """The transpose of a matrix."""
        return Block(engine().swap(self.node))

    def to(self, dtype: dt.dtype) -> Block:
        """As another dtype (computed in float32 where that is bfloat16 or float16)."""
        return Block(engine().cast(self.node, dtype.compute))

    def __repr__(self) -> str:
        return f"<block {list(self.shape)} {self.node!r}>"


class Ref(Operand):
    """A piece of a tensor, such as `x[row, :]`: loaded when it is computed with."""

    __slots__ = ("index", "tensor")

    def __init__(self, tensor: Any, index: tuple[Any, ...]) -> None:
        self.tensor, self.index = tensor, index

    @property
    def T(self) -> Block:
        return load(self).T

    def to(self, dtype: dt.dtype) -> Block:
        return load(self).to(dtype)


class TensorParam(Operand):
    """A tensor of the kernel: index it to get a piece of it."""

    __slots__ = ("is_output", "meta", "name", "number")

    def __init__(self, name: str, number: int, meta: Any, is_output: bool) -> None:
        self.name, self.number, self.meta, self.is_output = name, number, meta, is_output

    @property
    def shape(self) -> Any:
        return self.meta.shape

    @property
    def dtype(self) -> dt.dtype:
        found: dt.dtype = self.meta.dtype
        return found

    @property
    def ndim(self) -> int:
        found: int = self.meta.ndim
        return found

    def __getitem__(self, index: Any) -> Ref:
        return Ref(self, index if isinstance(index, tuple) else (index,))

    def __repr__(self) -> str:
        return f"<{'output' if self.is_output else 'input'} {self.name} {self.meta}>"


class Variable(Operand):
    """A block that changes: `acc += x`, `acc.set(x)`; computing with it reads what it holds now."""

    __slots__ = ("handle",)

    def __init__(self, handle: Any) -> None:
        self.handle = handle

    @property
    def value(self) -> Block:
        """What it holds now."""
        return Block(engine().read(self.handle))

    def set(self, value: Any) -> None:
        """Write over it, as far as `value` reaches."""
        engine().write(self.handle, node_of(value))

    def __iadd__(self, other: Any) -> Variable:  # type: ignore[override]
        self.set(self + other)
        return self

    def __isub__(self, other: Any) -> Variable:  # type: ignore[override]
        self.set(self - other)
        return self

    def __imul__(self, other: Any) -> Variable:  # type: ignore[override]
        self.set(self * other)
        return self


def node_of(x: Any) -> Any:
    """What the engine computes with: nodes of blocks; numbers as they are."""
    if isinstance(x, Block):
        return x.node
    if isinstance(x, Ref):
        return load(x).node
    if isinstance(x, Variable):
        return x.value.node
    if isinstance(x, TensorParam):
        raise TypeError(
            f"{x.name} is a whole tensor: say which piece, for example {x.name}[row, :]"
        )
    return x


def _point(name: str, *args: Any) -> Block:
    return Block(engine().point(name, [node_of(a) for a in args]))


# ---- memory -------------------------------------------------------------------------------------


def load(ref: Ref) -> Block:
    """The elements of a piece of an input. What lies beyond the edge is not there: a block ends at
    the edge, as a slice in Python does."""
    if not isinstance(ref, Ref):
        raise TypeError(f"tiles.load: expected a piece of a tensor like x[row, :], got {ref!r}")
    return Block(engine().load(ref.tensor, ref.index))


def store(ref: Ref, value: Any) -> None:
    """Write a block to a piece of an output; a scalar fills it."""
    if not isinstance(ref, Ref):
        raise TypeError(f"tiles.store: expected a piece of an output like y[row, :], got {ref!r}")
    engine().store(ref.tensor, ref.index, node_of(value))


def program_id(axis: int = 0) -> Any:
    """The number of this program along an axis of the grid."""
    return engine().program_id(axis)


def range(start: Any, stop: Any = None, step: int = 1) -> Iterator[Any]:
    """A loop whose body is written down once: what changes in it must be a `tiles.variable`."""
    if stop is None:
        start, stop = 0, start
    return engine().loop(start, stop, step)


def variable(initial: Any) -> Variable:
    """A block that may be written again, with its first value."""
    return Variable(engine().variable(node_of(initial)))


def keep(x: Any) -> Block:
    """Compute a block now and keep it, where it would be computed at each use."""
    return Block(engine().keep(node_of(x)))


# ---- making blocks ------------------------------------------------------------------------------


def arange(length: int) -> Block:
    """0, 1, 2, ... as int64."""
    return Block(engine().iota(length))


def full(shape: Any, value: Any, dtype: dt.dtype = dt.float32) -> Block:
    """A block with one number everywhere; `shape` is an int, or one or two of them."""
    lengths = (shape,) if isinstance(shape, int) else tuple(shape)
    return Block(engine().full(lengths, value, dtype.compute))


def zeros(shape: Any, dtype: dt.dtype = dt.float32) -> Block:
    return full(shape, 0, dtype)


# ---- folds --------------------------------------------------------------------------------------


def _fold(how: str, x: Any, axis: int | None, keepdims: bool) -> Block:
    e, node = engine(), node_of(x)
    lengths = e.lengths(node)
    if not lengths:
        return Block(node)
    if axis is None:
        if keepdims:
            raise TypeError("tile: keepdims needs an axis")
        for _ in lengths:
            node = e.fold(how, node, len(e.lengths(node)) - 1, False)
        return Block(node)
    if not -len(lengths) <= axis < len(lengths):
        raise IndexError(f"tile: a block of shape {list(lengths)} has no axis {axis}")
    return Block(e.fold(how, node, axis % len(lengths), keepdims))


def sum(x: Any, axis: int | None = None, keepdims: bool = False) -> Block:
    """The sum of a block, or along one of its axes."""
    return _fold(ir.SUM, x, axis, keepdims)


def prod(x: Any, axis: int | None = None, keepdims: bool = False) -> Block:
    return _fold(ir.PRODUCT, x, axis, keepdims)


def max(x: Any, axis: int | None = None, keepdims: bool = False) -> Block:
    return _fold(ir.MAXIMUM, x, axis, keepdims)


def min(x: Any, axis: int | None = None, keepdims: bool = False) -> Block:
    return _fold(ir.MINIMUM, x, axis, keepdims)


def mean(x: Any, axis: int | None = None, keepdims: bool = False) -> Block:
    """The mean of the elements there are."""
    e, node = engine(), node_of(x)
    lengths = e.lengths(node)
    axes = [i for i, _ in enumerate(lengths)] if axis is None else [axis % len(lengths)]
    total = sum(Block(node), axis, keepdims)
    for i in axes:
        total = total / Block(e.count(node, i))
    return total


def argmax(x: Any) -> Block:
    """Where the largest element of a row is: the first one if there are several."""
    block = Block(node_of(x))
    (length,) = block.shape
    found = where((block == max(block)) | isnan(block), arange(length), length)
    return min(found)


def cumsum(x: Any) -> Block:
    """Running sums along the last axis."""
    return Block(engine().scan(ir.SUM, node_of(x)))


def cumprod(x: Any) -> Block:
    return Block(engine().scan(ir.PRODUCT, node_of(x)))


def cummax(x: Any) -> Block:
    return Block(engine().scan(ir.MAXIMUM, node_of(x)))


def dot(a: Any, b: Any) -> Block:
    """The product of two matrices, or of a row and a matrix."""
    return Block(engine().dot(node_of(a), node_of(b)))


# ---- elements -----------------------------------------------------------------------------------


def where(condition: Any, a: Any, b: Any) -> Block:
    """`a` where the condition holds, else `b`."""
    return _point("where", condition, a, b)


def maximum(a: Any, b: Any) -> Any:
    """The larger of two, element by element; nan wins."""
    return _point("maximum", a, b)


def minimum(a: Any, b: Any) -> Any:
    """The smaller of two, element by element. Of a program's number and an int: a bound for
    `tiles.range`."""
    bound = getattr(a, "bounded_by", None) or getattr(b, "bounded_by", None)
    if bound is not None:
        return bound(b if hasattr(a, "bounded_by") else a)
    if isinstance(a, int) and isinstance(b, int):
        return a if a < b else b
    return _point("minimum", a, b)


def isnan(x: Any) -> Block:
    return _point("is_nan", x)


def floor(x: Any) -> Block:
    return _point("floor", x)


def abs(x: Any) -> Block:
    return _point("abs", x)


def _function(name: str) -> Any:
    def instruction(x: Any) -> Block:
        return _point(name, x)

    instruction.__name__ = instruction.__qualname__ = name
    instruction.__doc__ = f"`{name}` of each element."
    return instruction


ELEMENTWISE = {name: _function(name) for name in FUNCTIONS}
