"""Philox4x32-10: random words as a pure function of key and counter.

Salmon, Moraes, Dror and Shaw, "Parallel random numbers: as easy as 1, 2, 3", SC11.  Word i of a
draw depends on the seed, the stream and i alone, so a tensor split over workers gets the same
numbers as one drawn whole, and no libm is involved in uniform and normal draws, so every machine
gets the same bits.
"""

from __future__ import annotations

import math
import os
import struct
from typing import Any

import numpy as np

from lucerne._src.tensor.random.generator import check_seed
from lucerne._src.tensor.random.kinds import F64, U8, U32, U64, Array, check_float, round_float
from lucerne._src.tensor.random.methods import DrawMethods
from lucerne._src.tensor.random.mt19937 import DEFAULT_SEED

_ROUNDS = 10
_MULTIPLIERS = (np.uint64(0xD2511F53), np.uint64(0xCD9E8D57))
_KEY_STEPS = (0x9E3779B9, 0xBB67AE85)
_LOW = np.uint64(0xFFFFFFFF)
_SHIFT = np.uint64(32)
_BLOCKS_AT_ONCE = 1 << 14  # keeps the temporaries in cache
_STATE = struct.Struct("<QQQ")


def philox_blocks(counters: Array, key: tuple[int, int]) -> U32:
    """Encrypt counters of four 32-bit words: (n, 4) -> (n, 4)."""
    c0, c1, c2, c3 = np.asarray(counters).astype(np.uint64).T
    k0, k1 = key
    for _ in range(_ROUNDS):
        left, right = c0 * _MULTIPLIERS[0], c2 * _MULTIPLIERS[1]
        c0, c1, c2, c3 = (
            (right >> _SHIFT) ^ c1 ^ np.uint64(k0),
            right & _LOW,
            (left >> _SHIFT) ^ c3 ^ np.uint64(k1),
            left & _LOW,
        )
        k0, k1 = (k0 + _KEY_STEPS[0]) % 2**32, (k1 + _KEY_STEPS[1]) % 2**32
    return np.stack([c0, c1, c2, c3], axis=1).astype(np.uint32)


def _log(x: F64) -> F64:
    """Natural logarithm of (0, 1] in additions, products and quotients: equal on every machine."""
    m, exponent = np.frexp(x)
    low = m < math.sqrt(0.5)
    m, exponent = np.where(low, 2 * m, m), exponent - low
    s = (m - 1) / (m + 1)  # log m = 2 atanh s, |s| < 0.172
    z = s * s
    series = np.full_like(z, 1 / 25)
    for k in range(23, 0, -2):
        series = series * z + 1 / k
    small: F64 = exponent * 1.9082149292705877e-10 + 2 * s * series
    return exponent * 0.6931471803691238 + small


def _sincos_turn(u: F64) -> tuple[F64, F64]:
    """Sine and cosine of `u` turns, reduced exactly to an eighth of a turn either side."""
    quarter = np.rint(4 * u)
    x = (2 * math.pi) * (u - quarter / 4)
    z = x * x
    sine, cosine = np.ones_like(z), np.ones_like(z)
    for k in range(18, 1, -2):
        sine = 1 - sine * z / (k * (k + 1))
        cosine = 1 - cosine * z / (k * (k - 1))
    sine = sine * x
    turn = quarter.astype(np.int64) & 3
    swap = (turn & 1) == 1
    first, second = np.where(swap, cosine, sine), np.where(swap, sine, cosine)
    return np.where(turn >= 2, -first, first), np.where((turn == 1) | (turn == 2), -second, second)


