"""Which engine serves a convolution, from its types, layouts and shape.

| engine                    | takes                                             | vectors run over |
|---------------------------|---------------------------------------------------|------------------|
| `gather`, `weight`        | floats; everything not below                      | output channels  |
| `tiled`, `tiled_weight`   | float32, bfloat16, many channels, AMX             | (tiles)          |
| `depthwise`               | floats, one channel in a group, channels-last     | channels         |
| `planes`                  | floats, few output channels in a group, planes    | pixels           |
| `pointwise`               | 1x1 of planes                                     | pixels           |
| `generic`                 | integers, complex numbers, empty tensors          | nothing          |
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from lucerne._src.backends.cpu.conv import generic, pointwise
from lucerne._src.backends.cpu.conv.amx.fprop_plan import plan_tiled
from lucerne._src.backends.cpu.conv.amx.fprop_plan import suits as tiled_suits
from lucerne._src.backends.cpu.conv.amx.wgrad_plan import plan_tiled_weight
from lucerne._src.backends.cpu.conv.amx.wgrad_plan import suits as weight_suits
from lucerne._src.backends.cpu.conv.depthwise import channels_last, planes
from lucerne._src.backends.cpu.conv.depthwise.channels_last_wgrad import plan_channels_weight
from lucerne._src.backends.cpu.conv.depthwise.planes_wgrad import plan_planes_weight
from lucerne._src.backends.cpu.conv.direct_plan import SUMS, ConvTail, plan_gather
from lucerne._src.backends.cpu.conv.flat import FlatGeometry, conv_geometry, input_geometry
from lucerne._src.backends.cpu.conv.nonfinite import plan_mend
from lucerne._src.backends.cpu.conv.padded import CHANNELS, layout_of
from lucerne._src.backends.cpu.conv.problem import (
    Array,
    ConvSetting,
    Gather,
    conv_gather,
    flattened,
    input_gather,
    thinned,
)
from lucerne._src.backends.cpu.conv.wgrad_plan import plan_weight
from lucerne._src.backends.cpu.emit.tiles import TileElement
from lucerne._src.backends.cpu.runtime.kernel import NativeKernel

Mend = Callable[[bool], NativeKernel]
"""Makes what computes anew where a weight that is not finite met a zero that is not there; told
whether there are some between the elements too."""


def conv_kernel(
    x: Array, w: Array, y: Array, s: ConvSetting, bias_step: int | None
) -> NativeKernel | None:
    """`conv`: x and w to y. `bias_step` is the stride of the bias, if there is one."""
    if _is_plain(x, w, y):
        x, s = thinned(x, w, y, s)
        problem = conv_gather(x, w, y, s, bias_step is not None)
        found = _gathering(problem, partial(conv_geometry, w.space, s), bias_step or 0)
        if found is not None:
            return found
    return generic.plan_generic(generic.CONV, x, w, y, s, bias_step)


def tailed_problem(x: Array, w: Array, y: Array, s: ConvSetting, bias: bool) -> Gather | None:
    """What the engine that takes element-wise ops along would compute of a `conv`; None: another
    engine serves it. Its target may be cut otherwise than y: the ops go over it as it is there."""
    if not _is_plain(x, w, y):
        return None
    x, s = thinned(x, w, y, s)
    p = conv_gather(x, w, y, s, bias)
    layouts = {layout_of(x), layout_of(y)}
    if (layouts == {CHANNELS} and channels_last.suits(p)) or planes.suits(p, layouts):
        return None
    flat = flattened(p)
    return None if _pixels_in_lanes(flat) else flat


def tailed_kernel(p: Gather, bias_step: int | None, tail: ConvTail) -> NativeKernel | None:
    """A `tailed_problem` and element-wise ops on its result."""
    return _channels_in_lanes(p, bias_step or 0, tail)


def input_kernel(
    y: Array, w: Array, x: Array, s: ConvSetting, bias_step: int | None
) -> NativeKernel | None:
    """`conv_input`: y and w to x."""
    if _is_plain(x, w, y):
        problem = input_gather(y, w, x, s, bias_step is not None)
        spread = partial(input_geometry, w.space, s)
        mend = partial(plan_mend, generic.INPUT, x, w, y, s, bias_step)
        found = _gathering(problem, spread, bias_step or 0, mend)
        if found is not None:
            return found
    return generic.plan_generic(generic.INPUT, x, w, y, s, bias_step)


def weight_kernel(y: Array, x: Array, w: Array, s: ConvSetting) -> NativeKernel | None:
    """`conv_weight`: y and x to w."""
    if _is_plain(x, w, y):
        x, s = thinned(x, w, y, s)
        found = _weighing(x, w, y, s)
        if found is not None:
            return found
    return generic.plan_generic(generic.WEIGHT, x, w, y, s)


def _weighing(x: Array, w: Array, y: Array, s: ConvSetting) -> NativeKernel | None:
    element = TileElement(x.dtype, SUMS[x.dtype])
    p = conv_gather(x, w, y, s, bias=False)
    layouts = {layout_of(x), layout_of(y)}
    if channels_last.suits(p) and layouts == {CHANNELS}:
        return plan_channels_weight(x, w, y, s, element)
    plain = plan_weight(x, w, y, s)
    if planes.suits(p, layouts):
        return plan_planes_weight(x, w, y, s, element, plain)
    return plan_tiled_weight(x, w, y, s, plain) if weight_suits(x, w, y, s) else plain


def _is_plain(x: Array, w: Array, y: Array) -> bool:
    """Floats, and something to add up."""
    return x.dtype in SUMS and 0 not in (*x.shape, *w.shape, *y.shape)


def _gathering(
    p: Gather,
    geometry: Callable[[int, int], FlatGeometry],
    bias_step: int,
    mend: Mend | None = None,
) -> NativeKernel | None:
    element = TileElement(p.source.dtype, SUMS[p.source.dtype])
    layouts = {layout_of(p.source), layout_of(p.target)}
    if channels_last.suits(p) and layouts == {CHANNELS}:
        return channels_last.plan_channels(p, element, bias_step)
    if planes.suits(p, layouts):
        holes = p.step != (1, 1, 1)
        again = mend(holes) if mend and (holes or not p.inside) else None
        return planes.plan_planes(p, geometry, element, bias_step, again)
    flat = flattened(p)
    if _pixels_in_lanes(flat):
        return pointwise.plan_pointwise(flat, element, bias_step)
    again = mend(False) if mend and not flat.inside else None
    return _channels_in_lanes(flat, bias_step, mend=again)


def _pixels_in_lanes(flat: Gather) -> bool:
    """Whether a 1x1 convolution of planes is best done without turning them."""
    plain = TileElement(flat.source.dtype, SUMS[flat.source.dtype]).is_plain
    return plain and pointwise.suits(flat) and not tiled_suits(flat)


def _channels_in_lanes(
    p: Gather, bias_step: int, tail: ConvTail | None = None, mend: NativeKernel | None = None
) -> NativeKernel | None:
    """By tiles where they pay, with the vector engine for what they can't do."""
    plain = plan_gather(p, bias_step, tail, mend)
    return plan_tiled(p, bias_step, plain, tail) if tiled_suits(p) else plain
