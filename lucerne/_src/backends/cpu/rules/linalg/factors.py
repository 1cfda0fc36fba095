"""QR, eigenvalues, singular values and LDL by LAPACK, called from machine code.

A kernel goes through a batch alone: LAPACK has its own threads. Where LAPACK is not found the
reference backend does the work.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from lucerne._src.backends.cpu.emit.builder import F64, I32, I64, LLVMFunction, LLVMValue, Module
from lucerne._src.backends.cpu.linalg.big import provide, read_info, space_asked_for
from lucerne._src.backends.cpu.linalg.element import MatrixElement
from lucerne._src.backends.cpu.linalg.factors import Factors
from lucerne._src.backends.cpu.linalg.frame import MatrixBatch, MatrixForm, One
from lucerne._src.backends.cpu.linalg.places import MatrixPlace, is_taken, place_of
from lucerne._src.backends.cpu.rules.table import rule
from lucerne._src.backends.cpu.runtime.kernel import NativeKernel, float_word
from lucerne._src.base import dtype as dt
from lucerne._src.base import shape as sh
from lucerne._src.base.errors import LinAlgError
from lucerne._src.ir.graph import Node
from lucerne._src.ir.meta import TensorMeta

_INPUT = ("in_step", "rs", "cs", "m", "n")
_NOT_FINITE = 1 << 20
"""The info number of a matrix with infinities or NaNs."""
_BLOCK = 64
"""Columns that LAPACK works on together, at most."""

Fail = Callable[[int, int], None]


class _Rooms:
    """Scratch of a kernel: named stretches, whose places are words of the kernel."""

    def __init__(self, **sizes: int) -> None:
        self.sizes, self.places, at = sizes, {}, 0
        for name, nbytes in sizes.items():
            self.places[name] = at
            at += -(-nbytes // 64) * 64
        self.total = at

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(f"at_{name}" for name in self.sizes)

    @property
    def words(self) -> list[int]:
        return list(self.places.values())


class _Matrices:
    """The batch of matrices of one tensor; `place` is None if kernels can't take it."""

    def __init__(self, meta: TensorMeta) -> None:
        self.meta, self.dtype = meta, meta.dtype
        sizes = tuple(meta.shape)
        self.batch, (self.m, self.n) = sizes[:-2], sizes[-2:]
        self.place: MatrixPlace | None = place_of(meta, self.batch) if is_taken(meta) else None
        self.count, self.k = sh.numel(self.batch), min(self.m, self.n)

    def element(self) -> MatrixElement:
        return MatrixElement(self.dtype)

    def real_size(self) -> int:
        return self.dtype.to_real().itemsize


def _kernel(
    x: _Matrices, key: tuple[Any, ...], rooms: _Rooms, outputs: int, work: float, one: Any, *,
    more: dict[str, int] | None = None, tensors: int = 1, fail: Fail | None = None,
) -> NativeKernel:  # fmt: skip
    """A kernel for the matrices `x`; `one` gets named scratch beside the usual."""
    more = more or {}

    def write(module: Module) -> One:
        step = one(module)

        def each(
            b: MatrixBatch, f: LLVMFunction, index: LLVMValue, space: LLVMValue
        ) -> LLVMValue | None:
            at = {name: f.at(space, b.word(f, f"at_{name}")) for name in rooms.sizes}
            found: LLVMValue | None = step(b, f, index, at)
            return found

        return each

    assert x.place is not None
    names = (*_INPUT, *rooms.names, *more)
    form = MatrixForm(
        (*key, x.dtype.name), x.element(), outputs, tensors, names, write, checks=fail is not None
    )
    words = [*x.place, x.m, x.n, *rooms.words, *more.values()]
    return form.kernel(x.count, words, rooms.total, work, alone=True, fail=fail)


def _load(
    b: MatrixBatch, f: LLVMFunction, index: LLVMValue, to: LLVMValue
) -> tuple[LLVMValue, LLVMValue]:
    """Copy a matrix of the input; its sizes."""
    m, n = b.word(f, "m"), b.word(f, "n")
    source = f.at(b.pointer(f, b.pointers_in), index * b.word(f, "in_step"))
    b.copy_in(f, source, [b.word(f, "rs"), b.word(f, "cs")], to, m, m, n)
    return m, n


# ---- QR ---------------------------------------------------------------------------------------


