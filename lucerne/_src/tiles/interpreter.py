"""A kernel in NumPy: every program in turn, every block an array.

It shares nothing with the compiler but the language, so it is what compiled kernels are compared
with, and the place to look when one is wrong: `print`, breakpoints and everything else work inside.
"""

from __future__ import annotations

import builtins
import math
from collections.abc import Iterator
from typing import Any

import numpy as np

from lucerne._src.base import dtype as dt
from lucerne._src.ir import tile as ir
from lucerne._src.ir.scalar.protocol import ROUNDING, Scalar
from lucerne._src.tiles.index import piece
from lucerne._src.tiles.language import Block, Operand, TensorParam, node_of
from lucerne._src.tiles.types import FUNCTIONS, computes_in

Array = np.ndarray[Any, Any]
_RENAMED: dict[str, Any] = {
    "add": np.add, "sub": np.subtract, "mul": np.multiply, "div": np.divide, "neg": np.negative,
    "abs": np.absolute, "lt": np.less, "le": np.less_equal, "gt": np.greater, "round": np.rint,
    "ge": np.greater_equal, "eq": np.equal, "ne": np.not_equal, "bit_and": np.bitwise_and,
    "bit_or": np.bitwise_or, "bit_xor": np.bitwise_xor, "bit_not": np.invert, "where": np.where,
    "is_nan": np.isnan, "is_inf": np.isinf, "pow": np.power, "atan": np.arctan,
    "asin": np.arcsin, "acos": np.arccos,
}  # fmt: skip


class _Numpy(Scalar):
    """Instructions of the scalar protocol; those that NumPy lacks follow from others."""

    def atan2(self, a: Any, b: Any) -> Any:
        return np.arctan2(a, b)

    def erf(self, x: Any) -> Any:
        return np.vectorize(math.erf, otypes=[np.float64])(x)


for _name in (*FUNCTIONS, *ROUNDING, "maximum", "minimum"):
    if hasattr(np, _name):
        setattr(_Numpy, _name, staticmethod(getattr(np, _name)))
for _name, _ufunc in _RENAMED.items():
    setattr(_Numpy, _name, staticmethod(_ufunc))
_MACHINE = _Numpy()


class Numbers:
    """A block: its elements, and the extents it has away from edges."""

    def __init__(self, array: Any, lengths: tuple[int, ...], dtype: dt.dtype, weak: bool = False):
        self.array, self.lengths, self.dtype, self.weak = array, lengths, dtype, weak

    def __repr__(self) -> str:
        return repr(self.array)


class _Variable:
    def __init__(self, array: Array, dtype: dt.dtype) -> None:
        self.array, self.dtype = array, dtype


