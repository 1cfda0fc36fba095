"""What the reference backend says to the same call: a coarse look, to find wrong addressing.

Fine comparison is the business of the conformance tests; here a result counts as wrong when it is
further from the reference than rounding and another order of summation could bring it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from lucerne import backends
from lucerne.backends.reference import codec
from lucerne.base import dtype as dt
from lucerne.ir import op as op_
from lucerne.ir.graph import Graph
from lucerne.ir.meta import TensorMeta

_TOLERANCE = {53: 1e-9, 24: 1e-3, 11: 3e-2, 8: 1e-1}
"""By digits of the narrowest floating type of a call, relative to the largest number in it."""
_DRAWN = frozenset((op_.RANDOM,))


def reference_of(graph: Graph) -> Any:
    """The reference backend's executable for a graph; None if it has none or may differ."""
    reference = backends.get("reference")
    if any(n.op.kind in _DRAWN or not reference.supports(n.op) for n in graph.nodes):
        return None
    return reference.compile(graph)


class Plain:
    """A tensor in ordinary memory: bytes from the first element on."""

    def __init__(self, meta: TensorMeta, buffer: np.ndarray[Any, Any]) -> None:
        self._meta, self._offset, self._array = meta, 0, None
        self._storage = self
        self.buffer = buffer

    def values(self) -> np.ndarray[Any, Any]:
        m = self._meta
        if not m.numel:
            return np.empty(tuple(m.shape), m.dtype.storage)
        return np.ndarray(tuple(m.shape), m.dtype.storage, self.buffer, 0, m.byte_strides)


def disagreement(inputs: Sequence[Plain], found: Sequence[Plain], wanted: Sequence[Plain]) -> str:
    """How two sets of results differ, in words. Inputs: the tensors among them."""
    metas = [x._meta for x in (*inputs, *found)]
    digits = min((m.dtype.digits for m in metas if m.dtype.category >= dt.FLOAT), default=53)
    tolerance = _TOLERANCE.get(digits, 0.5)
    given = max((_scale(x.values(), x._meta.dtype) for x in inputs), default=0.0)
    for number, (f, w) in enumerate(zip(found, wanted, strict=True)):
        text = _difference(f, w, tolerance, given)
        if text:
            return f"result {number}: {text}"
    return ""


def _scale(values: np.ndarray[Any, Any], dtype: dt.dtype) -> float:
    """The largest finite number."""
    sizes = np.abs(codec.widen(values, dtype).astype(np.complex128))
    finite = sizes[np.isfinite(sizes)]
    return float(finite.max()) if finite.size else 0.0


def _difference(found: Plain, wanted: Plain, tolerance: float, scale: float) -> str:
    dtype = found._meta.dtype
    a, b = codec.widen(found.values(), dtype), codec.widen(wanted.values(), dtype)
    with np.errstate(all="ignore"):
        if dtype.category < dt.FLOAT:
            bad = a != b
        else:
            scale = max(scale, _scale(wanted.values(), dtype))
            bad = ~np.isclose(a, b, tolerance, tolerance * scale, equal_nan=True)
    if not bad.any():
        return ""
    at = tuple(int(i) for i in np.argwhere(bad)[0])
    return f"{int(bad.sum())} of {bad.size} numbers: at {list(at)} {a[at]}, reference {b[at]}"
