"""Kernels of Fourier transforms: passes over a tensor, each along one dimension.

A pass has a kind. "c2c", "r2c" and "c2r" take as many transforms at once as there are lanes (of
real ones twice as many: two real transforms are one complex one, see `Halves`). "four" makes one
transform at a time, of n1 * n2 points, in four steps: along the columns of an n1 by n2 matrix,
turned by factors, transposed, along its rows; the lanes are columns. A pass reads its words from a
block: pointers of target, source and scratch, then `WORDS`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from lucerne._src.backends.cpu.elementwise.turn import transposed
from lucerne._src.backends.cpu.emit.builder import I64, PTR, VOID, LLVMFunction, LLVMValue, Module
from lucerne._src.backends.cpu.emit.target import VECTOR_BYTES
from lucerne._src.backends.cpu.fft.moves import Moves
from lucerne._src.backends.cpu.fft.stages import UNIT, FFTLanes, Pair, times, write_stages
from lucerne._src.backends.cpu.math.integer import any_lane
from lucerne._src.backends.cpu.math.vector import absolute

OUTER = 3
"""Loops outside of the lanes."""
WORDS = (
    "units", "per_task", "n", "lanes", "blocks", "in_ps", "in_ls", "out_ps", "out_ls", "scale",
    "re", "im", "room", "buffer", "table", "length", "factors", "filter", "n1", "n2", "table2",
    "turns", *(f"{what}{k}" for k in range(OUTER) for what in ("size", "in_s", "out_s")),
)  # fmt: skip
HEAD = ("kind", "from", "to", "tasks")
"""Words of a pass in the kernel's own block, in front of `WORDS`."""
KINDS = ("c2c", "r2c", "c2r", "four")
INPUT, OUTPUT, SCRATCH = 0, 1, 2
"""Where a pass reads and writes."""


class FFTPass:
    """A task of some kind being written."""

    def __init__(self, f: LLVMFunction, lanes: FFTLanes) -> None:
        self.f, self.lanes = f, lanes
        block = f.args[0]
        self.target, self.source, space = (f.word(block, k, PTR) for k in range(3))
        self.words = {name: f.word(block, 3 + k) for k, name in enumerate(WORDS)}
        self.scale = f.word(block, 3 + WORDS.index("scale"), lanes.type)
        self.space = f.at(space, f.args[2] * self.words["room"])
        self.other = f.at(self.space, self.words["buffer"])

    def __getitem__(self, name: str) -> LLVMValue:
        return self.words[name]

    def pointer(self, name: str) -> LLVMValue:
        return self.f.convert("inttoptr", self[name], PTR)

    def outer(self, number: LLVMValue) -> tuple[LLVMValue, LLVMValue]:
        """Where source and target begin for this number of the outer loops."""
        f, source, target = self.f, self.source, self.target
        for k in range(OUTER):
            at, number = number % self[f"size{k}"], number // self[f"size{k}"]
            source = f.at(source, at * self[f"in_s{k}"])
            target = f.at(target, at * self[f"out_s{k}"])
        return source, target

    def load(self, parts: int, at: LLVMValue, count: LLVMValue, n: LLVMValue, buffer: LLVMValue,
             ends: Sequence[LLVMValue]) -> None:  # fmt: skip
        args = [at, self["in_ps"], self["in_ls"], n, count, buffer, *ends]
        self.f.call(f"load{parts}", VOID, args)

    def store(self, parts: int, at: LLVMValue, count: LLVMValue, n: LLVMValue, buffer: LLVMValue,
              ends: Sequence[LLVMValue]) -> None:  # fmt: skip
        args = [at, self["out_ps"], self["out_ls"], n, count, buffer, *ends, self.scale]
        self.f.call(f"store{parts}", VOID, args)

    def transform(self) -> LLVMValue:
        """Of what is in the first buffer; where the result is."""
        table, factors = self.pointer("table"), self.pointer("factors")
        args = [self.space, self.other, table, self["n"], self["length"], factors]
        return self.f.call("transform", PTR, [*args, self.pointer("filter")])


def write_passes(m: Module, real: str, kinds: tuple[str, ...]) -> None:
    """`i64 entry(ptr block)` for passes of these kinds."""
    lanes = FFTLanes(real)
    write_stages(m, lanes)
    _write_transform(m, lanes)
    for parts in (1, 2) if {"r2c", "c2r"} & set(kinds) else (2,):
        Moves(m, lanes, parts).write()
    bodies: dict[str, Callable[[FFTPass, LLVMValue], None]] = {
        "c2c": _complex, "r2c": _runs(_from_real), "c2r": _runs(_to_real), "four": _four_steps,
    }  # fmt: skip
    for kind in kinds:
        params = [("block", PTR), ("task", I64), ("tid", I64)]
        with m.function(f"task_{kind}", params, internal=True) as f:
            made = FFTPass(f, lanes)
            first = f.args[1] * made["per_task"]
            with f.loop(first, f.minimum(first + made["per_task"], made["units"])) as unit:
                bodies[kind](made, unit.index)
    _write_entry(m, kinds)