@rule("qr_factors")
def qr_factors(node: Node) -> Any:
    x, complete = _Matrices(node.args[0].meta), node.args[1]
    make = "ungqr" if x.dtype.category == dt.COMPLEX else "orgqr"
    wide = None if x.place is None else provide(x.dtype, "geqrf", make)
    if wide is None:
        return None
    k, size = (x.m if complete else x.k), x.dtype.itemsize
    lwork = _BLOCK * max(x.m, x.n)
    rooms = _Rooms(a=x.m * x.n * size, tau=x.k * size, work=lwork * size)

    def one(module: Module) -> Any:
        factors, e = Factors(module, x.element(), wide), x.element()
        qr, columns = factors.qr(), factors.columns()

        def step(
            b: MatrixBatch, f: LLVMFunction, index: LLVMValue, at: dict[str, LLVMValue]
        ) -> None:
            m, n = _load(b, f, index, at["a"])
            k, count, lwork = b.word(f, "k"), f.minimum(m, n), b.word(f, "lwork")
            scratch = [at["tau"], at["work"], lwork]
            f.call(qr, I64, [at["a"], m, n, *scratch])
            q, r = (
                e.at(f, b.pointer(f, 0), index * m * k), e.at(f, b.pointer(f, 1), index * k * n)
            )  # fmt: skip
            f.fill_bytes(r, 0, k * n * e.size)
            with f.loop(0, n) as c:
                rows = f.minimum(c.index + 1, f.minimum(k, m))
                target = e.at(f, r, c.index * k)
                f.copy_bytes(target, e.at(f, at["a"], c.index * m), rows * e.size)
            f.copy_bytes(q, at["a"], m * f.minimum(n, k) * e.size)
            f.call(columns, I64, [q, m, k, count, *scratch])

        return step

    work = 500.0 + 2.0 * x.m * x.n * x.k
    return _kernel(x, ("qr", wide), rooms, 2, work, one, more={"k": k, "lwork": lwork})


@rule("qr_reflectors")
def qr_reflectors(node: Node) -> Any:
    x = _Matrices(node.args[0].meta)
    wide = None if x.place is None else provide(x.dtype, "geqrf")
    if wide is None:
        return None
    lwork = _BLOCK * max(x.m, x.n)
    rooms = _Rooms(work=lwork * x.dtype.itemsize)

    def one(module: Module) -> Any:
        qr, e = Factors(module, x.element(), wide).qr(), x.element()

        def step(
            b: MatrixBatch, f: LLVMFunction, index: LLVMValue, at: dict[str, LLVMValue]
        ) -> None:
            m, n = b.word(f, "m"), b.word(f, "n")
            to = e.at(f, b.pointer(f, 0), index * m * n)
            tau = e.at(f, b.pointer(f, 1), index * f.minimum(m, n))
            _load(b, f, index, to)
            f.call(qr, I64, [to, m, n, tau, at["work"], b.word(f, "lwork")])

        return step

    work = 500.0 + x.m * x.n * x.k
    return _kernel(x, ("reflectors", wide), rooms, 2, work, one, more={"lwork": lwork})


# ---- eigenvalues ------------------------------------------------------------------------------


def _failure(name: str, batched: bool, why: Callable[[int], str]) -> Fail:
    def fail(status: int, detail: int) -> None:
        where = f"(Batch element {detail & 0xFFFFFFFF}): " if batched else ""
        raise LinAlgError(
            f"{name}: {where}The algorithm failed to converge because {why(detail >> 32)}."
        )

    return fail


def _why_eigh(info: int) -> str:
    return (
        "the input matrix is ill-conditioned or has too many repeated eigenvalues (error code: "
        f"{info})"
    )


def _why_svd(info: int) -> str:
    if info == _NOT_FINITE:
        return "the input matrix contained non-finite values"
    return (
        "the input matrix is ill-conditioned or has too many repeated singular values (error code: "
        f"{info})"
    )


