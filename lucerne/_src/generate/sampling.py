"""Which token follows."""

from __future__ import annotations

from dataclasses import dataclass

from lucerne._src.base import dtype as dt
from lucerne._src.tensor import api as lu
from lucerne._src.tensor.random.generator import Generator
from lucerne._src.tensor.tensor import Tensor


@dataclass(frozen=True)
class Sampling:
    """How a token is drawn from the logits of a row.

    `temperature` 0 is greedy: the largest logit, the first of equal ones. Else logits are divided
    by it; `top_k` leaves so many of the largest (0: all), `top_p` the fewest that make up this
    share of the probability. `seed` begins a row's own numbers: the same seed draws the same
    tokens whatever other rows do.
    """

    temperature: float = 1.0
    top_k: int = 0
    top_p: float = 1.0
    seed: int = 0

    def __post_init__(self) -> None:
        if not self.temperature >= 0:
            raise ValueError(f"Sampling: temperature is 0 or more, got {self.temperature}")
        if self.top_k < 0:
            raise ValueError(f"Sampling: top_k is 0 (all) or more, got {self.top_k}")
        if not 0 < self.top_p <= 1:
            raise ValueError(f"Sampling: top_p is above 0 and at most 1, got {self.top_p}")


GREEDY = Sampling(temperature=0.0)


class Sampler:
    """One row's choices.

    >>> import lucerne as torch
    >>> from lucerne.generate import Sampler, Sampling
    >>> Sampler(Sampling(top_k=2, seed=3)).choose(torch.tensor([0.0, 5.0, 5.0])) in (1, 2)
    True
    """

    def __init__(self, sampling: Sampling, stream: int = 0) -> None:
        self.sampling = sampling
        self.generator = Generator()
        self.generator.manual_seed(sampling.seed + stream)

    def choose(self, logits: Tensor) -> int:
        """The next token of a row of logits."""
        s = self.sampling
        if s.temperature == 0:
            return int(logits.argmax().item())
        kept = limited(logits.to(dt.float32) / s.temperature, s.top_k, s.top_p)
        return int(lu.multinomial(kept.softmax(-1), 1, generator=self.generator).item())


def limited(logits: Tensor, top_k: int, top_p: float) -> Tensor:
    """Logits with minus infinity where `top_k` and `top_p` leave nothing."""
    if 0 < top_k < logits.shape[-1]:
        least = logits.topk(top_k).values[-1]
        logits = logits.masked_fill(logits < least, float("-inf"))
    if top_p < 1:
        ordered, order = logits.sort(descending=True)
        shares = ordered.softmax(-1)
        # Kept is what begins before the share is full: at least the first.
        beyond = shares.cumsum(-1) - shares >= top_p
        logits = logits.masked_fill(lu.zeros_like(beyond).scatter(0, order, beyond), float("-inf"))
    return logits
