"""The draws as methods, shared by every generator."""

from __future__ import annotations

from lucerne._src.base.process import forks
from lucerne._src.tensor.random import draws, integers, rejection
from lucerne._src.tensor.random.draws import Words
from lucerne._src.tensor.random.kinds import I64, U32, U64, Array, Mask
from lucerne._src.tensor.random.multinomial import multinomial


class DrawMethods:
    """Draws over `words32` and `words64`, one caller at a time.

    A draw holds the lock from its first word to its last: two threads sharing a generator get some
    interleaving of whole draws, as in PyTorch, and never half a number each.
    """

    def __init__(self, engine: Words) -> None:
        self._words = engine
        self.lock = forks.rlock()

    def words32(self, n: int) -> U32:
        """The next `n` raw words of 32 bits."""
        with self.lock:
            return self._words.words32(n)

    def words64(self, n: int) -> U64:
        """The next `n` raw words of 64 bits."""
        with self.lock:
            return self._words.words64(n)

    def uniform(self, n: int, lo: float = 0.0, hi: float = 1.0, kind: str = "float32") -> Array:
        """Uniform in [lo, hi)."""
        with self.lock:
            return draws.uniform(self._words, n, lo, hi, kind)

    def normal(
        self,
        n: int,
        mean: float = 0.0,
        std: float = 1.0,
        kind: str = "float32",
        contiguous: bool = True,
    ) -> Array:
        """Normal with the given mean and standard deviation."""
        with self.lock:
            return draws.normal(self._words, n, mean, std, kind, contiguous)

    def randint(self, n: int, lo: int, hi: int) -> I64:
        """Integers in [lo, hi)."""
        with self.lock:
            return integers.randint(self._words, n, lo, hi)

    def random_full_range(
        self, n: int, kind: str, lo: int | None = None, hi: int | None = None
    ) -> Array:
        """Tensor.random_() with no, one or two bounds."""
        with self.lock:
            return integers.random_full_range(self._words, n, kind, lo, hi)

    def randperm(self, n: int) -> I64:
        """A permutation of range(n)."""
        with self.lock:
            return draws.randperm(self._words, n)

    def bernoulli_scalar(self, n: int, p: float) -> Mask:
        """True with probability p."""
        with self.lock:
            return draws.bernoulli_scalar(self._words, n, p)

    def bernoulli_tensor(self, p: Array) -> Mask:
        """True with each element's probability."""
        with self.lock:
            return draws.bernoulli_tensor(self._words, p)

    def exponential(self, n: int, lambd: float = 1.0, kind: str = "float32") -> Array:
        """Exponential of rate lambd."""
        with self.lock:
            return draws.exponential(self._words, n, lambd, kind)

    def log_normal(
        self, n: int, mean: float = 1.0, std: float = 2.0, kind: str = "float32"
    ) -> Array:
        """exp of a normal."""
        with self.lock:
            return draws.log_normal(self._words, n, mean, std, kind)

    def cauchy(
        self, n: int, median: float = 0.0, sigma: float = 1.0, kind: str = "float32"
    ) -> Array:
        """Cauchy with the given median and scale."""
        with self.lock:
            return draws.cauchy(self._words, n, median, sigma, kind)

    def geometric(self, n: int, p: float, kind: str = "float32") -> Array:
        """Trials up to the first success."""
        with self.lock:
            return draws.geometric(self._words, n, p, kind)

    def multinomial(
        self, weights: Array, n: int, replacement: bool = False, kind: str = "float32"
    ) -> I64:
        """Category numbers by weight: (rows, k) -> (rows, n)."""
        with self.lock:
            return multinomial(self._words, weights, n, replacement, kind)

    def poisson(self, rates: Array, kind: str = "float32") -> Array:
        """A Poisson draw for each rate."""
        with self.lock:
            return rejection.poisson(self._words, rates, kind)

    def binomial(self, counts: Array, probs: Array, kind: str = "float32") -> Array:
        """Successes among each count of trials."""
        with self.lock:
            return rejection.binomial(self._words, counts, probs, kind)

    def standard_gamma(self, alphas: Array, kind: str = "float32") -> Array:
        """A gamma draw of scale one for each shape parameter."""
        with self.lock:
            return rejection.standard_gamma(self._words, alphas, kind)

    def dirichlet(self, alphas: Array, kind: str = "float32") -> Array:
        """A point of the simplex for each row."""
        with self.lock:
            return rejection.dirichlet(self._words, alphas, kind)
