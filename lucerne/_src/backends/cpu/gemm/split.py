"""Products with few results and a long k: parts of k are products of their own, then added.

The parts follow from the shape, and are added in their order: the sum is the same for any number
of threads. The kernel's extra words: two inner plans (equal parts, and what is left over), each
after its entry; the number of results, the number of parts, bytes of partial results.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from lucerne._src.backends.cpu.emit.builder import LLVMFunction, LLVMValue, Module
from lucerne._src.backends.cpu.emit.types import I64, PTR
from lucerne._src.backends.cpu.gemm.args import PLANNED
from lucerne._src.backends.cpu.gemm.kinds import GemmKind, masked, store_masked
from lucerne._src.backends.cpu.gemm.plan import GemmBatch, GemmProduct, Planned
from lucerne._src.backends.cpu.runtime.code import Code, compiled

_PART = 8192
_FEW_RESULTS = 2048
_PLAN_WORDS = 1 + len(PLANNED)
_REST, _RESULTS = _PLAN_WORDS, 2 * _PLAN_WORDS
_PARTS, _SPACE = _RESULTS + 1, _RESULTS + 2
Chooser = Callable[[GemmKind, GemmProduct], tuple[Code, Planned]]


def suits_split(p: GemmProduct) -> bool:
    return p.m * p.n <= _FEW_RESULTS and p.k >= 2 * _PART and not p.batch and p.c_row == p.n


def split_plan(kind: GemmKind, p: GemmProduct, choose: Chooser) -> tuple[Code, Planned]:
    """`choose` gives code and plan of the parts."""
    inner = GemmKind(kind.source, kind.sums, kind.sums, kind.unsigned)
    parts, rest = divmod(p.k, _PART)
    results = p.m * p.n
    batch = (GemmBatch(parts, _PART * p.a_k, _PART * p.b_k, results),)
    plans = [choose(inner, replace(p, k=_PART, batch=batch))]
    if rest:
        plans.append(choose(inner, replace(p, k=rest)))
    words: list[int] = []
    for code, planned in plans:
        words += [code["product"], *planned.words]
    words += [0] * (_RESULTS - len(words))
    space = -(-(parts + 1) * results * kind.sums.size // 64) * 64
    words += [results, parts + (1 if rest else 0), space]
    workspace = space + max(planned.workspace for _, planned in plans)
    code = compiled(("gemm.split", *kind.key), lambda m: _write(m, kind))
    return code, Planned(tuple(words), workspace, 0)


def _write(m: Module, kind: GemmKind) -> None:
    for name, a, b in (("product", 1, 2), ("product_swapped", 2, 1)):
        with m.function(name, [("block", PTR)], I64) as f:
            block = f.args[0]
            c, left, right, space = (f.word(block, i, PTR) for i in (0, a, b, 3))
            _split(f, kind, f.at(block, 32), (c, left, right, space))


def _split(f: LLVMFunction, kind: GemmKind, extra: LLVMValue, given: tuple[LLVMValue, ...]) -> None:
    c, left, right, space = given
    results, parts, size = (f.word(extra, i) for i in (_RESULTS, _PARTS, _SPACE))
    inner = f.stack((4 + len(PLANNED)) * 8)
    more = f.at(space, size)
    _run(f, inner, extra, (space, left, right, more))
    with f.if_(f.compare("ne", f.word(extra, _REST), 0)):
        plan = f.at(extra, _REST * 8)
        step = (parts - 1) * _PART * kind.source.size
        first = _Words(f, extra)
        there = f.at(left, step * first("A_K")), f.at(right, step * first("B_K"))
        last = f.at(space, (parts - 1) * results * kind.sums.size)
        _run(f, inner, plan, (last, *there, more))
    _add_parts(f, kind, c, space, results, parts)
    f.ret(0)


class _Words:
    """Words of an inner plan by name."""

    def __init__(self, f: LLVMFunction, plan: LLVMValue) -> None:
        self.f, self.plan = f, plan

    def __call__(self, name: str) -> LLVMValue:
        return self.f.word(self.plan, 1 + PLANNED.index(name))


def _run(
    f: LLVMFunction, inner: LLVMValue, plan: LLVMValue, pointers: tuple[LLVMValue, ...]
) -> None:
    for i, p in enumerate(pointers):
        f.store(p, f.at(inner, i * 8))
    f.copy_bytes(f.at(inner, 32), f.at(plan, 8), len(PLANNED) * 8)
    f.call_at(f.word(plan, 0, PTR), I64, [inner])


def _add_parts(
    f: LLVMFunction,
    kind: GemmKind,
    c: LLVMValue,
    space: LLVMValue,
    results: LLVMValue,
    parts: LLVMValue,
) -> None:
    step = results * kind.sums.size
    with f.loop(0, results, kind.lanes) as loop:
        mask = f.low_mask(results - loop.index, kind.lanes)
        place = f.at(space, loop.index * kind.sums.size)
        first = masked(f, kind.vector, place, mask)
        with f.loop(1, parts, 1, [first]) as adding:
            v = masked(f, kind.vector, f.at(place, adding.index * step), mask)
            adding.next(adding.carried[0] + v)
        to = f.at(c, loop.index * kind.result.size)
        store_masked(f, kind.narrow(f, adding.results[0]), to, mask)
