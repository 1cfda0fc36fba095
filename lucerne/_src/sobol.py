"""Sobol sequences with the direction numbers of Joe and Kuo, which SciPy carries as data.

A point is the exclusive or of one direction number for each bit of its index, in Gray code; so the
next point changes by one of them. Scrambling multiplies the bits by a random triangular matrix and
shifts them, with the same draws as torch makes.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from lucerne._src.tensor import api as lu

BITS = 30
_SCALE = 1.0 / 2**BITS


def _direction_numbers(dimension: int) -> Any:
    """One row of `BITS` numbers for each dimension, the highest bit of a point first."""
    try:
        import scipy.stats
    except ImportError:
        raise ImportError(
            "SobolEngine: its direction numbers come with SciPy; pip install scipy"
        ) from None
    with np.load(Path(scipy.stats.__file__).parent / "_sobol_direction_numbers.npz") as data:
        polynomials, first = data["poly"][:dimension], data["vinit"][:dimension]
    found = np.ones((dimension, BITS), np.int64)
    for d in range(1, dimension):
        polynomial = int(polynomials[d])
        degree = polynomial.bit_length() - 1
        row = [int(v) for v in first[d, :degree]]
        for j in range(degree, BITS):
            value = row[j - degree]
            for k in range(degree):
                if polynomial >> (degree - 1 - k) & 1:
                    value ^= row[j - k - 1] << (k + 1)
            row.append(value)
        found[d] = row[:BITS]
    return found << np.arange(BITS - 1, -1, -1)


class SobolEngine:
    """A sequence of points in the unit cube of some dimension; `scramble`: a random one of many.

    >>> SobolEngine(2).draw(3)
    tensor([[0.0000, 0.0000],
            [0.5000, 0.5000],
            [0.7500, 0.2500]])
    """

    MAXBIT = BITS
    MAXDIM = 21201

    def __init__(self, dimension: int, scramble: bool = False, seed: int | None = None) -> None:
        if dimension > self.MAXDIM or dimension < 1:
            raise ValueError(
                f"Supported range of dimensionality for SobolEngine is [1, {self.MAXDIM}]"
            )
        self.seed, self.scramble, self.dimension = seed, scramble, dimension
        self._directions = _direction_numbers(dimension)
        self._shift = np.zeros(dimension, np.int64)
        if scramble:
            self._scramble()
        self._quasi = self._shift.copy()
        self.num_generated = 0

    def _scramble(self) -> None:
        generator = lu.Generator()
        if self.seed is None:
            generator.seed()
        else:
            generator.manual_seed(self.seed)
        bits = lu.randint(2, (self.dimension, BITS), generator=generator).numpy()
        self._shift = (bits << np.arange(BITS)).sum(-1)
        square = (self.dimension, BITS, BITS)
        lower = np.tril(lu.randint(2, square, generator=generator).numpy(), -1)
        lower |= np.eye(BITS, dtype=lower.dtype)
        places = np.arange(BITS - 1, -1, -1)
        digits = self._directions[:, :, None] >> places & 1
        mixed = np.einsum("dpk,djk->djp", lower, digits) & 1
        self._directions = (mixed << places).sum(-1)

    def _advance(self, n: int, start: int) -> Any:
        """The next `n` points after the one of index `start`, as integers."""
        found = np.empty((n, self.dimension), np.int64)
        for i in range(n):
            index = start + i
            zero = (~index & (index + 1)).bit_length() - 1  # the lowest bit that is not set
            self._quasi = self._quasi ^ self._directions[:, zero]
            found[i] = self._quasi
        return found

    def draw(self, n: int = 1, out: Any = None, dtype: Any = None) -> Any:
        """The next `n` points, one in a row."""
        kind = dtype or lu.get_default_dtype()
        first = self.num_generated == 0
        start = max(self.num_generated - 1, 0)
        points = self._quasi[None].copy() if first else np.empty((0, self.dimension), np.int64)
        points = np.concatenate([points, self._advance(n - len(points), start)])
        self.num_generated += n
        made = lu.tensor(points).to(kind) * _SCALE
        if out is None:
            return made
        return out.resize_(made.shape).copy_(made)

    def draw_base2(self, m: int, out: Any = None, dtype: Any = None) -> Any:
        """The next `2 ** m` points, which must end at a power of two."""
        n = 2**m
        total = self.num_generated + n
        if total & (total - 1) != 0:
            raise ValueError(
                "The balance properties of Sobol' points require n to be a power of 2. "
                f"{self.num_generated} points have been previously generated, then: "
                f"n={self.num_generated}+2**{m}={total}. If you still want to do this, please use "
                "'SobolEngine.draw()' instead."
            )
        return self.draw(n=n, out=out, dtype=dtype)

    def reset(self) -> SobolEngine:
        """Begin again."""
        self._quasi = self._shift.copy()
        self.num_generated = 0
        return self

    def fast_forward(self, n: int) -> SobolEngine:
        """Leave out the next `n` points."""
        if self.num_generated == 0:
            self._advance(n - 1, 0)
        else:
            self._advance(n, self.num_generated - 1)
        self.num_generated += n
        return self

    def __repr__(self) -> str:
        parts = [f"dimension={self.dimension}"]
        parts += ["scramble=True"] if self.scramble else []
        parts += [f"seed={self.seed}"] if self.seed is not None else []
        return f"SobolEngine({', '.join(parts)})"
