"""Drawing into dense memory, in memory order: words in small batches, turned into numbers.

Words of the block: target, state, count, then up to four numbers of the distribution, then the
address of the elements' own parameters where a distribution has them.
"""

from __future__ import annotations

from dataclasses import dataclass

from lucerne._src.backends.cpu.emit.builder import (
    F32,
    F64,
    I32,
    I64,
    PTR,
    VOID,
    LLVMFunction,
    LLVMValue,
    Module,
)
from lucerne._src.backends.cpu.emit.target import VECTOR_BYTES
from lucerne._src.backends.cpu.emit.types import Type
from lucerne._src.backends.cpu.math.storage import COMPUTED, STORED, pack, unpack
from lucerne._src.backends.cpu.random.mersenne_twister import write_words
from lucerne._src.backends.cpu.random.normal import sixteen_f32, write_sixteen_f64
from lucerne._src.base import dtype as dt

BATCH = 2048
"""Elements whose words are drawn at once."""
TARGET, STATE, COUNT, NUMBERS, EACH = 0, 1, 2, 3, 7

UNIFORM, NORMAL, BERNOULLI, BERNOULLI_EACH, EXPONENTIAL, INTEGERS, PERMUTATION = (
    "uniform", "normal", "bernoulli", "bernoulli_each", "exponential", "integers", "permutation",
)  # fmt: skip


@dataclass(frozen=True)
class Fill:
    """What changes the code: distribution, dtype of the target, and whether an element takes a
    word of 64 bits instead of 32."""

    distribution: str
    dtype: str
    wide: bool


