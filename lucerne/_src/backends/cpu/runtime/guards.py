"""The allocator for finding errors: every block on pages of its own, between inaccessible ones.

    [ no access ][ slack | block | slack ][ no access ]

A block ends at the last place of its pages that its alignment allows, so that the first byte read
or written behind it (or, for small alignments, a few bytes later) ends the process at that very
instruction. With a negative alignment blocks begin at the first place instead, and the byte before
is the one that must not be touched. Slack and block are filled with 0xCB: fresh memory has no zeros
to rely on, and slack that changed is reported when the block is freed. Freed pages are inaccessible
until some thousands more have been freed: the system has room for a limited number.
"""

from __future__ import annotations

import mmap
from collections.abc import Callable

from lucerne._src.backends.cpu.emit.builder import (
    I8,
    I32,
    I64,
    PTR,
    VOID,
    LLVMFunction,
    LLVMValue,
    Module,
)

FILL = 0xCB
SMALLEST_ALIGNMENT = 16
_PAGE = mmap.PAGESIZE
_DONT_NEED = 4
_RING, _RING_BITS = "guard_ring", 13
"""The blocks freed last: (pages, bytes) of each."""
_ALLOCATED, _PEAK, _RESERVED, _ALLOCATIONS, _FREES = 0, 1, 2, 4, 5
_MESSAGE = "memory outside a tensor was overwritten (found when the tensor was freed)\n"


def writer(alignment: int, state: str, words: int) -> Callable[[Module], None]:
    """Writes the same functions as the ordinary allocator, with the same state."""
    left, alignment = alignment < 0, max(SMALLEST_ALIGNMENT, abs(alignment))

    def write(m: Module) -> None:
        m.variable(state, f"[{words} x i64]", align=64, shown=True)
        m.variable(_RING, f"[{2 << _RING_BITS} x i64]", align=64)
        text = _MESSAGE.replace("\n", "\\0A")
        m.constant("guard_message", f"[{len(_MESSAGE)} x i8]", f'c"{text}"', align=1)
        _write_check(m)
        _write_retire(m, state)
        _write_alloc(m, 0 if left else alignment, state)
        _write_free(m, 0 if left else alignment, state)
        with m.function("lucerne_empty_cache", []):
            pass

    return write


def _up(f: LLVMFunction, n: LLVMValue, step: int) -> LLVMValue:
    return (n + (step - 1)) & -step


def _add(f: LLVMFunction, state: str, index: int, amount: LLVMValue | int) -> LLVMValue:
    place = f.at(f.symbol(state), index * 8)
    total = f.load(I64, place) + amount
    f.store(total, place)
    return total


def _body(f: LLVMFunction, nbytes: LLVMValue) -> LLVMValue:
    """Bytes of the accessible pages of a block."""
    return _up(f, f.maximum(nbytes, 1), _PAGE)


def _before(f: LLVMFunction, nbytes: LLVMValue, alignment: int) -> LLVMValue:
    """Bytes between the start of the pages and the block; alignment 0: it begins there."""
    if not alignment:
        return f.constant(0)
    return _body(f, nbytes) - _up(f, nbytes, alignment)


def _write_alloc(m: Module, alignment: int, state: str) -> None:
    with m.function("lucerne_alloc", [("nbytes", I64)], PTR) as f:
        [nbytes] = f.args
        with f.if_(f.compare("ugt", nbytes, 1 << 40)):
            f.ret(f.zero(PTR))
        body = _body(f, nbytes)
        base = f.call("mmap", PTR, [
            f.zero(PTR), body + 2 * _PAGE, f.constant(0, I32),
            f.constant(mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS, I32), f.constant(-1, I32), 0,
        ])  # fmt: skip
        with f.if_(f.compare("eq", f.convert("ptrtoint", base, I64), -1)):
            f.ret(f.zero(PTR))
        pages = f.at(base, _PAGE)
        access = f.constant(mmap.PROT_READ | mmap.PROT_WRITE, I32)
        denied = f.call("mprotect", I32, [pages, body, access])
        with f.if_(f.compare("ne", denied, 0)):
            f.call("munmap", I32, [base, body + 2 * _PAGE])
            f.ret(f.zero(PTR))
        f.fill_bytes(pages, FILL, body)
        allocated = _add(f, state, _ALLOCATED, nbytes)
        peak = f.at(f.symbol(state), _PEAK * 8)
        f.store(f.maximum(f.load(I64, peak), allocated), peak)
        _add(f, state, _RESERVED, body)
        _add(f, state, _ALLOCATIONS, 1)
        f.ret(f.at(pages, _before(f, nbytes, alignment)))


def _write_free(m: Module, alignment: int, state: str) -> None:
    with m.function("lucerne_free", [("block", PTR), ("nbytes", I64)]) as f:
        block, nbytes = f.args
        body, before = _body(f, nbytes), _before(f, nbytes, alignment)
        pages = f.at(block, 0 - before)
        f.call("guard_check", VOID, [pages, before])
        f.call("guard_check", VOID, [f.at(block, nbytes), body - before - nbytes])
        f.call("mprotect", I32, [pages, body, f.constant(0, I32)])
        f.call("madvise", I32, [pages, body, f.constant(_DONT_NEED, I32)])
        f.call("guard_retire", VOID, [pages, body])
        _add(f, state, _ALLOCATED, 0 - nbytes)
        _add(f, state, _RESERVED, 0 - body)
        _add(f, state, _FREES, 1)


def _write_retire(m: Module, state: str) -> None:
    """Keep freed pages in the ring; those that had its place before go back to the system."""
    with m.function("guard_retire", [("pages", PTR), ("body", I64)], internal=True) as f:
        pages, body = f.args
        count = f.load(I64, f.at(f.symbol(state), _FREES * 8))
        place = f.at(f.symbol(_RING), (count & ((1 << _RING_BITS) - 1)) * 16)
        old = f.load(PTR, place)
        with f.if_(f.compare("ne", old, f.zero(PTR))):
            size = f.load(I64, f.at(place, 8)) + 2 * _PAGE
            f.call("munmap", I32, [f.at(old, -_PAGE), size])
        f.store(pages, place)
        f.store(body, f.at(place, 8))


def _write_check(m: Module) -> None:
    """End the process with a message unless `size` bytes still hold the filling."""
    with m.function("guard_check", [("start", PTR), ("size", I64)], internal=True) as f:
        start, size = f.args
        with f.loop(0, size) as loop:
            byte = f.load(I8, f.at(start, loop.index))
            with f.if_(f.compare("ne", byte, FILL - 256)):
                f.call("write", I64, [f.constant(2, I32), f.symbol("guard_message"), len(_MESSAGE)])
                f.call("abort", VOID, [])
