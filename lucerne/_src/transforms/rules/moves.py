"""Rules about copies, casts and joins: elements that only change place or type."""

from __future__ import annotations

from typing import Any

from lucerne._src.base import dtype as dt
from lucerne._src.base import layout as lo
from lucerne._src.ir.graph import Node, Value
from lucerne._src.ir.meta import TensorMeta
from lucerne._src.ir.op import Op
from lucerne._src.ops.copy.cast import clone_as, copy
from lucerne._src.ops.copy.join import cat_same
from lucerne._src.transforms.constants import CAST, FILLED, filled_args
from lucerne._src.transforms.rules.rule import Answer, Look, NewNode, Rule, meta_of

_CLONE: Op = clone_as.op  # type: ignore[attr-defined]
_COPY: Op = copy.op  # type: ignore[attr-defined]
_CAT: Op = cat_same.op  # type: ignore[attr-defined]

_BITS = {dt.int8: 7, dt.uint8: 8, dt.int16: 15, dt.uint16: 16, dt.int32: 31, dt.uint32: 32,
         dt.int64: 63, dt.uint64: 64}  # fmt: skip
_WIDER_FLOATS = {
    dt.float16: (dt.float32, dt.float64),
    dt.bfloat16: (dt.float32, dt.float64),
    dt.float32: (dt.float64,),
}


def holds(wide: dt.dtype, narrow: dt.dtype) -> bool:
    """Whether `wide` has every value of `narrow`, so that a cast there loses nothing."""
    if wide is narrow:
        return True
    if narrow is dt.bool_:
        return wide in _BITS or wide in (dt.float16, dt.bfloat16, dt.float32, dt.float64)
    if narrow in _BITS:
        if wide in _BITS:
            return _BITS[wide] >= _BITS[narrow] and (wide.is_signed or not narrow.is_signed)
        return wide in (dt.float32, dt.float64) and wide.digits >= _BITS[narrow]
    return wide in _WIDER_FLOATS.get(narrow, ())


def _cast_same(look: Look, node: Node) -> Answer:
    value: Value = node.args[0]
    return value if value.meta.dtype is node.args[1] else None


def _cast_back(look: Look, node: Node) -> Answer:
    inner = look.producer(node.args[0], "cast")
    if inner is None:
        return None
    source: Value = inner.args[0]
    dtype = source.meta.dtype
    return source if dtype is node.args[1] and holds(inner.args[1], dtype) else None


def _cast_twice(look: Look, node: Node) -> Answer:
    inner = look.producer(node.args[0], "cast")
    if inner is None or node.args[1].category != dt.FLOAT or not node.args[1].is_signed:
        return None
    source: Value = inner.args[0]
    return (
        NewNode(CAST, (source, node.args[1])) if holds(inner.args[1], source.meta.dtype) else None
    )


def _clone_same(look: Look, node: Node) -> Answer:
    value: Value = node.args[0]
    return value


def _clone_clone(look: Look, node: Node) -> Answer:
    inner = look.producer(node.args[0], "clone_as")
    if inner is None:
        return None
    return NewNode(_CLONE, (inner.args[0], node.args[1]))


def _copy_same(look: Look, node: Node) -> Answer:
    source = node.args[1]
    return source if meta_of(source) is not None else None


def _copy_as_clone(look: Look, node: Node) -> Answer:
    source, meta = node.args[1], meta_of(node.args[1])
    if meta is None:
        return None
    if meta is node.outputs[0].meta:
        return NewNode(_CLONE, (source, lo.preserve_format))
    return NewNode(CAST, (source, node.outputs[0].meta.dtype))


def _copy_number(look: Look, node: Node) -> Answer:
    source, meta = node.args[1], node.outputs[0].meta
    number = look.number(source)
    if number is None or not meta.is_dense or not _fits(number, meta.dtype):
        return None
    return NewNode(FILLED, filled_args(number, meta))


def _fits(number: Any, dtype: dt.dtype) -> bool:
    """Whether a number goes into a dtype in one obvious way."""
    if dtype.category == dt.FLOAT:
        return type(number) is not complex and dtype.is_signed
    if dtype.category == dt.INTEGER:
        return type(number) in (bool, int) and 0 <= number < 1 << 7
    return dtype is dt.bool_ and type(number) is bool


def _cat_one(look: Look, node: Node) -> Answer:
    tensors = node.args[0]
    return tensors[0] if len(tensors) == 1 else None


def _cat_empty(look: Look, node: Node) -> Answer:
    tensors, dim = node.args
    full = tuple(t for t in tensors if t.meta.shape[dim])
    return NewNode(_CAT, (full, dim)) if full and len(full) < len(tensors) else None


def _pad_nothing(look: Look, node: Node) -> Answer:
    low, high, interior = node.args[2:]
    return None if any(low) or any(high) or any(interior) else node.args[0]


def _put_all(look: Look, node: Node) -> Answer:
    target, source, size, stride, offset = node.args
    meta: TensorMeta = target.meta
    if offset or tuple(size) != tuple(meta.shape) or tuple(stride) != meta.strides:
        return None
    return NewNode(_COPY, (target, source))


def _same_everywhere(look: Look, node: Node) -> Answer:
    """A copy of a tensor with one value everywhere: made in place instead of moved."""
    number, meta = look.number(node.args[0]), node.outputs[0].meta
    if number is None or not meta.is_dense or type(number) is complex:
        return None
    source: TensorMeta = node.args[0].meta
    if source.dtype is not meta.dtype:
        return None
    return NewNode(FILLED, filled_args(number, meta))


RULES = (
    Rule("cast_same", ("cast",), _cast_same, True, "every value already has that type"),
    Rule("cast_back", ("cast",), _cast_back, True,
         "the wider type between holds every value, so it comes back as it was"),
    Rule("cast_twice", ("cast",), _cast_twice, True,
         "the wider type between holds every value, so the second cast rounds the same number"),
    Rule("clone_of_constant", ("clone_as",), _same_everywhere, True,
         "a copy of equal elements is those elements made once more"),
    Rule("clone_same", ("clone_as",), _clone_same, True,
         "no node writes into memory, so a copy in the same layout is as good as its source"),
    Rule("clone_clone", ("clone_as",), _clone_clone, True, "only the last layout counts"),
    Rule("copy_same", ("copy",), _copy_same, True,
         "nothing is left of what is overwritten, and the source has type and layout already"),
    Rule("copy_number", ("copy",), _copy_number, True,
         "nothing is left of what is overwritten: the memory is filled, not read"),
    Rule("copy_as_clone", ("copy",), _copy_as_clone, True,
         "nothing is left of what is overwritten: no need to wait for it"),
    Rule("put_all", ("put_region",), _put_all, True, "the region is all there is"),
    Rule("cat_one", ("cat",), _cat_one, True, "one part alone is the whole"),
    Rule("cat_empty", ("cat",), _cat_empty, True, "parts without elements add none"),
    Rule("pad_nothing", ("padded",), _pad_nothing, True, "nothing is added"),
)  # fmt: skip
