"""Matrix factorisations and systems: own code for small matrices, LAPACK's for others.

Composites that end with a look at the info numbers (`inverse_checked` and others) are one kernel
each, which fails by itself: a call of `linalg.inv` is then one call of machine code.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from lucerne._src.backends.cpu.emit.builder import (
    I32,
    I64,
    PTR,
    VOID,
    LLVMFunction,
    LLVMValue,
    Module,
)
from lucerne._src.backends.cpu.linalg.big import INVERSE_BLOCK, Big, provide
from lucerne._src.backends.cpu.linalg.element import MatrixElement
from lucerne._src.backends.cpu.linalg.frame import MatrixBatch, MatrixForm, One, batch_step
from lucerne._src.backends.cpu.linalg.places import column_place, is_taken, place_of
from lucerne._src.backends.cpu.linalg.small import Small
from lucerne._src.backends.cpu.rules.table import rule
from lucerne._src.backends.cpu.runtime.kernel import NativeKernel
from lucerne._src.base import dtype as dt
from lucerne._src.base import shape as sh
from lucerne._src.ir.graph import Node
from lucerne._src.ops.linalg.checks import failed

_TINY = 6
"""Rows up to which vectors do not pay."""
_SMALL = 32
"""Rows up to which the code of `small.py` is faster than LAPACK (complex matrices: half)."""
_FACTOR = ("in_step", "rs", "cs", "m", "n")
_RIGHT = ("b_step", "brs", "bcs", "out_step", "ors", "ocs", "columns")


def _way(dtype: dt.dtype, n: int, *routines: str) -> Any:
    """What does the work: "tiny" or "small", or whether LAPACK's integers are wide; None: nothing
    here."""
    if n <= _TINY:
        return "tiny"
    if n <= (_SMALL if dtype.category == dt.FLOAT else _SMALL // 2):
        return "small"
    return provide(dtype, *routines)


def _functions(m: Module, e: MatrixElement, way: Any) -> Any:
    return Small(m, e) if type(way) is str else Big(m, e, way)


def _own(dtype: dt.dtype, n: int, way: Any) -> float:
    """About how many nanoseconds a factorisation takes."""
    cost = 0.3 if type(way) is str and dtype.category == dt.FLOAT else 1.0
    return 60.0 + n * 15.0 + cost * 0.3 * n**3


# ---- LU ---------------------------------------------------------------------------------------


@rule("lu_packed")
def lu_packed(node: Node) -> Any:
    return _lu(node, None)


@rule("lu_checked")
def lu_checked(node: Node) -> Any:
    return _lu(node, _failure("torch.linalg.lu_factor", "lu", node.args[0].meta.ndim > 2))


def _lu(node: Node, fail: Callable[[int, int], None] | None) -> NativeKernel | None:
    """Factors and pivots, and the info numbers as a third result unless the kernel itself fails."""
    meta = node.args[0].meta
    *batch, m, n = meta.shape
    place = place_of(meta, batch) if is_taken(meta) else None
    way = None if place is None else _way(meta.dtype, max(m, n), "getrf")
    if place is None or way is None:
        return None
    e, tells = MatrixElement(meta.dtype, way == "tiny"), fail is None

    def write(module: Module) -> One:
        lu = _functions(module, e, way).lu()

        def one(b: MatrixBatch, f: LLVMFunction, index: LLVMValue, space: LLVMValue) -> LLVMValue:
            m, n = b.word(f, "m"), b.word(f, "n")
            to = e.at(f, b.pointer(f, 0), index * (m * n))
            pivots = f.at(b.pointer(f, 1), index * f.minimum(m, n), I32)
            _load(b, f, index, to, m, n)
            info = f.call(lu, I64, [to, m, m, n, pivots])
            if tells:
                f.store(f.convert("trunc", info, I32), f.at(b.pointer(f, 2), index, I32))
            return info

        return one

    key = ("lu", e.dtype.name, way, tells)
    form = MatrixForm(key, e, 2 + tells, 1, _FACTOR, write, checks=not tells)
    work, alone = _own(e.dtype, m, way), type(way) is not str
    return form.kernel(sh.numel(batch), [*place, m, n], 0, work, alone=alone, fail=fail)


def _load(
    b: MatrixBatch, f: LLVMFunction, index: LLVMValue, to: LLVMValue, m: LLVMValue, n: LLVMValue
) -> None:
    """Copy the first operand's matrix to a place of its size."""
    source = f.at(b.pointer(f, b.pointers_in), index * b.word(f, "in_step"))
    b.copy_in(f, source, [b.word(f, "rs"), b.word(f, "cs")], to, m, m, n)


