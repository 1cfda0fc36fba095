"""Memory of tensors: blocks aligned to 64 bytes, kept for the next allocation when freed.

    ptr  lucerne_alloc(i64 nbytes)              null if the system has no more
    void lucerne_free(ptr block, i64 nbytes)    with the size that was asked for

Both are written in IR, so that compiled code and Python share them, and both must be called with
Python's lock held: they take no lock of their own. Sizes are rounded up to a class, of which there
are four for each power of two. A freed block goes to the list of its class and is handed out next:
a training loop takes no memory from the system after its first round, and touches no fresh pages.
Small blocks are cut from chunks; large ones are mapped one by one, aligned for huge pages, and go
back to the system when more than a quarter of the machine's memory would lie unused.

With `config.guard_pages` every block has pages of its own between inaccessible ones instead (see
`guards`): reading or writing outside a tensor then ends the process.
"""

from __future__ import annotations

import ctypes
import mmap
import os
from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np

from lucerne._src.backends.cpu.emit.builder import (
    I1,
    I32,
    I64,
    PTR,
    VOID,
    LLVMFunction,
    LLVMValue,
    Module,
)
from lucerne._src.backends.cpu.runtime import guards, symbols
from lucerne._src.backends.cpu.runtime.code import Code, compiled
from lucerne._src.base.config import config
from lucerne._src.base.process.no_room import no_room

ALIGNMENT = 64
LARGEST = 1 << 40
_ANY = (1 << 63) - 1
_CHUNK = 1 << 20
_LARGE = 1 << 16
"""Blocks above this are mapped one by one."""
_HUGE_PAGE = 1 << 21
_ADVISE_HUGE = 14
_SMALLEST_STEP_BITS = 6

# Words of the state.
ALLOCATED, PEAK, RESERVED, CACHED, ALLOCATIONS, FREES, LIMIT, _NEXT, _END, MOST = range(10)
_HEADS = 16
_CLASSES = 4 * (40 - 8) + 8
_STATE = "lucerne_memory"
_WORDS = _HEADS + _CLASSES


def class_of(nbytes: int) -> tuple[int, int]:
    """(number, size) of the class that holds a block of so many bytes; as the compiled code."""
    last = max(nbytes - 1, 0)
    shift = (last | 256).bit_length() - 3
    quarter = last >> shift
    return 4 * (shift - _SMALLEST_STEP_BITS) + quarter, (quarter + 1) << shift


# ---- the code ---------------------------------------------------------------------------------


def write_memory(m: Module) -> None:
    """All functions of the allocator."""
    m.variable(_STATE, f"[{_WORDS} x i64]", align=64, shown=True)
    _write_map(m)
    _write_fresh(m)
    _write_empty(m)
    _write_alloc(m)
    _write_free(m)


def _word(f: LLVMFunction, index: Any) -> LLVMValue:
    return f.at(f.symbol(_STATE), index, I64)


def _add(f: LLVMFunction, index: int, amount: Any) -> LLVMValue:
    """Add to a word of the state; the new value."""
    total = f.load(I64, _word(f, index)) + amount
    f.store(total, _word(f, index))
    return total


def _class(f: LLVMFunction, nbytes: LLVMValue) -> tuple[LLVMValue, LLVMValue]:
    """`class_of`, in IR."""
    last = f.maximum(nbytes - 1, 0)
    zeros = f.call("llvm.ctlz.i64", I64, [last | 256, f.constant(1, I1)])
    shift = 61 - zeros
    quarter = f.bits("lshr", last, shift)
    return (shift - _SMALLEST_STEP_BITS) * 4 + quarter, (quarter + 1) << shift


def _is_null(f: LLVMFunction, pointer: LLVMValue) -> LLVMValue:
    return f.compare("eq", pointer, f.zero(PTR))