def _write_entry(m: Module, kinds: tuple[str, ...]) -> None:
    """Passes one after the other. Block: out, in, scratch, passes, start of the shared scratch."""
    size = len(HEAD) + len(WORDS)
    with m.function("entry", [("block", PTR)], I64) as f:
        block = f.args[0]
        inner = f.stack((3 + len(WORDS)) * 8)
        out, source, space = (f.word(block, k, PTR) for k in range(3))
        places = source, out, f.at(space, f.word(block, 4))
        with f.loop(0, f.word(block, 3)) as loop:
            words = f.at(block, (5 + loop.index * size) * 8)
            kind, from_, to, tasks = (f.word(words, k) for k in range(len(HEAD)))
            for k, which in enumerate((to, from_)):
                found = places[0]
                for i in (OUTPUT, SCRATCH):
                    found = f.select(f.compare("eq", which, i), places[i], found)
                f.store(found, f.at(inner, k * 8), 8)
            f.store(space, f.at(inner, 16), 8)
            f.copy_bytes(f.at(inner, 24), f.at(words, len(HEAD) * 8), len(WORDS) * 8)
            for name in kinds:
                with f.if_(f.compare("eq", kind, KINDS.index(name))):
                    f.call("lucerne_pfor", VOID, [f.symbol(f"task_{name}"), inner, tasks])
        f.ret(0)


def _write_transform(m: Module, lanes: FFTLanes) -> None:
    """`ptr transform(a, b, table, n, length, factors, filter)`: `fft`, or a convolution of
    `length` points where that is not 0."""
    params = [("a", PTR), ("b", PTR), ("table", PTR), ("n", I64), ("length", I64)]
    with m.function(
        "transform", [*params, ("factors", PTR), ("filter", PTR)], PTR, internal=True
    ) as f:
        a, b, table, n, length, factors, filter_ = f.args
        number = 2 * lanes.type.size

        def multiply(
            buffer: LLVMValue, count: LLVMValue, by: LLVMValue, before: bool, after: bool
        ) -> None:
            """By a table; real and imaginary parts exchanged before or after."""
            with f.loop(0, count) as k:
                v = lanes.load(f, buffer, k.index)
                v = (v[1], v[0]) if before else v
                v = times(f, v, lanes.pair(f, f.at(by, k.index * number)))
                lanes.store(f, (v[1], v[0]) if after else v, buffer, k.index)

        with f.if_(f.compare("eq", length, 0)) as plain:
            plain.give(f.call("fft", PTR, [a, b, table]))
        with plain.else_():
            multiply(a, n, factors, before=False, after=False)
            f.fill_bytes(f.at(a, n * UNIT), 0, (length - n) * UNIT)
            there = f.call("fft", PTR, [a, b, table])
            # The way back is a transform with real and imaginary parts exchanged.
            multiply(there, length, filter_, before=False, after=True)
            other = f.select(f.compare("eq", there, a), b, a)
            back = f.call("fft", PTR, [there, other, table])
            multiply(back, n, factors, before=True, after=False)
            plain.give(back)
        f.ret(plain.results[0])


