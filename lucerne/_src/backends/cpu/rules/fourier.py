"""Fourier transforms in machine code: which passes a call needs, and their words."""

from __future__ import annotations

import math
import struct
from collections.abc import Sequence
from typing import Any

from lucerne._src.backends.cpu.emit.target import VECTOR_BYTES
from lucerne._src.backends.cpu.fft import passes as ps
from lucerne._src.backends.cpu.fft.plan import chirp_of, halves_of, table_of, turns_of
from lucerne._src.backends.cpu.fft.stages import UNIT
from lucerne._src.backends.cpu.rules.table import rule
from lucerne._src.backends.cpu.runtime.code import compiled
from lucerne._src.backends.cpu.runtime.kernel import NativeKernel, float_word
from lucerne._src.backends.cpu.runtime.pool import MAX_THREADS
from lucerne._src.base import dtype as dt
from lucerne._src.base import shape as sh
from lucerne._src.ir.graph import Node
from lucerne._src.ir.meta import TensorMeta

_TASK_NS = 20000.0
_MOST_ROOM = 1 << 26
"""Bytes of scratch of a thread: longer transforms of awkward lengths go to the reference."""
_LONG = 1 << 16
"""Bytes of a buffer from which on a transform is made alone, in four steps; four times as many
where its halves do not fill the lanes."""
_FEW, _AWKWARD = 4, 500
"""So few transforms of more points than this, whose number has a large prime factor, would leave
most lanes of a long convolution empty: the reference is faster."""


@rule("fft_c2c")
def fft_c2c(node: Node) -> Any:
    input, out = node.args[0].meta, node.outputs[0].meta
    dims, scale, forward = node.args[1:]
    call = _Call(input, out, _scale(scale, [input.shape[d] for d in dims]))
    for i, d in enumerate(reversed(dims)):
        from_ = (ps.INPUT, input) if i == 0 else (ps.OUTPUT, out)
        call.along(d, "c2c", input.shape[d], from_, (ps.OUTPUT, out), forward)
    return call.kernel()


@rule("fft_r2c")
def fft_r2c(node: Node) -> Any:
    input, out = node.args[0].meta, node.outputs[0].meta
    dims, scale = node.args[1:]
    call = _Call(input, out, _scale(scale, [input.shape[d] for d in dims]))
    last = dims[-1]
    call.along(last, "r2c", input.shape[last], (ps.INPUT, input), (ps.OUTPUT, out), True)
    for d in dims[:-1]:
        call.along(d, "c2c", input.shape[d], (ps.OUTPUT, out), (ps.OUTPUT, out), True)
    return call.kernel()


@rule("fft_c2r")
def fft_c2r(node: Node) -> Any:
    input, out = node.args[0].meta, node.outputs[0].meta
    dims, scale, size = node.args[1:]
    if size // 2 + 1 != input.shape[dims[-1]]:
        return None
    sizes = [*(input.shape[d] for d in dims[:-1]), size]
    call = _Call(input, out, _scale(scale, sizes))
    from_ = (ps.INPUT, input)
    between = input.like(strides=sh.contiguous_strides(input.shape))
    for d in dims[:-1]:
        call.along(d, "c2c", input.shape[d], from_, (ps.SCRATCH, between), False)
        from_ = (ps.SCRATCH, between)
    call.along(dims[-1], "c2r", size, from_, (ps.OUTPUT, out), False)
    return call.kernel()


def _scale(how: int, sizes: Sequence[int]) -> float:
    count = math.prod(sizes)
    return (1.0, 1 / math.sqrt(count), 1 / count)[how]