def _write_map(m: Module) -> None:
    """Fresh pages from the system, or null. Large ones at a boundary of huge pages."""
    with m.function("memory_map", [("size", I64)], PTR, internal=True) as f:
        [size] = f.args
        with f.if_(size > f.load(I64, _word(f, MOST)) - f.load(I64, _word(f, RESERVED))):
            f.ret(f.zero(PTR))
        is_huge = size >= _HUGE_PAGE
        asked = size + f.select(is_huge, f.constant(_HUGE_PAGE), 0)
        got = f.call("mmap", PTR, [
            f.zero(PTR), asked, f.constant(mmap.PROT_READ | mmap.PROT_WRITE, I32),
            f.constant(mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS, I32), f.constant(-1, I32), 0,
        ])  # fmt: skip
        start = f.convert("ptrtoint", got, I64)
        with f.if_(f.compare("eq", start, -1)):
            f.ret(f.zero(PTR))
        with f.if_(is_huge):
            before = (0 - start) & (_HUGE_PAGE - 1)
            with f.if_(before > 0):
                f.call("munmap", I32, [got, before])
            f.call("munmap", I32, [f.at(got, before + size), asked - before - size])
            f.call("madvise", I32, [f.at(got, before), size, f.constant(_ADVISE_HUGE, I32)])
            f.ret(f.at(got, before))
        f.ret(got)


def _write_fresh(m: Module) -> None:
    """A block of a class whose list is empty, or null."""
    with m.function("memory_fresh", [("size", I64)], PTR, internal=True) as f:
        [size] = f.args
        with f.if_(size > _LARGE):
            block = f.call("memory_map", PTR, [_whole_pages(f, size)])
            _add(f, RESERVED, f.select(_is_null(f, block), f.constant(0), _whole_pages(f, size)))
            f.ret(block)
        start = f.load(I64, _word(f, _NEXT))
        with f.if_(start + size > f.load(I64, _word(f, _END))) as full:
            chunk = f.call("memory_map", PTR, [_CHUNK])
            with f.if_(_is_null(f, chunk)):
                f.ret(chunk)
            first = f.convert("ptrtoint", chunk, I64)
            f.store(first + _CHUNK, _word(f, _END))
            _add(f, RESERVED, _CHUNK)
            full.give(first)
        with full.else_():
            full.give(start)
        f.store(full.results[0] + size, _word(f, _NEXT))
        f.ret(f.convert("inttoptr", full.results[0], PTR))


def _whole_pages(f: LLVMFunction, size: LLVMValue) -> LLVMValue:
    page = mmap.PAGESIZE
    return (size + (page - 1)) & -page


def _write_alloc(m: Module) -> None:
    with m.function("lucerne_alloc", [("nbytes", I64)], PTR) as f:
        [nbytes] = f.args
        with f.if_(f.compare("ugt", nbytes, LARGEST)):
            f.ret(f.zero(PTR))
        number, size = _class(f, nbytes)
        head = _word(f, number + _HEADS)
        first = f.load(PTR, head)
        with f.if_(_is_null(f, first)) as empty:
            fresh = f.call("memory_fresh", PTR, [size])
            with f.if_(_is_null(f, fresh)) as full:
                f.call("lucerne_empty_cache", VOID, [])  # what lies unused is given back first
                again = f.call("memory_fresh", PTR, [size])
                with f.if_(_is_null(f, again)):
                    f.ret(again)
                full.give(again)
            with full.else_():
                full.give(fresh)
            empty.give(full.results[0])
        with empty.else_():
            f.store(f.load(PTR, first), head)
            _add(f, CACHED, 0 - size)
            empty.give(first)
        allocated = _add(f, ALLOCATED, size)
        f.store(f.maximum(f.load(I64, _word(f, PEAK)), allocated), _word(f, PEAK))
        _add(f, ALLOCATIONS, 1)
        f.ret(empty.results[0])


def _write_free(m: Module) -> None:
    params = [("block", PTR), ("nbytes", I64)]
    with m.function("lucerne_free", params) as f:
        block, nbytes = f.args
        number, size = _class(f, nbytes)
        _add(f, ALLOCATED, 0 - size)
        _add(f, FREES, 1)
        unused = f.load(I64, _word(f, CACHED)) + size
        with f.if_((unused > f.load(I64, _word(f, LIMIT))) & (size > _LARGE)):
            f.call("munmap", I32, [block, _whole_pages(f, size)])
            _add(f, RESERVED, 0 - _whole_pages(f, size))
            f.ret()
        f.store(unused, _word(f, CACHED))
        head = _word(f, number + _HEADS)
        f.store(f.load(PTR, head), block)
        f.store(block, head)