def _complex(p: FFTPass, unit: LLVMValue) -> None:
    f, width = p.f, p.lanes.count
    source, target = p.outer(unit // p["blocks"])
    first = unit % p["blocks"] * width
    count = f.minimum(p["lanes"] - first, width)
    ends = p["re"], p["im"]
    p.load(2, f.at(source, first * p["in_ls"]), count, p["n"], p.space, ends)
    made = p.transform()
    p.store(2, f.at(target, first * p["out_ls"]), count, p["n"], made, ends)


class Halves:
    """A block of twice as many real transforms as there are lanes, two as one complex transform.

    Rounding of a large one would hide a small one beside it, and a nan would reach it. So the sizes
    of both are added up, and where they are far apart the block is made again, each half alone.
    """

    FAR = 16.0

    def __init__(self, p: FFTPass, unit: LLVMValue, run: LLVMValue) -> None:
        """`run`: 0 both, 1 the first alone, 2 the second alone."""
        f, width = p.f, p.lanes.count
        self.f, self.run = f, run
        is_second = f.compare("eq", run, 2)
        left = p["lanes"] - unit % p["blocks"] * (2 * width)
        self.first = unit % p["blocks"] * (2 * width) + f.select(is_second, f.constant(width), 0)
        one = f.minimum(left, width)
        two = f.minimum(left - one, width)
        self.one = f.select(is_second, two, one)
        self.two = f.select(f.compare("eq", run, 0), two, 0)
        self.sums = [f.zero(p.lanes.vector)] * 2

    def added(self, sums: Sequence[LLVMValue], x: Pair, y: Pair) -> list[LLVMValue]:
        """The sizes of both so far."""
        pairs = zip(sums, (x, y), strict=True)
        return [s + (absolute(self.f, v[0]) + absolute(self.f, v[1])) for s, v in pairs]

    def again(self, sums: Sequence[LLVMValue]) -> LLVMValue:
        """Whether there is a further run."""
        f, (x, y) = self.f, sums
        apart = f.bits("or", f.compare("ugt", x, y * self.FAR), f.compare("ugt", y, x * self.FAR))
        apart = f.bits("or", apart, f.compare("uge", x + y, math.inf))
        far = any_lane(f, f.bits("and", apart, f.low_mask(self.two, x.type.lanes)))
        return f.select(f.compare("eq", self.run, 0), far, f.compare("eq", self.run, 1))


def _kept(p: FFTPass) -> LLVMValue:
    """Points of the half that is kept of a real transform."""
    return (p["n"] >> 1) + 1


def _second(p: FFTPass, buffer: LLVMValue) -> LLVMValue:
    """Where the second half's points stand in a buffer: behind those of the first, whole squares
    of vectors apart."""
    width = p.lanes.count
    return p.f.at(buffer, ((_kept(p) + (width - 1)) & -width) * UNIT)


def _runs(body: Callable[[FFTPass, LLVMValue, Halves], Sequence[LLVMValue]]) -> Any:
    """A body of one run, which gives the sizes of both halves, as often as it takes."""

    def runs(p: FFTPass, unit: LLVMValue) -> None:
        with p.f.while_([p.f.constant(0)]) as loop:
            (run,) = loop.carried
            halves = Halves(p, unit, run)
            sums = body(p, unit // p["blocks"], halves)
            loop.again(halves.again(sums), run + 1)

    return runs


def _from_real(p: FFTPass, number: LLVMValue, halves: Halves) -> Sequence[LLVMValue]:
    """Two real transforms as one: z = x + i y, X = (Z + Z') / 2, Y = (Z - Z') / 2i, where Z' is
    the conjugate at the opposite point."""
    f, lanes, width = p.f, p.lanes, p.lanes.count
    first, one, two = halves.first, halves.one, halves.two
    source, target = p.outer(number)
    low, high = f.constant(0), f.constant(VECTOR_BYTES)
    start = f.at(source, first * p["in_ls"])
    p.load(1, start, one, p["n"], p.space, (low, high))
    with f.if_(f.compare("gt", two, 0)) as both:
        p.load(1, f.at(start, p["in_ls"] * width), two, p["n"], p.space, (high, low))
    with both.else_(), f.loop(0, p["n"]) as k:
        f.store(f.zero(lanes.vector), f.at(p.space, k.index * UNIT + VECTOR_BYTES))
    made = p.transform()
    free = f.select(f.compare("eq", made, p.space), p.other, p.space)
    behind = _second(p, free)
    with f.loop(0, _kept(p), 1, halves.sums) as k:
        z = lanes.load(f, made, k.index)
        opposite = f.select(f.compare("eq", k.index, 0), k.index, p["n"] - k.index)
        w = lanes.load(f, made, opposite)
        x: Pair = ((z[0] + w[0]) * 0.5, (z[1] - w[1]) * 0.5)
        y: Pair = ((z[1] + w[1]) * 0.5, (w[0] - z[0]) * 0.5)
        lanes.store(f, x, free, k.index)
        lanes.store(f, y, behind, k.index)
        k.next(*halves.added(k.carried, x, y))
    to, ends = f.at(target, first * p["out_ls"]), (low, high)
    p.store(2, to, one, _kept(p), free, ends)
    with f.if_(f.compare("gt", two, 0)):
        p.store(2, f.at(to, p["out_ls"] * width), two, _kept(p), behind, ends)
    return k.results


def _to_real(p: FFTPass, number: LLVMValue, halves: Halves) -> Sequence[LLVMValue]:
    """The opposite: Z = X + i Y, and at the opposite point the conjugates of both. Imaginary parts
    that a real transform can't have are left out. Real and imaginary parts are exchanged, which
    turns the transform around."""
    f, lanes, width = p.f, p.lanes, p.lanes.count
    first, one, two = halves.first, halves.one, halves.two
    source, target = p.outer(number)
    low, high = f.constant(0), f.constant(VECTOR_BYTES)
    start, behind = f.at(source, first * p["in_ls"]), _second(p, p.other)
    p.load(2, start, one, _kept(p), p.other, (low, high))
    with f.if_(f.compare("gt", two, 0)) as both:
        p.load(2, f.at(start, p["in_ls"] * width), two, _kept(p), behind, (low, high))
    with both.else_():
        f.fill_bytes(behind, 0, _kept(p) * UNIT)
    with f.loop(0, _kept(p), 1, halves.sums) as k:
        x, y = lanes.load(f, p.other, k.index), lanes.load(f, behind, k.index)
        opposite = f.select(f.compare("eq", k.index, 0), k.index, p["n"] - k.index)
        alone = f.compare("eq", opposite, k.index)
        zero = f.zero(lanes.vector)
        x_im, y_im = f.select(alone, zero, x[1]), f.select(alone, zero, y[1])
        # Exchanged: (imaginary part, real part).
        lanes.store(f, (y[0] - x_im, x[0] + y_im), p.space, opposite)
        lanes.store(f, (x_im + y[0], x[0] - y_im), p.space, k.index)
        k.next(*halves.added(k.carried, (x[0], x_im), (y[0], y_im)))
    made = p.transform()
    to = f.at(target, first * p["out_ls"])
    p.store(1, to, one, p["n"], made, (high, low))
    with f.if_(f.compare("gt", two, 0)):
        p.store(1, f.at(to, p["out_ls"] * width), two, p["n"], made, (low, high))
    return k.results


def _four_steps(p: FFTPass, unit: LLVMValue) -> None:
    f, lanes, width = p.f, p.lanes, p.lanes.count
    n1, n2, ends = p["n1"], p["n2"], (p["re"], p["im"])
    source, target = p.outer(unit // p["lanes"])
    lane = unit % p["lanes"]
    source, target = f.at(source, lane * p["in_ls"]), f.at(target, lane * p["out_ls"])
    size = lanes.type.size
    ld = (n1 + (width - 1)) & -width
    turned = f.at(p.other, p["buffer"])
    with f.loop(0, n2, width) as block:
        b0 = block.index
        count = f.minimum(n2 - b0, width)
        at = f.at(source, b0 * p["in_ps"])
        f.call("load2", VOID, [at, n2 * p["in_ps"], p["in_ps"], n1, count, p.space, *ends])
        made = f.call("fft", PTR, [p.space, p.other, p.pointer("table")])
        _turn(p, made, b0, count)
        rows = f.at(turned, b0 * (2 * size) * ld)
        with f.loop(0, n1, width) as c:
            for part in range(2):
                found = [
                    f.load(lanes.vector, f.at(made, (c.index + k) * UNIT + part * VECTOR_BYTES))
                    for k in range(width)
                ]
                corner = f.at(rows, (ld * part + c.index) * size)
                for k, v in enumerate(transposed(f, found)):
                    f.store(v, f.at(corner, ld * (2 * size * k)))
    with f.loop(0, n1, width) as block:
        c0 = block.index
        count = f.minimum(n1 - c0, width)
        with f.loop(0, n2) as j:
            row = f.at(turned, (j.index * ld * 2 + c0) * size)
            re, im = f.load(lanes.vector, row), f.load(lanes.vector, f.at(row, ld * size))
            lanes.store(f, (re, im), p.space, j.index)
        made = f.call("fft", PTR, [p.space, p.other, p.pointer("table2")])
        at, step = f.at(target, c0 * p["out_ps"]), p["out_ps"]
        f.call("store2", VOID, [at, n1 * step, step, n2, count, made, *ends, p.scale])


def _turn(p: FFTPass, made: LLVMValue, first: LLVMValue, count: LLVMValue) -> None:
    """Multiply row k of a block of columns by the factors of its columns."""
    f, lanes = p.f, p.lanes
    mask = f.low_mask(count, lanes.count)
    size, n2 = lanes.type.size, p["n2"]
    with f.loop(0, p["n1"]) as k:
        place = f.at(p.pointer("turns"), (k.index * n2 * 2 + first) * size)
        re = f.masked_load(lanes.vector, place, mask)
        im = f.masked_load(lanes.vector, f.at(place, n2 * size), mask)
        lanes.store(f, times(f, lanes.load(f, made, k.index), (re, im)), made, k.index)
