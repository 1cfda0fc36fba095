"""Several texts side by side, of which the likeliest stays."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from lucerne._src.base import dtype as dt
from lucerne._src.generate.decoding import Decoding
from lucerne._src.tensor import api as lu
from lucerne._src.tensor.tensor import Tensor


@dataclass(order=True)
class Beam:
    """A text with the sum of the logarithms of its tokens' probabilities."""

    score: float
    """The sum divided by `length ** length_penalty`."""
    tokens: list[int] = field(compare=False)


def beam_search(
    decoding: Decoding,
    prompt: Sequence[int],
    max_new_tokens: int,
    *,
    stop: Sequence[int] = (),
    length_penalty: float = 1.0,
) -> list[Beam]:
    """The likeliest continuations that so many beams find, the best first.

    There are as many beams as the cache of `decoding` has rows. A text ends with a token of
    `stop`, or after `max_new_tokens`. The search ends when so many texts have ended that no living
    one can still be better.
    """
    beams = decoding.cache.batch
    if max_new_tokens < 1 or len(prompt) + max_new_tokens > decoding.capacity:
        raise ValueError(
            f"beam_search: {len(prompt)} tokens and {max_new_tokens} more, at least one; the cache "
            f"has room for {decoding.capacity}"
        )
    logits = decoding.read([prompt] * beams)
    texts: list[list[int]] = [[] for _ in range(beams)]
    # All rows are the same at first: only one of them may lead on.
    sums = lu.full((beams,), float("-inf"))
    sums[0] = 0.0
    ended: list[Beam] = []
    for n in range(1, max_new_tokens + 1):
        total = sums.unsqueeze(1) + logits.to(dt.float32).log_softmax(-1)
        living: list[tuple[float, int, list[int]]] = []
        for value, row, token in _best(total, beams, len(stop)):
            text = [*texts[row], token]
            if token in stop:
                ended.append(Beam(value / n**length_penalty, text))
            elif len(living) < beams:
                living.append((value, row, text))
        ended = sorted(ended, reverse=True)[:beams]
        if (
            n == max_new_tokens
            or not living
            or _is_settled(ended, living, n, beams, length_penalty)
        ):
            break
        parents = [row for _, row, _ in living] + [0] * (beams - len(living))
        decoding.cache.follow(lu.tensor(parents), len(prompt) + n - 1)
        texts = [text for _, _, text in living] + [[0]] * (beams - len(living))
        sums = lu.tensor([v for v, _, _ in living] + [float("-inf")] * (beams - len(living)))
        tokens = lu.tensor([[text[-1]] for text in texts])
        logits = decoding.step(tokens, lu.ones(beams, dtype=dt.int64))
    unended = [Beam(value / len(text) ** length_penalty, text) for value, _, text in living]
    return sorted([*ended, *unended], reverse=True)[:beams]


def _best(total: Tensor, beams: int, stops: int) -> list[tuple[float, int, int]]:
    """The best continuations, the best first: enough that all beams can live on."""
    words = total.shape[1]
    count = min(beams * (1 + stops), total.numel())
    found = total.reshape(-1).topk(count)
    return [
        (value, at // words, at % words)
        for value, at in zip(found.values.tolist(), found.indices.tolist(), strict=True)
        if value != float("-inf")
    ]


def _is_settled(
    ended: list[Beam],
    living: list[tuple[float, int, list[int]]],
    n: int,
    beams: int,
    penalty: float,
) -> bool:
    """Whether no living text can get among the best ended ones (for penalties of 0 or less: sums
    only fall; above, a longer text may gain, and the search goes on)."""
    best = max(value for value, _, _ in living) / n**penalty
    return penalty <= 0 and len(ended) == beams and ended[-1].score >= best