@rule("pivots_to_permutation")
def pivots_to_permutation(node: Node) -> Any:
    meta, n = node.args[0].meta, node.args[1]
    if not meta.contiguous or meta.dtype is not dt.int32 or not n or not sh.numel(meta.shape[:-1]):
        return None

    def write(module: Module) -> One:
        def one(b: MatrixBatch, f: LLVMFunction, index: LLVMValue, space: LLVMValue) -> None:
            n, k = b.word(f, "n"), b.word(f, "k")
            order = f.at(b.pointer(f, 0), index * n, I64)
            pivots = f.at(b.pointer(f, 1), index * k, I32)
            with f.loop(0, n) as loop:
                f.store(loop.index, f.at(order, loop.index, I64))
            with f.loop(0, k) as loop:
                row = f.convert("sext", f.load(I32, f.at(pivots, loop.index, I32)), I64) - 1
                # A pivot out of range (a user's tensor) exchanges nothing.
                with f.if_((row >= 0) & (row < n)):
                    here, there = f.at(order, loop.index, I64), f.at(order, row, I64)
                    one_row, other = f.load(I64, here), f.load(I64, there)
                    f.store(other, here)
                    f.store(one_row, there)

        return one

    form = MatrixForm(("permutation",), MatrixElement(dt.float32), 1, 1, ("n", "k"), write)
    count = sh.numel(meta.shape[:-1])
    return form.kernel(count, [n, meta.shape[-1]], 0, 20.0 + n)


# ---- triangular systems -----------------------------------------------------------------------

_SYSTEM = ("a_step", "ars", "acs", "b_step", "brs", "bcs", "rows", "columns", "ld")


@rule("tri_solve")
def tri_solve(node: Node) -> Any:
    A, B, out = node.args[0].meta, node.args[1].meta, node.outputs[0].meta
    upper, left, unit = node.args[2:]
    *batch, rows, columns = out.shape
    if not is_taken(A, B, out):
        return None
    a, b = place_of(A, batch), place_of(B, batch)
    n = A.shape[-1]
    way = _way(A.dtype, n, "trsm")
    e = MatrixElement(A.dtype, way == "tiny")
    if a is None or b is None or way is None:
        return None
    lies, ld = "copied", n
    if type(way) is not str and a.rs == e.size and a.cs >= n * e.size and a.cs % e.size == 0:
        lies, ld = "columns", a.cs // e.size
    elif type(way) is not str and a.cs == e.size and a.rs >= n * e.size and a.rs % e.size == 0:
        lies, ld = "rows", a.rs // e.size
    key = ("tri_solve", e.dtype.name, way, lies, upper, left, unit)

    def write(module: Module) -> One:
        math = _functions(module, e, way)
        if lies == "rows":
            solve = math.solve(upper=not upper, left=left, unit=unit, turned=True)
        else:
            solve = math.solve(upper=upper, left=left, unit=unit)
        return lambda b, f, index, space: _solve_one(b, f, index, space, solve, lies, left)

    form = MatrixForm(key, e, 1, 2, _SYSTEM, write)
    count = sh.numel(batch)
    work = 40.0 + 0.2 * n * rows * columns + n * 5.0
    room = n * n * e.size if lies == "copied" else 0
    words = [*a, *b, rows, columns, ld]
    return form.kernel(count, words, room, work, alone=type(way) is not str)


def _solve_one(
    b: MatrixBatch,
    f: LLVMFunction,
    index: LLVMValue,
    space: LLVMValue,
    solve: str,
    lies: str,
    left: bool,
) -> None:
    rows, columns, ld = (b.word(f, name) for name in ("rows", "columns", "ld"))
    n, count = (rows, columns) if left else (columns, rows)
    to = b.e.at(f, b.pointer(f, 0), index * (rows * columns))
    right = f.at(b.pointer(f, 2), index * b.word(f, "b_step"))
    b.copy_in(f, right, [b.word(f, "brs"), b.word(f, "bcs")], to, rows, rows, columns)
    a = f.at(b.pointer(f, 1), index * b.word(f, "a_step"))
    if lies == "copied":
        b.copy_in(f, a, [b.word(f, "ars"), b.word(f, "acs")], space, n, n, n)
        a = space
    f.call(solve, VOID, [a, ld, n, to, rows, count])


# ---- Cholesky ---------------------------------------------------------------------------------


@rule("cholesky_factor")
def cholesky_factor(node: Node) -> Any:
    return _cholesky(node, None)


