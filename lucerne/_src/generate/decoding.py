"""Prompts in, tokens out: a program for pieces of prompts and one for the next token.

A prompt goes through in pieces of fixed sizes, the last filled up with tokens that nobody sees, so
there is a program for each size of piece and none for each length of prompt. (One program with a
symbolic length was compiled again for each of several ranges of lengths.)
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from lucerne._src.compiler import compile as compiled
from lucerne._src.generate.cache import KVCache
from lucerne._src.generate.sampling import GREEDY, Sampler, Sampling
from lucerne._src.tensor import api as lu
from lucerne._src.tensor.autograd.modes import no_grad
from lucerne._src.tensor.tensor import Tensor

PIECE, SMALL_PIECE = 64, 8
"""Tokens of a prompt that go through the model at once."""
Prompts = Sequence[Sequence[int]] | Tensor


def piece_of(left: int) -> int:
    """How many places the next piece of a prompt takes, if so many tokens are left."""
    return 1 if left == 1 else SMALL_PIECE if left <= 2 * SMALL_PIECE else PIECE


def step_of(model: Any) -> Callable[..., Tensor]:
    """The function that is compiled: tokens (batch, count) in, the logits of each row's last."""

    def step(
        tokens: Tensor, counts: Tensor, lengths: Tensor, keys: list[Tensor], values: list[Tensor]
    ) -> Tensor:
        cache = KVCache.of(keys, values, lengths, counts)
        logits = cache.last(model(tokens, cache=cache))
        lengths.add_(counts)
        return logits.squeeze(1)

    return step


class Decoding:
    """A model with its cache and its programs; make one, and use it for many prompts.

    The model is called as `model(tokens, cache=cache)` (see `KVCache`) and makes its cache by
    `model.new_cache(batch, capacity, spare)`. `batch` is how many texts are written side by side,
    `capacity` how many tokens each may have, prompt included. `compile=False` runs op by op.

    >>> import lucerne as torch
    >>> from lucerne.generate import Decoder, DecoderConfig, Decoding
    >>> model = Decoder(DecoderConfig(words=11, width=16, layers=1, heads=2)).eval()
    >>> decoding = Decoding(model, capacity=32)
    >>> [len(tokens) for tokens in decoding.generate([[1, 2, 3]], max_new_tokens=5)]
    [5]
    """

    def __init__(
        self, model: Any, *, batch: int = 1, capacity: int = 2048, compile: bool = True
    ) -> None:
        if getattr(model, "training", False):
            raise ValueError(
                "Decoding: the model is in training mode, where dropout draws; call model.eval()"
            )
        self.model, self.capacity = model, capacity
        self.cache: KVCache = model.new_cache(batch, capacity, PIECE)
        step = step_of(model)
        self.run = compiled(step, dynamic=False) if compile else step

    # ---- steps -------------------------------------------------------------------------------

    def step(self, tokens: Tensor, counts: Tensor, cache: KVCache | None = None) -> Tensor:
        """Tokens (batch, count), of which `counts` are real, through the model and into the cache:
        logits of each row's last real one."""
        at = self.cache if cache is None else cache
        with no_grad():
            return self.run(tokens, counts, at.lengths, at.keys, at.values)

    def read(self, prompts: Prompts, cache: KVCache | None = None) -> Tensor:
        """Begin anew with these prompts; the logits that follow each of them."""
        at = self.cache if cache is None else cache
        rows = self.checked(prompts, at.batch)
        at.clear()
        left, logits = [list(r) for r in rows], None
        while any(left):
            size = piece_of(max(len(r) for r in left))
            counts = [min(size, len(r)) for r in left]
            tokens = lu.tensor(
                [r[:size] + [0] * (size - n) for r, n in zip(left, counts, strict=True)]
            )
            found = self.step(tokens, lu.tensor(counts), at)
            ended = lu.tensor([len(r) <= size and n > 0 for r, n in zip(left, counts, strict=True)])
            logits = found if logits is None else lu.where(ended.unsqueeze(1), found, logits)
            left = [r[size:] for r in left]
        assert logits is not None  # `checked` refuses prompts without tokens
        return logits

    def checked(self, prompts: Prompts, rows: int) -> list[list[int]]:
        """Prompts as lists of numbers, if they are what fits."""
        made = prompts.tolist() if isinstance(prompts, Tensor) else [list(p) for p in prompts]
        if len(made) != rows:
            raise ValueError(f"generate: {len(made)} prompts for a cache of {rows} rows")
        for n, prompt in enumerate(made):
            if not prompt or len(prompt) > self.capacity:
                raise ValueError(
                    f"generate: prompt {n} has {len(prompt)} tokens; it needs one at least, and "
                    f"the cache has room for {self.capacity}"
                )
        return made

    # ---- texts -------------------------------------------------------------------------------

    def stream(
        self,
        prompts: Prompts,
        max_new_tokens: int,
        *,
        sampling: Sampling = GREEDY,
        stop: Sequence[int] = (),
    ) -> Iterator[list[int | None]]:
        """The next token of each row, again and again; None where a row has ended.

        A row ends after `max_new_tokens`, with a token of `stop` (which is given), or where its
        cache is full. Rows draw from numbers of their own: row i those of `seed + i`.
        """
        rows = self.checked(prompts, self.cache.batch)
        room = [min(max_new_tokens, self.capacity - len(r)) for r in rows]
        samplers = [Sampler(sampling, i) for i in range(len(rows))]
        logits = self.read(rows) if any(n > 0 for n in room) else None
        while logits is not None:
            chosen: list[int | None] = [
                sampler.choose(logits[i]) if room[i] > 0 else None
                for i, sampler in enumerate(samplers)
            ]
            yield chosen
            room = [
                0 if t is None or t in stop else n - 1 for t, n in zip(chosen, room, strict=True)
            ]
            if not any(room):
                return
            tokens = lu.tensor([[t or 0] for t in chosen])
            logits = self.step(tokens, lu.tensor([int(n > 0) for n in room]))

    def generate(
        self,
        prompts: Prompts,
        max_new_tokens: int,
        *,
        sampling: Sampling = GREEDY,
        stop: Sequence[int] = (),
    ) -> list[list[int]]:
        """The tokens that follow each prompt; see `stream`."""
        made: list[list[int]] = [[] for _ in range(self.cache.batch)]
        for chosen in self.stream(prompts, max_new_tokens, sampling=sampling, stop=stop):
            for row, token in zip(made, chosen, strict=True):
                if token is not None:
                    row.append(token)
        return made


def generate(
    model: Any,
    prompts: Prompts,
    max_new_tokens: int,
    *,
    sampling: Sampling = GREEDY,
    stop: Sequence[int] = (),
    compile: bool = True,
) -> list[list[int]]:
    """Tokens that follow the prompts, once: `Decoding` keeps programs and cache for the next call.

    >>> import lucerne as torch
    >>> from lucerne.generate import Decoder, DecoderConfig, generate
    >>> model = Decoder(DecoderConfig(words=11, width=16, layers=1, heads=2)).eval()
    >>> made = generate(model, [[1, 2], [3]], max_new_tokens=4, compile=False)
    >>> [len(tokens) for tokens in made]
    [4, 4]
    """
    longest = max((len(p) for p in prompts), default=0)
    decoding = Decoding(
        model, batch=len(prompts), capacity=longest + max_new_tokens, compile=compile
    )
    return decoding.generate(prompts, max_new_tokens, sampling=sampling, stop=stop)
