"""Generators beside their streams: seeds, errors, Philox, exact arithmetic, threads."""

from __future__ import annotations

import copy
import math
import pickle
import threading
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import lucerne as torch
from lucerne._src.tensor.random import (
    DEFAULT_SEED,
    Generator,
    PhiloxGenerator,
    SeedRangeError,
    default_generator,
    philox_blocks,
)
from lucerne._src.tensor.random.draws import _randperm_many
from lucerne._src.tensor.random.exact import fma32, fma64
from lucerne._src.tensor.random.mt19937 import Mersenne

f32, f64 = np.float32, np.float64

# ---- seeds --------------------------------------------------------------------------------------


def test_seeds() -> None:
    generator = Generator()
    assert generator.initial_seed() == DEFAULT_SEED == 67280421310721
    assert generator.manual_seed(-3) is generator
    assert generator.initial_seed() == 2**64 - 3
    assert generator.manual_seed(np.int64(5)).initial_seed() == 5
    fresh = generator.seed()
    assert 0 <= fresh < 2**64
    assert generator.initial_seed() == fresh
    assert default_generator.initial_seed() != DEFAULT_SEED
    assert Generator(device="cuda:1").device == "cuda:1"


@pytest.mark.parametrize("kind", [Generator, PhiloxGenerator])
@pytest.mark.parametrize("seed", [2**64, -(2**63) - 1])
def test_seed_out_of_range(kind: Any, seed: int) -> None:
    with pytest.raises(SeedRangeError, match="Overflow when unpacking") as caught:
        kind().manual_seed(seed)
    assert isinstance(caught.value, RuntimeError)
    assert isinstance(caught.value, ValueError)


@pytest.mark.parametrize("seed", [1.5, "a", True, None])
def test_seed_of_another_type(seed: Any) -> None:
    with pytest.raises(RuntimeError, match="manual_seed expected a long, but got"):
        Generator().manual_seed(seed)


def test_the_low_32_bits_decide_the_words() -> None:
    low, high = Generator().manual_seed(7), Generator().manual_seed(7 + 2**40)
    np.testing.assert_array_equal(low.words32(5), high.words32(5))


@pytest.mark.parametrize(
    "clone", [copy.copy, copy.deepcopy, lambda g: pickle.loads(pickle.dumps(g))]
)
@pytest.mark.parametrize("kind", [Generator, PhiloxGenerator])
def test_copies_go_their_own_way(kind: Any, clone: Callable[[Any], Any]) -> None:
    first = kind(device="cpu").manual_seed(11)
    first.normal(3)
    second = clone(first)
    expected = first.normal(50)
    np.testing.assert_array_equal(second.normal(50), expected)


def test_a_generator_that_is_gone_leaves_nothing_to_the_next() -> None:
    def drawn(seed: int) -> list[int]:
        g = Generator()
        g.manual_seed(seed)
        torch.randn(1, generator=g)  # leaves the second of a pair behind
        return [int(n) for n in torch.randint(0, 1 << 30, (5,), generator=g)]

    kept = Generator()
    kept.manual_seed(3)
    torch.randn(1, generator=kept)
    found = [drawn(3), drawn(4), drawn(3)]  # (each takes the state that the last one had)
    assert found[0] == found[2] != found[1]
    assert found[0] == [int(n) for n in torch.randint(0, 1 << 30, (5,), generator=kept)]


def test_threads_get_whole_draws() -> None:
    shared, drawn = Generator().manual_seed(1), []
    work = lambda: drawn.extend(shared.uniform(1000).tobytes() for _ in range(20))  # noqa: E731
    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    alone = Generator().manual_seed(1)
    assert sorted(drawn) == sorted(alone.uniform(1000).tobytes() for _ in range(80))


# ---- errors, in PyTorch's words -----------------------------------------------------------------

