"""Several loops as one kernel: how `cat`, `pad` and `flip` move blocks of memory.

A job is a recipe over a space, at byte offsets into tensors of the call. The driver fills in each
job's own block (pointers and numbers) and then runs the chunks of all jobs together. Jobs of the
second phase start when those of the first are done.

Extra words: [jobs] [chunks of phase 1] [chunks of both] [words of the table], then the table, then
the jobs' blocks. A table line: task, first chunk, word of its block, source word, source offset,
target offset.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from lucerne._src.backends.cpu.elementwise.plan import loops_of
from lucerne._src.backends.cpu.elementwise.recipe import Recipe
from lucerne._src.backends.cpu.elementwise.space import Space
from lucerne._src.backends.cpu.emit.builder import I64, PTR, VOID, LLVMFunction, LLVMValue, Module
from lucerne._src.backends.cpu.runtime.code import compiled
from lucerne._src.backends.cpu.runtime.kernel import NativeKernel
from lucerne._src.ir.symbolic.numbers import if_at_least

_HEAD, _LINE = 3, 6
_SMALL = 65536
"""Elements of all jobs together below which threads don't pay."""


@dataclass(frozen=True)
class Job:
    """One recipe with one output and either one input (`source`: which tensor of the call) and no
    numbers, or no input and the numbers of the call."""

    recipe: Recipe
    space: Space
    source: int | None = None
    source_offset: int = 0
    target_offset: int = 0
    phase: int = 1


def batch_kernel(jobs: Sequence[Job], tensors: int, numbers: str = "") -> NativeKernel:
    """The kernel of some jobs (at least one with elements)."""
    jobs = sorted((j for j in jobs if j.space.numel), key=lambda j: j.phase)
    first = 1 + tensors + 1 + 2 * len(numbers)
    table: list[int] = []
    blocks: list[int] = []
    chunks, first_chunks = 0, 0
    blocks_at = first + _HEAD + _LINE * len(jobs)
    for job in jobs:
        code, words = loops_of(job.recipe, job.space)
        source = 1 + job.source if job.source is not None else 0
        table += [code["task"], chunks, blocks_at + len(blocks), source]
        table += [job.source_offset, job.target_offset]
        blocks += [0] * job.recipe.first_extra + words
        chunks += _chunks(job, words)
        first_chunks = chunks if job.phase == 1 else first_chunks
    code = compiled(("batch", tensors, numbers), lambda m: _write(m, tensors, numbers))
    total = sum(j.space.numel for j in jobs)
    entry = if_at_least(total, _SMALL, code["entry"], code["serial"])
    extra = [len(jobs), first_chunks, chunks, *table, *blocks]
    work = sum(0.1 * j.recipe.cost * j.space.numel for j in jobs)
    return NativeKernel(entry, 1, tensors, numbers, extra, work=work)


def _chunks(job: Job, words: list[int]) -> int:
    """How many chunks the loops of a job were cut into."""
    return words[3] if job.space.flat else words[1]


def _write(m: Module, tensors: int, numbers: str) -> None:
    first = 1 + tensors + 1 + 2 * len(numbers)
    count = 2 * len(numbers)
    with m.function("fill_in", [("block", PTR)], internal=True) as f:
        _fill_in_blocks(f, first, count)
    with m.function("task", [("block", PTR), ("chunk", I64), ("tid", I64)], internal=True) as f:
        _run_chunk(f, first)
    with m.function("later", [("block", PTR), ("chunk", I64), ("tid", I64)], internal=True) as f:
        block, chunk, tid = f.args
        f.call("task", VOID, [block, chunk + f.word(block, first + 1), tid])
    with m.function("entry", [("block", PTR)], I64) as f:
        (block,) = f.args
        f.call("fill_in", VOID, [block])
        early, all_chunks = f.word(block, first + 1), f.word(block, first + 2)
        f.call("lucerne_pfor", VOID, [f.symbol("task"), block, early])
        with f.if_(all_chunks > early):
            f.call("lucerne_pfor", VOID, [f.symbol("later"), block, all_chunks - early])
        f.ret(0)
    with m.function("serial", [("block", PTR)], I64) as f:
        (block,) = f.args
        f.call("fill_in", VOID, [block])
        with f.loop(0, f.word(block, first + 2)) as loop:
            f.call("task", VOID, [block, loop.index, 0])
        f.ret(0)


def _line(f: LLVMFunction, block: LLVMValue, first: int, job: LLVMValue) -> LLVMValue:
    return f.at(f.at(block, 8 * (first + _HEAD)), job * (8 * _LINE))


def _fill_in_blocks(f: LLVMFunction, first: int, count: int) -> None:
    """Each job's block begins [target] [source] [workspace], or [target] [workspace] [numbers]."""
    (block,) = f.args
    target = f.word(block, 0, PTR)
    with f.loop(0, f.word(block, first)) as loop:
        line = _line(f, block, first, loop.index)
        inner = f.at(block, f.word(line, 2) * 8)
        f.store(f.at(target, f.word(line, 5)), inner)
        source = f.word(line, 3)
        with f.if_(source > 0) as reads:
            start = f.load(PTR, f.at(block, source * 8))
            f.store(f.at(start, f.word(line, 4)), f.at(inner, 8))
        with reads.else_():
            for k in range(count):
                f.store(f.word(block, first - count + k), f.at(inner, 8 * (2 + k)))


def _run_chunk(f: LLVMFunction, first: int) -> None:
    """Find the job of a chunk (the last one that begins at or before it) and run it there."""
    block, chunk, tid = f.args
    jobs = f.word(block, first)
    with f.while_([f.constant(0), jobs]) as search:
        low, high = search.carried
        middle = f.bits("lshr", low + high, 1)
        before = f.compare("le", f.word(_line(f, block, first, middle), 1), chunk)
        new_low, new_high = f.select(before, middle, low), f.select(before, high, middle)
        search.again(f.compare("gt", new_high - new_low, f.constant(1)), new_low, new_high)
    line = _line(f, block, first, search.results[0])
    inner = f.at(block, f.word(line, 2) * 8)
    f.call_at(f.word(line, 0, PTR), VOID, [inner, chunk - f.word(line, 1), tid])
