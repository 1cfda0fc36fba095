"""What counts as equal: two arrays of one dtype, up to what rounding may do."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from lucerne._src import backends
from lucerne._src.base import dtype as dt
from lucerne._src.base.device import device as Device
from lucerne._src.ir.graph import one_op_graph
from lucerne._src.ir.meta import make_meta
from lucerne._src.ir.op import Op
from lucerne._src.ops.copy.cast import cast
from lucerne._src.transforms import interpret

Array = np.ndarray[Any, Any]

_CAST: Op = cast.op  # type: ignore[attr-defined]
EPSILON: dict[str, float] = {
    "float64": 2.0**-52, "float32": 2.0**-23, "float16": 2.0**-10, "bfloat16": 2.0**-7,
    "complex128": 2.0**-52, "complex64": 2.0**-23,
}  # fmt: skip
"""The distance from 1 to the next number."""
LOOSE: dict[str, tuple[float, float]] = {
    "float64": (1e-7, 1e-7), "float32": (1.3e-6, 1e-5), "float16": (1e-3, 1e-5),
    "bfloat16": (1.6e-2, 1e-5), "complex128": (1e-7, 1e-7), "complex64": (1.3e-6, 1e-5),
}  # fmt: skip
"""rtol and atol for results of many ops, those of `testing.assert_close`."""
_EIGHTH = 2.0**-2
"""What is taken for dtypes with a few bits."""
_OF_VALUE, _OF_LARGEST = 16, 4
_SPREADS = 8
_RARE = 0.01


@dataclass(frozen=True)
class Difference:
    """How two arrays differ."""

    most: float
    """The largest distance; infinite where only one of them is a number."""
    at: tuple[int, ...]
    got: Any
    wanted: Any
    wrong: int
    """How many elements are too far apart."""
    of: int
    what: str = ""
    """What differs if it is not the values."""

    def __str__(self) -> str:
        if self.what:
            return self.what
        where = f" at {list(self.at)}" if self.at else ""
        return (
            f"{self.got!r} where {self.wanted!r} is right{where}, {self.wrong} of {self.of} "
            f"elements, off by at most {self.most:.3g}"
        )


def wide(bits: Array, dtype: dt.dtype) -> Array:
    """Stored bits as numbers: float64, complex128, or integers as they are."""
    if not dtype.native:
        if dtype is dt.bfloat16:
            found = (bits.astype(np.uint32) << np.uint32(16)).view(np.float32)
            return found.astype(np.float64)
        target = dt.complex128 if dtype.category == dt.COMPLEX else dt.float64
        host = Device(backends.HOST)
        have, want = (make_meta(d, bits.shape, None, host) for d in (dtype, target))
        graph = one_op_graph(_CAST, (have, target), [want])
        graph.outputs = graph.nodes[0].outputs
        found = interpret.run(graph, [bits])[0][0].array
        return np.array(found)
    if bits.dtype.kind == "f":
        return bits.astype(np.float64)
    return bits.astype(np.complex128) if bits.dtype.kind == "c" else bits


def _distance(a: Array, b: Array) -> Array:
    with np.errstate(all="ignore"):
        if a.dtype.kind in "bui":
            return np.abs(a.astype(np.float64) - b.astype(np.float64))
        same = (a == b) | (np.isnan(a) & np.isnan(b))
        found = np.where(same, 0.0, np.abs(a - b))
        return np.where(np.isnan(found), np.inf, found)


def _is_chance(wrong: Array, apart: Array, moved: Array) -> bool:
    """Whether a few elements moved as far as others do by chance (a sign that tipped over)."""
    usual = moved[np.isfinite(moved)]
    few = int(wrong.sum()) <= max(1, _RARE * wrong.size)
    return few and bool(usual.size) and bool((apart[wrong] <= 2 * float(usual.max())).all())


Spread = Callable[[], Any]
"""How far rounding alone moves each element; None: not known. Asked for only when needed."""


class NearnessRule:
    """How far apart two results may be. `local`: of one step on the same operands, else of many.

    `exact`: nothing but element-wise ops happened, so numbers of few bits come out the same but for
    rare ties.
    """

    def __init__(self, *, local: bool, exact: bool = False) -> None:
        self.local, self.exact = local, exact

    def difference(
        self, got: Array, want: Array, dtype: dt.dtype, spread: Spread = lambda: None,
        known: Array | None = None,
    ) -> Difference | None:  # fmt: skip
        """None: they are equal as far as anybody can ask. `known`: elements that count."""
        if got.shape != want.shape:
            text = f"its shape is {list(got.shape)} where {list(want.shape)} is right"
            return Difference(np.inf, (), None, None, 0, 0, text)
        if not got.size or np.array_equal(got, want):
            return None
        a, b = wide(got, dtype), wide(want, dtype)
        apart = _distance(a, b)
        if known is not None:
            apart = np.where(known, apart, 0.0)
        wrong = apart > self._allowed(b, dtype)
        if not wrong.any():
            return None
        moved = spread()
        if moved is not None and moved.shape == apart.shape:
            if not self.local:  # what moves others by chance may move this one
                usual = moved[np.isfinite(moved)]
                moved = moved + (float(np.sqrt(np.mean(usual**2))) if usual.size else 0.0)
            wrong &= ~(apart <= self._allowed(b, dtype) + _SPREADS * moved)
            wrong &= ~np.isnan(moved)
            if not wrong.any() or (not self.local and _is_chance(wrong, apart, moved)):
                return None
        at = np.unravel_index(int(np.argmax(np.where(wrong, apart, -1.0))), apart.shape)
        where = tuple(int(i) for i in at)
        return Difference(
            float(apart[at]), where, a[at].item(), b[at].item(), int(wrong.sum()), a.size
        )

    def _allowed(self, want: Array, dtype: dt.dtype) -> Any:
        if dtype.category < dt.FLOAT:
            return 0.0
        eps = EPSILON.get(dtype.name, _EIGHTH)
        with np.errstate(all="ignore"):
            size = np.abs(want)
            if not self.local:
                rtol, atol = LOOSE.get(dtype.name, (_EIGHTH, 1e-2))
                return np.where(np.isfinite(size), atol + rtol * size, 0.0)
            finite = size[np.isfinite(size)]
            top = float(finite.max()) if finite.size else 0.0
            few = eps > EPSILON["float32"]
            value, largest = (2, 1) if few else (_OF_VALUE, _OF_LARGEST)
            if few and self.exact:
                largest = 0
            allowed = eps * (value * size + largest * top)
            return np.where(np.isfinite(size), allowed, 0.0)

    def rounds_otherwise(self, got: Array, want: Array, dtype: dt.dtype) -> Difference | None:
        """Of element-wise ops on numbers of few bits: more of them differ than ties would."""
        few = dtype.category == dt.FLOAT and EPSILON.get(dtype.name, _EIGHTH) > EPSILON["float32"]
        if not (self.exact and few) or not got.size:
            return None
        a, b = wide(got, dtype), wide(want, dtype)
        apart = _distance(a, b)
        count = int((apart > 0).sum())
        if count <= max(1, _RARE * got.size):
            return None
        at = np.unravel_index(int(np.argmax(apart)), apart.shape)
        where = tuple(int(i) for i in at)
        return Difference(float(apart[at]), where, a[at].item(), b[at].item(), count, a.size)
