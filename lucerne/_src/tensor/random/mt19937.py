"""The Mersenne twister behind PyTorch's CPU generator, with its state in PyTorch's own layout."""

from __future__ import annotations

import math
import struct
from typing import Any

import numpy as np

from lucerne._src.base.memory import array_over
from lucerne._src.base.process import forks
from lucerne._src.base.process.forks import once
from lucerne._src.tensor.random.kinds import U8, U32, U64, Array

DEFAULT_SEED = 67280421310721  # the seed of a new torch.Generator
STATE_SIZE = 5056
_WORDS = 624
_MAKING = forks.rlock()
_MOST_SPARE = 8
_SPARE: list[np.random.RandomState] = []
"""States whose generators are gone: NumPy takes a hundred times as long for a new one as to seed
one again, and programs make a generator for every batch."""
# seed, words left, seeded flag, next word; the words; 0, cached normal, 0, cache flag; and the
# float32 cache that no CPU draw of PyTorch fills.
_HEAD = struct.Struct("<QiiQ")
_TAIL = struct.Struct("<dddi4xf?3x")


class Mersenne:
    """MT19937 over NumPy's `RandomState`, which freezes the word sequence for good.

    `cached_normal` is the second value of the last Box-Muller pair: it is part of the state because
    PyTorch hands it out to the next small draw, whatever its dtype.
    """

    def __init__(self, seed: int = DEFAULT_SEED) -> None:
        self.seed(seed)

    @once
    def _words(self) -> np.random.RandomState:
        """Made when it is first asked for: loading NumPy's generators is part of no import. One for
        all threads, and with the last seed: two that draw first must not both begin the sequence.
        """
        with _MAKING:
            found: np.random.RandomState | None = self.__dict__.get("_words")
            if found is None:
                found = _SPARE.pop() if _SPARE else np.random.RandomState(0)
                found.seed(self.initial_seed & 0xFFFFFFFF)
                self.__dict__["_words"] = found
            return found

    def __del__(self) -> None:
        words = self.__dict__.get("_words")
        if words is not None and _SPARE is not None and len(_SPARE) < _MOST_SPARE:
            _SPARE.append(words)

    def __copy__(self) -> Mersenne:
        raise TypeError("two generators can't have one state: load_state_bytes copies it")

    @once
    def _memory(self) -> U32:
        """The state itself: to take it by `get_state` costs 300 times as much."""
        uint32 = np.dtype(np.uint32)
        return array_over(self._address, (_WORDS + 1,), uint32, None, self._words)

    def seed(self, seed: int) -> None:
        """Restart; negative seeds wrap to 64 bits, and only the low 32 bits reach the words."""
        self.cached_normal: float | None = None
        self._float_cache: tuple[float, bool] = (0.0, False)
        self._untouched = True  # PyTorch tells a fresh block from a used-up one, NumPy does not
        with _MAKING:
            self.initial_seed = seed % 2**64
            if "_words" in self.__dict__:  # a new one takes 50 times as long
                self._words.seed(self.initial_seed & 0xFFFFFFFF)

    def words32(self, n: int) -> U32:
        """The next `n` 32-bit words."""
        if n == 0:
            return np.empty(0, np.uint32)
        self._untouched = False
        return self._words.randint(0, 1 << 32, size=n, dtype=np.uint32)

    def words64(self, n: int) -> U64:
        """The next `n` 64-bit words; of the two 32-bit words the first is the high one."""
        pairs = self.words32(2 * n).astype(np.uint64)
        return (pairs[0::2] << np.uint64(32)) | pairs[1::2]

    def native_state(self) -> int:
        """Where the state lies in memory, for whoever draws from it there: 624 words of 32 bits,
        then an int that counts those used up."""
        self._untouched = False
        return self._address

    @property
    def _address(self) -> int:
        return int(self._words._bit_generator.ctypes.state_address)

    def mark(self) -> Any:
        """A point of the word sequence to return to with `rewind`."""
        return self._memory.tobytes(), self._untouched

    def rewind(self, mark: Any) -> None:
        """Return to a `mark`; the cached normal is left alone."""
        words, self._untouched = mark
        self._memory[:] = np.frombuffer(words, np.uint32)

    def state_bytes(self) -> U8:
        """The 5,056 bytes that torch.Generator.get_state() would give."""
        _, words, used, *_ = self._words.get_state(legacy=True)
        following = 0 if self._untouched else int(used)
        left = 1 if self._untouched else _WORDS + 1 - following
        head = _HEAD.pack(self.initial_seed, left, 1, following)
        cached = self.cached_normal
        tail = _TAIL.pack(0.0, cached or 0.0, 0.0, int(cached is not None), *self._float_cache)
        body = np.asarray(words, "<u8").tobytes()
        return np.frombuffer(bytearray(head + body + tail), np.uint8)

    def load_state_bytes(self, state: Any) -> None:
        """Take over a state, ours or PyTorch's; anything that is not one is refused whole."""
        raw = _as_bytes(state)
        seed, left, seeded, following = _HEAD.unpack_from(raw)
        words = np.frombuffer(raw, "<u8", _WORDS, _HEAD.size)
        _, cached, _, cached_flag, *float_cache = _TAIL.unpack_from(raw, _HEAD.size + 8 * _WORDS)
        _check_counts(left, seeded, following)
        _check_words(words)
        _check_cache(cached, cached_flag)
        fresh = following == 0
        position = _WORDS if fresh else following
        self._words.set_state(("MT19937", words.astype(np.uint32), position, 0, 0.0))
        self._untouched = fresh
        self.initial_seed = seed
        self.cached_normal = cached if cached_flag else None
        self._float_cache = (float_cache[0], float_cache[1])


def _as_bytes(state: Any) -> bytes:
    if isinstance(state, np.ndarray) and state.dtype != np.uint8:
        raise ValueError(
            f"generator state: expected an array of uint8, got {state.dtype}; "
            "pass what state_bytes() returned, unchanged"
        )
    try:
        raw = bytes(memoryview(state)) if not isinstance(state, np.ndarray) else state.tobytes()
    except TypeError as error:
        raise ValueError(
            f"generator state: expected bytes or an array of uint8, got {type(state).__name__}"
        ) from error
    if len(raw) != STATE_SIZE:
        raise ValueError(
            f"generator state: expected {STATE_SIZE} bytes (a CPU generator of PyTorch's layout), "
            f"got {len(raw)}; a state of another device does not fit"
        )
    return raw


def _check_counts(left: int, seeded: int, following: int) -> None:
    if seeded != 1:
        raise ValueError(
            f"generator state: the seeded flag is {seeded}, expected 1; was the buffer ever filled?"
        )
    fresh = following == 0 and left == 1
    if not fresh and not (1 <= following <= _WORDS and left == _WORDS + 1 - following):
        raise ValueError(
            f"generator state: {left} words left and next word {following} contradict each other; "
            f"expected left + next == {_WORDS + 1}, or 1 and 0 after seeding"
        )


def _check_words(words: Array) -> None:
    if int(words.max()) >= 1 << 32:
        raise ValueError(
            "generator state: a Mersenne word exceeds 32 bits; the bytes are shifted or damaged"
        )
    if not words.any():
        raise ValueError("generator state: all words are zero, so every draw would be zero")


def _check_cache(cached: float, flag: int) -> None:
    if flag not in (0, 1):
        raise ValueError(f"generator state: the cached-normal flag is {flag}, expected 0 or 1")
    if flag and not math.isfinite(cached):
        raise ValueError(f"generator state: the cached normal is {cached}, expected a finite value")