class _Call:
    """The passes of one call."""

    def __init__(self, input: TensorMeta, out: TensorMeta, scale: float) -> None:
        self.input, self.out, self.scale = input, out, scale
        self.real = out.dtype.to_real()
        self.possible = self.real in (dt.float32, dt.float64) and bool(input.numel and out.numel)
        self.passes: list[tuple[list[int], dict[str, int]]] = []
        self.kept: list[Any] = []
        """Tables, which the kernel keeps."""
        self.shared, self.work = 0, 0.0

    @property
    def width(self) -> int:
        return VECTOR_BYTES // self.real.itemsize

    def along(
        self, dim: int, kind: str, n: int, from_: tuple[int, TensorMeta],
        to: tuple[int, TensorMeta], forward: bool,
    ) -> None:  # fmt: skip
        """One pass along a dimension of `n` points."""
        if not self.possible:
            return
        (source, given), (target, made) = from_, to
        if ps.SCRATCH in (source, target):
            self.shared = self.input.numel * self.input.dtype.itemsize
        loops = _loops(given, made, dim)
        if loops is None:
            self.possible = False
            return
        lanes, *outer = loops
        words = dict.fromkeys(ps.WORDS, 0)
        words.update(n=n, in_ps=given.byte_strides[dim], out_ps=made.byte_strides[dim])
        words.update(lanes=lanes[0], in_ls=lanes[1], out_ls=lanes[2])
        words.update(re=0 if forward else VECTOR_BYTES, im=VECTOR_BYTES if forward else 0)
        for k in range(ps.OUTER):
            size, in_s, out_s = outer[k] if k < len(outer) else (1, 0, 0)
            words.update({f"size{k}": size, f"in_s{k}": in_s, f"out_s{k}": out_s})
        outside = math.prod(size for size, _, _ in outer)
        if kind == "c2c" and self._is_alone(n, lanes[0]) and self._four_steps(words, outside):
            kind = "four"
        else:
            self._by_lanes(words, kind, outside)
        tasks = -(-words["units"] // words["per_task"])
        head = [ps.KINDS.index(kind), source, target, tasks]
        self.passes.append((head, words))

    def _is_alone(self, n: int, lanes: int) -> bool:
        if n < 64 or 2 * lanes < self.width:
            return n >= 64
        fills = all(k % (self.width // 2) == 0 for k in halves_of(n) or (1,))
        return n * UNIT > (_LONG if fills else 4 * _LONG)

    def _four_steps(self, words: dict[str, int], outside: int) -> bool:
        halves = halves_of(words["n"])
        if halves is None or halves[0] < 4:
            return False
        n1, n2 = halves
        real, width = self.real.name, self.width
        first, second, turns = table_of(n1, real), table_of(n2, real), turns_of(n1, n2, real)
        if first is None or second is None:
            return False
        self.kept += [first, second, turns]
        buffer = _rounded(max(n1, n2), width) * UNIT
        between = _rounded(n1, width) * _rounded(n2, width) * 2 * self.real.itemsize
        words.update(n1=n1, n2=n2, table=first.address, table2=second.address, buffer=buffer)
        words.update(turns=_address(turns), room=2 * buffer + between)
        words["units"] = words["lanes"] * outside
        self._share(words, self._cost(words["n"]))
        return True

    def _by_lanes(self, words: dict[str, int], kind: str, outside: int) -> None:
        n, real, width = words["n"], self.real.name, self.width
        table, most = table_of(n, real), n
        if table is None:
            if n > _AWKWARD and words["lanes"] * outside < _FEW:
                self.possible = False
            chirp = chirp_of(n, real)
            most = chirp.length
            table = table_of(most, real)
            self.kept.append(chirp)
            words.update(length=most, factors=_address(chirp.factors))
            words.update(filter=_address(chirp.filter))
        assert table is not None
        self.kept.append(table)
        half = 2 * _rounded(n // 2 + 1, width)
        buffer = (_rounded(max(most, half), width) + width) * UNIT
        words.update(table=table.address, buffer=buffer, room=2 * buffer)
        block = width if kind == "c2c" else 2 * width
        words["blocks"] = -(-words["lanes"] // block)
        words["units"] = words["blocks"] * outside
        self._share(words, self._cost(most) * width)
        self.possible = self.possible and words["room"] <= _MOST_ROOM

    def _cost(self, n: int) -> float:
        """About how many nanoseconds a transform takes."""
        return 5.0 + 0.3 * n * max(1, n.bit_length() // 3)

    def _share(self, words: dict[str, int], cost: float) -> None:
        units = words["units"]
        words["per_task"] = max(1, min(units, int(_TASK_NS / cost)), -(-units // 256))
        self.work += units * cost

    def kernel(self) -> NativeKernel | None:
        """None: the reference backend does it."""
        if not self.possible:
            return None
        words: list[int] = []
        for i, (head, named) in enumerate(self.passes):
            last = i == len(self.passes) - 1
            named["scale"] = _bits(self.scale if last else 1.0, self.real)
            words += [*head, *(named[name] for name in ps.WORDS)]
        used = {head[0] for head, _ in self.passes}
        kinds = tuple(k for i, k in enumerate(ps.KINDS) if i in used)
        real = self.real.name
        code = compiled(
            ("fourier", real, kinds, VECTOR_BYTES), lambda m: ps.write_passes(m, real, kinds)
        )
        threads = max(-(-w["units"] // w["per_task"]) for _, w in self.passes)
        private = max(w["room"] for _, w in self.passes) * min(threads, MAX_THREADS)
        extra = [len(self.passes), private, *words]
        made = NativeKernel(
            code["entry"], 1, 1, extra=extra, workspace=private + self.shared, work=self.work
        )
        made.kept = tuple(self.kept)
        return made


def _loops(given: TensorMeta, made: TensorMeta, dim: int) -> list[tuple[int, int, int]] | None:
    """The loops around the transforms as (size, bytes in the source, bytes in the target), that of
    the lanes first: one whose elements follow each other in memory, or else the longest. None:
    there are too many."""
    rest = [d for d in range(given.ndim) if d != dim and given.shape[d] != 1]
    steps = [(given.shape[d], given.byte_strides[d], made.byte_strides[d]) for d in rest]
    steps.sort(key=lambda s: (-s[2], -s[1]))
    loops: list[tuple[int, int, int]] = []
    for size, a, b in steps:
        if loops and loops[-1][1] == a * size and loops[-1][2] == b * size:
            loops[-1] = (loops[-1][0] * size, a, b)
        else:
            loops.append((size, a, b))
    if not loops:
        return [(1, 0, 0)]
    items = given.dtype.itemsize, made.dtype.itemsize

    def worth(loop: tuple[int, int, int]) -> tuple[bool, int]:
        size, a, b = loop
        return (a == items[0] or b == items[1]) and size >= 8, size

    best = max(loops, key=worth)
    loops.remove(best)
    return None if len(loops) > ps.OUTER else [best, *loops]


def _rounded(n: int, to: int) -> int:
    return -(-n // to) * to


def _address(array: Any) -> int:
    return int(array.__array_interface__["data"][0])


def _bits(value: float, real: dt.dtype) -> int:
    if real is dt.float64:
        return float_word(value)
    return int(struct.unpack("<I", struct.pack("<f", value))[0])
