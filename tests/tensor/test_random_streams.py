"""The random streams bit for bit: values and states against PyTorch's.

The rows port the checks of the conformance harness (verify_rng.py) and go on to every draw and
dtype; what modules and loaders draw is in test_random_modules.py.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lucerne._src.tensor.random import STATE_SIZE, Generator
from lucerne._src.tensor.random.kinds import round_float

f32 = np.float32
KINDS = ("float32", "float64", "float16", "bfloat16")
WIDE = ("float32", "float64")


class Row(NamedTuple):
    """One stream: what PyTorch draws and what we draw, from the same seed."""

    name: str
    theirs: Callable[[Any], Any]
    ours: Callable[[Generator], Any]
    seed: int = 1234


@pytest.fixture
def torch() -> Any:
    return pytest.importorskip("torch", reason="PyTorch is the oracle of the random streams")


def as_numpy(torch: Any, value: Any) -> Any:
    """Torch to NumPy, the narrow floats widened as our draws give them."""
    if not isinstance(value, torch.Tensor):
        return np.asarray(value)
    value = value.detach()
    return (value.float() if value.dtype in (torch.float16, torch.bfloat16) else value).numpy()


def filled(method: str, n: int, kind: str, *arguments: float, seed: int = 1234) -> Row:
    """`torch.empty(n).method_(*arguments)` against `generator.method(n, *arguments)`."""
    return Row(
        f"{method}_{arguments} {kind} n={n} seed={seed}",
        lambda t: getattr(t.empty(n, dtype=getattr(t, kind)), method + "_")(*arguments),
        lambda g: getattr(g, method)(n, *arguments, kind=kind),
        seed,
    )


UNIFORM = [
    filled("uniform", 20000, kind, lo, hi)
    for kind in KINDS
    for lo, hi in ((0, 1), (-0.1, 0.1), (-0.7, 1.3), (2, 5), (0, 10), (0, 1e-40), (0.5, 0.5))
] + [
    Row(f"rand seed={s}", lambda t: t.rand(1000), lambda g: g.uniform(1000), s)
    for s in (0, 1, 42, 2**32 - 1, 2**40 + 7, -3)
]

_SIZES = (0, 1, 2, 7, 9, 15, 16, 17, 31, 32, 100, 1000, 5000, 100000)
_MEAN, _STD = np.linspace(-1, 1, 50, dtype=f32), np.linspace(0.1, 2, 50, dtype=f32)
NORMAL = (
    [filled("normal", n, kind, 0, 1) for kind in KINDS for n in _SIZES]
    + [filled("normal", n, kind, 0.3, 0.02) for kind in KINDS for n in (9, 5000)]
    + [filled("normal", 77, kind, -5, std) for kind in KINDS for std in (0, 3.7, 1e-40)]
    + [
        Row(
            f"normal_ noncontiguous {kind}",
            lambda t, k=kind: t.empty(8, 4, dtype=getattr(t, k)).t().normal_(0.2, 0.3),
            lambda g, k=kind: g.normal(32, 0.2, 0.3, k, contiguous=False).reshape(8, 4).T,
        )
        for kind in KINDS
    ]
    + [
        Row(
            "the cached normal outlives dtypes",
            lambda t: t.cat([t.randn(3), t.randn(2, dtype=t.float64), t.randn(3)]),
            lambda g: np.concatenate([g.normal(3), g.normal(2, kind="float64"), g.normal(3)]),
        ),
        Row(
            "randn complex64",
            lambda t: t.view_as_real(t.randn(40, dtype=t.complex64)).reshape(-1),
            lambda g: g.normal(80, 0, 1 / math.sqrt(2)),
        ),
        Row(
            "normal(tensor, tensor)",
            lambda t: t.normal(t.from_numpy(_MEAN), t.from_numpy(_STD)),
            lambda g: g.normal(50) * _STD + _MEAN,
        ),
    ]
)


def random_row(kind: str, *bounds: int | None) -> Row:
    """Tensor.random_ with no, one or two bounds."""
    named = {"hi": bounds[0]} if len(bounds) == 1 else dict(zip(("lo", "hi"), bounds, strict=False))
    return Row(
        f"random_{bounds} {kind}",
        lambda t: t.empty(300, dtype=getattr(t, kind)).random_(*bounds),
        lambda g: g.random_full_range(300, kind, **named),
    )


_RANGES = ((0, 7), (0, 10), (-5, 100), (0, 2**28 - 1), (0, 2**28), (0, 2**31), (0, 2**40))
INTEGER = (
    [
        random_row(kind, *bounds)
        for kind in ("int64", "int32", "int16", "int8", "uint8", "bool", *KINDS)
        for bounds in ((), (2,), (0, 1), (0, 2), (1, None))
    ]
    + [
        random_row("int8", -100, 120),
        random_row("int64", -(2**63), None),
        random_row("float32", -(2**63), None),
        random_row("int64", -(2**63), 2**63 - 1),
        random_row("float64", 0, 2**40),
        random_row("float16", -2000, 2000),
        random_row("bfloat16", -200, 200),
        random_row("uint32", 0, 2**32),
    ]
    + [
        Row(
            f"randint {lo} {hi}",
            lambda t, lo=lo, hi=hi: t.randint(lo, hi, (1000,)),
            lambda g, lo=lo, hi=hi: g.randint(1000, lo, hi),
        )
        for lo, hi in _RANGES
    ]
    + [
        Row(f"randperm {n}", lambda t, n=n: t.randperm(n), lambda g, n=n: g.randperm(n))
        for n in (0, 1, 2, 10, 39, 40, 1000, 50000)
    ]
)

_PROBABILITIES = np.linspace(0, 1, 5000)
BERNOULLI = [
    Row(
        f"bernoulli_({q})",
        lambda t, q=q: t.empty(5000).bernoulli_(q) > 0,
        lambda g, q=q: g.bernoulli_scalar(5000, q),
    )
    for q in (0.0, 0.1, 0.5, 0.9, 1.0)
] + [
    Row(
        f"bernoulli(tensor {kind})",
        lambda t, k=kind: t.bernoulli(t.from_numpy(_PROBABILITIES).to(getattr(t, k))) > 0,
        lambda g, k=kind: g.bernoulli_tensor(round_float(_PROBABILITIES, k)),
    )
    for kind in KINDS
]

INVERSION = [
    filled(name, 101, kind, *arguments)
    for kind in KINDS
    for name, *arguments in (
        ("exponential", 1),
        ("exponential", 0.3),
        ("log_normal", 0.2, 0.5),
        ("log_normal", 3, 300),
        ("cauchy", 0, 1),
        ("cauchy", 0.2, 1.7),
        ("geometric", 0.3),
    )
] + [filled("geometric", 101, kind, 0.05) for kind in ("int64", "int32", "uint8")]

_WEIGHTS = np.abs(np.random.RandomState(1).randn(200, 50))


def multinomial_row(kind: str, n: int, replacement: bool) -> Row:
    return Row(
        f"multinomial {kind} n={n} replacement={replacement}",
        lambda t: t.multinomial(t.from_numpy(_WEIGHTS).to(getattr(t, kind)), n, replacement),
        lambda g: g.multinomial(round_float(_WEIGHTS, kind), n, replacement, kind),
    )


# Without replacement the narrow kinds tie, and PyTorch's partial sort orders ties as it likes.
MULTINOMIAL = [
    multinomial_row(kind, n, replacement)
    for kind in KINDS
    for n, replacement in ((1, False), (1, True), (5, True), (5, False))
    if kind in WIDE or replacement or n == 1
]

_RATES = np.random.RandomState(2).uniform(0, 60, 2000)
_COUNTS = np.floor(np.random.RandomState(3).uniform(0, 200, 2000))
_ODDS = np.random.RandomState(4).uniform(0, 1, 2000)
_ALPHAS = np.random.RandomState(5).uniform(0, 3, (40, 21))


def parametric_row(theirs: str, ours: str, kind: str, *parameters: Any) -> Row:
    typed = [p.astype(kind) for p in parameters]
    return Row(
        f"{ours} {kind}",
        lambda t: getattr(t, theirs)(*map(t.from_numpy, typed)).reshape(-1),
        lambda g: getattr(g, ours)(*typed, kind=kind).reshape(-1),
    )


REJECTION = [
    parametric_row(theirs, ours, kind, *parameters)
    for kind in WIDE
    for theirs, ours, *parameters in (
        ("poisson", "poisson", _RATES),
        ("binomial", "binomial", _COUNTS, _ODDS),
        ("_standard_gamma", "standard_gamma", _ALPHAS),
        ("_sample_dirichlet", "dirichlet", _ALPHAS),
    )
]

ALL = [*UNIFORM, *NORMAL, *INTEGER, *BERNOULLI, *INVERSION, *MULTINOMIAL, *REJECTION]


@pytest.mark.torch
@pytest.mark.parametrize("row", ALL, ids=lambda r: r.name)
def test_same_bits_and_same_state_as_torch(row: Row, torch: Any) -> None:
    torch.manual_seed(row.seed)
    theirs = as_numpy(torch, row.theirs(torch))
    generator = Generator().manual_seed(row.seed)
    ours = row.ours(generator)
    assert ours.dtype == theirs.dtype
    np.testing.assert_array_equal(ours, theirs)
    np.testing.assert_array_equal(generator.state_bytes(), torch.get_rng_state().numpy())


# ---- states -----------------------------------------------------------------------------------

_BEFORE = ((), ("rand", 10), ("rand", 624), ("rand", 625), ("randn", 3), ("randn", 100))


@pytest.mark.torch
@pytest.mark.parametrize("before", _BEFORE, ids=str)
def test_a_torch_state_goes_on_in_ours_and_back(before: tuple[Any, ...], torch: Any) -> None:
    theirs = torch.Generator().manual_seed(99)
    if before:
        getattr(torch, before[0])(before[1], generator=theirs)
    ours = Generator()
    ours.load_state_bytes(theirs.get_state().numpy())
    assert ours.initial_seed() == theirs.initial_seed()
    np.testing.assert_array_equal(ours.normal(5), torch.randn(5, generator=theirs).numpy())
    theirs.set_state(torch.from_numpy(ours.state_bytes()))
    np.testing.assert_array_equal(ours.state_bytes(), theirs.get_state().numpy())
    np.testing.assert_array_equal(ours.normal(33), torch.randn(33, generator=theirs).numpy())


@pytest.mark.parametrize("drawn", [0, 1, 623, 624, 625, 5000])
def test_state_round_trip(drawn: int) -> None:
    first, second = Generator().manual_seed(-3), Generator()
    first.words32(drawn)
    first.normal(1)
    second.load_state_bytes(first.state_bytes().tobytes())
    np.testing.assert_array_equal(first.state_bytes(), second.state_bytes())
    np.testing.assert_array_equal(first.normal(40), second.normal(40))
    assert second.initial_seed() == 2**64 - 3


def damaged(offset: int, value: bytes) -> bytes:
    good = bytearray(Generator().manual_seed(1).state_bytes().tobytes())
    good[offset : offset + len(value)] = value
    return bytes(good)


@pytest.mark.parametrize(
    ("state", "message"),
    [
        (b"", "5056 bytes"),
        (bytes(16), "5056 bytes"),
        (bytes(STATE_SIZE), "seeded flag is 0"),
        (np.zeros(STATE_SIZE, np.float32), "uint8"),
        ("state", "got str"),
        (None, "got NoneType"),
        (damaged(8, b"\x00\x00"), "contradict"),
        (damaged(8, b"\xff\xff\xff\xff"), "contradict"),
        (damaged(16, b"\x71\x02"), "contradict"),
        (damaged(16, b"\xff" * 8), "contradict"),
        (damaged(29, b"\x01"), "exceeds 32 bits"),
        (damaged(24, bytes(624 * 8)), "all words are zero"),
        (damaged(5040, b"\x07"), "cached-normal flag is 7"),
        (damaged(5024, b"\x00" * 6 + b"\xf0\x7f" + b"\x00" * 8 + b"\x01"), "cached normal is inf"),
    ],
)
def test_a_bad_state_is_refused_whole(state: Any, message: str) -> None:
    generator = Generator().manual_seed(4)
    before = generator.state_bytes()
    with pytest.raises(ValueError, match=message):
        generator.load_state_bytes(state)
    np.testing.assert_array_equal(generator.state_bytes(), before)


@settings(max_examples=200)
@given(st.integers(0, STATE_SIZE - 1), st.binary(min_size=1, max_size=40))
def test_damage_is_refused_or_harmless(offset: int, noise: bytes) -> None:
    generator = Generator()
    try:
        generator.load_state_bytes(damaged(offset, noise)[:STATE_SIZE])
    except ValueError:
        return
    assert np.isfinite(generator.normal(700)).all()