class Philox:
    """The engine: a seed (the key), a stream (the high half of the counter) and the next block.

    `part` restricts the next draw to elements start, start + 1, ... of `total`.
    """

    def __init__(self, seed: int, stream: int = 0) -> None:
        self.seed, self.stream, self.block = check_seed(seed), check_seed(stream), 0
        self.cached_normal: float | None = None
        self.part: tuple[int, int] | None = None

    def bits(self, n: int, counter: int) -> U32:
        """Words counter, counter + 1, ... of this seed and stream; changes nothing."""
        first = counter // 4
        blocks = -(-(counter + n) // 4) - first
        words = np.empty(4 * blocks, np.uint32)
        for at in range(0, blocks, _BLOCKS_AT_ONCE):
            count = min(_BLOCKS_AT_ONCE, blocks - at)
            words[4 * at : 4 * (at + count)] = self._blocks(first + at, count)
        return words[counter % 4 : counter % 4 + n]

    def _blocks(self, first: int, count: int) -> U32:
        number = np.arange(count, dtype=np.uint64) + np.uint64(first % 2**64)
        counters = np.empty((count, 4), np.uint64)
        counters[:, 0], counters[:, 1] = number & _LOW, number >> _SHIFT
        counters[:, 2:] = (self.stream % 2**32, self.stream >> 32)
        return philox_blocks(counters, (self.seed % 2**32, self.seed >> 32)).ravel()

    def window(self, n: int, per: int, group: int = 1) -> tuple[U32, int]:
        """This draw's words at `per` words an element, and how many elements lead it.

        Draws that come in groups need the window to begin and end on a multiple of `group`: the
        elements before the first wanted one are the lead.
        """
        start, total = self.part or (0, n)
        self.part = None
        if start + n > total:
            raise ValueError(f"part: {n} elements from {start} on exceed the total of {total}")
        lead = start % group
        size = -(-(lead + n) // group) * group
        words = self.bits(size * per, 4 * self.block + (start - lead) * per)
        self.block = (self.block - (-total * per // 4)) % 2**64
        return words, lead

    def words32(self, n: int) -> U32:
        """The next `n` words of 32 bits."""
        return self.window(n, 1)[0]

    def words64(self, n: int) -> U64:
        """The next `n` words of 64 bits, high half first."""
        return _join(self.window(n, 2)[0])

    def mark(self) -> Any:
        """The place in the word sequence, for `rewind`."""
        return self.block

    def rewind(self, mark: Any) -> None:
        """Go back to a mark."""
        self.block = mark


def _join(words: U32) -> U64:
    wide = words.astype(np.uint64)
    return (wide[0::2] << _SHIFT) | wide[1::2]


class PhiloxGenerator(DrawMethods):
    """A counter-based generator: `Generator`'s methods, independent of how the work is split.

    `g.part(start, total).uniform(n)` draws elements start to start + n of a draw of `total`, and
    leaves `g` where the whole draw would have left it, so that every worker goes on in step.  That
    holds for draws with a fixed number of words an element: uniform, normal, randint,
    random_full_range, bernoulli, exponential, cauchy and geometric.
    """

    def __init__(self, seed: int = DEFAULT_SEED, stream: int = 0, device: Any = "cpu") -> None:
        self._engine = Philox(seed, stream)
        super().__init__(self._engine)
        self.device = device

    def manual_seed(self, seed: int) -> PhiloxGenerator:
        """Restart the stream at `seed`, in [-2^63, 2^64)."""
        checked = check_seed(seed)
        with self.lock:
            self._engine.seed, self._engine.block = checked, 0
            self._engine.cached_normal = self._engine.part = None
        return self

    def seed(self) -> int:
        """Restart from an unpredictable seed and return it."""
        fresh = int.from_bytes(os.urandom(8), "little")
        self.manual_seed(fresh)
        return fresh

    def initial_seed(self) -> int:
        """The seed the stream started from."""
        return self._engine.seed

    def bits(self, n: int, counter: int) -> U32:
        """Words counter, counter + 1, ... of this seed and stream; changes nothing."""
        return self._engine.bits(n, counter)

    def part(self, start: int, total: int) -> PhiloxGenerator:
        """Restrict the next draw to elements from `start` on of a draw of `total`."""
        if not 0 <= start <= total:
            raise ValueError(f"part: expected 0 <= start <= total, got {start} and {total}")
        self._engine.part = (start, total)
        return self

    def normal(
        self,
        n: int,
        mean: float = 0.0,
        std: float = 1.0,
        kind: str = "float32",
        contiguous: bool = True,
    ) -> Array:
        """Box and Muller's pairs at even elements, in float64; `contiguous` changes nothing."""
        check_float(kind, "normal_kernel_cpu")
        if not std >= 0:
            raise RuntimeError(f"normal expects std >= 0.0, but found std {std:g}")
        with self.lock:
            words, lead = self._engine.window(n, 2 if kind == "float64" else 1, group=2)
        if kind == "float64":
            u = (_join(words) >> np.uint64(11)).astype(np.float64) * 2.0**-53
        else:
            u = words.astype(np.float64) * 2.0**-32
        radius = np.sqrt(-2.0 * _log(1.0 - u[0::2]))
        sine, cosine = _sincos_turn(u[1::2])
        values = np.stack([radius * cosine, radius * sine], axis=1).ravel()[lead : lead + n]
        return round_float(values * std + mean, kind)

    def state_bytes(self) -> U8:
        """Seed, stream and next block: 24 bytes."""
        engine = self._engine
        packed = _STATE.pack(engine.seed, engine.stream, engine.block)
        return np.frombuffer(bytearray(packed), np.uint8)

    def load_state_bytes(self, state: Any) -> None:
        """Continue from `state_bytes`."""
        raw = state.tobytes() if isinstance(state, np.ndarray) else bytes(state)
        if len(raw) != _STATE.size:
            raise ValueError(
                f"Philox state: expected {_STATE.size} bytes (seed, stream, block), got "
                f"{len(raw)}; a state of the CPU generator does not fit"
            )
        with self.lock:
            engine = self._engine
            engine.seed, engine.stream, engine.block = _STATE.unpack(raw)
            engine.cached_normal = engine.part = None

    def __reduce__(self) -> tuple[Any, ...]:
        """Copies and pickles carry the state; the lock stays behind."""
        return _rebuild, (type(self), self.device, self.state_bytes().tobytes())


def _rebuild(kind: type[PhiloxGenerator], device: Any, state: bytes) -> PhiloxGenerator:
    generator = kind(device=device)
    generator.load_state_bytes(state)
    return generator
