"""The stages of a transform: as many transforms at once as a vector has lanes.

A buffer holds one element after the other, each as a vector of real parts and one of imaginary
parts. A stage of radix r reads elements m apart and writes them s apart (Stockham).
"""

from __future__ import annotations

import math

from lucerne._src.backends.cpu.emit.builder import (
    F32,
    F64,
    I64,
    PTR,
    VOID,
    LLVMFunction,
    LLVMValue,
    Module,
)
from lucerne._src.backends.cpu.emit.target import VECTOR_BYTES
from lucerne._src.backends.cpu.fft.plan import HEADER_WORDS, RADICES

Pair = tuple[LLVMValue, LLVMValue]
UNIT = 2 * VECTOR_BYTES
"""Bytes of an element of a buffer."""


class FFTLanes:
    """Vectors of one real type."""

    def __init__(self, real: str) -> None:
        self.real, self.type = real, F32 if real == "float32" else F64
        self.count = VECTOR_BYTES // self.type.size
        self.vector = self.type.vector(self.count)

    def load(self, f: LLVMFunction, base: LLVMValue, index: LLVMValue) -> Pair:
        place = f.at(base, index * UNIT)
        return f.load(self.vector, place), f.load(self.vector, f.at(place, VECTOR_BYTES))

    def store(self, f: LLVMFunction, v: Pair, base: LLVMValue, index: LLVMValue) -> None:
        place = f.at(base, index * UNIT)
        f.store(v[0], place)
        f.store(v[1], f.at(place, VECTOR_BYTES))

    def pair(self, f: LLVMFunction, place: LLVMValue) -> Pair:
        """A complex number of a table, in all lanes."""
        re, im = f.load(self.type, place), f.load(self.type, f.at(place, self.type.size))
        return f.splat(re, self.count), f.splat(im, self.count)


def times(f: LLVMFunction, a: Pair, w: Pair) -> Pair:
    re = f.mul_add(a[0], w[0], f.neg(a[1] * w[1]))
    return re, f.mul_add(a[0], w[1], a[1] * w[0])


def _plus(a: Pair, b: Pair) -> Pair:
    return a[0] + b[0], a[1] + b[1]


def _minus(a: Pair, b: Pair) -> Pair:
    return a[0] - b[0], a[1] - b[1]


def _four(f: LLVMFunction, a: list[Pair]) -> list[Pair]:
    even, odd = _plus(a[0], a[2]), _plus(a[1], a[3])
    low, high = _minus(a[0], a[2]), _minus(a[1], a[3])
    # `high` times -i
    return [
        _plus(even, odd), (low[0] + high[1], low[1] - high[0]),
        _minus(even, odd), (low[0] - high[1], low[1] + high[0]),
    ]  # fmt: skip


def _eight(f: LLVMFunction, a: list[Pair]) -> list[Pair]:
    even, odd = _four(f, a[::2]), _four(f, a[1::2])
    root = math.sqrt(0.5)
    one, three = odd[1], odd[3]
    turned = [
        odd[0],
        ((one[0] + one[1]) * root, (one[1] - one[0]) * root),
        (odd[2][1], f.neg(odd[2][0])),
        ((three[1] - three[0]) * root, (three[0] + three[1]) * -root),
    ]
    sums = [_plus(e, o) for e, o in zip(even, turned, strict=True)]
    return sums + [_minus(e, o) for e, o in zip(even, turned, strict=True)]


def _odd(f: LLVMFunction, a: list[Pair]) -> list[Pair]:
    """Any odd radix: sums and differences of what stands symmetrically."""
    r, half = len(a), len(a) // 2
    sums = [_plus(a[k], a[r - k]) for k in range(1, half + 1)]
    differences = [_minus(a[k], a[r - k]) for k in range(1, half + 1)]
    first = a[0]
    for t in sums:
        first = _plus(first, t)
    made = [first] * r
    for j in range(1, half + 1):
        re, im = a[0]
        back_re = back_im = f.zero(re.type)
        for k in range(1, half + 1):
            angle = 2 * math.pi * (j * k % r) / r
            t, u = sums[k - 1], differences[k - 1]
            re, im = f.mul_add(t[0], math.cos(angle), re), f.mul_add(t[1], math.cos(angle), im)
            back_re = f.mul_add(u[0], math.sin(angle), back_re)
            back_im = f.mul_add(u[1], math.sin(angle), back_im)
        made[j] = (re + back_im, im - back_re)
        made[r - j] = (re - back_im, im + back_re)
    return made


def butterfly(f: LLVMFunction, a: list[Pair]) -> list[Pair]:
    """The transform of a few elements."""
    if len(a) == 2:
        return [_plus(a[0], a[1]), _minus(a[0], a[1])]
    return {4: _four, 8: _eight}.get(len(a), _odd)(f, a)


def write_stages(m: Module, lanes: FFTLanes) -> None:
    """`ptr fft(ptr a, ptr b, ptr table)`: transform what is in `a`; the result is in the buffer
    that is returned."""
    for r in RADICES:
        _write_stage(m, lanes, r)
    with m.function("fft", [("a", PTR), ("b", PTR), ("table", PTR)], PTR, internal=True) as f:
        a, b, table = f.args
        with f.loop(0, f.load(I64, table), 1, [a, b]) as stages:
            source, target = stages.carried
            place = f.at(table, (1 + stages.index * HEADER_WORDS) * 8)
            radix, apart, stride, at = (f.word(place, k) for k in range(HEADER_WORDS))
            for r in RADICES:
                with f.if_(f.compare("eq", radix, r)):
                    f.call(f"stage{r}", VOID, [source, target, apart, stride, f.at(table, at)])
            stages.next(target, source)
        f.ret(stages.results[0])


def _write_stage(m: Module, lanes: FFTLanes, r: int) -> None:
    params = [("source", PTR), ("target", PTR), ("m", I64), ("s", I64), ("table", PTR)]
    with m.function(f"stage{r}", params, internal=True) as f:
        source, target, apart, stride, table = f.args

        def visit(p: LLVMValue, q: LLVMValue, twiddles: list[Pair]) -> None:
            first = q + stride * p
            loaded = [lanes.load(f, source, first + stride * apart * k) for k in range(r)]
            made = butterfly(f, loaded)
            to = q + stride * p * r
            for j, v in enumerate(made):
                value = times(f, v, twiddles[j - 1]) if j and twiddles else v
                lanes.store(f, value, target, to + stride * j)

        with f.loop(0, stride) as q:
            visit(f.constant(0), q.index, [])
        with f.loop(1, apart) as p:
            row = f.at(table, p.index * ((r - 1) * 2 * lanes.type.size))
            twiddles = [lanes.pair(f, f.at(row, k * 2 * lanes.type.size)) for k in range(r - 1)]
            with f.loop(0, stride) as q:
                visit(p.index, q.index, twiddles)