@rule("cholesky_checked")
def cholesky_checked(node: Node) -> Any:
    meta = node.args[0].meta
    return _cholesky(node, _failure("linalg.cholesky", "cholesky", meta.ndim > 2))


def _cholesky(node: Node, fail: Callable[[int, int], None] | None) -> NativeKernel | None:
    """The factor, and the info numbers as a second result unless the kernel itself fails."""
    meta, upper = node.args[0].meta, node.args[1]
    *batch, n, _ = meta.shape
    place = place_of(meta, batch) if is_taken(meta) else None
    way = None if place is None else _way(meta.dtype, n, "potrf")
    if place is None or way is None or (upper and meta.dtype.category == dt.COMPLEX):
        return None
    e, tells = MatrixElement(meta.dtype, way == "tiny"), fail is None

    def write(module: Module) -> One:
        cholesky = _functions(module, e, way).cholesky()
        _write_lower(module, e)

        def one(b: MatrixBatch, f: LLVMFunction, index: LLVMValue, space: LLVMValue) -> LLVMValue:
            n = b.word(f, "n")
            to = e.at(f, b.pointer(f, 0), index * (n * n))
            made = space if upper else to
            _load(b, f, index, made, n, n)
            info = f.call(cholesky, I64, [made, n, n])
            f.call("keep_lower", VOID, [made, n])
            if upper:
                b.copy_out(f, made, n, to, [n * e.size, f.constant(e.size)], n, n)
            if tells:
                f.store(f.convert("trunc", info, I32), f.at(b.pointer(f, 1), index, I32))
            return info

        return one

    if upper:  # the transpose comes in, and goes out
        place = place._replace(rs=place.cs, cs=place.rs)
    form = MatrixForm(
        ("cholesky", e.dtype.name, way, upper, tells), e, 1 + tells, 1, _FACTOR, write,
        checks=not tells,
    )  # fmt: skip
    room = n * n * e.size if upper else 0
    work, alone = _own(e.dtype, n, way) / 2, type(way) is not str
    return form.kernel(sh.numel(batch), [*place, n, n], room, work, alone=alone, fail=fail)


def _write_lower(m: Module, e: MatrixElement) -> None:
    """`keep_lower(a, n)`: zeros above the diagonal."""
    params = [("a", PTR), ("n", I64)]
    with m.function("keep_lower", params, internal=True) as f:
        a, n = f.args
        with f.loop(1, n) as c:
            f.fill_bytes(e.at(f, a, c.index * n), 0, c.index * e.size)


def _failure(name: str, kind: str, batched: bool) -> Callable[[int, int], None]:
    """Raise what a factorisation that failed has to say."""

    def fail(status: int, detail: int) -> None:
        raise failed(name, kind, detail & 0xFFFFFFFF, detail >> 32, batched)

    return fail


# ---- inverses, systems, determinants ----------------------------------------------------------


@rule("inverse_checked")
def inverse_checked(node: Node) -> Any:
    meta = node.args[0].meta
    return _inverse(node, ("inverse", True), _failure("linalg.inv", "inv", meta.ndim > 2))


def _inverse(node: Node, kind: Any, fail: Callable[[int, int], None] | None) -> NativeKernel | None:
    meta = node.args[0].meta
    *batch, n, _ = meta.shape
    place = place_of(meta, batch) if is_taken(meta) else None
    way = None if place is None else _way(meta.dtype, n, "getrf", "getri")
    if place is None or way is None:
        return None
    e, tells = MatrixElement(meta.dtype, way == "tiny"), fail is None

    def write(module: Module) -> One:
        if type(way) is not str:
            return _by_lapack(Big(module, e, way).inverse())
        solve = _solver(module, e, way, True)

        def one(b: MatrixBatch, f: LLVMFunction, index: LLVMValue, space: LLVMValue) -> LLVMValue:
            n = b.word(f, "n")
            to = e.at(f, b.pointer(f, 0), index * (n * n))
            _load(b, f, index, space, n, n)
            f.fill_bytes(to, 0, n * n * e.size)
            with f.loop(0, n) as k:
                e.store(f, e.constant(f, 1.0), e.at(f, to, k.index * (n + 1)))
            info = f.call(solve, I64, [space, n, to, n])
            if tells:
                f.store(f.convert("trunc", info, I32), f.at(b.pointer(f, 1), index, I32))
            return info

        return one

    form = MatrixForm(
        (*kind, e.dtype.name, way), e, 1 + tells, 1, _FACTOR, write, checks=not tells
    )  # fmt: skip
    room = max(n, INVERSE_BLOCK) * n * e.size + 8 * n
    work, alone = 3 * _own(e.dtype, n, way), type(way) is not str
    return form.kernel(sh.numel(batch), [*place, n, n], room, work, alone=alone, fail=fail)