class FillCode:
    """Writes `i64 entry(ptr block)` for one form."""

    def __init__(self, m: Module, form: Fill) -> None:
        self.m, self.form = m, form
        self.dtype = dt.by_name(form.dtype)
        self.stored: Type = STORED[self.dtype]
        self.each = 2 if form.wide else 1
        """Words of an element."""

    def write(self) -> None:
        write_words(self.m)
        if self.form.distribution == NORMAL:
            self._write_normal()
        elif self.form.distribution == PERMUTATION:
            self._write_permutation()
        else:
            self._write_plain()

    # ---- one element from one word ------------------------------------------------------------

    def _write_plain(self) -> None:
        vector = self.form.distribution in (UNIFORM, BERNOULLI, BERNOULLI_EACH)
        lanes = VECTOR_BYTES // (8 if self.form.wide else 4) if vector else 1
        with self.m.function("entry", [("block", PTR)], I64) as f:
            (block,) = f.args
            buffer = f.stack(BATCH * 4 * self.each)
            target, state = f.word(block, TARGET, PTR), f.word(block, STATE, PTR)
            n = f.word(block, COUNT)
            with f.loop(0, n, BATCH) as batch:
                size = f.minimum(n - batch.index, BATCH)
                f.call("random_words", VOID, [state, buffer, size * self.each])
                whole = (size // lanes) * lanes
                for start, stop, step in ((f.constant(0), whole, lanes), (whole, size, 1)):
                    with f.loop(start, stop, step) as loop:
                        at = batch.index + loop.index
                        words = self._words(f, buffer, loop.index, step)
                        f.store(self._element(f, block, words, at), f.at(target, at, self.stored))
            f.ret(0)

    def _words(self, f: LLVMFunction, buffer: LLVMValue, k: LLVMValue, lanes: int) -> LLVMValue:
        """Words of 32 or 64 bits; of the two halves of a long one the first is the high one."""
        if not self.form.wide:
            return f.load(I32.vector(lanes), f.at(buffer, k, I32))
        pairs = f.load(I64.vector(lanes), f.at(buffer, k, I64))
        return (pairs << 32) | f.bits("lshr", pairs, 32)

    def _unit(self, f: LLVMFunction, words: LLVMValue) -> LLVMValue:
        """Uniform in [0, 1): the low 24 bits as float32, the low 53 as float64."""
        if self.form.wide:
            return f.convert("uitofp", words & ((1 << 53) - 1), F64) * 2.0**-53
        return f.convert("sitofp", words & ((1 << 24) - 1), F32) * 2.0**-24

    def _number(self, f: LLVMFunction, block: LLVMValue, k: int, like: Type) -> LLVMValue:
        """Number `k` of the distribution, in every lane."""
        v = f.word(block, NUMBERS + k, F64)
        if like.element is F32:
            v = f.convert("fptrunc", v, F32)
        return f.splat(v, like.lanes)

    def _element(
        self, f: LLVMFunction, block: LLVMValue, words: LLVMValue, at: LLVMValue
    ) -> LLVMValue:
        """The stored form of elements from `at` on."""
        kind = self.form.distribution
        if kind == INTEGERS:
            return self._integer(f, block, words)
        u = self._unit(f, words)
        if kind == UNIFORM:
            return self._uniform(f, block, u)
        if kind == EXPONENTIAL:
            scale = self._number(f, block, 0, u.type)
            return self._rounded(f, f.call("log1p", F64, [-u]) * scale)
        if kind == BERNOULLI:
            hit = f.compare("lt", u, self._number(f, block, 0, u.type))
        else:
            stored = f.load(
                self.stored.vector(u.type.lanes),
                f.at(f.word(block, EACH, PTR), at, self.stored),
            )
            hit = f.compare("lt", u, unpack(f, self.dtype, stored))
        return self._truth(f, hit)

    def _uniform(self, f: LLVMFunction, block: LLVMValue, u: LLVMValue) -> LLVMValue:
        """Low plus a part of the range; what rounds up to the end becomes the beginning."""
        low, span, last, first = (self._number(f, block, k, u.type) for k in range(4))
        v = f.fma(u, span, low)
        if self.dtype in (dt.float16, dt.bfloat16):
            v = unpack(f, self.dtype, pack(f, self.dtype, v))
        v = f.select(f.compare("eq", v, last), first, v)
        return pack(f, self.dtype, v)

    def _rounded(self, f: LLVMFunction, v: LLVMValue) -> LLVMValue:
        """A float64 as the target stores it: the narrow kinds round through float32."""
        if self.dtype is dt.float64:
            return v
        return pack(f, self.dtype, f.convert("fptrunc", v, F32))

    def _truth(self, f: LLVMFunction, hit: LLVMValue) -> LLVMValue:
        """1 or 0 in the target's dtype."""
        if self.dtype.category != dt.FLOAT:
            return f.convert("zext", hit, self.stored)
        kind = COMPUTED[self.dtype.compute].vector(hit.type.lanes)
        return pack(f, self.dtype, f.select(hit, f.constant(1.0, kind), f.constant(0.0, kind)))

    def _integer(self, f: LLVMFunction, block: LLVMValue, words: LLVMValue) -> LLVMValue:
        """Low plus the word modulo the range."""
        low, span = f.word(block, NUMBERS), f.word(block, NUMBERS + 1)
        if self.form.wide:
            step = f.unsigned("rem", words, span)
        else:
            rest = f.unsigned("rem", words, f.convert("trunc", span, I32))
            step = f.convert("zext", rest, I64)
        v = step + low
        if self.dtype is dt.bool_:
            return f.convert("zext", f.compare("ne", v, 0), self.stored)
        if self.dtype.category == dt.FLOAT:
            whole = f.convert("sitofp", v, F64 if self.dtype is dt.float64 else F32)
            return pack(f, self.dtype, whole)
        return f.convert("trunc", v, self.stored)

    # ---- sixteen at a time --------------------------------------------------------------------

    def _write_normal(self) -> None:
        """Blocks of sixteen; a ragged end is covered by a last block drawn over the tail.

        float32 and float64 draw the ragged end once more before and throw it away.
        """
        if self.form.wide:
            write_sixteen_f64(self.m)
        with self.m.function("entry", [("block", PTR)], I64) as f:
            (block,) = f.args
            buffer = f.stack(BATCH * 4 * self.each)
            target, state = f.word(block, TARGET, PTR), f.word(block, STATE, PTR)
            n = f.word(block, COUNT)
            whole = n & -16
            with f.loop(0, whole, BATCH) as batch:
                size = f.minimum(whole - batch.index, BATCH)
                f.call("random_words", VOID, [state, buffer, size * self.each])
                self._units(f, buffer, size)
                with f.loop(0, size, 16) as loop:
                    at = f.at(target, batch.index + loop.index, self.stored)
                    self._sixteen(f, block, buffer, loop.index, at)
            with f.if_(whole < n):
                if self.dtype in (dt.float32, dt.float64):
                    f.call("random_words", VOID, [state, buffer, (n - whole) * self.each])
                f.call("random_words", VOID, [state, buffer, 16 * self.each])
                self._units(f, buffer, f.constant(16))
                self._sixteen(f, block, buffer, f.constant(0), f.at(target, n - 16, self.stored))
            f.ret(0)

    def _units(self, f: LLVMFunction, buffer: LLVMValue, size: LLVMValue) -> None:
        """Words in the buffer become uniform numbers, in place."""
        lanes = 8 if self.form.wide else 16
        element = F64 if self.form.wide else F32
        with f.loop(0, size, lanes) as loop:
            words = self._words(f, buffer, loop.index, lanes)
            f.store(self._unit(f, words), f.at(buffer, loop.index, element))

    def _sixteen(
        self, f: LLVMFunction, block: LLVMValue, buffer: LLVMValue, k: LLVMValue, target: LLVMValue
    ) -> None:
        mean, std = (f.word(block, NUMBERS + i, F64) for i in range(2))
        if self.form.wide:
            f.call("normal16", VOID, [f.at(buffer, k, F64), target, mean, std])
            return
        narrow = [f.convert("fptrunc", v, F32) for v in (mean, std)]
        v = sixteen_f32(f, f.load(F32.vector(16), f.at(buffer, k, F32)), *narrow)
        f.store(pack(f, self.dtype, v), target)

    # ---- permutations -------------------------------------------------------------------------

    def _write_permutation(self) -> None:
        """Fisher and Yates' shuffle of 0 .. n-1, one word a swap."""
        with self.m.function("entry", [("block", PTR)], I64) as f:
            (block,) = f.args
            buffer = f.stack(BATCH * 4)
            target, state = f.word(block, TARGET, PTR), f.word(block, STATE, PTR)
            n = f.word(block, COUNT)
            with f.loop(0, n) as loop:
                f.store(loop.index, f.at(target, loop.index, I64))
            with f.loop(0, n - 1, BATCH) as batch:
                size = f.minimum(n - 1 - batch.index, BATCH)
                f.call("random_words", VOID, [state, buffer, size])
                with f.loop(0, size) as loop:
                    i = batch.index + loop.index
                    left = f.convert("trunc", n - i, I32)
                    word = f.load(I32, f.at(buffer, loop.index, I32))
                    j = i + f.convert("zext", f.unsigned("rem", word, left), I64)
                    here, there = f.at(target, i, I64), f.at(target, j, I64)
                    a, b = f.load(I64, here), f.load(I64, there)
                    f.store(b, here)
                    f.store(a, there)
            f.ret(0)