@rule("eigh_factors")
def eigh_factors(node: Node) -> Any:
    x, upper, vectors = _Matrices(node.args[0].meta), node.args[1], node.args[2]
    is_complex = x.dtype.category == dt.COMPLEX
    wide = None if x.place is None else provide(x.dtype, "heevd" if is_complex else "syevd")
    if wide is None:
        return None
    n, size = x.n, x.dtype.itemsize
    square = n * n if vectors else 0
    lwork = (2 * n + square if is_complex else 1 + 6 * n + 2 * square) + _BLOCK * n
    lrwork, liwork = 1 + 5 * n + 2 * square, 3 + 5 * n
    rooms = _Rooms(
        a=0 if vectors else n * n * size, work=lwork * size,
        rwork=lrwork * x.real_size() if is_complex else 0, iwork=8 * liwork,
    )  # fmt: skip

    def one(module: Module) -> Any:
        eigh = Factors(module, x.element(), wide).eigh(upper=upper, vectors=vectors)
        e = x.element()

        def step(
            b: MatrixBatch, f: LLVMFunction, index: LLVMValue, at: dict[str, LLVMValue]
        ) -> LLVMValue:
            n = b.word(f, "n")
            a = e.at(f, b.pointer(f, 1), index * n * n) if vectors else at["a"]
            _load(b, f, index, a)
            values = f.at(b.pointer(f, 0), index * n, e.type)
            scratch: list[LLVMValue] = []
            for name in ("work", "rwork", "iwork"):
                scratch += [at[name], b.word(f, f"l{name}")]
            return f.call(eigh, I64, [a, n, values, *scratch])

        return step

    key = ("eigh", wide, upper, vectors)
    more = {"lwork": lwork, "lrwork": lrwork, "liwork": liwork}
    fail = _failure("linalg.eigh", bool(x.batch), _why_eigh)
    return _kernel(x, key, rooms, 2, 2000.0 + 5.0 * n**3, one, more=more, fail=fail)


@rule("eig_factors")
def eig_factors(node: Node) -> Any:
    x, vectors = _Matrices(node.args[0].meta), node.args[1]
    wide = None if x.place is None else provide(x.dtype, "geev")
    if wide is None:
        return None
    n, size, is_complex = x.n, x.dtype.itemsize, x.dtype.category == dt.COMPLEX
    values = [None] if is_complex else [None, None]
    real = [None] if is_complex else []
    job = "V" if vectors else "N"
    lwork = space_asked_for(
        x.dtype, "geev", "N", job, n, None, n, *values, None, n, None, n, "?", -1, *real, None
    )
    rooms = _Rooms(
        a=n * n * size, w=n * size, wi=n * size, v=n * n * size, work=lwork * size,
        rwork=2 * n * x.real_size(),
    )  # fmt: skip

    def one(module: Module) -> Any:
        factors = Factors(module, x.element(), wide)
        eig, finite = factors.eig(vectors=vectors), factors.finite()
        return lambda b, f, index, at: _eig_one(b, f, index, at, eig, finite, vectors)

    def fail(status: int, detail: int) -> None:
        if detail >> 32 == _NOT_FINITE:
            raise RuntimeError("torch.linalg.eig: input tensor should not contain infs or NaNs.")
        _failure("linalg.eig", bool(x.batch), _why_eigh)(status, detail)

    work = 3000.0 + 15.0 * n**3
    return _kernel(x, ("eig", wide, vectors), rooms, 2, work, one, more={"lwork": lwork}, fail=fail)


def _eig_one(
    b: MatrixBatch,
    f: LLVMFunction,
    index: LLVMValue,
    at: dict[str, LLVMValue],
    eig: str,
    finite: str,
    vectors: bool,
) -> LLVMValue:
    e, n = b.e, b.word(f, "n")
    _load(b, f, index, at["a"])
    size = 2 * e.type.size
    values = f.at(b.pointer(f, 0), index * n * size)
    target = f.at(b.pointer(f, 1), index * n * n * size)
    w, v = (values, target) if e.parts == 2 else (at["w"], at["v"])
    v = v if vectors else at["v"]
    with f.if_(f.compare("ne", f.call(finite, I64, [at["a"], n * n]), 0)) as good:
        scratch = [at["work"], b.word(f, "lwork"), at["rwork"]]
        good.give(f.call(eig, I64, [at["a"], n, w, at["wi"], v, *scratch]))
    with good.else_():
        good.give(f.constant(_NOT_FINITE))
    if e.parts == 1:
        with f.loop(0, n) as k:
            place = f.at(values, k.index * size)
            for i, part in enumerate((at["w"], at["wi"])):
                here = f.load(e.type, f.at(part, k.index, e.type))
                f.store(here, f.at(place, i * e.type.size))
        if vectors:
            _pair_vectors(b, f, at, target)
    return good.results[0]


