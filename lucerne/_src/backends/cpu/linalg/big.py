"""The same functions as `small.py` has, done by LAPACK: for matrices of more than a few rows.

A wrapper is an internal function of the module that puts sizes where Fortran wants them (in
memory) and calls the routine by a symbol, `lapack_dgetrf`; `provide` lets the loader find it.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import Any

from lucerne._src.backends.cpu.emit.builder import (
    I32,
    I64,
    PTR,
    VOID,
    LLVMFunction,
    LLVMValue,
    Module,
)
from lucerne._src.backends.cpu.emit.types import Type
from lucerne._src.backends.cpu.linalg.element import LETTERS, MatrixElement
from lucerne._src.backends.cpu.linalg.lapack import routine
from lucerne._src.backends.cpu.runtime import symbols
from lucerne._src.base import dtype as dt

_MATRIX = [("a", PTR), ("ld", I64)]
INVERSE_BLOCK = 64
"""Columns that an inversion has scratch for."""


def provide(dtype: dt.dtype, *names: str) -> bool | None:
    """Make routines callable by kernels. Gives whether their integers have 64 bits; None: some
    routine is missing here."""
    wide: set[bool] = set()
    for name in names:
        full = LETTERS[dtype] + name
        found = routine(full)
        if found is None:
            return None
        symbols.provide(f"lapack_{full}", found.address)
        wide.add(found.wide)
    return wide.pop() if len(wide) == 1 else None


def space_asked_for(dtype: dt.dtype, name: str, *args: Any) -> int:
    """How many elements of scratch a routine wants for these sizes: what it says itself when it is
    called with the size -1 ("?" in `args` stands for the scratch; None for an array)."""
    found = routine(LETTERS[dtype] + name)
    assert found is not None, name
    answer, kept = (ctypes.c_double * 4)(), []
    given: list[Any] = []
    for a in args:
        if a == "?":
            given.append(ctypes.addressof(answer))
            continue
        holder: Any = ctypes.create_string_buffer(64)
        if isinstance(a, str):
            holder = ctypes.create_string_buffer(a.encode())
        elif a is not None:
            holder = ctypes.c_int64(a)
        kept.append(holder)
        given.append(ctypes.addressof(holder))
    lengths = [ctypes.c_size_t(1) for a in args if isinstance(a, str) and a != "?"]
    call = ctypes.CFUNCTYPE(None)(found.address)
    call.argtypes = [ctypes.c_void_p] * len(given) + [ctypes.c_size_t] * len(lengths)
    call(*given, *lengths)
    if dtype.to_real() is dt.float32:
        return int(ctypes.cast(answer, ctypes.POINTER(ctypes.c_float))[0]) + 1
    return int(answer[0])


def call_routine(f: LLVMFunction, name: str, args: Sequence[Any]) -> None:
    """Call a Fortran routine. Arguments: pointers, i64 values (put on the stack), one letter. The
    lengths of letters follow at the end, as compilers of Fortran pass them. Only in straight code:
    the stack grows."""
    given: list[LLVMValue] = []
    letters = 0
    for a in args:
        if isinstance(a, str):
            f.module.constant(f"letter_{a}", "[2 x i8]", f'c"{a}\\00"', 1)
            given.append(f.symbol(f"letter_{a}"))
            letters += 1
        elif isinstance(a, LLVMValue) and a.type is PTR:
            given.append(a)
        else:
            slot = f.stack(8, 8)
            f.store(f.constant(a), slot)
            given.append(slot)
    f.call(f"lapack_{name}", VOID, [*given, *[f.constant(1)] * letters])


def read_info(f: LLVMFunction, slot: LLVMValue, wide: bool) -> LLVMValue:
    """An integer that a routine left."""
    return f.load(I64, slot) if wide else f.convert("sext", f.load(I32, slot), I64)


class Big:
    """Wrappers of LAPACK for one element type. `wide`: its integers have 64 bits."""

    def __init__(self, m: Module, element: MatrixElement, wide: bool) -> None:
        self.m, self.e, self.wide = m, element, wide
        self.letter = LETTERS[element.dtype]
        self.integer: Type = I64 if wide else I32

    def _info(self, f: LLVMFunction) -> LLVMValue:
        slot = f.stack(8, 8)
        f.store(f.constant(0), slot)
        return slot

    def lu(self) -> str:
        """`i64 lu(a, ld, m, n, pivots)` as of `Small`."""
        if not self.m.has("lu"):
            params = [*_MATRIX, ("m", I64), ("n", I64), ("pivots", PTR)]
            with self.m.function("lu", params, I64, internal=True) as f:
                a, ld, m, n, pivots = f.args
                info = self._info(f)
                own = pivots
                if self.wide:
                    own = f.value(PTR, f"alloca i64, i64 {f.minimum(m, n).text}, align 8")
                call_routine(f, f"{self.letter}getrf", [m, n, a, ld, own, info])
                if self.wide:
                    with f.loop(0, f.minimum(m, n)) as k:
                        row = f.load(I64, f.at(own, k.index, I64))
                        f.store(f.convert("trunc", row, I32), f.at(pivots, k.index, I32))
                f.ret(read_info(f, info, self.wide))
        return "lu"

    def inverse(self) -> str:
        """`i64 inverse(a, n, space)`: in the place of the matrix; the info number."""
        with self.m.function(
            "inverse", [("a", PTR), ("n", I64), ("space", PTR)], I64, internal=True
        ) as f:
            a, n, space = f.args
            first, second = self._info(f), self._info(f)
            work = f.at(space, n * 8)
            call_routine(f, f"{self.letter}getrf", [n, n, a, n, space, first])
            info = read_info(f, first, self.wide)
            size = n * INVERSE_BLOCK
            call_routine(f, f"{self.letter}getri", [n, a, n, space, work, size, second])
            f.ret(info)
        return "inverse"

    def cholesky(self) -> str:
        """`i64 cholesky(a, ld, n)` as of `Small`."""
        if not self.m.has("cholesky"):
            with self.m.function("cholesky", [*_MATRIX, ("n", I64)], I64, internal=True) as f:
                a, ld, n = f.args
                info = self._info(f)
                call_routine(f, f"{self.letter}potrf", ["L", n, a, ld, info])
                f.ret(read_info(f, info, self.wide))
        return "cholesky"

    def solve(self, *, upper: bool, left: bool, unit: bool, turned: bool = False) -> str:
        """`void solve(a, ld, n, x, ldx, count)` as of `Small`. `turned`: the transpose of what is
        stored is meant; `upper` says what is stored."""
        name = f"solve_{int(upper)}{int(left)}{int(unit)}{int(turned)}"
        if not self.m.has(name):
            params = [*_MATRIX, ("n", I64), ("x", PTR), ("ldx", I64), ("count", I64)]
            with self.m.function(name, params, internal=True) as f:
                a, ld, n, x, ldx, count = f.args
                one = f.stack(16, 16)
                for k, v in enumerate(self.e.constant(f, 1.0)):
                    f.store(v, f.at(one, k * self.e.type.size))
                sizes = (n, count) if left else (count, n)
                letters = ["L" if left else "R", "U" if upper else "L", "T" if turned else "N"]
                call_routine(
                    f, f"{self.letter}trsm",
                    [*letters, "U" if unit else "N", *sizes, one, a, ld, x, ldx],
                )  # fmt: skip
        return name
