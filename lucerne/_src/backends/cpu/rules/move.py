"""Copies, casts, fills and padding."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from lucerne._src.backends.cpu.elementwise.batch import Job, batch_kernel
from lucerne._src.backends.cpu.elementwise.copying import (
    cast_recipe,
    count_recipe,
    fill_recipe,
    move_over,
)
from lucerne._src.backends.cpu.elementwise.plan import loop_kernel, no_work, space_kernel
from lucerne._src.backends.cpu.elementwise.pointwise import number_letter
from lucerne._src.backends.cpu.elementwise.space import broadcast_strides, iteration_space
from lucerne._src.backends.cpu.machine import NotTaken
from lucerne._src.backends.cpu.rules.table import rule
from lucerne._src.ir.graph import Node
from lucerne._src.ir.meta import NumberMeta, TensorMeta

_FRAME_WORTH = 16384
"""Elements from which on padding writes only the frame, and not all before the copy."""


@rule("copy")
def copy(node: Node) -> Any:
    """`src`, a tensor or a number, over all of `input` (whose values are not read)."""
    out, src = node.outputs[0].meta, node.args[1].meta
    if not out.numel:
        return no_work
    try:
        if isinstance(src, NumberMeta):
            recipe = fill_recipe(number_letter(src.kind, out.dtype), out.dtype, unused=1)
            return loop_kernel(recipe, out, [])
        return _converted(out, src, unused=1)
    except NotTaken:
        return None


@rule("cast", "clone_as")
def cast(node: Node) -> Any:
    """The same elements in another dtype or another order."""
    out, src = node.outputs[0].meta, node.args[0].meta
    if not out.numel:
        return no_work
    try:
        return _converted(out, src)
    except NotTaken:
        return None


def _converted(out: TensorMeta, src: TensorMeta, unused: int = 0) -> Any:
    if src.dtype is not out.dtype:
        return loop_kernel(cast_recipe(src.dtype, out.dtype, unused), out, [src])
    steps = broadcast_strides(src, out.ndim)
    recipe, space = move_over(tuple(out.shape), out.byte_strides, steps, out.dtype.itemsize, unused)
    return space_kernel(recipe, space)


@rule("filled")
def filled(node: Node) -> Any:
    """One number everywhere."""
    out = node.outputs[0].meta
    if not out.numel:
        return no_work
    kind = type(node.args[1].meta)
    try:
        return loop_kernel(fill_recipe(number_letter(kind, out.dtype), out.dtype), out, [])
    except NotTaken:
        return None


@rule("uninitialized")
def uninitialized(node: Node) -> Any:
    return no_work


@rule("counted")
def counted(node: Node) -> Any:
    """Whole numbers are counted in int64, others in doubles."""
    out = node.outputs[0].meta
    if not out.numel:
        return no_work
    kinds = [type(a.meta) for a in node.args[:2]]
    whole = all(issubclass(k, int) for k in kinds)
    if complex in kinds:
        return None
    try:
        return loop_kernel(count_recipe("i" if whole else "f", out.dtype), out, [])
    except NotTaken:
        return None


# ---- padding ------------------------------------------------------------------------------------


@rule("padded")
def padded(node: Node) -> Any:
    """The input inside a frame of one value (and gaps of it, when `interior` says so)."""
    source, value, low, _, interior = node.args
    out: TensorMeta = node.outputs[0].meta
    meta: TensorMeta = source.meta
    if not out.numel:
        return no_work
    kind = value.meta.kind if isinstance(value.meta, NumberMeta) else type(value.meta)
    letter = number_letter(kind, out.dtype)
    steps = out.byte_strides
    start = sum(lo * s for lo, s in zip(low, steps, strict=True))
    gapped = tuple(s * (gap + 1) for s, gap in zip(steps, interior, strict=True))
    recipe, space = move_over(tuple(meta.shape), gapped, meta.byte_strides, out.dtype.itemsize)
    inside = Job(recipe, space, 0, target_offset=start, phase=2)
    try:
        if any(interior) or out.numel < _FRAME_WORTH or not meta.numel:
            frame = [_fill(out, letter, (0,) * out.ndim, tuple(out.shape))]
        else:
            frame = list(_frame(out, meta, letter, low))
    except NotTaken:
        return None
    return batch_kernel([*frame, inside], 1, letter)


def _frame(out: TensorMeta, inside: TensorMeta, letter: str, low: Sequence[int]) -> list[Job]:
    """Slabs before and after the input along each dimension, none twice."""
    jobs = []
    starts, sizes = [0] * out.ndim, list(out.shape)
    for d, (lo, n) in enumerate(zip(low, inside.shape, strict=True)):
        after = out.shape[d] - lo - n
        for at, width in ((0, lo), (lo + n, after)):
            if width:
                corner, extent = list(starts), list(sizes)
                corner[d], extent[d] = at, width
                jobs.append(_fill(out, letter, tuple(corner), tuple(extent)))
        starts[d], sizes[d] = lo, n
    return jobs


def _fill(out: TensorMeta, letter: str, corner: Sequence[int], extent: Sequence[int]) -> Job:
    """A box of the output filled with the number of the call."""
    offset = sum(c * s for c, s in zip(corner, out.byte_strides, strict=True))
    space = iteration_space(extent, [(out.byte_strides, out.dtype.itemsize)])
    return Job(fill_recipe(letter, out.dtype), space, target_offset=offset)
