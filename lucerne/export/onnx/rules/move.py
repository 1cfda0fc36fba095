"""Moves: copies, casts, fills, joins."""

from __future__ import annotations

from typing import Any

from lucerne._src.base import dtype as dt
from lucerne._src.ir.graph import Value
from lucerne._src.ir.scalar.typed import TypedNum
from lucerne._src.ir.symbolic.expressions import Expr, FloatExpr
from lucerne.export.onnx.errors import NotExpressibleError
from lucerne.export.onnx.table import rule


@rule("cast")
def cast(c: Any, node: Any, input: Any, dtype: Any) -> str:
    have, want = input.meta.dtype, node.outputs[0].meta.dtype
    if dt.COMPLEX in (have.category, want.category):
        raise NotExpressibleError("ONNX has no complex numbers")
    if want is dt.bool_ and have.category == dt.FLOAT:  # Cast of nan to bool is not agreed upon
        num = TypedNum(have.compute, c.operand(input, have.compute))
        return c.machine.number(num, dt.bool_).re
    return c.cast(c.of(input), want)


@rule("copy")
def copy(c: Any, node: Any, input: Any, src: Any) -> str:
    out = node.outputs[0]
    made = c.operand(src, out.meta.dtype)
    if isinstance(src, Value) and c.sizes_of(src) == c.sizes_of(out):
        return made
    return c.node("Expand", [made, c.ints(c.sizes_of(out))]) if out.meta.ndim else made


@rule("uninitialized")
def uninitialized(c: Any, node: Any, size: Any, *_: Any) -> str:
    return filled(c, node, size, 0)


@rule("filled")
def filled(c: Any, node: Any, size: Any, value: Any, *_: Any) -> str:
    made = c.operand(value, node.outputs[0].meta.dtype)
    return c.node("Expand", [made, c.ints(size)]) if len(size) else made


@rule("counted")
def counted(c: Any, node: Any, start: Any, step: Any, length: Any, *_: Any) -> str:
    out = node.outputs[0].meta.dtype
    made = c.counted(length)
    whole = all(isinstance(x, (int, Expr)) for x in (start, step))
    wide = dt.int64 if whole else dt.float64
    made = made if whole else c.cast(made, wide)
    if isinstance(step, (Expr, FloatExpr)) or step != 1:
        made = c.node("Mul", [made, c.operand(step, wide)])
    if isinstance(start, (Expr, FloatExpr)) or start != 0:
        made = c.node("Add", [made, c.operand(start, wide)])
    return made if out is wide else c.cast(made, out)


@rule("cat")
def cat(c: Any, node: Any, tensors: Any, dim: int) -> str:
    kept = [x for x in tensors if not (x.meta.ndim == 1 and x.meta.shape[0] == 0)]
    kept = kept or list(tensors[:1])
    out = node.outputs[0].meta.dtype
    return c.node("Concat", [c.operand(x, out) for x in kept], axis=dim % max(1, kept[0].meta.ndim))


@rule("flip")
def flip(c: Any, node: Any, input: Any, dims: Any) -> str:
    n = len(dims)
    if not n or not input.meta.ndim:
        return c.of(input)
    ends = c.ints([-(2**63) + 1] * n)
    axes = c.ints([d % input.meta.ndim for d in dims])
    return c.node("Slice", [c.of(input), c.ints([-1] * n), ends, axes, c.ints([-1] * n)])


@rule("padded")
def padded(c: Any, node: Any, input: Any, value: Any, low: Any, high: Any, interior: Any) -> str:
    if not low:
        return c.of(input)
    fill = c.operand(value, input.meta.dtype)
    x = c.of(input)
    if any(interior):
        x = _apart(c, input, fill, interior)
    return c.node("Pad", [x, c.ints([*low, *high]), fill])


def _apart(c: Any, input: Any, fill: str, interior: Any) -> str:
    """Room between the elements: every element in a row of its own, then the last room cut off."""
    x, sizes = c.of(input), list(c.sizes_of(input))
    for d, gap in enumerate(interior):
        if not gap:
            continue
        n = len(sizes)
        x = c.node("Unsqueeze", [x, c.ints([d + 1])])
        pads = [0] * (2 * (n + 1))
        pads[n + 1 + d + 1] = gap
        x = c.node("Pad", [x, c.ints(pads), fill])
        sizes[d] = sizes[d] * (gap + 1)
        x = c.node("Reshape", [x, c.ints(sizes)])
        sizes[d] = sizes[d] - gap
        x = c.node("Slice", [x, c.ints([0]), c.ints([sizes[d]]), c.ints([d]), c.ints([1])])
    return x


@rule("put_region")
def put_region(c: Any, node: Any, input: Any, src: Any, size: Any, stride: Any, offset: Any) -> str:
    if not input.meta.contiguous:
        raise NotExpressibleError("a write to a part of a tensor that is not contiguous")
    whole = c.sizes_of(input)
    flat = c.node("Reshape", [c.of(input), c.ints([-1])])
    values = c.operand(src, input.meta.dtype)
    if not isinstance(src, Value) or c.sizes_of(src) != tuple(size):
        values = c.node("Expand", [values, c.ints(size)])
    places = c.node("Reshape", [c.positions(size, stride, offset), c.ints([-1])])
    values = c.node("Reshape", [values, c.ints([-1])])
    made = c.node("ScatterElements", [flat, places, values], axis=0)
    return c.node("Reshape", [made, c.ints(whole)])


@rule("tril", "triu")
def triangle(c: Any, node: Any, input: Any, diagonal: Any) -> Any:
    if input.meta.dtype not in (dt.float32, dt.float64, dt.int64, dt.bool_):
        return NotImplemented
    upper = int(node.op.name == "triu")
    return c.node("Trilu", [c.of(input), c.scalar(diagonal)], upper=upper)


@rule("to_device")
def to_device(c: Any, node: Any, input: Any, device: Any) -> str:
    return c.of(input)