ERRORS: list[tuple[Callable[[Generator], Any], str]] = [
    (lambda g: g.uniform(1, 3, 1), "found from=3 > to=1"),
    (lambda g: g.uniform(1, -3e38, 3e38), "exceed the limit"),
    (lambda g: g.uniform(1, 0, 1e39), "to is out of bounds for float"),
    (lambda g: g.uniform(1, 0, math.nan), "to is out of bounds for float"),
    (lambda g: g.uniform(1, kind="int32"), "not implemented for 'Int'"),
    (lambda g: g.normal(1, 0, -1), "normal expects std >= 0.0, but found std -1"),
    (lambda g: g.normal(1, kind="int64"), "\"normal_kernel_cpu\" not implemented for 'Long'"),
    (lambda g: g.log_normal(1, 0, 0), "log_normal_ expects std > 0.0, but found std=0"),
    (lambda g: g.cauchy(1, 0, 0), "cauchy_ expects sigma > 0.0, but found sigma=0"),
    (lambda g: g.cauchy(1, kind="int32"), "continuous probability distribution"),
    (lambda g: g.exponential(1, 0), "exponential_ expects lambda > 0.0"),
    (lambda g: g.exponential(1, kind="int32"), "continuous probability distribution"),
    (lambda g: g.geometric(1, 1), "in \\(0, 1\\), but got p=1"),
    (lambda g: g.bernoulli_scalar(1, 1.5), "in \\[0, 1\\], but got p=1.5"),
    (lambda g: g.bernoulli_tensor(np.array([math.nan])), "Expected p_in >= 0 && p_in <= 1"),
    (lambda g: g.randint(1, 5, 5), "got from=5 >= to=5"),
    (lambda g: g.randperm(-1), "got -1"),
    (lambda g: g.random_full_range(1, "int8", hi=200), "to - 1 is out of bounds for signed char"),
    (lambda g: g.random_full_range(1, "float16", hi=70000), "out of bounds for c10::Half"),
    (lambda g: g.random_full_range(1, "uint16"), "not implemented for 'UInt16'"),
    (lambda g: g.random_full_range(1, "complex64"), "not implemented"),
    (lambda g: g.multinomial(np.zeros((1, 2)), 1), "sum of probabilities <= 0"),
    (lambda g: g.multinomial(np.zeros((1, 2)), 2, True), "sum of probabilities <= 0"),
    (lambda g: g.multinomial(np.array([[-1, 2.0]]), 1), "`inf`, `nan` or element < 0"),
    (lambda g: g.multinomial(np.array([[-1, 2.0]]), 2, True), "entry < 0"),
    (lambda g: g.multinomial(np.array([[1, math.inf]]), 2, True), "infinity or NaN"),
    (lambda g: g.multinomial(np.ones((1, 2)), 3), "without replacement"),
    (lambda g: g.multinomial(np.ones((1, 2)), 0), "n_sample <= 0"),
    (lambda g: g.poisson(np.array([-1.0])), "expected rate to be non-negative"),
]


@pytest.mark.parametrize(("draw", "message"), ERRORS, ids=[e[1] for e in ERRORS])
def test_errors(draw: Callable[[Generator], Any], message: str) -> None:
    with pytest.raises((RuntimeError, NotImplementedError), match=message):
        draw(Generator())


def test_floats_that_skip_integers_warn() -> None:
    with pytest.warns(UserWarning, match="Due to precision limitations float can support"):
        Generator().random_full_range(3, "float32", hi=2**24 + 10)


def test_parameters_that_never_accept_give_nan_instead_of_looping() -> None:
    g, nan = Generator(), np.array([math.nan])
    assert np.isnan(g.poisson(nan)).all()
    assert np.isnan(g.binomial(nan, np.array([0.2]))).all()
    assert np.isnan(g.binomial(np.array([3.0]), nan)).all()
    assert np.isnan(g.standard_gamma(np.array([-1.0]))).all()


def test_huge_permutations_grow_by_64_bit_words() -> None:
    """The path from 214,748,364 elements on (checked once against PyTorch at that size)."""
    assert _randperm_many(Mersenne(3), 12).tolist() == [8, 5, 1, 2, 10, 7, 6, 3, 4, 0, 11, 9]


