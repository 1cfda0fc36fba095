"""Text by cache and programs is text by computing everything again."""

from __future__ import annotations

import itertools
import time
from typing import Any

import numpy as np
import pytest

import lucerne as torch
from lucerne._src.generate.decoding import PIECE, SMALL_PIECE, piece_of
from lucerne._src.generate.sampling import limited
from lucerne._src.ops.nn.cached_attention import cached_attention
from lucerne.generate import (
    GREEDY,
    Decoder,
    DecoderConfig,
    Decoding,
    KVCache,
    Sampler,
    Sampling,
    beam_search,
    generate,
)
from tests.generate.naive import CONFIGS, compiles_since, greedy, model_of, prompt_of

LENGTHS = (1, 2, SMALL_PIECE, SMALL_PIECE + 1, 2 * SMALL_PIECE + 1, PIECE, PIECE + 1, 150)
"""One of each way a prompt falls into pieces."""


@pytest.mark.parametrize("compile", [False, True])
@pytest.mark.parametrize("kind", CONFIGS)
def test_tokens_and_logits_are_those_of_computing_everything_again(
    kind: str, compile: bool
) -> None:
    model = model_of(kind)
    decoding = Decoding(model, capacity=256, compile=compile)
    began = time.time()
    for length in LENGTHS:
        prompt = prompt_of(length)
        want, logits = greedy(model, prompt, 4)
        assert decoding.generate([prompt], 4) == [want], length
        got = [decoding.read([prompt])]
        for token in want[:-1]:
            got.append(decoding.step(torch.tensor([[token]]), torch.tensor([1])))
        worst = max(float((a[0] - b).abs().max()) for a, b in zip(got, logits, strict=True))
        assert worst <= 1e-5, (length, worst)
    assert compiles_since(began) == (3 if compile else 0)
    assert not compile or decoding.run.given_up is None


def test_rows_of_several_lengths_are_written_side_by_side() -> None:
    model = model_of("llama")
    prompts = [prompt_of(n) for n in (3, 70, 1, 20)]
    made = generate(model, prompts, 5, compile=False)
    assert made == [greedy(model, p, 5)[0] for p in prompts]


@pytest.mark.nightly
def test_all_lengths_up_to_2048_take_three_programs() -> None:
    """Prompts of many lengths, and a text that grows through every length there is."""
    model = model_of("llama")
    decoding = Decoding(model, capacity=2048)
    began = time.time()
    for length in (*range(1, 150), *range(150, 2048, 211), 2047):
        decoding.generate([prompt_of(length)], 1)
    [written] = decoding.generate([prompt_of(1)], 2047)
    assert len(written) == 2047
    assert compiles_since(began) == 3
    with torch.no_grad():
        want = model(torch.tensor([[*prompt_of(1), *written[:-1]]]))[0]
    assert want.argmax(-1).tolist() == written


def test_pieces_of_prompts() -> None:
    found = {n: piece_of(n) for n in range(1, 300)}
    assert set(found.values()) == {1, SMALL_PIECE, PIECE}
    assert [found[n] for n in (1, 2, 17)] == [1, SMALL_PIECE, PIECE]


# ---- ends and refusals ---------------------------------------------------------------------------


def test_a_row_ends_with_a_stop_token_or_with_its_room() -> None:
    model = model_of("llama")
    want, _ = greedy(model, prompt_of(5), 12)
    decoding = Decoding(model, capacity=10, compile=False)
    assert decoding.generate([prompt_of(5)], 12) == [want[:5]]
    stop = want[2]
    assert decoding.generate([prompt_of(5)], 12, stop=[stop])[0] == want[: want.index(stop) + 1]
    assert decoding.generate([prompt_of(5)], 0) == [[]]


@pytest.mark.parametrize(
    ("call", "text"),
    [
        (lambda m: Decoding(m.train()), "training mode"),
        (lambda m: Decoding(m, capacity=4096), "the model knows 2048"),
        (lambda m: Decoding(m, capacity=8, compile=False).read([[]]), "prompt 0 has 0 tokens"),
        (lambda m: Decoding(m, capacity=8, compile=False).read([[1] * 9]), "has 9 tokens"),
        (lambda m: Decoding(m, capacity=8, compile=False).read([[1], [2]]), "2 prompts"),
        (lambda m: beam_search(Decoding(m, capacity=8, compile=False), [1] * 5, 4), "and 4 more"),
        (lambda m: KVCache(1, 0, 1, 1, 1), "at least 1"),
        (lambda m: Sampling(temperature=-1.0), "temperature"),
        (lambda m: Sampling(top_k=-1), "top_k"),
        (lambda m: Sampling(top_p=0.0), "top_p"),
        (lambda m: DecoderConfig(words=5, width=10, layers=1, heads=4), "do not divide"),
        (lambda m: DecoderConfig(words=5, width=12, layers=1, heads=4), "turn pairs"),
        (lambda m: DecoderConfig(words=5, width=8, layers=1, heads=4, kind="rnn"), "kind"),
    ],
)
def test_refusals_say_what_was_expected(call: Any, text: str) -> None:
    with pytest.raises(ValueError, match=text):
        call(model_of("llama"))


# ---- drawing -------------------------------------------------------------------------------------


