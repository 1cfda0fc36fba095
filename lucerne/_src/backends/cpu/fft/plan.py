"""Factors and tables of Fourier transforms: what the kernels read besides their operands.

A length is a product of radices, each one stage of Stockham's scheme (no reordering is needed). A
length with a larger prime factor is computed as a convolution (Bluestein) in a longer one. Tables
are computed in float64 from exact integer angles and rounded once.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

Array = np.ndarray[Any, Any]

RADICES = (8, 4, 2, 3, 5, 7, 11, 13)
HEADER_WORDS = 4
"""Words of a stage: radix, m, s, place of its twiddle factors (bytes from the start)."""


class FFTTable(NamedTuple):
    """Stages and twiddle factors of one length."""

    n: int
    data: Array
    """Bytes: the number of stages, the stages, the factors."""

    @property
    def address(self) -> int:
        return int(self.data.__array_interface__["data"][0])


def factors_of(n: int) -> list[int] | None:
    """Radices whose product is n, the large ones first; None: a prime factor is too large."""
    found = []
    for p in (13, 11, 7, 5, 3):
        while n % p == 0:
            found.append(p)
            n //= p
    twos = n.bit_length() - 1
    if n != 1 << twos:
        return None
    eights, rest = divmod(twos, 3)
    if rest == 1 and eights:  # 8 * 2 is done better as 4 * 4
        return [4, 4, *[8] * (eights - 1), *found]
    return [*[8] * eights, *([1 << rest] if rest else []), *found]


def roots(n: int, powers: Array) -> Array:
    """exp(-2 pi i k / n) for integers k, with angles reduced exactly to an eighth of a turn."""
    k = np.asarray(powers, np.int64) % n
    angle = 2 * np.pi / n
    eighth = 8 * k // n
    # Each eighth is a reflection of the first one: sin and cos of small angles are exact there.
    folded = np.where(eighth % 2 == 0, k - (eighth * n) / 8, ((eighth + 1) * n) / 8 - k)
    c, s = np.cos(angle * folded), np.sin(angle * folded)
    swapped = (eighth % 4 == 1) | (eighth % 4 == 2)
    x, y = np.where(swapped, s, c), np.where(swapped, c, s)
    x = np.where((eighth >= 2) & (eighth < 6), -x, x)
    y = np.where(eighth >= 4, -y, y)
    made: Array = x - 1j * y
    return made


def as_pairs(values: Array, real: Any) -> Array:
    """Complex numbers as real and imaginary parts in turn, rounded to a real type."""
    return np.stack([values.real, values.imag], -1).astype(real).reshape(-1)


@lru_cache(maxsize=512)
def table_of(n: int, real: str) -> FFTTable | None:
    """The table of a length in "float32" or "float64"; None: a prime factor is too large."""
    radices = factors_of(n)
    if radices is None:
        return None
    head = np.zeros(1 + HEADER_WORDS * len(radices), np.int64)
    head[0] = len(radices)
    parts, at = [head.view(np.uint8)], head.nbytes
    length, stride = n, 1
    for i, r in enumerate(radices):
        m = length // r
        head[1 + HEADER_WORDS * i : 1 + HEADER_WORDS * (i + 1)] = [r, m, stride, at]
        powers = np.outer(np.arange(m), np.arange(1, r))
        made = as_pairs(roots(length, powers), real).view(np.uint8)
        parts.append(made)
        at += made.nbytes
        length, stride = m, stride * r
    return FFTTable(n, _aligned(parts))


def _aligned(parts: list[Array]) -> Array:
    size = sum(p.nbytes for p in parts)
    room = np.empty(size + 64, np.uint8)
    start = -room.__array_interface__["data"][0] % 64
    data = room[start : start + size]
    np.concatenate(parts, out=data)
    return data


class Chirp(NamedTuple):
    """What Bluestein's convolution needs: its length, factors before and after, and the filter."""

    length: int
    factors: Array
    filter: Array


@lru_cache(maxsize=256)
def chirp_of(n: int, real: str) -> Chirp:
    """The convolution in whose length a transform of n points fits."""
    length = smooth_from(2 * n - 1)
    k = np.arange(n, dtype=np.int64)
    factors = roots(2 * n, k * k % (2 * n))
    wrapped = np.zeros(length, np.complex128)
    wrapped[:n] = factors.conj()
    wrapped[length - n + 1 :] = factors[1:][::-1].conj()
    found = np.fft.fft(wrapped) / length
    return Chirp(length, as_pairs(factors, real), as_pairs(found, real))


def smooth_from(n: int) -> int:
    """The least power of two, or 3 or 5 times one, that is at least n."""
    return min(p << (-(-n // p) - 1).bit_length() for p in (1, 3, 5, 9, 15))


@lru_cache(maxsize=256)
def halves_of(n: int) -> tuple[int, int] | None:
    """n as a product of two smooth numbers that are near each other; None: there is none."""
    best: tuple[int, int] | None = None
    for a in range(2, int(n**0.5) + 1):
        if n % a == 0 and factors_of(a) is not None and factors_of(n // a) is not None:
            best = (a, n // a)
    return best


@lru_cache(maxsize=64)
def turns_of(n1: int, n2: int, real: str) -> Array:
    """exp(-2 pi i j k / (n1 n2)) for k < n1 and j < n2: all real parts of a row k, then all
    imaginary ones."""
    found = roots(n1 * n2, np.outer(np.arange(n1), np.arange(n2)))
    return np.stack([found.real, found.imag], 1).astype(real)
