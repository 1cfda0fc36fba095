"""Calls of LAPACK for one matrix: QR, eigenvalues, singular values, LDL.

Each is an internal function `i64 name(...)` that gives LAPACK's info number. Scratch is handed in;
sizes of scratch are asked for when a kernel is made (`big.space_asked_for`).
"""

from __future__ import annotations

from typing import Any

from lucerne._src.backends.cpu.emit.builder import I32, I64, PTR, LLVMFunction, LLVMValue, Module
from lucerne._src.backends.cpu.linalg.big import call_routine, read_info
from lucerne._src.backends.cpu.linalg.element import LETTERS, MatrixElement

Params = list[tuple[str, Any]]


def _pointers(*names: str) -> Params:
    return [(name, PTR) for name in names]


def _sizes(*names: str) -> Params:
    return [(name, I64) for name in names]


class Factors:
    """Writes the functions for one element type. `wide`: LAPACK's integers have 64 bits."""

    def __init__(self, m: Module, e: MatrixElement, wide: bool) -> None:
        self.m, self.e, self.wide = m, e, wide
        self.letter, self.complex = LETTERS[e.dtype], e.parts == 2

    def _function(self, name: str, params: Params, routine: str, args: Any) -> str:
        """A function that makes one call; `args` turns its parameters into those of the call."""
        with self.m.function(name, params, I64, internal=True) as f:
            info = f.stack(8, 8)
            f.store(f.constant(0), info)
            given = dict(zip([p[0] for p in params], f.args, strict=True))
            call_routine(f, self.letter + routine, [*args(**given), info])
            f.ret(read_info(f, info, self.wide))
        return name

    def qr(self) -> str:
        """`qr(a, m, n, factors, work, lwork)`: a becomes R and the reflections."""
        params = [*_pointers("a"), *_sizes("m", "n"), *_pointers("tau", "work"), *_sizes("lwork")]
        return self._function(
            "qr", params, "geqrf", lambda a, m, n, tau, work, lwork: [m, n, a, m, tau, work, lwork]
        )

    def columns(self) -> str:
        """`columns(q, m, k, count, tau, work, lwork)`: k columns of Q from `count` reflections."""
        params = [
            *_pointers("q"), *_sizes("m", "k", "count"), *_pointers("tau", "work"),
            *_sizes("lwork"),
        ]  # fmt: skip
        return self._function(
            "columns", params, "ungqr" if self.complex else "orgqr",
            lambda q, m, k, count, tau, work, lwork: [m, k, count, q, m, tau, work, lwork],
        )  # fmt: skip

    def eigh(self, *, upper: bool, vectors: bool) -> str:
        """`eigh(a, n, w, work, lwork, rwork, lrwork, iwork, liwork)`."""
        params: Params = [*_pointers("a"), *_sizes("n"), *_pointers("w")]
        for name in ("work", "rwork", "iwork"):
            params += [*_pointers(name), *_sizes(f"l{name}")]
        letters = "V" if vectors else "N", "U" if upper else "L"

        def args(**p: LLVMValue) -> list[Any]:
            real = [p["rwork"], p["lrwork"]] if self.complex else []
            scratch = [p["work"], p["lwork"], *real, p["iwork"], p["liwork"]]
            return [*letters, p["n"], p["a"], p["n"], p["w"], *scratch]

        return self._function("eigh", params, "heevd" if self.complex else "syevd", args)

    def svd(self, job: str) -> str:
        """`svd(a, m, n, s, u, vh, ldv, work, lwork, rwork, iwork)`; job: A, S or N."""
        params = [
            *_pointers("a"), *_sizes("m", "n"), *_pointers("s", "u", "vh"), *_sizes("ldv"),
            *_pointers("work"), *_sizes("lwork"), *_pointers("rwork", "iwork"),
        ]  # fmt: skip

        def args(**p: LLVMValue) -> list[Any]:
            real = [p["rwork"]] if self.complex else []
            tail = [p["vh"], p["ldv"], p["work"], p["lwork"], *real, p["iwork"]]
            return [job, p["m"], p["n"], p["a"], p["m"], p["s"], p["u"], p["m"], *tail]

        return self._function("svd", params, "gesdd", args)

    def eig(self, *, vectors: bool) -> str:
        """`eig(a, n, w, wi, v, work, lwork, rwork)`: real matrices leave real and imaginary parts
        of the values in w and wi."""
        params = [
            *_pointers("a"), *_sizes("n"), *_pointers("w", "wi", "v", "work"), *_sizes("lwork"),
            *_pointers("rwork"),
        ]  # fmt: skip

        def args(**p: LLVMValue) -> list[Any]:
            values = [p["w"]] if self.complex else [p["w"], p["wi"]]
            real = [p["rwork"]] if self.complex else []
            sides = [p["v"], p["n"], p["v"], p["n"]]
            head = ["N", "V" if vectors else "N", p["n"], p["a"], p["n"], *values]
            return [*head, *sides, p["work"], p["lwork"], *real]

        return self._function("eig", params, "geev", args)

    def ldl(self, hermitian: bool) -> str:
        """`ldl(a, n, pivots, work, lwork)`: pivots in LAPACK's integers."""
        params = [*_pointers("a"), *_sizes("n"), *_pointers("pivots", "work"), *_sizes("lwork")]
        return self._function(
            "ldl", params, f"{self._symmetric(hermitian)}trf",
            lambda a, n, pivots, work, lwork: ["L", n, a, n, pivots, work, lwork],
        )  # fmt: skip

    def ldl_solve(self, hermitian: bool) -> str:
        """`ldl_solve(a, n, pivots, x, count)`."""
        params = [*_pointers("a"), *_sizes("n"), *_pointers("pivots", "x"), *_sizes("count")]
        return self._function(
            "ldl_solve", params, f"{self._symmetric(hermitian)}trs",
            lambda a, n, pivots, x, count: ["L", n, count, a, n, pivots, x, n],
        )  # fmt: skip

    def least_squares(self) -> str:
        """`least_squares(a, m, n, count, b, ldb, pivots, rcond, rank, work, lwork, rwork)`: the
        solution in the place of b, by QR with column pivots."""
        params = [
            *_pointers("a"), *_sizes("m", "n", "count"), *_pointers("b"), *_sizes("ldb"),
            *_pointers("pivots", "rcond", "rank", "work"), *_sizes("lwork"), *_pointers("rwork"),
        ]  # fmt: skip

        def args(**p: LLVMValue) -> list[Any]:
            real = [p["rwork"]] if self.complex else []
            head = [p["m"], p["n"], p["count"], p["a"], p["m"], p["b"], p["ldb"], p["pivots"]]
            return [*head, p["rcond"], p["rank"], p["work"], p["lwork"], *real]

        return self._function("least_squares", params, "gelsy", args)

    def _symmetric(self, hermitian: bool) -> str:
        return "he" if hermitian and self.complex else "sy"

    # ---- around the calls --------------------------------------------------------------------

    def integers(
        self, f: LLVMFunction, source: LLVMValue, target: LLVMValue, count: LLVMValue, out: bool
    ) -> None:
        """From LAPACK's integers to i32 (`out`), or back."""
        own = I64 if self.wide else I32
        with f.loop(0, count) as k:
            if out:
                v = f.load(own, f.at(source, k.index, own))
                v = f.convert("trunc", v, I32) if self.wide else v
                f.store(v, f.at(target, k.index, I32))
            else:
                v = f.load(I32, f.at(source, k.index, I32))
                v = f.convert("sext", v, I64) if self.wide else v
                f.store(v, f.at(target, k.index, own))

    def finite(self) -> str:
        """`i64 finite(a, count)`: whether all of so many elements are."""
        if not self.m.has("finite"):
            with self.m.function("finite", [("a", PTR), ("count", I64)], I64, internal=True) as f:
                a, count = f.args
                zero = f.constant(0.0, self.e.type)
                with f.loop(0, count * self.e.parts, 1, [zero]) as k:
                    v = f.load(self.e.type, f.at(a, k.index, self.e.type))
                    k.next(k.carried[0] + v * 0.0)
                good = f.compare("eq", k.results[0], 0.0)
                f.ret(f.convert("zext", good, I64))
        return "finite"