# ---- Philox -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("counter", "key", "expected"),
    [
        (
            (0, 0, 0, 0),
            (0, 0),
            (0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8),
        ),
        (
            (0xFFFFFFFF,) * 4,
            (0xFFFFFFFF,) * 2,
            (0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD),
        ),
        (
            (0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344),
            (0xA4093822, 0x299F31D0),
            (0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1),
        ),
    ],
)
def test_philox_known_answers(counter: Any, key: Any, expected: Any) -> None:
    """The vectors distributed with Random123."""
    assert philox_blocks(np.array([counter], np.uint64), key).tolist() == [list(expected)]


@given(st.integers(0, 300), st.integers(0, 2**66), st.integers(0, 300))
def test_philox_bits_do_not_depend_on_the_cut(n: int, counter: int, cut: int) -> None:
    generator = PhiloxGenerator(5)
    cut = min(cut, n)
    pieces = [generator.bits(cut, counter), generator.bits(n - cut, counter + cut)]
    np.testing.assert_array_equal(generator.bits(n, counter), np.concatenate(pieces))


SPLITS: dict[str, Callable[[PhiloxGenerator, int], Any]] = {
    "uniform": lambda g, n: g.uniform(n, -1, 2),
    "uniform float64": lambda g, n: g.uniform(n, -1, 2, "float64"),
    "normal": lambda g, n: g.normal(n, 1, 2),
    "normal float64": lambda g, n: g.normal(n, 1, 2, "float64"),
    "normal bfloat16": lambda g, n: g.normal(n, 1, 2, "bfloat16"),
    "randint": lambda g, n: g.randint(n, 0, 10),
    "randint wide": lambda g, n: g.randint(n, 0, 2**40),
    "random_ uint8": lambda g, n: g.random_full_range(n, "uint8"),
    "bernoulli": lambda g, n: g.bernoulli_scalar(n, 0.3),
    "exponential": lambda g, n: g.exponential(n),
}


@pytest.mark.parametrize("name", SPLITS)
@given(data=st.data())
def test_philox_workers_agree(name: str, data: st.DataObject) -> None:
    draw, total = SPLITS[name], data.draw(st.integers(1, 70))
    cuts = sorted(data.draw(st.lists(st.integers(0, total), max_size=4)))
    alone = PhiloxGenerator(9, stream=2)
    alone.words32(data.draw(st.integers(0, 9)))
    state = alone.state_bytes()
    whole = draw(alone, total)
    for start, stop in zip([0, *cuts], [*cuts, total], strict=True):
        worker = PhiloxGenerator()
        worker.load_state_bytes(state)
        np.testing.assert_array_equal(
            draw(worker.part(start, total), stop - start), whole[start:stop]
        )
        np.testing.assert_array_equal(worker.state_bytes(), alone.state_bytes())


def test_philox_large_draws_are_cut_into_cache_sized_pieces_unseen() -> None:
    generator = PhiloxGenerator(3)
    np.testing.assert_array_equal(
        generator.bits(200_003, 1)[150_000:], generator.bits(50_003, 150_001)
    )


def test_philox_frozen() -> None:
    generator = PhiloxGenerator(2024)
    assert generator.uniform(3).tolist() == [
        0.5446082949638367,
        0.7522014379501343,
        0.05727726221084595,
    ]
    assert generator.normal(3).tolist() == [
        -0.848254382610321,
        0.36142730712890625,
        -2.0816073417663574,
    ]
    assert generator.normal(3, kind="float64").tolist() == [
        0.6344701736630802,
        -1.1445717241962206,
        0.13090183189209706,
    ]


def test_philox_streams_and_seeds_differ() -> None:
    draws = {PhiloxGenerator(s, stream=t).words32(8).tobytes() for s in range(4) for t in range(4)}
    assert len(draws) == 16


