"""TensorMeta: everything about a tensor but its bytes, interned so that equal means identical.

Plans are cached by metadata. Because two tensors with the same dtype, shape, strides and device
share one TensorMeta object, a cache key is a few pointers and hashing it costs nothing.
"""

from __future__ import annotations

import weakref
from typing import Any

from lucerne._src.base import shape as sh
from lucerne._src.base.device import device as Device
from lucerne._src.base.device import settled
from lucerne._src.base.dtype import dtype as DType
from lucerne._src.base.unspecialized import GivenFloat, Guarding, Symbolic
from lucerne._src.ir.symbolic.expressions import Guard
from lucerne._src.ir.symbolic.numbers import (
    SymFloat,
    SymInt,
    generic,
    guarding,
    is_symbolic,
    leave_all,
    plain,
)


class TensorMeta:
    """dtype, shape, strides and device of a tensor, with what follows from them."""

    __slots__ = (
        "__weakref__", "byte_strides", "contiguous", "device", "dtype", "exchanged", "flipped",
        "ndim", "numel", "shape", "span", "start", "strides",
    )  # fmt: skip

    dtype: DType
    shape: sh.Size
    strides: sh.Shape
    device: Device
    numel: int
    ndim: int
    contiguous: bool
    byte_strides: sh.Shape
    span: int
    """Elements from the first to one past the last, in memory."""
    start: Any
    """Of a view in a trace with symbolic sizes whose offset follows from them: that offset (the
    tensor has its value in the trace); else None."""
    flipped: bool
    """Whether the memory holds the conjugates of the elements (of real ones: their negatives):
    torch's conj and neg bits. Only views propagate it; kernels and graphs never see it."""
    exchanged: bytes
    """The geometry as other libraries read it, once one of them has asked (`tensor.interop`)."""

    def __repr__(self) -> str:
        flip = ", flipped" if self.flipped else ""
        strides = list(self.strides)
        return f"TensorMeta({self.dtype}, {list(self.shape)}, {strides}, {self.device}{flip})"

    def __reduce__(self) -> tuple[Any, ...]:
        return make_meta, (self.dtype, tuple(self.shape), self.strides, self.device, self.flipped)

    @property
    def is_dense(self) -> bool:
        return sh.is_dense(self.shape, self.strides)

    def like(
        self,
        shape: sh.Shape | None = None,
        dtype: DType | None = None,
        strides: sh.Shape | None = None,
        device: Device | None = None,
    ) -> TensorMeta:
        """A meta that differs in the given fields; new shapes are contiguous unless told. It is
        that of other memory, which holds its elements as they are."""
        if shape is None:
            shape = self.shape
            strides = self.strides if strides is None else strides
        elif strides is None:
            strides = sh.contiguous_strides(shape)
        return make_meta(dtype or self.dtype, shape, strides, device or self.device)


class NumberMeta:
    """Stands for a Python number among the operands: a 0-dim value that yields in promotion."""

    __slots__ = ("kind",)

    def __init__(self, kind: type) -> None:
        self.kind = kind

    def __repr__(self) -> str:
        return f"NumberMeta({self.kind.__name__})"


NUMBER_METAS: dict[type, NumberMeta] = {
    kind: NumberMeta(kind) for kind in (bool, int, float, complex)
}
NUMBER_METAS[GivenFloat] = NUMBER_METAS[SymFloat] = NUMBER_METAS[float]
NUMBER_METAS[SymInt] = NUMBER_METAS[int]

_METAS: weakref.WeakValueDictionary[Any, TensorMeta] = weakref.WeakValueDictionary()


def make_meta(
    dtype: DType,
    shape: sh.Shape,
    strides: sh.Shape | None,
    device: Device,
    flipped: bool = False,
) -> TensorMeta:
    """The one TensorMeta with these fields (contiguous when `strides` is None)."""
    if strides is None:
        if Guarding.count:
            with generic():
                strides = sh.contiguous_strides(shape)
        else:
            strides = sh.contiguous_strides(shape)
    if Guarding.count and (is_symbolic(shape) or is_symbolic(strides)):
        return _symbolic_meta(dtype, tuple(shape), tuple(strides), settled(device), None, flipped)
    key = (dtype, tuple(shape), strides, device, flipped)
    found = _METAS.get(key)
    if found is None and device.index is not None and settled(device) is not device:
        return make_meta(dtype, shape, strides, settled(device), flipped)
    if found is None:
        found = _METAS[key] = _filled(dtype, shape, strides, device, None, flipped)
    return found


