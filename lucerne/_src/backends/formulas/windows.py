"""Convolutions and pools: loops over what a window sees."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from lucerne._src.backends.formulas.frame import FormulaTensor, Frame
from lucerne._src.backends.formulas.reduce import least, wins
from lucerne._src.backends.formulas.table import formula
from lucerne._src.base import dtype as dt
from lucerne._src.ir.scalar.protocol import ScalarValue, s

Ints = Sequence[int]


def _inside(f: Frame, places: Sequence[ScalarValue], shape: Ints) -> ScalarValue:
    """Whether coordinates lie within a shape."""
    found = f.value(True, dt.bool_)
    for x, n in zip(places, shape, strict=True):
        found = found & (f.value(0, dt.int64) <= x) & (x < f.size(n))
    return found


def _seen(
    f: Frame, at: Sequence[Any], taps: Sequence[Any], stride: Ints, padding: Ints, dilation: Ints
) -> list[ScalarValue]:
    """Where in the input a tap of a window at these coordinates looks."""
    return [
        m * f.size(st) + k * f.size(d) - f.size(p)
        for m, k, st, p, d in zip(at, taps, stride, padding, dilation, strict=True)
    ]


@formula("conv")
def conv(
    f: Frame,
    input: FormulaTensor,
    weight: FormulaTensor,
    bias: Any,
    stride: Ints,
    padding: Ints,
    dilation: Ints,
    groups: int,
) -> None:
    channels, taps = weight.shape[1], weight.shape[2:]
    compute = f.out.dtype.compute
    with f.kernel(f.out.shape) as (n, o, *at):
        total = f.variable(0 if bias is None else f.value(bias(o), compute), compute)
        group = f.quotient(o, f.size(max(weight.shape[0] // groups, 1)))
        with f.loops([channels, *taps]) as (c, *k):
            x = _seen(f, at, k, stride, padding, dilation)
            with f.when(_inside(f, x, input.shape[2:])):
                seen = f.value(input(n, group * f.size(channels) + c, *x), compute)
                total.set(total.now + seen * f.value(weight(o, c, *k), compute))
        f.out.put((n, o, *at), total.now)


@formula("conv_input")
def conv_input(
    f: Frame,
    input: FormulaTensor,
    weight: FormulaTensor,
    bias: Any,
    size: Ints,
    stride: Ints,
    padding: Ints,
    dilation: Ints,
    groups: int,
) -> None:
    per, channels, taps = weight.shape[0] // groups, weight.shape[1], weight.shape[2:]
    compute = f.out.dtype.compute
    with f.kernel(f.out.shape) as (n, channel, *at):
        total = f.variable(0 if bias is None else f.value(bias(channel), compute), compute)
        width = f.size(max(channels, 1))
        group, c = f.quotient(channel, width), f.rest(channel, width)
        with f.loops([per, *taps]) as (o, *k):
            far = [
                x + f.size(p) - tap * f.size(d)
                for x, tap, p, d in zip(at, k, padding, dilation, strict=True)
            ]
            x = [f.quotient(v, f.size(st)) for v, st in zip(far, stride, strict=True)]
            hit = _inside(f, x, input.shape[2:])
            for v, place, st in zip(far, x, stride, strict=True):
                hit = hit & (place * f.size(st) == v)
            with f.when(hit):
                from_ = group * f.size(per) + o
                seen = f.value(input(n, from_, *x), compute)
                total.set(total.now + seen * f.value(weight(from_, c, *k), compute))
        f.out.put((n, channel, *at), total.now)


@formula("conv_weight")
def conv_weight(
    f: Frame,
    g_out: FormulaTensor,
    input: FormulaTensor,
    size: Ints,
    stride: Ints,
    padding: Ints,
    dilation: Ints,
    groups: int,
) -> None:
    channels, per = f.out.shape[1], g_out.shape[1] // groups
    compute = f.out.dtype.compute
    with f.kernel(f.out.shape) as (o, c, *k):
        total = f.variable(0, compute)
        group = f.quotient(o, f.size(max(per, 1)))
        with f.loops([g_out.shape[0], *g_out.shape[2:]]) as (n, *at):
            x = _seen(f, at, k, stride, padding, dilation)
            with f.when(_inside(f, x, input.shape[2:])):
                seen = f.value(input(n, group * f.size(channels) + c, *x), compute)
                total.set(total.now + seen * f.value(g_out(n, o, *at), compute))
        f.out.put((o, c, *k), total.now)


@formula("max_pool")
def max_pool(
    f: Frame,
    input: FormulaTensor,
    kernel: Ints,
    stride: Ints,
    padding: Ints,
    dilation: Ints,
    size: Ints,
) -> None:
    """The greatest value of each window and where it was: at first, the window's first element."""
    values, positions = f.outs
    spatial, compute = input.shape[2:], input.dtype.compute
    with f.kernel(values.shape) as (n, c, *at):
        best, where = f.variable(least(compute), compute), f.variable(0, dt.int64)
        where.set(_flat(f, _first(f, at, stride, padding, dilation), spatial))
        with f.loops(kernel) as k:
            x = _seen(f, at, k, stride, padding, dilation)
            with f.when(_inside(f, x, spatial)):
                seen = input(n, c, *x)
                won = wins(seen, best.now, "max")
                if compute.category == dt.FLOAT:
                    won = won | s.is_nan(seen)
                where.set(s.where(won, _flat(f, x, spatial), where.now))
                best.set(s.where(won, seen, best.now))
        values.put((n, c, *at), best.now)
        positions.put((n, c, *at), where.now)


def _first(f: Frame, at: Any, stride: Ints, padding: Ints, dilation: Ints) -> list[ScalarValue]:
    """The first tap of each window that is not in the padding."""
    found = []
    for m, st, p, d in zip(at, stride, padding, dilation, strict=True):
        start = m * f.size(st) - f.size(p)
        missing = f.quotient(f.size(d - 1) - start, f.size(d)) * f.size(d)
        found.append(s.where(start < 0, start + missing, start))
    return found


def _flat(f: Frame, x: Sequence[ScalarValue], shape: Ints) -> ScalarValue:
    found = f.value(0, dt.int64)
    for v, n in zip(x, shape, strict=True):
        found = found * f.size(n) + v
    return found