@pytest.mark.parametrize("kind", ["float32", "float64"])
def test_philox_normal_is_normal(kind: str) -> None:
    values = PhiloxGenerator(1).normal(400_000, kind=kind).astype(f64)
    moments = [np.mean(values**k) for k in (1, 2, 3, 4)]
    np.testing.assert_allclose(moments, [0, 1, 0, 3], atol=0.03)
    assert abs(np.corrcoef(values[::2], values[1::2])[0, 1]) < 0.01


def test_philox_takes_every_draw() -> None:
    g = PhiloxGenerator(1)
    assert sorted(g.randperm(50).tolist()) == list(range(50))
    assert g.multinomial(np.ones((2, 5)), 3).shape == (2, 3)
    assert g.poisson(np.full(4000, 3.0)).mean() == pytest.approx(3, abs=0.15)
    assert g.binomial(np.full(4000, 40.0), np.full(4000, 0.5)).mean() == pytest.approx(20, abs=0.3)
    assert g.dirichlet(np.ones((3, 4))).sum(axis=1) == pytest.approx(np.ones(3), abs=1e-5)
    assert np.isfinite(g.log_normal(20)).all()
    with pytest.raises(ValueError, match="24 bytes"):
        g.load_state_bytes(bytes(5056))
    with pytest.raises(ValueError, match="0 <= start <= total"):
        g.part(3, 2)
    with pytest.raises(ValueError, match="exceed the total"):
        g.part(1, 5).uniform(5)


# ---- exact multiply-adds ------------------------------------------------------------------------

# Numbers of few and of many bits, so that ties and cancellation happen.
few_bits = st.builds(math.ldexp, st.integers(-(2**12), 2**12).map(float), st.integers(-60, 60))
doubles = st.one_of(few_bits, st.floats(allow_nan=False, allow_infinity=False))
singles = st.one_of(
    few_bits.filter(lambda v: float(f32(v)) == v),
    st.floats(width=32, allow_nan=False, allow_infinity=False),
)


def nearest32(exact: Fraction) -> float:
    """Round a rational to float32 once, by comparing the two neighbours."""
    with np.errstate(over="ignore", under="ignore"):
        guess = f32(float(exact))
        near = [f32(guess), np.nextafter(guess, f32(-np.inf)), np.nextafter(guess, f32(np.inf))]
    finite = [v for v in near if np.isfinite(v)]
    even = lambda v: int(v.view(np.uint32)) & 1  # noqa: E731
    return float(min(finite, key=lambda v: (abs(Fraction(float(v)) - exact), even(v))))


@given(singles, singles, singles)
def test_fma32_rounds_once(a: float, b: float, c: float) -> None:
    exact = Fraction(a) * Fraction(b) + Fraction(c)
    got = float(fma32(f32(a), f32(b), f32(c)))
    if abs(exact) < 3.4e38:
        assert got == nearest32(exact)


@given(doubles, doubles, doubles)
def test_fma64_rounds_once(a: float, b: float, c: float) -> None:
    exact = Fraction(a) * Fraction(b) + Fraction(c)
    got = float(fma64(np.array(a), np.array(b), np.array(c)))
    try:
        assert got == float(exact)
    except OverflowError:
        assert got == (math.inf if exact > 0 else -math.inf)


def test_fma64_over_a_whole_array() -> None:
    source = np.random.RandomState(0)
    a, b = source.randn(2, 20000)
    c = -a * b + source.randn(20000) * 2.0 ** source.randint(-80, 10, 20000)
    expected = [
        float(Fraction(x) * Fraction(y) + Fraction(z)) for x, y, z in zip(a, b, c, strict=True)
    ]
    assert fma64(a, b, c).tolist() == expected


def test_fma32_over_a_whole_array() -> None:
    source = np.random.RandomState(0)
    a, b = source.randn(2, 20000).astype(f32)
    c = (-a * b + source.randn(20000) * 2.0 ** source.randint(-40, 10, 20000)).astype(f32)
    exact = [
        Fraction(float(x)) * Fraction(float(y)) + Fraction(float(z))
        for x, y, z in zip(a, b, c, strict=True)
    ]
    assert fma32(a, b, c).tolist() == [nearest32(v) for v in exact]
