"""Products of complex matrices, as real products of twice the size.

A complex matrix in memory is a real one with pairs (re, im) along its rows. With each element of B
written as the square [[re, im], [-im, re]], the real product of A's pairs with that matrix gives
the pairs of the complex product: nothing but B has to be rearranged, and no operation is wasted.

The kernel's extra words: the driver's entry, two rearrangements (of A, copied only when its rows
are not dense, and of B), then the words of the real plan.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from lucerne._src.backends.cpu.emit.builder import LLVMFunction, LLVMValue, Module
from lucerne._src.backends.cpu.emit.types import I64, PTR, VOID, Type
from lucerne._src.backends.cpu.gemm.args import MAX_BATCH_DIMS, PLANNED
from lucerne._src.backends.cpu.gemm.driver import driver
from lucerne._src.backends.cpu.gemm.kinds import KINDS, GemmKind
from lucerne._src.backends.cpu.gemm.plan import GemmBatch, GemmProduct, plan
from lucerne._src.backends.cpu.runtime.code import compiled
from lucerne._src.backends.cpu.runtime.kernel import NativeKernel

REAL_KINDS = {"complex64": KINDS["float32"], "complex128": KINDS["float64"]}
_MAX_DIMS = MAX_BATCH_DIMS + 1
_WORDS = 4 + 2 * _MAX_DIMS
_ROWS, _COLUMNS, _STEP, _DIMS, _SIZES = 0, 1, 2, 3, 4
_ENTRY, _COPY, _SPREAD, _OFFSETS = 0, 1, 1 + _WORDS, 1 + 2 * _WORDS
_PLAN = _OFFSETS + 2
_GROUP = 16
"""Rows that one task rearranges."""


@dataclass(frozen=True)
class Rearranged:
    """Rows to read (all dimensions but the last), dense or not, and where they go."""

    sizes: list[int]
    strides: list[int]
    columns: int
    step: int

    def words(self) -> list[int]:
        dims = [x for pair in zip(self.sizes, self.strides, strict=True) for x in pair]
        head = [math.prod(self.sizes), self.columns, self.step, len(self.sizes)]
        return [*head, *dims, *([0] * (2 * _MAX_DIMS - len(dims)))]


def complex_product(name: str, p: GemmProduct) -> NativeKernel:
    """The kernel of a product of complex matrices; `p` counts complex elements."""
    kind = REAL_KINDS[name]
    size = kind.sums.size
    a_batch = [(d.size, d.a) for d in p.batch if d.a]
    b_batch = [(d.size, d.b) for d in p.batch if d.b]
    dense = p.a_k == 1 or p.k == 1
    copy = Rearranged(
        [n for n, _ in a_batch] + [p.m], [s for _, s in a_batch] + [p.a_row], p.k, p.a_k
    )
    spread = Rearranged(
        [n for n, _ in b_batch] + [p.k], [s for _, s in b_batch] + [p.b_k], p.n, p.b_col
    )
    real = _real_product(p, dense)
    planned = plan(kind, real)
    a_bytes = 0 if dense else _rounded(math.prod(copy.sizes) * p.k * 2 * size)
    b_bytes = _rounded(math.prod(spread.sizes) * p.n * 4 * size)
    nowhere = Rearranged([0], [0], 0, 0)
    extra = [
        driver(kind)["product"],
        *(nowhere if dense else copy).words(),
        *spread.words(),
        a_bytes,
        a_bytes + b_bytes,
        *planned.words,
    ]
    code = compiled(("gemm.complex", *kind.key), lambda m: _write(m, kind))
    workspace = a_bytes + b_bytes + planned.workspace
    work = 4 * p.flops * p.batches / 100.0
    return NativeKernel(code["complex_product"], 1, 2, extra=extra, workspace=workspace, work=work)


def _rounded(nbytes: int) -> int:
    return -(-nbytes // 64) * 64


def _real_product(p: GemmProduct, dense: bool) -> GemmProduct:
    """Strides of the real product: A as it lies or copied, B spread, both in real elements."""
    batch: list[GemmBatch] = []
    a_step, b_step = p.m * 2 * p.k, 4 * p.k * p.n
    for d in reversed(p.batch):
        a = 2 * d.a if dense else (a_step if d.a else 0)
        batch.insert(0, GemmBatch(d.size, a, b_step if d.b else 0, 2 * d.c))
        a_step *= d.size if d.a else 1
        b_step *= d.size if d.b else 1
    return replace(
        p,
        n=2 * p.n,
        k=2 * p.k,
        a_row=2 * p.a_row if dense else 2 * p.k,
        a_k=1,
        b_k=2 * p.n,
        b_col=1,
        c_row=2 * p.c_row,
        batch=tuple(batch),
    )


# ---- code -------------------------------------------------------------------------------------


def _write(m: Module, kind: GemmKind) -> None:
    _write_task(m, kind.sums, "copy_task", spread=False)
    _write_task(m, kind.sums, "spread_task", spread=True)
    with m.function("complex_product", [("block", PTR)], I64) as f:
        block = f.args[0]
        c, a, b, space = (f.word(block, i, PTR) for i in range(4))
        extra = f.at(block, 4 * 8)
        b_offset, rest = f.word(extra, _OFFSETS), f.word(extra, _OFFSETS + 1)
        inner = f.stack((4 + len(PLANNED)) * 8)
        spread = f.at(space, b_offset)
        copied = f.compare("gt", f.word(extra, _COPY + _ROWS), 0)
        f.store(c, inner)
        f.store(f.select(copied, space, a), f.at(inner, 8))
        f.store(spread, f.at(inner, 16))
        f.store(f.at(space, rest), f.at(inner, 24))
        f.copy_bytes(f.at(inner, 32), f.at(extra, _PLAN * 8), len(PLANNED) * 8)
        _rearrange(f, "copy_task", a, space, f.at(extra, _COPY * 8))
        _rearrange(f, "spread_task", b, spread, f.at(extra, _SPREAD * 8))
        f.ret(f.call_at(f.word(extra, _ENTRY, PTR), I64, [inner]))


def _rearrange(
    f: LLVMFunction, task: str, source: LLVMValue, target: LLVMValue, words: LLVMValue
) -> None:
    shared = f.stack(24)
    f.store(source, shared)
    f.store(target, f.at(shared, 8))
    f.store(words, f.at(shared, 16))
    count = f.ceil_div(f.word(words, _ROWS), _GROUP)
    f.call("lucerne_pfor", VOID, [f.symbol(task), shared, count])


def _write_task(m: Module, real: Type, name: str, spread: bool) -> None:
    """Rearrange a group of rows: pairs copied, or each pair spread over two rows."""
    pair = real.vector(2)
    with m.function(name, [("shared", PTR), ("chunk", I64), ("thread", I64)], internal=True) as f:
        source, target, words = (f.word(f.args[0], i, PTR) for i in range(3))
        columns, step = f.word(words, _COLUMNS), f.word(words, _STEP) * pair.nbytes
        row_bytes = columns * (pair.nbytes * (2 if spread else 1))
        first = f.args[1] * _GROUP
        with f.loop(first, f.minimum(first + _GROUP, f.word(words, _ROWS))) as rows:
            read = f.at(source, _offset(f, words, rows.index) * pair.nbytes)
            write = f.at(target, rows.index * row_bytes)
            with f.loop(0, columns, 1, [read, write]) as loop:
                at, to = loop.carried
                v = f.load(pair, at)
                f.store(v, to)
                if spread:
                    turned = f.shuffle(v, f.neg(v), [3, 0])
                    f.store(turned, f.at(to, columns * pair.nbytes))
                loop.next(f.at(at, step), f.at(to, pair.nbytes))


def _offset(f: LLVMFunction, words: LLVMValue, row: LLVMValue) -> LLVMValue:
    """Where row number `row` of all rows starts, in elements."""
    dims = f.word(words, _DIMS)
    with f.loop(0, dims, 1, [row, f.constant(0)], at_least_once=True) as loop:
        rest, offset = loop.carried
        place = f.at(words, (dims - 1 - loop.index) * 16 + _SIZES * 8)
        size, stride = f.word(place, 0), f.word(place, 1)
        index = f.unsigned("rem", rest, size)
        loop.next(f.unsigned("div", rest, size), offset + index * stride)
    return loop.results[1]