def _write_empty(m: Module) -> None:
    """Give the unused large blocks back to the system."""
    first_large, _ = class_of(_LARGE + 1)
    with m.function("lucerne_empty_cache", []) as f, f.loop(first_large, _CLASSES) as classes:
        number = classes.index
        shift = f.bits("lshr", number, 2) + (_SMALLEST_STEP_BITS - 1)
        size = ((number & 3) + 5) << shift
        head = _word(f, number + _HEADS)
        first = f.load(PTR, head)
        with f.if_(f.compare("ne", first, f.zero(PTR))):
            with f.while_([first]) as blocks:
                [block] = blocks.carried
                following = f.load(PTR, block)
                f.call("munmap", I32, [block, _whole_pages(f, size)])
                _add(f, RESERVED, 0 - _whole_pages(f, size))
                _add(f, CACHED, 0 - size)
                blocks.again(f.compare("ne", following, f.zero(PTR)), following)
            f.store(f.zero(PTR), head)


# ---- the allocator of this process ------------------------------------------------------------


class Allocator:
    """The compiled functions, for Python."""

    def __init__(self, code: Code, limit: int) -> None:
        self.code, self.base = code, code[_STATE]
        self.alloc = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.c_int64)(code["lucerne_alloc"])
        self.free = ctypes.PYFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64)(code["lucerne_free"])
        self._empty = ctypes.PYFUNCTYPE(None)(code["lucerne_empty_cache"])
        self._set(LIMIT, limit)
        self.set_most(config.memory_megabytes << 20)
        self._allocated = ctypes.c_int64.from_address(self.base + 8 * ALLOCATED)

    def allocated_now(self) -> int:
        """Bytes in use (sizes count as rounded up to their class)."""
        return self._allocated.value

    def taken(self, nbytes: int) -> int:
        """What a block of so many bytes takes: its size as rounded up to its class."""
        return class_of(nbytes)[1]

    def word(self, index: int) -> int:
        return ctypes.c_int64.from_address(self.base + 8 * index).value

    def _set(self, index: int, value: int) -> None:
        ctypes.c_int64.from_address(self.base + 8 * index).value = value

    def take(self, nbytes: int) -> int:
        """The address of a block."""
        address = self.alloc(nbytes)
        if address is None:
            raise no_room(nbytes)
        return int(address)

    def empty_cache(self) -> None:
        """Give unused memory back to the system (small blocks stay)."""
        self._empty()

    def set_most(self, nbytes: int) -> None:
        """Take no more from the system than this; 0: as much as it gives."""
        self._set(MOST, nbytes or _ANY)

    def reset_peak(self) -> None:
        self._set(PEAK, self.word(ALLOCATED))

    def stats(self) -> dict[str, int]:
        """Bytes and counts. Sizes count as rounded up to their class."""
        names = {
            "allocated_bytes": ALLOCATED, "peak_bytes": PEAK, "reserved_bytes": RESERVED,
            "cached_bytes": CACHED, "allocations": ALLOCATIONS, "frees": FREES,
        }  # fmt: skip
        return {name: self.word(index) for name, index in names.items()}


def refuse_room(nbytes: int) -> None:
    """What machine code calls when it found no room for a tensor."""
    raise no_room(nbytes)


def make_allocator(alignment_of_guards: int = 0) -> Allocator:
    """The allocator; with guard pages if an alignment is given (see `guards`)."""
    write: Callable[[Module], None] = write_memory
    if alignment_of_guards:
        write = guards.writer(alignment_of_guards, _STATE, _WORDS)
    code = compiled(("memory", alignment_of_guards, mmap.PAGESIZE), write)
    return Allocator(code, os.sysconf("SC_PHYS_PAGES") * mmap.PAGESIZE // 4)


@cache
def allocator() -> Allocator:
    """The allocator of this process, made when first asked for."""
    return make_allocator(config.guard_pages)


class HostBlock:
    """One block of memory, freed when nothing refers to it any more."""

    __slots__ = ("__weakref__", "_free", "address", "nbytes")

    def __init__(self, nbytes: int) -> None:
        found = allocator()
        self._free = found.free
        self.nbytes = nbytes
        self.address = found.take(nbytes)

    def __del__(self) -> None:
        if hasattr(self, "address"):
            self._free(self.address, self.nbytes)

    @property
    def __array_interface__(self) -> dict[str, Any]:
        return {
            "shape": (self.nbytes,),
            "typestr": "|u1",
            "data": (self.address, False),
            "version": 3,
        }


def allocate(nbytes: int) -> np.ndarray[Any, Any]:
    """Fresh bytes, aligned to 64, contents undefined."""
    return np.asarray(HostBlock(nbytes))


symbols.provide("lucerne_alloc", lambda: allocator().code["lucerne_alloc"])
symbols.provide("lucerne_free", lambda: allocator().code["lucerne_free"])