def _by_lapack(inverse: str) -> One:
    """Each matrix is inverted where the result is."""

    def one(b: MatrixBatch, f: LLVMFunction, index: LLVMValue, space: LLVMValue) -> LLVMValue:
        n = b.word(f, "n")
        to = b.e.at(f, b.pointer(f, 0), index * (n * n))
        _load(b, f, index, to, n, n)
        return f.call(inverse, I64, [to, n, space])

    return one


def _solver(m: Module, e: MatrixElement, way: Any, left: bool) -> str:
    """`i64 system(a, n, x, count)`: factorise A (n by n, with room for pivots behind it) and put
    the solution in the place of x; gives the info number."""
    math, swaps = _functions(m, e, way), Small(m, e)
    lu = math.lu()
    lower = math.solve(upper=False, left=left, unit=True)
    upper = math.solve(upper=True, left=left, unit=False)
    swap = swaps.swap_rows() if left else swaps.swap_columns_back()
    params = [("a", PTR), ("n", I64), ("x", PTR), ("count", I64)]
    with m.function("system", params, I64, internal=True) as f:
        a, n, x, count = f.args
        pivots = e.at(f, a, n * n)
        info = f.call(lu, I64, [a, n, n, n, pivots])
        ld = n if left else count
        if left:
            f.call(swap, VOID, [x, ld, count, pivots, n])
        for each in (lower, upper) if left else (upper, lower):
            f.call(each, VOID, [a, n, n, x, ld, count])
        if not left:
            f.call(swap, VOID, [x, ld, count, pivots, n])
        f.ret(info)
    return "system"


@rule("solve_checked")
def solve_checked(node: Node) -> Any:
    meta = node.args[0].meta
    return _solve(node, _failure("torch.linalg.solve", "solve", meta.ndim > 2))