def test_seeds_decide_alone() -> None:
    model = model_of("gpt2")
    sampling = Sampling(temperature=1.3, top_k=40, top_p=0.95, seed=11)
    prompts = [prompt_of(4), prompt_of(9)]
    both = generate(model, prompts, 6, sampling=sampling, compile=False)
    assert both == generate(model, prompts, 6, sampling=sampling, compile=False)
    second = Sampling(temperature=1.3, top_k=40, top_p=0.95, seed=12)
    assert both[1] == generate(model, prompts[1:], 6, sampling=second, compile=False)[0]
    other = generate(model, prompts, 6, sampling=Sampling(temperature=1.3, seed=5), compile=False)
    assert other != both


def test_drawn_as_often_as_softmax_says() -> None:
    logits = torch.tensor([0.0, 1.0, 2.0, -1.0])
    sampler = Sampler(Sampling(temperature=2.0, seed=1))
    count = np.bincount([sampler.choose(logits) for _ in range(4000)], minlength=4) / 4000
    assert abs(count - (logits / 2).softmax(-1).numpy()).max() < 0.03
    assert Sampler(GREEDY).choose(logits) == 2


@pytest.mark.parametrize(
    ("top_k", "top_p", "kept"),
    [(0, 1.0, 4), (2, 1.0, 2), (9, 1.0, 4), (0, 0.5, 1), (0, 0.7, 2), (1, 0.99, 1), (3, 0.85, 2)],
)
def test_what_limits_leave(top_k: int, top_p: float, kept: int) -> None:
    shares = torch.tensor([0.05, 0.6, 0.1, 0.25])
    found = limited(shares.log(), top_k, top_p)
    left = {i for i, x in enumerate(found.tolist()) if x != float("-inf")}
    assert left == set([1, 3, 2, 0][:kept])


@pytest.mark.parametrize("penalty", [0.0, 1.0])
def test_enough_beams_find_the_likeliest_of_all_texts(penalty: float) -> None:
    torch.manual_seed(1)
    model = Decoder(DecoderConfig(words=5, width=16, layers=1, heads=2, context=16)).eval()
    with torch.no_grad():
        model.head.weight.mul_(6)
    stop, prompt, most = 2, [1, 3], 3

    def score(text: tuple[int, ...]) -> float:
        with torch.no_grad():
            logs = model(torch.tensor([[*prompt, *text]]))[0].log_softmax(-1)
        total = sum(float(logs[len(prompt) - 1 + i, t]) for i, t in enumerate(text))
        return total / len(text) ** penalty

    texts = [t for n in range(1, most + 1) for t in itertools.product(range(5), repeat=n)]
    whole = [t for t in texts if stop not in t[:-1] and (t[-1] == stop or len(t) == most)]
    best = sorted(((score(t), t) for t in whole), reverse=True)
    decoding = Decoding(model, batch=25, capacity=8, compile=False)
    found = beam_search(decoding, prompt, most, stop=[stop], length_penalty=penalty)
    assert [tuple(b.tokens) for b in found[:10]] == [t for _, t in best[:10]]
    np.testing.assert_allclose([b.score for b in found[:10]], [s for s, _ in best[:10]], atol=1e-5)


def test_one_beam_is_greedy() -> None:
    model = model_of("llama")
    [beam] = beam_search(Decoding(model, capacity=64, compile=False), prompt_of(6), 7)
    assert beam.tokens == greedy(model, prompt_of(6), 7)[0]


# ---- the op --------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize(
    ("batch", "heads", "shared", "count", "room"),
    [(1, 4, 4, 1, 40), (3, 8, 2, 1, 130), (2, 4, 2, 5, 33), (1, 2, 1, 1, 1)],
)
def test_attention_to_a_filled_buffer_is_masked_attention(
    batch: int, heads: int, shared: int, count: int, room: int, dtype: Any
) -> None:
    torch.manual_seed(0)
    q = torch.randn(batch, heads, count, 24).to(dtype)
    k, v = (torch.randn(batch, shared, room, 24).to(dtype) for _ in range(2))
    first = torch.tensor([0, room - 1, room // 2][:batch])
    mask = torch.arange(room) <= (first[:, None] + torch.arange(count))[:, :, None]
    want = torch.nn.functional.scaled_dot_product_attention(
        q, k, v, attn_mask=mask[:, None], scale=0.3, enable_gqa=True
    )
    made = cached_attention(q, k, v, first, 0.3)[0]
    assert torch.equal(made, want)
    run = torch.compile(lambda *a: cached_attention(*a, 0.3)[0], mode="bitwise")
    assert torch.equal(run(q, k, v, first), want)


@pytest.mark.parametrize("first", [-7, 10**15])
def test_what_stands_outside_of_the_buffer_stays_in_it(first: int) -> None:
    q, k = torch.randn(1, 2, 1, 8), torch.randn(1, 2, 20, 8)
    made = cached_attention(q, k, k, torch.tensor([first]), 1.0)[0]
    near = torch.tensor([min(max(first, 0), 19)])
    assert torch.equal(made, cached_attention(q, k, k, near, 1.0)[0])


def test_keys_that_nobody_sees_are_not_read() -> None:
    k = torch.full((1, 2, 20, 8), float("nan"))
    k[:, :, :3] = 1.0
    made = cached_attention(torch.ones(1, 2, 1, 8), k, k, torch.tensor([2]), 1.0)[0]
    assert torch.equal(made, torch.ones(1, 2, 1, 8))


def test_tokens_beyond_the_buffer_raise() -> None:
    cache = KVCache(layers=1, batch=1, heads=1, size=4, capacity=2)
    x = torch.ones(1, 1, 3, 4)
    with pytest.raises(IndexError):
        cache.attend(0, x, x, x)