class TileInterpreter:
    """One program of the grid."""

    def __init__(self, ids: tuple[int, ...], arrays: list[Array], writers: list[Array]) -> None:
        self.ids, self.arrays, self.writers = ids, arrays, writers

    def as_numbers(self, x: Any) -> Numbers:
        if isinstance(x, Numbers):
            return x
        if isinstance(x, (Block, Operand)):
            return self.as_numbers(node_of(x))
        if isinstance(x, bool):
            return Numbers(np.asarray(x), (), dt.bool_, weak=True)
        if isinstance(x, int):
            return Numbers(np.asarray(x, np.int64), (), dt.int64, weak=True)
        if isinstance(x, float):
            return Numbers(np.asarray(x, np.float64), (), dt.float64, weak=True)
        raise TypeError(f"expected a block or a number, got {type(x).__name__} {x!r}")

    def cast(self, x: Any, dtype: dt.dtype) -> Numbers:
        n = self.as_numbers(x)
        with np.errstate(all="ignore"):
            return Numbers(n.array.astype(dtype.storage), n.lengths, dtype)

    def point(self, name: str, args: list[Any]) -> Numbers:
        made = [self.as_numbers(a) for a in args]
        inner, result = computes_in(name, [(n.dtype, n.weak) for n in made])
        weak = all(n.weak for n in made)
        if weak and inner.category == dt.FLOAT:
            inner, result = dt.float64, dt.float64 if result.category == dt.FLOAT else result
        arrays, lengths = self._aligned(made)
        types = [inner] * len(made)
        if name == "where":
            types[0] = dt.bool_
        with np.errstate(all="ignore"):
            cast = [a.astype(t.storage) for a, t in zip(arrays, types, strict=True)]
            found = np.asarray(getattr(_MACHINE, name)(*cast)).astype(result.storage)
        return Numbers(found, lengths, result, weak)

    def _aligned(self, made: list[Numbers]) -> tuple[list[Array], tuple[int, ...]]:
        """Blocks cut to their common extent where an edge cut one of them."""
        rank = builtins.max(len(n.lengths) for n in made)
        lengths, extents = [], []
        for k in builtins.range(rank, 0, -1):
            mine = [n for n in made if len(n.lengths) >= k and n.lengths[-k] != 1]
            sizes = {n.lengths[-k] for n in mine}
            if len(sizes) > 1:
                shapes = " and ".join(str(list(n.lengths)) for n in made if n.lengths)
                raise ValueError(f"blocks of shapes {shapes} do not fit together")
            lengths.append(sizes.pop() if sizes else 1)
            extents.append(builtins.min([n.array.shape[-k] for n in mine], default=1))
        arrays = []
        for n in made:
            own = len(n.lengths)
            cut = tuple(
                slice(None) if n.lengths[i] == 1 else slice(extents[rank - own + i])
                for i in builtins.range(own)
            )
            arrays.append(n.array[cut])
        return arrays, tuple(lengths)

    # ---- folds -----------------------------------------------------------------------------------

    def fold(self, how: str, x: Any, axis: int, keep: bool) -> Numbers:
        n = self._summable(how, self.as_numbers(x))
        lengths = n.lengths[:axis] + ((1,) if keep else ()) + n.lengths[axis + 1 :]
        empty = n.array.shape[axis] == 0 and how in (ir.MAXIMUM, ir.MINIMUM)
        if empty:
            shape = n.array.shape[:axis] + ((1,) if keep else ()) + n.array.shape[axis + 1 :]
            return Numbers(np.full(shape, _worst(how, n.dtype), n.dtype.storage), lengths, n.dtype)
        ufunc: Any = {"add": np.sum, "mul": np.prod, "max": np.max, "min": np.min}[how]
        found = ufunc(n.array, axis=axis, keepdims=keep)
        return Numbers(np.asarray(found).astype(n.dtype.storage), lengths, n.dtype)

    def _summable(self, how: str, n: Numbers) -> Numbers:
        counts = how in (ir.SUM, ir.PRODUCT) and n.dtype.category < dt.FLOAT
        return self.cast(n, dt.int64) if counts else n

    def scan(self, how: str, x: Any) -> Numbers:
        n = self._summable(how, self.as_numbers(x))
        ufunc = {"add": np.add, "mul": np.multiply, "max": np.maximum, "min": np.minimum}[how]
        return Numbers(ufunc.accumulate(n.array, axis=-1), n.lengths, n.dtype)

    def dot(self, a: Any, b: Any) -> Numbers:
        left, right = self.as_numbers(a), self.as_numbers(b)
        _, dtype = computes_in("mul", [(left.dtype, False), (right.dtype, False)])
        k = builtins.min(left.array.shape[-1], right.array.shape[0])
        found = left.array[..., :k].astype(dtype.storage) @ right.array[:k].astype(dtype.storage)
        return Numbers(np.asarray(found), (*left.lengths[:-1], right.lengths[1]), dtype)

    def keep(self, x: Any) -> Numbers:
        return self.as_numbers(x)

    def swap(self, x: Any) -> Numbers:
        n = self.as_numbers(x)
        return Numbers(n.array.T, n.lengths[::-1], n.dtype)

    # ---- leaves ----------------------------------------------------------------------------------

    def count(self, x: Any, axis: int) -> int:
        return int(self.as_numbers(x).array.shape[axis])

    def iota(self, length: int) -> Numbers:
        return Numbers(np.arange(length), (length,), dt.int64)

    def full(self, lengths: tuple[int, ...], value: Any, dtype: dt.dtype) -> Numbers:
        one = self.cast(value, dtype).array
        return Numbers(np.full(lengths, one, dtype.storage), lengths, dtype)

    def lengths(self, x: Any) -> tuple[int, ...]:
        return self.as_numbers(x).lengths

    def dtype_of(self, x: Any) -> dt.dtype:
        return self.as_numbers(x).dtype

    # ---- tensors ---------------------------------------------------------------------------------

    def load(self, tensor: TensorParam, index: tuple[Any, ...]) -> Numbers:
        where, lengths = self._where(tensor, index)
        return Numbers(self.arrays[tensor.number][where].copy(), lengths, tensor.dtype.compute)

    def store(self, tensor: TensorParam, index: tuple[Any, ...], value: Any) -> None:
        where, lengths = self._where(tensor, index)
        target = self.arrays[tensor.number][where]
        n = self.cast(value, tensor.dtype.compute)
        spot = Numbers(target, lengths, n.dtype)
        (mine, theirs), _ = self._aligned([spot, n])
        cut = tuple(slice(s) for s in mine.shape)
        self._note_writer(tensor, where, cut)
        if target.ndim:
            target[cut] = theirs
        else:
            self.arrays[tensor.number][where] = theirs

    def _note_writer(self, tensor: TensorParam, where: Any, cut: Any) -> None:
        """Remember who wrote an element: no other program may."""
        known = self.writers[tensor.number]
        me = 1 + int(np.ravel_multi_index(self.ids, known_grid(self))) if self.ids else 1
        mine = np.asarray(known[where])[cut] if known[where].ndim else known[where]
        if np.any((mine != 0) & (mine != me)):
            raise RuntimeError(f"two programs wrote the same element of {tensor.name}")
        if known[where].ndim:
            known[where][cut] = me
        else:
            known[where] = me

    def _where(self, tensor: TensorParam, index: tuple[Any, ...]) -> tuple[Any, tuple[int, ...]]:
        shape = list(tensor.shape)
        given = [i for i in index if i is not None]
        where: list[Any] = []
        lengths: list[int] = []
        axis = 0
        for i in (*index, *[slice(None)] * (len(shape) - len(given))):
            if i is None:
                where.append(None)
                lengths.append(1)
                continue
            size = shape[axis]
            if isinstance(i, slice):
                first = 0 if i.start is None else i.start
                low, high = piece(first, size if i.stop is None else i.stop, size)
                where.append(slice(low, high))
                lengths.append(high - low)
            else:
                at = i if isinstance(i, int) else int(self.as_numbers(i).array)
                if not (-size if isinstance(i, int) else 0) <= at < size:
                    raise IndexError(
                        f"index {at} is out of bounds for axis {axis} of {tensor.name}, which has "
                        f"size {size}"
                    )
                where.append(at)
            axis += 1
        return tuple(where), tuple(lengths)

    # ---- variables and loops ---------------------------------------------------------------------

    def variable(self, initial: Any) -> _Variable:
        n = self.as_numbers(initial)
        if n.weak:
            n = self.cast(n, dt.float32 if n.dtype.category == dt.FLOAT else dt.int64)
        made = _Variable(np.zeros(n.lengths, n.dtype.storage), n.dtype)
        self.write(made, n)
        return made

    def read(self, variable: _Variable) -> Numbers:
        return Numbers(variable.array.copy(), variable.array.shape, variable.dtype)

    def write(self, variable: _Variable, value: Any) -> None:
        n = self.cast(value, variable.dtype)
        target = variable.array
        (mine, theirs), _ = self._aligned([Numbers(target, target.shape, n.dtype), n])
        target[tuple(slice(s) for s in mine.shape)] = theirs

    def loop(self, start: Any, stop: Any, step: int) -> Iterator[int]:
        yield from builtins.range(start, stop, step)

    def program_id(self, axis: int) -> int:
        return self.ids[axis]

    grid: tuple[int, ...] = ()


def known_grid(interpreter: TileInterpreter) -> tuple[int, ...]:
    return interpreter.grid


def _worst(how: str, dtype: dt.dtype) -> Any:
    if dtype.category == dt.FLOAT:
        return -math.inf if how == ir.MAXIMUM else math.inf
    if dtype is dt.bool_:
        return how == ir.MINIMUM
    info = np.iinfo(dtype.storage)
    return info.min if how == ir.MAXIMUM else info.max
