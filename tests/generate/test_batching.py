"""A request gets the same bits whoever runs beside it."""

from __future__ import annotations

import random
import time
from typing import Any

import pytest

from lucerne.generate import Batcher, GenerationRequest, Sampling
from lucerne.quantization import (
    Int4WeightOnlyConfig,
    Int8DynamicActivationInt8WeightConfig,
    Int8WeightOnlyConfig,
    quantize_,
)
from tests.generate.naive import compiles_since, greedy, model_of, prompt_of

WEIGHTS: dict[str, Any] = {
    "float32": None, "int8": Int8WeightOnlyConfig(), "int4": Int4WeightOnlyConfig(group_size=16),
    "int8 x int8": Int8DynamicActivationInt8WeightConfig(),
}  # fmt: skip
ASKED = [(3, 7), (20, 5), (1, 9), (70, 4), (9, 1), (64, 6), (2, 8), (17, 3), (5, 5)]
"""Tokens of the prompt, tokens to write."""


def _sampling(n: int) -> Sampling:
    return Sampling(temperature=0.9 * (n % 2), top_k=30, seed=n)


def _submit(batcher: Batcher, n: int) -> GenerationRequest:
    length, count = ASKED[n]
    return batcher.submit(prompt_of(length), count, sampling=_sampling(n), keep_logits=True)


def _bits(request: GenerationRequest) -> list[bytes]:
    assert request.kept_logits is not None
    return [t.numpy().tobytes() for t in request.kept_logits]


@pytest.mark.parametrize("weights", WEIGHTS)
def test_alone_or_among_others_the_bits_are_the_same(weights: str) -> None:
    model = model_of("llama")
    if WEIGHTS[weights] is not None:
        quantize_(model, WEIGHTS[weights])
    batcher = Batcher(model, slots=4, capacity=128, compile=weights in ("float32", "int8 x int8"))
    alone = []
    for n in range(len(ASKED)):
        alone.append(_submit(batcher, n))
        batcher.run()
    order = list(range(len(ASKED)))
    for seed in range(3):
        chance = random.Random(seed)
        chance.shuffle(order)
        together = {}
        for n in order:  # they join while others run, in other slots each time
            together[n] = _submit(batcher, n)
            for _ in range(chance.randrange(4)):
                batcher.step()
        batcher.run()
        for n, request in together.items():
            assert request.tokens == alone[n].tokens
            assert _bits(request) == _bits(alone[n]), (weights, n)


def test_tokens_are_those_of_computing_everything_again() -> None:
    model = model_of("gpt2")
    batcher = Batcher(model, slots=3, capacity=128, compile=False)
    requests = [batcher.submit(prompt_of(length), count) for length, count in ASKED]
    batcher.run()
    for request, (length, count) in zip(requests, ASKED, strict=True):
        assert request.tokens == greedy(model, prompt_of(length), count)[0]
        assert request.ended == "length"


def test_all_requests_take_three_programs() -> None:
    began = time.time()
    batcher = Batcher(model_of("llama"), slots=2, capacity=128)
    for length in (1, 3, 8, 40, 100):
        batcher.submit(prompt_of(length), 3)
    batcher.run()
    assert compiles_since(began) == 3
    assert batcher.decoding.run.given_up is None


def test_requests_end_by_stop_by_room_and_when_cancelled() -> None:
    model = model_of("llama")
    want, _ = greedy(model, prompt_of(5), 6)
    batcher = Batcher(model, slots=2, capacity=9, compile=False)
    told: list[tuple[int, str]] = []
    stopped = batcher.submit(prompt_of(5), 4, stop=[want[1]])
    full = batcher.submit(prompt_of(5), 100, told=lambda r: told.append((len(r.tokens), r.ended)))
    cancelled, early = batcher.submit(prompt_of(5), 4), batcher.submit(prompt_of(5), 4)
    batcher.cancel(early)
    batcher.step()
    batcher.step()
    batcher.cancel(cancelled)
    batcher.run()
    batcher.cancel(full)
    assert stopped.tokens == want[: want.index(want[1]) + 1]
    assert full.tokens == want[:4]
    assert told == [(1, ""), (2, ""), (3, ""), (4, "length")]
    ends = [r.ended for r in (stopped, full, cancelled, early)]
    assert ends == ["stop", "length", "cancelled", "cancelled"]
    assert early.tokens == []
    assert batcher.is_idle


def test_what_does_not_fit_is_refused_at_once() -> None:
    batcher = Batcher(model_of("llama"), slots=2, capacity=9, compile=False)
    for prompt, count, text in (([], 1, "0 tokens"), ([1] * 9, 1, "room"), ([1], 0, "at least")):
        with pytest.raises(ValueError, match=text):
            batcher.submit(prompt, count)
