"""What kernels on batches of matrices share: their words, tasks, scratch, copies, and failures.

A kernel goes over `count` matrices, some of them in a task; each thread has `room` bytes of
scratch. Where a factorisation can fail, its info numbers stand in front of the scratch and
are looked through at the end: the first failure is told, whichever thread met it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from lucerne._src.backends.cpu.elementwise.turn import turn_address
from lucerne._src.backends.cpu.emit.builder import (
    I32,
    I64,
    PTR,
    VOID,
    LLVMFunction,
    LLVMValue,
    Module,
)
from lucerne._src.backends.cpu.linalg.element import MatrixElement
from lucerne._src.backends.cpu.linalg.lapack import thread_setting
from lucerne._src.backends.cpu.runtime import symbols
from lucerne._src.backends.cpu.runtime.code import compiled
from lucerne._src.backends.cpu.runtime.kernel import NativeKernel
from lucerne._src.backends.cpu.runtime.pool import MAX_THREADS
from lucerne._src.ir.meta import TensorMeta

_SHARED = ("count", "per_task", "tasks", "room", "infos", "turn", "threads")
_TASK_NS = 20000.0
"""About how long a task should run."""
_WORTH_THREADS_NS = 2e6
"""LAPACK works with one thread on a matrix that takes less."""

One = Callable[["MatrixBatch", LLVMFunction, LLVMValue, LLVMValue], "LLVMValue | None"]
"""Work on one matrix: from its number and its scratch to its info number (or None)."""


def rounded(nbytes: int) -> int:
    """Up to whole cache lines."""
    return -(-nbytes // 64) * 64


def batch_step(meta: TensorMeta, batch: Sequence[int], tail: int = 2) -> int | None:
    """Bytes from matrix to matrix when the leading dimensions spread to `batch`; None: they do not
    follow each other evenly."""
    lead = meta.ndim - tail
    shape = (1,) * (len(batch) - lead) + tuple(meta.shape[:lead])
    strides = (0,) * (len(batch) - lead) + tuple(meta.byte_strides[:lead])
    step, size = 0, 1
    for n, have, stride in zip(reversed(batch), reversed(shape), reversed(strides), strict=True):
        if n == 1:
            continue
        stride = 0 if have == 1 else stride
        if size == 1:
            step = stride
        elif stride != step * size:
            return None
        size *= n
    return step


class MatrixBatch:
    """Writes the kernel. `names`: words of its own, behind the shared ones."""

    def __init__(
        self, m: Module, element: MatrixElement, outputs: int, pointers: int, names: Sequence[str],
        checks: bool, calls_lapack: bool,
    ) -> None:  # fmt: skip
        self.m, self.e, self.pointers, self.checks = m, element, pointers, checks
        self.calls_lapack = calls_lapack
        self.pointers_in = outputs
        """The pointer of the first operand."""
        self.names = (*_SHARED, *names)
        assert len(set(self.names)) == len(self.names), "a word's name is taken"

    def word(self, f: LLVMFunction, name: str) -> LLVMValue:
        return f.word(f.args[0], self.pointers + 1 + self.names.index(name))

    def pointer(self, f: LLVMFunction, k: int) -> LLVMValue:
        return f.word(f.args[0], k, PTR)

    def write(self, one: One) -> None:
        """`i64 entry(ptr block)`."""
        write_copies(self.m, self.e)
        params = [("block", PTR), ("task", I64), ("tid", I64)]
        with self.m.function("task", params, internal=True) as f:
            per_task, count = self.word(f, "per_task"), self.word(f, "count")
            first = f.args[1] * per_task
            space = f.word(f.args[0], self.pointers, PTR)
            own = f.at(space, self.word(f, "infos") + f.args[2] * self.word(f, "room"))
            with f.loop(first, f.minimum(first + per_task, count)) as loop:
                info = one(self, f, loop.index, own)
                if self.checks and info is not None:
                    f.store(f.convert("trunc", info, I32), f.at(space, loop.index, I32))
        with self.m.function("entry", [("block", PTR)], I64) as f:
            tasks = self.word(f, "tasks")
            if not self.calls_lapack:
                f.call("lucerne_pfor", VOID, [f.symbol("task"), f.args[0], tasks])
            else:
                self._with_threads(f)
            f.ret(self._first_failure(f) if self.checks else f.constant(0))

    def _with_threads(self, f: LLVMFunction) -> None:
        """The one task, while LAPACK uses no more threads than it should: one where matrices are
        small (more would cost more than they bring), else as many as the engine. What the user
        has set for NumPy is set again afterwards."""
        wanted = f.load(I64, f.symbol("lucerne_threads"))
        most = self.word(f, "threads")
        wanted = f.select(f.compare("eq", most, 0), wanted, most)
        had = f.convert("sext", f.call("lapack_get_threads", I32, []), I64)
        with f.if_(f.compare("gt", had, wanted)):
            f.call("lapack_set_threads", VOID, [f.convert("trunc", wanted, I32)])
        f.call("task", VOID, [f.args[0], f.constant(0), f.constant(0)])
        with f.if_(f.compare("gt", had, wanted)):
            f.call("lapack_set_threads", VOID, [f.convert("trunc", had, I32)])

    def _first_failure(self, f: LLVMFunction) -> LLVMValue:
        """1 if a matrix failed; word 0 then is its number and, above 32 bits, its info."""
        space = f.word(f.args[0], self.pointers, PTR)
        count = self.word(f, "count")
        with f.loop(0, count, 1, [f.constant(-1), f.constant(0)]) as loop:
            at, had = loop.carried
            info = f.convert("sext", f.load(I32, f.at(space, loop.index, I32)), I64)
            new = f.compare("ne", info, 0) & f.compare("lt", at, 0)
            loop.next(f.select(new, loop.index, at), f.select(new, info, had))
        at, info = loop.results
        with f.if_(at >= 0):
            f.store((info << 32) | at, f.args[0])
        return f.convert("zext", at >= 0, I64)

    def copy_in(
        self,
        f: LLVMFunction,
        source: LLVMValue,
        steps: Sequence[LLVMValue],
        target: LLVMValue,
        ld: LLVMValue,
        rows: LLVMValue,
        columns: LLVMValue,
    ) -> None:
        """A matrix with any steps (bytes from row to row, from column to column) by columns."""
        turn = f.convert("inttoptr", self.word(f, "turn"), PTR)
        f.call("copy_in", VOID, [source, *steps, target, ld, rows, columns, turn])

    def copy_out(
        self,
        f: LLVMFunction,
        source: LLVMValue,
        ld: LLVMValue,
        target: LLVMValue,
        steps: Sequence[LLVMValue],
        rows: LLVMValue,
        columns: LLVMValue,
    ) -> None:
        """The opposite."""
        f.call("copy_out", VOID, [source, ld, target, *steps, rows, columns])


def write_copies(m: Module, e: MatrixElement) -> None:
    """`copy_in` and `copy_out`, for any steps; what lies by columns goes fast, and so does what
    lies by rows and comes in."""
    many = [("rs", I64), ("cs", I64)]
    params = [("source", PTR), *many, ("target", PTR), ("ld", I64), ("rows", I64)]
    with m.function("copy_in", [*params, ("columns", I64), ("turn", PTR)], internal=True) as f:
        source, rs, cs, target, ld, rows, columns, turn = f.args
        with f.if_(f.compare("eq", rs, e.size)) as plain, f.loop(0, columns) as c:
            to = e.at(f, target, c.index * ld)
            f.copy_bytes(to, f.at(source, c.index * cs), rows * e.size)
        with plain.else_():
            large = f.compare("eq", cs, e.size) & (rows * columns >= 64)
            with f.if_(large) as by_rows:
                f.call_at(turn, VOID, [source, rs, target, ld * e.size, rows, columns])
            with by_rows.else_(), f.loop(0, columns) as c, f.loop(0, rows) as r:
                here = e.load(f, f.at(source, r.index * rs + c.index * cs))
                e.store(f, here, e.at(f, target, r.index + c.index * ld))
    params = [("source", PTR), ("ld", I64), ("target", PTR), *many, ("rows", I64)]
    with m.function("copy_out", [*params, ("columns", I64)], internal=True) as f:
        source, ld, target, rs, cs, rows, columns = f.args
        with f.if_(f.compare("eq", rs, e.size)) as plain, f.loop(0, columns) as c:
            at = e.at(f, source, c.index * ld)
            f.copy_bytes(f.at(target, c.index * cs), at, rows * e.size)
        with plain.else_(), f.loop(0, columns) as c, f.loop(0, rows) as r:
            here = e.load(f, e.at(f, source, r.index + c.index * ld))
            e.store(f, here, f.at(target, r.index * rs + c.index * cs))


class MatrixForm:
    """One kind of kernel: the key of its code, its words, and what it does with one matrix."""

    def __init__(
        self, key: tuple[Any, ...], element: MatrixElement, outputs: int, tensors: int,
        names: Sequence[str], one: Callable[[Module], One], *, checks: bool = False,
    ) -> None:  # fmt: skip
        self.key, self.element, self.outputs, self.tensors = key, element, outputs, tensors
        self.names, self.one, self.checks = tuple(names), one, checks
        self.calls_lapack = False

    def kernel(
        self, count: int, words: Sequence[int], room: int, work: float, *, alone: bool = False,
        fail: Callable[[int, int], None] | None = None,
    ) -> NativeKernel:  # fmt: skip
        """For `count` matrices of about `work` nanoseconds each. `alone`: by one task, which calls
        LAPACK."""
        assert len(words) == len(self.names), (words, self.names)
        per_task = count if alone else max(1, min(count, int(_TASK_NS / work)), -(-count // 256))
        tasks = -(-count // per_task)
        infos = rounded(4 * count) if self.checks else 0
        room = rounded(room)
        threads = 1 if work < _WORTH_THREADS_NS else 0
        self.calls_lapack = alone and _provide_threads()
        code = compiled((*self.key, self.calls_lapack), self._write)
        turn = turn_address(self.element.size)
        extra = [count, per_task, tasks, room, infos, turn, threads, *words]
        space = infos + room * (1 if tasks == 1 else MAX_THREADS)
        return NativeKernel(
            code["entry"], self.outputs, self.tensors, extra=extra, workspace=space,
            work=count * work, fail=fail,
        )  # fmt: skip

    def _write(self, m: Module) -> None:
        pointers = self.outputs + self.tensors
        batch = MatrixBatch(
            m, self.element, self.outputs, pointers, self.names, self.checks, self.calls_lapack
        )
        batch.write(self.one(m))


def _provide_threads() -> bool:
    """Make LAPACK's number of threads known to kernels; whether it has one."""
    setting = thread_setting()
    if setting is None:
        return False
    symbols.provide("lapack_get_threads", setting[0])
    symbols.provide("lapack_set_threads", setting[1])
    return True
