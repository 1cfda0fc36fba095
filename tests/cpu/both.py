"""One op call on the CPU engine and on the reference backend, over memory with watched edges."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from lucerne import backends
from lucerne._src.backends.cpu.backend import CpuBackend
from lucerne._src.backends.reference import codec
from lucerne._src.base import dtype as dt
from lucerne._src.base import layout as lo
from lucerne._src.base import shape as sh
from lucerne._src.base.device import device
from lucerne._src.ir import op as op_
from lucerne._src.ir.graph import one_op_graph
from lucerne._src.ir.meta import NUMBER_METAS, TensorMeta, make_meta

HOST = device("cpu")
_EDGE = 192
_MARK = 0xA5


class Storage:
    """Bytes between two watched edges."""

    def __init__(self, nbytes: int) -> None:
        whole = np.full(nbytes + 2 * _EDGE + 64, _MARK, np.uint8)
        start = _EDGE + (-(whole.__array_interface__["data"][0] + _EDGE)) % 64
        self.buffer = whole[start : start + nbytes]
        self.edges = (whole[:start], whole[start + nbytes :])

    def data_ptr(self) -> int:
        return int(self.buffer.__array_interface__["data"][0])

    @property
    def intact(self) -> bool:
        return all(bool((edge == _MARK).all()) for edge in self.edges)


class Tensor:
    """What executables see of a tensor."""

    def __init__(self, meta: TensorMeta, storage: Storage | None = None, offset: int = 0) -> None:
        self._meta, self._offset = meta, offset
        self._storage = storage or Storage(meta.span * meta.dtype.itemsize)
        self._array = None

    @property
    def bits(self) -> np.ndarray[Any, Any]:
        """The elements as they are stored."""
        m = self._meta
        start = self._offset * m.dtype.itemsize
        if not m.numel:
            return np.empty(m.shape, m.dtype.storage)
        return np.ndarray(m.shape, m.dtype.storage, self._storage.buffer, start, m.byte_strides)

    @property
    def values(self) -> np.ndarray[Any, Any]:
        return codec.widen(self.bits, self._meta.dtype)


def random_bits(rng: np.random.Generator, dtype: dt.dtype, count: int) -> np.ndarray[Any, Any]:
    """Stored values: small numbers of both signs, zeros among them."""
    if dtype is dt.bool_:
        return rng.integers(0, 2, count).astype(bool)
    if dtype.category == dt.INTEGER:
        return rng.integers(-9 if dtype.is_signed else 0, 10, count).astype(dtype.storage)
    values = rng.normal(size=count) * 2
    values[rng.random(count) < 0.05] = 0
    if dtype.category == dt.COMPLEX:
        values = values + 1j * rng.normal(size=count)
    return codec.narrow(values.astype(dtype.compute.storage), dtype)


LAYOUTS = ("plain", "turned", "sliced", "expanded", "row", "column", "single", "shifted")


def tensor(
    rng: np.random.Generator, dtype: dt.dtype, shape: Sequence[int], layout: str = "plain"
) -> Tensor:
    """A random tensor that broadcasts to `shape`, laid out in some way."""
    shape = tuple(shape)
    if layout == "row" and shape:
        shape = shape[-1:]
    elif layout == "column" and shape:
        shape = (*shape[:-1], 1)
    elif layout == "single":
        shape = ()
    strides, offset = _strides(shape, layout)
    meta = make_meta(dtype, shape, strides, HOST)
    storage = Storage((meta.span + offset) * dtype.itemsize)
    storage.buffer[:] = random_bits(rng, dtype, meta.span + offset).view(np.uint8)
    return Tensor(meta, storage, offset)


def _strides(shape: tuple[int, ...], layout: str) -> tuple[tuple[int, ...] | None, int]:
    if layout == "turned":
        return sh.ordered_strides(shape, range(len(shape))), 0
    if layout == "channels last":
        return sh.format_strides(shape, lo.channels_last), 0
    if layout == "sliced":
        return tuple(2 * s for s in sh.contiguous_strides([n + 1 for n in shape])), 3
    if layout == "expanded" and shape:
        return (0, *sh.contiguous_strides(shape[1:])), 0
    return None, 1 if layout == "shifted" else 0


class Both:
    """The results of one call on both backends."""

    def __init__(self, name: str, args: Sequence[Any], out: Tensor | None = None) -> None:
        op = op_.get(name)
        metas = tuple(_meta(a, k) for a, k in zip(args, op.kinds, strict=True))
        assert op.meta is not None
        self.out_meta = op.meta(*metas)
        self.graph = one_op_graph(op, metas, (self.out_meta,))
        self.inputs = [x for a, k in zip(args, op.kinds, strict=True) for x in _flow(a, k)]
        self.engine = CpuBackend()

    @property
    def fell_back(self) -> bool:
        return bool(self.engine.fallbacks)

    def run(self) -> tuple[Any, Any]:
        """(of the reference, of the engine): a Tensor or an exception each."""
        wanted = self._run(backends.get("reference").compile)
        found = self._run(self.engine.compile)
        return wanted, found

    def _run(self, compile: Any) -> Any:
        out = Tensor(self.out_meta)
        try:
            compile(self.graph)(self.inputs, [out])
        except Exception as problem:
            return problem
        assert out._storage.intact, "the kernel wrote outside of its output"
        return out


def _meta(a: Any, kind: str) -> Any:
    if isinstance(a, Tensor):
        return a._meta
    if kind == "l":
        return tuple(x._meta for x in a)
    return NUMBER_METAS[type(a)] if kind == "t" and a is not None else a


def _flow(a: Any, kind: str) -> Sequence[Any]:
    if kind == "l":
        return list(a)
    return [a] if isinstance(a, Tensor) or (kind in "tn" and a is not None) else []


_DIGITS = {24: 4e-6, 53: 1e-13, 8: 1.6e-2, 11: 2e-3, 4: 0.13, 3: 0.26}


def check_same(call: Both, *, exact: bool = False) -> bool:
    """Compare the two results; whether there was one (and not the same error twice)."""
    with np.errstate(all="ignore"):
        wanted, found = call.run()
    if isinstance(wanted, NotImplementedError) and "scipy" in str(wanted):
        pytest.skip(str(wanted))  # the oracle lacks the function, not the engine
    if isinstance(wanted, Exception) or isinstance(found, Exception):
        assert (type(found), str(found)) == (type(wanted), str(wanted)), f"{wanted!r} / {found!r}"
        return False
    if exact:
        np.testing.assert_array_equal(found.bits, wanted.bits)
        return True
    tolerance = _DIGITS.get(call.out_meta.dtype.digits, 0.0)
    with np.errstate(all="ignore"):
        np.testing.assert_allclose(found.values, wanted.values, 3 * tolerance, tolerance)
    return True