def _solve(node: Node, fail: Callable[[int, int], None] | None) -> NativeKernel | None:
    A, B, out, left = node.args[0].meta, node.args[1].meta, node.outputs[0].meta, node.args[2]
    if not is_taken(A, B, out):
        return None
    vector = out.ndim == A.ndim - 1
    batch = tuple(out.shape[: out.ndim - (1 if vector else 2)])
    read = column_place if vector else place_of
    a, b, o = place_of(A, batch), read(B, batch), read(out, batch)
    n, tells, turned = A.shape[-1], fail is None, node.args[3]
    way = _way(A.dtype, n, "getrf", "trsm")
    e = MatrixElement(A.dtype, way == "tiny")
    if a is None or b is None or o is None or way is None or batch != tuple(A.shape[:-2]):
        return None
    rows, columns = (n, 1) if vector else out.shape[-2:]
    if turned:
        a = a._replace(rs=a.cs, cs=a.rs)

    def write(module: Module) -> One:
        solve = _solver(module, e, way, left)
        conjugate = Small(module, e).conjugate()

        def one(b: MatrixBatch, f: LLVMFunction, index: LLVMValue, space: LLVMValue) -> LLVMValue:
            n, other = b.word(f, "n"), b.word(f, "columns")
            rows, columns = (n, other) if left else (other, n)
            _load(b, f, index, space, n, n)
            if turned:
                f.call(conjugate, VOID, [space, n * n])
            x = f.at(space, b.word(f, "x_at"))
            right = f.at(b.pointer(f, b.pointers_in + 1), index * b.word(f, "b_step"))
            b.copy_in(f, right, [b.word(f, "brs"), b.word(f, "bcs")], x, rows, rows, columns)
            info = f.call(solve, I64, [space, n, x, other])
            to = f.at(b.pointer(f, 0), index * b.word(f, "out_step"))
            b.copy_out(f, x, rows, to, [b.word(f, "ors"), b.word(f, "ocs")], rows, columns)
            if tells:
                f.store(f.convert("trunc", info, I32), f.at(b.pointer(f, 1), index, I32))
            return info

        return one

    names = (*_FACTOR, *_RIGHT, "x_at")
    key = ("solve", e.dtype.name, way, left, turned, tells)
    form = MatrixForm(key, e, 1 + tells, 2, names, write, checks=not tells)
    x_at = -(-(n * n * e.size + 4 * n) // 64) * 64
    words = [*a, n, n, *b, *o, columns if left else rows, x_at]
    room, alone = x_at + rows * columns * e.size, type(way) is not str
    work = _own(e.dtype, n, way) + 0.4 * n * rows * columns
    return form.kernel(sh.numel(batch), words, room, work, alone=alone, fail=fail)


# ---- determinants -----------------------------------------------------------------------------


@rule("linalg.det")
def det(node: Node) -> Any:
    """The product of the pivots, with the sign of the exchanges."""
    meta = node.args[0].meta
    *batch, n, _ = meta.shape
    place = place_of(meta, batch) if is_taken(meta) else None
    way = None if place is None else _way(meta.dtype, n, "getrf")
    if place is None or way is None:
        return None
    e = MatrixElement(meta.dtype, way == "tiny")

    def write(module: Module) -> One:
        lu = _functions(module, e, way).lu()

        def one(b: MatrixBatch, f: LLVMFunction, index: LLVMValue, space: LLVMValue) -> None:
            n = b.word(f, "n")
            _load(b, f, index, space, n, n)
            pivots = e.at(f, space, n * n)
            f.call(lu, I64, [space, n, n, n, pivots])
            with f.loop(0, n, 1, list(e.constant(f, 1.0))) as k:
                factor = e.load(f, e.at(f, space, k.index * (n + 1)))
                row = f.load(I32, f.at(pivots, k.index, I32))
                own = f.convert("trunc", k.index + 1, I32)
                product = e.mul(f, tuple(k.carried), factor)
                stays = f.compare("eq", row, own)
                k.next(*(f.select(stays, v, f.neg(v)) for v in product))
            e.store(f, tuple(k.results), e.at(f, b.pointer(f, 0), index))

        return one

    form = MatrixForm(("det", e.dtype.name, way), e, 1, 1, _FACTOR, write)
    work, alone = _own(e.dtype, n, way), type(way) is not str
    room = n * n * e.size + 4 * n
    return form.kernel(sh.numel(batch), [*place, n, n], room, work, alone=alone)


@rule("scaled_adjoint_inverse")
def scaled_adjoint_inverse(node: Node) -> Any:
    """The inverse from factors whose zero pivots are tiny, turned, conjugated, and scaled."""
    meta, factor = node.args[0].meta, node.args[1].meta
    *batch, n, _ = meta.shape
    place = place_of(meta, batch) if is_taken(meta, factor) else None
    way = None if place is None else _way(meta.dtype, n, "getrf", "trsm")
    step = batch_step(factor, batch, 0)
    if place is None or way is None or step is None:
        return None
    e = MatrixElement(meta.dtype, way == "tiny")
    eps = float(np.finfo(meta.dtype.to_real().storage).eps)

    def write(module: Module) -> One:
        math, swaps = _functions(module, e, way), Small(module, e)
        lu, swap, conjugate = math.lu(), swaps.swap_rows(), swaps.conjugate()
        solves = [math.solve(upper=u, left=True, unit=not u) for u in (False, True)]

        def one(b: MatrixBatch, f: LLVMFunction, index: LLVMValue, space: LLVMValue) -> None:
            n = b.word(f, "n")
            _load(b, f, index, space, n, n)
            pivots, x = e.at(f, space, n * n), f.at(space, b.word(f, "x_at"))
            f.call(lu, I64, [space, n, n, n, pivots])
            f.fill_bytes(x, 0, n * n * e.size)
            scale = e.load(f, f.at(b.pointer(f, 2), index * b.word(f, "f_step")))
            with f.loop(0, n) as k:
                place = e.at(f, space, k.index * (n + 1))
                pivot = e.load(f, place)
                zero, tiny = e.is_zero(f, pivot), e.constant(f, eps)
                kept = zip(tiny, pivot, strict=True)
                e.store(f, tuple(f.select(zero, t, p) for t, p in kept), place)
                e.store(f, e.conj(f, scale), e.at(f, x, k.index * (n + 1)))
            f.call(swap, VOID, [x, n, n, pivots, n])
            for solve in solves:
                f.call(solve, VOID, [space, n, n, x, n, n])
            f.call(conjugate, VOID, [x, n * n])
            to = e.at(f, b.pointer(f, 0), index * (n * n))
            b.copy_out(f, x, n, to, [n * e.size, f.constant(e.size)], n, n)

        return one

    key = ("scaled_adjoint_inverse", e.dtype.name, way)
    form = MatrixForm(key, e, 1, 2, (*_FACTOR, "f_step", "x_at"), write)
    x_at = -(-(n * n * e.size + 4 * n) // 64) * 64
    work, alone = 3 * _own(e.dtype, n, way), type(way) is not str
    words = [*place, n, n, step, x_at]
    return form.kernel(sh.numel(batch), words, x_at + n * n * e.size, work, alone=alone)