def _pair_vectors(
    b: MatrixBatch, f: LLVMFunction, at: dict[str, LLVMValue], target: LLVMValue
) -> None:
    """Vectors of pairs of conjugate values: real and imaginary parts are columns side by side."""
    e, n = b.e, b.word(f, "n")
    with f.loop(0, n) as c:
        turn = f.load(e.type, f.at(at["wi"], c.index, e.type))
        above, below = f.compare("gt", turn, 0.0), f.compare("lt", turn, 0.0)
        first = c.index - f.convert("zext", below, I64)
        second = f.minimum(first + 1, n - 1)
        with f.loop(0, n) as r:
            re = f.load(e.type, f.at(at["v"], r.index + first * n, e.type))
            im = f.load(e.type, f.at(at["v"], r.index + second * n, e.type))
            im = f.select(above, im, f.select(below, f.neg(im), f.constant(0.0, e.type)))
            place = f.at(target, (r.index + c.index * n) * (2 * e.type.size))
            f.store(re, place)
            f.store(im, f.at(place, e.type.size))


# ---- singular values --------------------------------------------------------------------------


@rule("svd_factors")
def svd_factors(node: Node) -> Any:
    x, full, vectors = _Matrices(node.args[0].meta), node.args[1], node.args[2]
    wide = None if x.place is None else provide(x.dtype, "gesdd")
    if wide is None:
        return None
    m, n, k, size = x.m, x.n, x.k, x.dtype.itemsize
    is_complex, most = x.dtype.category == dt.COMPLEX, max(m, n)
    job = ("A" if full else "S") if vectors else "N"
    ku, kv = ((m, n) if full else (k, k)) if vectors else (0, 0)
    real = [None] if is_complex else []
    arrays = [None, m, None, None, m, None, max(kv, 1)]
    lwork = space_asked_for(x.dtype, "gesdd", job, m, n, *arrays, "?", -1, *real, None, None)
    rwork = max(5 * k * k + 5 * k, 2 * most * k + 2 * k * k + k) + 7 * k if is_complex else 0
    rooms = _Rooms(
        a=m * n * size, work=lwork * size, rwork=rwork * x.real_size(), iwork=64 * k, none=size
    )

    def one(module: Module) -> Any:
        factors, e = Factors(module, x.element(), wide), x.element()
        svd, finite = factors.svd(job), factors.finite()

        def step(
            b: MatrixBatch, f: LLVMFunction, index: LLVMValue, at: dict[str, LLVMValue]
        ) -> LLVMValue:
            m, n = _load(b, f, index, at["a"])
            ku, kv = b.word(f, "ku"), b.word(f, "kv")
            values = f.at(b.pointer(f, 1), index * f.minimum(m, n), e.type)
            u = e.at(f, b.pointer(f, 0), index * m * ku) if vectors else at["none"]
            vh = e.at(f, b.pointer(f, 2), index * kv * n) if vectors else at["none"]
            ldv = f.maximum(kv, 1)
            scratch = [at["work"], b.word(f, "lwork"), at["rwork"], at["iwork"]]
            whole = f.call(finite, I64, [at["a"], m * n])
            # With vectors LAPACK may never come back from an infinite element.
            with f.if_(f.compare("ge", whole, 1 if vectors else 0)) as tried:
                info = f.call(svd, I64, [at["a"], m, n, values, u, vh, ldv, *scratch])
                told = f.select(f.compare("lt", info, 0), 1, info)
                told = f.select(f.compare("ne", whole, 0), told, _NOT_FINITE)
                tried.give(f.select(f.compare("ne", info, 0), told, 0))
            with tried.else_():
                tried.give(f.constant(_NOT_FINITE))
            return tried.results[0]

        return step

    more = {"lwork": lwork, "ku": ku, "kv": kv}
    fail = _failure("linalg.svd", bool(x.batch), _why_svd)
    work = 3000.0 + 10.0 * m * n * k
    return _kernel(x, ("svd", wide, job), rooms, 3, work, one, more=more, fail=fail)


# ---- LDL --------------------------------------------------------------------------------------


