"""Random numbers that are computed, not drawn: each follows from a key and its own number.

`threefry` is Threefry 2x32 (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", 2011): a
bijection of 64-bit counters, keyed by 64 bits, made of additions, rotations and exclusive ors,
which vector units do on as many lanes as there are 32-bit words. 13 rounds pass all known tests.
Element i of a draw takes the words of counter i (or one of those of i // 2, where one is enough)
under a key made (by all 20 rounds) of the seed and the offset. So any element can be computed
alone, by any thread, inside any loop, and again: a backward pass makes its dropout mask anew.
"""

from __future__ import annotations

import math
from typing import Any

from lucerne._src.base import dtype as dt
from lucerne._src.ir.convert import Device, Dtype, IntList
from lucerne._src.ir.define import pointwise, structural
from lucerne._src.ir.meta import TensorMeta, make_meta
from lucerne._src.ir.op import Scalar, Tensor
from lucerne._src.ir.scalar.protocol import s

ROUNDS = 13
KEY_ROUNDS = 20
_TURNS = (13, 15, 26, 6, 17, 29, 16, 24)
_PARITY = 0x1BD11BDA
_SECOND = 0x80000000
"""Set in a counter for a second pair of words: no tensor has so many elements."""

WORDS = ("word0", "word1")
DISTRIBUTIONS = ("uniform", "normal", "exponential", "bernoulli", "integers", *WORDS)

Number = Any
"""A static number: an int or a float."""
Pair = tuple[Any, Any]
"""Two words: uint32."""


def halves(x: Any) -> Pair:
    """An integer as two words; the second of an int32 (which is not negative) is nothing."""
    low = s.cast(x, dt.uint32)
    if s.dtype_of(x) is dt.int32:
        return low, low ^ low
    return low, s.cast(s.shift_right(x, 32), dt.uint32)


def _turned(x: Any, bits: int) -> Any:
    return s.shift_left(x, bits) | s.shift_right(x, 32 - bits)


def threefry(counter: Pair, key: Pair, rounds: int = ROUNDS) -> Pair:
    """Two words from a counter of two and a key of two."""
    keys = (*key, key[0] ^ key[1] ^ _PARITY)
    a, b = counter[0] + keys[0], counter[1] + keys[1]
    for r in range(rounds):
        a = a + b
        b = _turned(b, _TURNS[r % 8]) ^ a
        if r % 4 == 3:
            done = (r + 1) // 4
            a, b = a + keys[done % 3], b + keys[(done + 1) % 3] + done
    return a, b


def _whole(word: Any) -> Any:
    return s.cast(word, dt.int64)


def _share(words: Pair, dtype: dt.dtype) -> Any:
    """Uniform in [0, 1), with as many digits as the dtype holds."""
    if dtype is dt.float64:
        high, low = s.shift_right(words[0], 5), s.shift_right(words[1], 6)
        return s.cast(_whole(high) * (1 << 26) + _whole(low), dt.float64) * 2.0**-53
    digits = min(dtype.digits, 24)
    whole = s.cast(s.shift_right(words[0], 32 - digits), dt.int32)
    return s.cast(whole, dt.float32) * 2.0**-digits


def _positive(words: Pair, dtype: dt.dtype) -> Any:
    """Uniform in (0, 1]: fine near zero, where logarithms look."""
    if dtype is dt.float64:
        high, low = s.shift_right(words[0], 5), s.shift_right(words[1], 6)
        return (s.cast(_whole(high) * (1 << 26) + _whole(low), dt.float64) + 0.5) * 2.0**-53
    whole = s.cast(s.shift_right(words[0], 1), dt.int32)
    return (s.cast(whole, dt.float32) + 0.5) * 2.0**-31


def _normal(words: Pair, counter: Pair, key: Pair, dtype: dt.dtype) -> Any:
    """Box and Muller's formula, on two independent numbers."""
    radius = s.sqrt(s.log(_positive(words, dtype)) * -2.0)
    if dtype is dt.float64:
        turn = _share(threefry((counter[0], counter[1] | _SECOND), key), dtype)
    else:
        turn = _share((words[1], words[0]), dt.float32)
    return radius * s.cos(turn * (2.0 * math.pi))


@pointwise(internal=True, vjp={}, numbers="none")
def counted_key(seed: Tensor, offset: Tensor, stream: Scalar, which: int) -> Tensor:
    """A word (0 or 1) of the key of a draw: the same for all its elements."""
    return threefry(halves(offset + stream), halves(seed), KEY_ROUNDS)[which]


def takes_one_word(distribution: str, dtype: dt.dtype) -> bool:
    """Whether a word is enough for a number: neighbours then share the two words of a counter."""
    exact = dtype.compute is dt.float64 and distribution in ("uniform", "exponential")
    return distribution != "normal" and distribution not in WORDS and not exact


@pointwise(internal=True, vjp={}, numbers="none")
def counted_word(index: Tensor, key0: Tensor, key1: Tensor) -> Tensor:
    """The word of element `index` (int32, or int64) where each takes one: those of one counter
    belong to elements side by side."""
    key = s.cast(key0, dt.uint32), s.cast(key1, dt.uint32)
    words = threefry(halves(s.shift_right(index, 1)), key)
    return s.where(s.eq(index & 1, 0), *words)


@pointwise(internal=True, vjp={}, numbers="none")
def counted_number(
    word: Tensor, first: Scalar, second: Scalar, distribution: str, dtype: Dtype
) -> Tensor:
    """The number that a word gives. See `counted_draw` for the distributions."""
    word = s.cast(word, dt.uint32)
    if distribution == "bernoulli":
        return s.cast(_whole(word) < first, dtype.compute)
    if distribution == "integers":
        return s.cast(s.shift_right(_whole(word) * second, 32) + first, dtype.compute)
    if distribution == "uniform":
        return _share((word, word), dtype) * second + first
    return s.log(_positive((word, word), dtype.compute)) * first


@pointwise(internal=True, vjp={}, numbers="none")
def counted_value(
    index: Tensor,
    key0: Tensor,
    key1: Tensor,
    first: Scalar,
    second: Scalar,
    distribution: str,
    dtype: Dtype,
) -> Tensor:
    """The number of element `index` where each takes both words of a counter, or more."""
    key, compute = (s.cast(key0, dt.uint32), s.cast(key1, dt.uint32)), dtype.compute
    counter = halves(index)
    words = threefry(counter, key)
    if distribution in WORDS:
        return _whole(words[WORDS.index(distribution)])
    if distribution == "uniform":
        return _share(words, dtype) * second + first
    if distribution == "exponential":
        return s.log(_positive(words, compute)) * first
    return _normal(words, counter, key, compute) * second + first


def _draw_meta(key: TensorMeta, size: Any, strides: Any, *rest: Any) -> TensorMeta:
    dtype, device = rest[-2:]
    return make_meta(dtype, size, strides, device)


@structural(internal=True, meta=_draw_meta, out=False, cost="memory", elementwise=True)
def counted_draw(
    key: Tensor,
    size: IntList,
    strides: IntList | None,
    distribution: str,
    first: Number,
    second: Number,
    stream: int,
    dtype: Dtype,
    device: Device,
) -> Tensor:
    """A new tensor of random numbers. `key` holds the seed and an offset, as two int64.

    The elements are counted as they lie in memory; `stream` tells draws under one key apart.
    Numbers `first` and `second`: uniform: least, width; normal: mean, standard deviation;
    exponential: minus the mean; bernoulli: probability times 2**32; integers: least, count.
    """
