"""The Mersenne twister MT19937 in vectors: the words PyTorch's and NumPy's generators give.

The state is NumPy's: 624 words of 32 bits, then (as a 32-bit integer) how many are used up. Word i
of a new state needs words i, i + 1 and i + 397 of the old one (counted round), so a vector of them
can be made at a time. M. Matsumoto and T. Nishimura, 1998.
"""

from __future__ import annotations

from lucerne._src.backends.cpu.emit.builder import (
    I32,
    I64,
    PTR,
    VOID,
    LLVMFunction,
    LLVMValue,
    Module,
)
from lucerne._src.backends.cpu.emit.target import VECTOR_BYTES

WORDS = 624
_FAR = 397
_LANES = VECTOR_BYTES // 4
_UPPER, _LOWER = -(1 << 31), (1 << 31) - 1
_MATRIX = 0x9908B0DF - (1 << 32)


def _mixed(f: LLVMFunction, first: LLVMValue, second: LLVMValue, far: LLVMValue) -> LLVMValue:
    """The new word from the three old ones."""
    y = (first & _UPPER) | (second & _LOWER)
    odd = f.compare("ne", y & 1, f.zero(y.type))
    turned = f.select(odd, f.constant(_MATRIX, y.type), f.zero(y.type))
    return far ^ f.bits("lshr", y, 1) ^ turned


def _tempered(f: LLVMFunction, y: LLVMValue) -> LLVMValue:
    y = y ^ f.bits("lshr", y, 11)
    y = y ^ ((y << 7) & (0x9D2C5680 - (1 << 32)))
    y = y ^ ((y << 15) & (0xEFC60000 - (1 << 32)))
    return y ^ f.bits("lshr", y, 18)


def _renew_range(f: LLVMFunction, state: LLVMValue, start: int, stop: int, far: int) -> None:
    """New words [start, stop), the far one being `far` words away; the next word exists."""
    wide = I32.vector(_LANES)
    whole = start + (stop - start) // _LANES * _LANES

    def word(i: LLVMValue) -> LLVMValue:
        return f.at(state, i, I32)

    with f.loop(start, whole, _LANES) as loop:
        i = loop.index
        new = _mixed(
            f, f.load(wide, word(i)), f.load(wide, word(i + 1)), f.load(wide, word(i + far))
        )
        f.store(new, word(i))
    if whole < stop:
        mask = f.low_mask(stop - whole, _LANES)
        i = f.constant(whole)
        new = _mixed(
            f,
            f.masked_load(wide, word(i), mask),
            f.masked_load(wide, word(i + 1), mask),
            f.masked_load(wide, word(i + far), mask),
        )
        f.masked_store(new, word(i), mask)


def write_words(m: Module) -> None:
    """`void random_words(ptr state, ptr target, i64 count)`: the next words of the sequence."""
    with m.function("renew_words", [("state", PTR)], internal=True) as f:
        (state,) = f.args
        near = WORDS - _FAR
        _renew_range(f, state, 0, near, _FAR)
        _renew_range(f, state, near, WORDS - 1, -near)
        last, first = f.at(state, WORDS - 1, I32), f.load(I32, state)
        far = f.load(I32, f.at(state, _FAR - 1, I32))
        f.store(_mixed(f, f.load(I32, last), first, far), last)
    params = [("state", PTR), ("target", PTR), ("count", I64)]
    with m.function("random_words", params, internal=True) as f:
        state, target, count = f.args
        used_place = f.at(state, WORDS, I32)
        with f.if_(count > 0), f.while_([target, count]) as loop:
            to, left = loop.carried
            used = f.convert("sext", f.load(I32, used_place), I64)
            with f.if_(used >= WORDS) as empty:
                f.call("renew_words", VOID, [state])
                empty.give(f.constant(0))
            with empty.else_():
                empty.give(used)
            start = empty.results[0]
            taken = f.minimum(left, WORDS - start)
            _temper_range(f, f.at(state, start, I32), to, taken)
            f.store(f.convert("trunc", start + taken, I32), used_place)
            rest = left - taken
            loop.again(rest > 0, f.at(to, taken, I32), rest)


def _temper_range(f: LLVMFunction, source: LLVMValue, target: LLVMValue, count: LLVMValue) -> None:
    wide = I32.vector(_LANES)
    whole = (count // _LANES) * _LANES
    with f.loop(0, whole, _LANES) as loop:
        words = f.load(wide, f.at(source, loop.index, I32))
        f.store(_tempered(f, words), f.at(target, loop.index, I32))
    left = count - whole
    with f.if_(left > 0):
        mask = f.low_mask(left, _LANES)
        words = f.masked_load(wide, f.at(source, whole, I32), mask)
        f.masked_store(_tempered(f, words), f.at(target, whole, I32), mask)