@rule("ldl_packed")
def ldl_packed(node: Node) -> Any:
    x, hermitian = _Matrices(node.args[0].meta), node.args[1]
    name = "he" if hermitian and x.dtype.category == dt.COMPLEX else "sy"
    wide = None if x.place is None else provide(x.dtype, f"{name}trf")
    if wide is None:
        return None
    n, size = x.n, x.dtype.itemsize
    rooms = _Rooms(pivots=8 * n, work=_BLOCK * n * size)

    def one(module: Module) -> Any:
        factors, e = Factors(module, x.element(), wide), x.element()
        ldl = factors.ldl(hermitian)

        def step(
            b: MatrixBatch, f: LLVMFunction, index: LLVMValue, at: dict[str, LLVMValue]
        ) -> None:
            n = b.word(f, "n")
            to = e.at(f, b.pointer(f, 0), index * n * n)
            _load(b, f, index, to)
            info = f.call(ldl, I64, [to, n, at["pivots"], at["work"], b.word(f, "lwork")])
            with f.loop(1, n) as c:  # what is above the diagonal is not LAPACK's
                f.fill_bytes(e.at(f, to, c.index * n), 0, c.index * e.size)
            rows = f.at(b.pointer(f, 1), index * n, I32)
            factors.integers(f, at["pivots"], rows, n, True)
            f.store(f.convert("trunc", info, I32), f.at(b.pointer(f, 2), index, I32))

        return step

    more = {"lwork": _BLOCK * n}
    return _kernel(x, ("ldl", wide, name), rooms, 3, 500.0 + 0.5 * n**3, one, more=more)


# ---- least squares ----------------------------------------------------------------------------


@rule("least_squares")
def least_squares(node: Node) -> Any:
    """By QR with column pivots, as torch's default driver does it."""
    x, B = _Matrices(node.args[0].meta), node.args[1].meta
    relative = node.args[2]
    if x.place is None or not is_taken(x.meta, B) or tuple(B.shape[:-2]) != tuple(x.batch):
        return None
    right, wide = place_of(B, x.batch), provide(x.dtype, "gelsy")
    if right is None or wide is None:
        return None
    m, n, count, size = x.m, x.n, B.shape[-1], x.dtype.itemsize
    is_complex, rows = x.dtype.category == dt.COMPLEX, max(m, n)
    real = [None] if is_complex else []
    sizes = [m, n, count, None, m, None, rows, None, None, None]
    lwork = space_asked_for(x.dtype, "gelsy", *sizes, "?", -1, *real, None)
    rooms = _Rooms(
        a=m * n * size, b=rows * count * size, pivots=8 * n, rcond=16, rank=8, work=lwork * size,
        rwork=2 * n * x.real_size(),
    )  # fmt: skip
    eps = float(np.finfo(x.dtype.to_real().storage).eps)
    rcond = eps * rows if relative is None else relative

    def one(module: Module) -> Any:
        factors, e = Factors(module, x.element(), wide), x.element()
        call = factors.least_squares()

        def step(
            b: MatrixBatch, f: LLVMFunction, index: LLVMValue, at: dict[str, LLVMValue]
        ) -> None:
            m, n = _load(b, f, index, at["a"])
            count, rows = b.word(f, "sides"), f.maximum(m, n)
            source = f.at(b.pointer(f, b.pointers_in + 1), index * b.word(f, "b_step"))
            steps = [b.word(f, "brs"), b.word(f, "bcs")]
            f.fill_bytes(at["b"], 0, rows * count * e.size)
            b.copy_in(f, source, steps, at["b"], rows, m, count)
            f.fill_bytes(at["pivots"], 0, n * 8)
            f.store(f.constant(0), at["rank"])
            least = f.bitcast(b.word(f, "rcond"), F64)
            narrow = least if e.type is F64 else f.convert("fptrunc", least, e.type)
            f.store(narrow, at["rcond"])
            scratch = [at["pivots"], at["rcond"], at["rank"], at["work"], b.word(f, "lwork")]
            f.call(call, I64, [at["a"], m, n, count, at["b"], rows, *scratch, at["rwork"]])
            to = e.at(f, b.pointer(f, 0), index * n * count)
            b.copy_out(f, at["b"], rows, to, [f.constant(e.size), n * e.size], n, count)
            f.store(read_info(f, at["rank"], wide), f.at(b.pointer(f, 1), index, I64))

        return step

    more = {
        "sides": count, "b_step": right.step, "brs": right.rs, "bcs": right.cs, "lwork": lwork,
        "rcond": float_word(rcond),
    }  # fmt: skip
    work = 2000.0 + 3.0 * m * n * x.k
    return _kernel(x, ("least_squares", wide), rooms, 2, work, one, more=more, tensors=2)