def with_flip(meta: TensorMeta, flipped: bool) -> TensorMeta:
    """The meta of a tensor over the same elements of memory, read as they are or flipped."""
    if meta.flipped == flipped:
        return meta
    shape, strides = tuple(meta.shape), meta.strides
    if meta.start is not None:
        return _symbolic_meta(meta.dtype, shape, strides, meta.device, meta.start, flipped)
    return make_meta(meta.dtype, shape, strides, meta.device, flipped)


class Flips:
    """Whether there ever was a flipped meta: until then nobody has to look for one."""

    met = False


def _filled(
    dtype: DType, shape: sh.Shape, strides: sh.Shape, device: Device, start: Any, flipped: bool
) -> TensorMeta:
    Flips.met = Flips.met or flipped
    found = TensorMeta()
    found.dtype, found.device, found.start, found.flipped = dtype, device, start, flipped
    found.shape, found.strides = sh.Size(shape), tuple(strides)
    found.ndim, found.numel = len(found.shape), sh.numel(shape)
    found.contiguous = sh.is_contiguous(shape, strides)
    found.byte_strides = tuple(s * dtype.itemsize for s in strides)
    found.span = _span(found)
    return found


_SYMBOLIC: weakref.WeakValueDictionary[Any, TensorMeta] = weakref.WeakValueDictionary()


def _symbolic_meta(
    dtype: DType, shape: sh.Shape, strides: sh.Shape, device: Device, start: Any, flipped: bool
) -> TensorMeta:
    """The one meta with these expressions, in traces where they have these values."""
    key = (dtype, _key(shape), _key(strides), device, _key((start,)), flipped)
    found = _SYMBOLIC.get(key)
    if found is None:
        with generic(), guarding() as guards:
            found = _SYMBOLIC[key] = _filled(dtype, shape, strides, device, start, flipped)
        found.shape = sh.SymbolicSize(shape)
        _DECIDED[found] = tuple(guards)
    leave_all(_DECIDED[found])
    return found


_DECIDED: weakref.WeakKeyDictionary[TensorMeta, tuple[Guard, ...]] = weakref.WeakKeyDictionary()
"""What was decided by sizes when a symbolic meta was made: it holds in every trace that has it."""


def _key(numbers: tuple[Any, ...]) -> tuple[Any, ...]:
    return tuple([(n.expr, n.hint) if type(n) is SymInt else n for n in numbers])


def is_sized(meta: Any) -> bool:
    """Whether a meta has numbers that follow from sizes of inputs."""
    return isinstance(meta, TensorMeta) and type(meta.shape) is sh.SymbolicSize


def plain_meta(meta: Any) -> Any:
    """A meta as it was in the trace, without expressions."""
    if not isinstance(meta, TensorMeta):
        return meta
    shape, strides = (tuple([plain(n) for n in x]) for x in (meta.shape, meta.strides))
    return make_meta(meta.dtype, shape, strides, meta.device, meta.flipped)


def starting_at(meta: TensorMeta, start: Any) -> TensorMeta:
    """The meta of a view of this geometry; a symbolic offset is kept in it."""
    if not isinstance(start, Symbolic) and meta.start is None:
        return meta
    kept = start if isinstance(start, Symbolic) else None
    shape, strides = tuple(meta.shape), meta.strides
    if kept is None:
        return make_meta(meta.dtype, shape, strides, meta.device, meta.flipped)
    return _symbolic_meta(meta.dtype, shape, strides, meta.device, kept, meta.flipped)


def _span(meta: TensorMeta) -> int:
    if meta.numel == 0:
        return 0
    return 1 + sum((n - 1) * s for n, s in zip(meta.shape, meta.strides, strict=True))
