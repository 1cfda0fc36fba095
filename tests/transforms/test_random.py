"""Random numbers from counters: right words, right distributions, the same wherever computed."""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np
import pytest

import lucerne as lu
from lucerne import backends
from lucerne._src.base import dtype as dt
from lucerne._src.base.device import device
from lucerne._src.ir.graph import Graph, verify
from lucerne._src.ir.meta import make_meta
from lucerne._src.loops.group import Fusion, Grouping
from lucerne._src.ops.random.counted import (
    DISTRIBUTIONS,
    KEY_ROUNDS,
    ROUNDS,
    counted_draw,
    counted_key,
    counted_value,
)
from lucerne._src.ops.random.draws import draw_each
from lucerne._src.tensor.random.api import default_generator, new_key
from lucerne._src.transforms import cse, dead
from lucerne._src.transforms.functionalize import functionalize
from lucerne._src.transforms.random import count_draws, separate_draws
from tests.cpu.calls import blank, guest
from tests.transforms.sizes import meta_of, traced

stats = pytest.importorskip("scipy.stats", reason="distributions to compare with")

FULL = 0xFFFFFFFF
PI = ((0x243F6A88, 0x85A308D3), (0x13198A2E, 0x03707344))
VECTORS = {  # counter, key, words after 13 and after 20 rounds: from the authors' own test
    "zeros": ((0, 0), (0, 0), (0x9D1C5EC6, 0x8BD50731), (0x6B200159, 0x99BA4EFE)),
    "ones": ((FULL,) * 2, (FULL,) * 2, (0xFD36D048, 0x2D17272C), (0x1CB996FC, 0xBB002BE7)),
    "pi": (*PI, (0xBA3E4725, 0xF27D669E), (0xC4923A9C, 0x483DF7A0)),
}


def signed(low: int, high: int) -> int:
    return int(np.array(low | high << 32, np.uint64).view(np.int64))


@pytest.mark.parametrize("name", VECTORS)
@pytest.mark.parametrize("where", ["cpu", "reference"])
def test_known_words(name: str, where: str) -> None:
    counter, key, short, long = VECTORS[name]
    index, seed = (lu.tensor([signed(*pair)], device=where) for pair in (counter, key))
    words = [lu.tensor([k], device=where) for k in key]
    found = [int(counted_value(index, *words, 0, 0, f"word{k}", lu.int64)) for k in (0, 1)]
    assert tuple(found) == short
    assert tuple(int(counted_key(seed, index, 0, k)) for k in (0, 1)) == long


def draw(
    distribution: str, first: Any, second: Any, shape: Any = (100_000,), *, dtype: Any = dt.float32,
    key: Any = (5, 7), stream: int = 0, where: str = "cpu", strides: Any = None,
) -> Any:  # fmt: skip
    seed = lu.tensor(list(key), device=where)
    return counted_draw(
        seed, tuple(shape), strides, distribution, first, second, stream, dtype, device(where)
    )


def test_words_are_those_of_the_generator() -> None:
    found = draw("word1", 0, 0, (50,), dtype=dt.int64, key=(signed(3, 9), 4), stream=6).numpy()
    key = threefry_blocks(np.array([[10, 0]]), (3, 9), KEY_ROUNDS)[0]
    counters = np.array([[i, 0] for i in range(50)])
    np.testing.assert_array_equal(found, threefry_blocks(counters, tuple(key), ROUNDS)[:, 1])


@pytest.mark.parametrize("shape", [(70,), (5, 64), (5, 7), (3, 33), (4, 1, 6)])
def test_neighbours_share_a_counter(shape: Any) -> None:
    """Whether vectors begin at even elements or not, each has its own word."""
    found = draw("integers", 0, 1 << 31, shape, dtype=dt.int64, key=(2, 4)).numpy().reshape(-1)
    key = threefry_blocks(np.array([[4, 0]]), (2, 0), KEY_ROUNDS)[0]
    counters = np.array([[i, 0] for i in range(-(-found.size // 2))])
    words = threefry_blocks(counters, tuple(key), ROUNDS).reshape(-1)[: found.size]
    np.testing.assert_array_equal(found, words >> 1)


def test_words_inside_folds() -> None:
    """A sum of random numbers, along and across, is that of the numbers alone."""
    for shape, dim in itertools.product([(6, 70), (70, 6), (7, 64), (9, 33)], (0, 1)):
        graph = Graph()
        key = graph.input(make_meta(dt.int64, (2,), None, device("cpu")))
        whole = make_meta(dt.float32, shape, None, device("cpu"))
        statics = (shape, None, "uniform", 0.0, 1.0, 3, dt.float32, device("cpu"))
        (drawn,) = graph.call(counted_draw.op, (key, *statics), [whole])  # type: ignore[attr-defined]
        short = make_meta(dt.float32, (shape[1 - dim],), None, device("cpu"))
        args = traced(lambda x, dim=dim: x.sum(dim), [whole]).nodes[0]
        graph.outputs = graph.call(args.op, (drawn, *args.args[1:]), [short])
        out = guest(np.zeros(shape[1 - dim]), dt.float32)
        kernel = backends.get("cpu").fuse(graph)
        assert kernel is not None
        kernel([guest(np.array([11, 13]), dt.int64)], [out])
        alone = draw("uniform", 0.0, 1.0, shape, key=(11, 13), stream=3).numpy()
        np.testing.assert_allclose(out.values, alone.sum(dim), rtol=1e-5)


def threefry_blocks(counters: Any, key: Any, rounds: int) -> Any:
    """Threefry written once more, from the paper, with Python's integers."""
    keys = [int(key[0]), int(key[1])]
    keys.append(keys[0] ^ keys[1] ^ 0x1BD11BDA)
    found = []
    for c0, c1 in counters.tolist():
        a, b = (c0 + keys[0]) & FULL, (c1 + keys[1]) & FULL
        for r in range(rounds):
            a = (a + b) & FULL
            n = (13, 15, 26, 6, 17, 29, 16, 24)[r % 8]
            b = ((b << n | b >> (32 - n)) & FULL) ^ a
            if r % 4 == 3:
                d = r // 4 + 1
                a, b = (a + keys[d % 3]) & FULL, (b + keys[(d + 1) % 3] + d) & FULL
        found.append([a, b])
    return np.array(found)


HALF = 1 << 31
CASES: list[tuple[str, Any, Any, Any, dt.dtype]] = [
    ("uniform", 0.0, 1.0, stats.uniform(), dt.float32),
    ("uniform", -2.0, 5.0, stats.uniform(-2, 5), dt.float64),
    ("normal", 0.0, 1.0, stats.norm(), dt.float32),
    ("normal", 3.0, 0.5, stats.norm(3, 0.5), dt.float64),
    ("exponential", -2.0, 0.0, stats.expon(scale=2), dt.float32),
    ("exponential", -0.5, 0.0, stats.expon(scale=0.5), dt.float64),
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case[0]}-{case[4].name}")
def test_distributions(case: Any) -> None:
    name, first, second, wanted, dtype = case
    x = draw(name, first, second, dtype=dtype).double().numpy()
    n = len(x)
    assert abs(x.mean() - wanted.mean()) < 5 * wanted.std() / math.sqrt(n)
    assert x.var() == pytest.approx(wanted.var(), rel=0.03)
    assert stats.kstest(x, wanted.cdf).pvalue > 1e-4
    independent(x)


def independent(x: Any) -> None:
    """No correlation of neighbours, near or far."""
    for step in (1, 2, 3, 4, 16, 64, 1024):
        assert abs(np.corrcoef(x[:-step], x[step:])[0, 1]) < 5 / math.sqrt(len(x))


def test_the_check_of_independence_fails() -> None:
    with pytest.raises(AssertionError):
        independent(np.cumsum(np.random.default_rng(0).standard_normal(10000)))


@pytest.mark.parametrize("p", [0.1, 0.5, 0.9])
def test_bernoulli(p: float) -> None:
    x = draw("bernoulli", round(p * 2**32), 0).numpy()
    assert set(np.unique(x)) == {0.0, 1.0}
    assert abs(x.mean() - p) < 5 * math.sqrt(p * (1 - p) / len(x))
    independent(x)


def test_bernoulli_of_nothing_and_all() -> None:
    assert not draw("bernoulli", 0, 0).any()
    assert draw("bernoulli", 1 << 32, 0).all()


def test_integers() -> None:
    x = draw("integers", -3, 10, dtype=dt.int64).numpy()
    values, counts = np.unique(x, return_counts=True)
    assert values.tolist() == list(range(-3, 7))
    assert stats.chisquare(counts).pvalue > 1e-4


def test_narrow_floats_stay_below_one() -> None:
    for dtype in (dt.float16, dt.bfloat16):
        x = draw("uniform", 0.0, 1.0, dtype=dtype).double().numpy()
        assert x.max() < 1
        assert x.min() == 0
        assert abs(x.mean() - 0.5) < 0.003


def test_other_keys_and_streams_give_other_numbers() -> None:
    same = draw("normal", 0.0, 1.0).numpy()
    np.testing.assert_array_equal(same, draw("normal", 0.0, 1.0).numpy())
    for other in ({"key": (6, 7)}, {"key": (5, 8)}, {"stream": 1}):
        x = draw("normal", 0.0, 1.0, **other).numpy()  # type: ignore[arg-type]
        assert abs(np.corrcoef(same, x)[0, 1]) < 0.01


def test_the_number_of_threads_does_not_matter() -> None:
    before = lu.get_num_threads()
    found = []
    for threads in (1, 2):
        lu.set_num_threads(threads)
        found.append(draw("normal", 0.0, 1.0, (1 << 20,)).numpy())
    lu.set_num_threads(before)
    np.testing.assert_array_equal(*found)


NUMBERS: dict[str, tuple[Any, Any]] = {
    "uniform": (-1.0, 3.0), "normal": (1.0, 2.0), "exponential": (-1.5, 0.0),
    "bernoulli": (HALF, 0), "integers": (-5, 11), **{f"word{k}": (0, 0) for k in range(2)},
}  # fmt: skip
SHAPES: list[tuple[tuple[int, ...], Any]] = [
    ((), None), ((1,), None), ((7,), None), ((16,), None), ((33,), None), ((3, 5), (1, 3)),
    ((17, 33), None), ((2, 3, 4, 5), (60, 1, 15, 3)),
]  # fmt: skip


@pytest.mark.parametrize("name", DISTRIBUTIONS)
def test_the_engine_gives_what_the_reference_gives(name: str) -> None:
    """Within guard pages; transcendental functions may differ in the last bits."""
    first, second = NUMBERS[name]
    kinds = [dt.int64] if name.startswith("word") else [dt.float32, dt.float64, dt.bfloat16]
    for dtype, (shape, strides) in itertools.product(kinds, SHAPES):
        graph = Graph()
        key = graph.input(make_meta(dt.int64, (2,), None, device("cpu")))
        meta = make_meta(dtype, shape, strides, device("cpu"))
        statics = (shape, strides, name, first, second, 3, dtype, device("cpu"))
        graph.outputs = graph.call(counted_draw.op, (key, *statics), [meta])  # type: ignore[attr-defined]
        found = []
        for backend in ("cpu", "reference"):
            given = guest(np.array([11, 13]), dt.int64)
            out = blank(meta)
            backends.get(backend).compile(graph)([given], [out])
            found.append(out.values.astype(np.float64))
        exact = name in ("uniform", "bernoulli", "integers") or name.startswith("word")
        close = 0.0 if exact else {dt.float32: 1e-5, dt.float64: 1e-13}.get(dtype, 1e-2)
        np.testing.assert_allclose(*found, close, close)


# ---- the pass -----------------------------------------------------------------------------------


def dropped(x: Any) -> Any:
    return lu.nn.functional.dropout(x.sin(), 0.25) + 1


def pure(fn: Any, *shapes: Any) -> Graph:
    graph = traced(fn, [meta_of(s) for s in shapes])
    return dead.run(functionalize(graph, graph.outputs))


def test_draws_become_counted() -> None:
    graph = pure(dropped, (6, 8))
    made, key = count_draws(graph, default_generator)
    verify(made)
    assert key is made.inputs[-1]
    assert len(made.inputs) == len(graph.inputs) + 1
    names = [n.op.name for n in made.nodes]
    assert "draw" not in names
    assert names.count("counted_draw") == 1


def test_dropout_is_one_kernel() -> None:
    graph, _ = count_draws(pure(dropped, (64, 80)), default_generator)
    graph = dead.run(graph)
    groups = Grouping(graph, Fusion()).groups()
    assert len(groups) == 1
    kernel = backends.get("cpu").fuse(graph)
    assert kernel is not None
    x, out = guest(np.full((64, 80), 0.5), dt.float32), guest(np.zeros((64, 80)), dt.float32)
    key = guest(np.array([11, 13]), dt.int64)
    kernel([x, key], [out])
    mask = draw("bernoulli", round(0.75 * 2**32), 0, (64, 80), key=(11, 13)).numpy()
    np.testing.assert_allclose(out.values, math.sin(0.5) * mask / 0.75 + 1, rtol=1e-6)


def test_each_draw_has_its_own_stream() -> None:
    def fn(x: Any) -> Any:
        return lu.rand_like(x), lu.randn_like(x), lu.rand_like(x)

    made, _ = count_draws(pure(fn, (6, 8)), default_generator)
    draws = [n for n in made.nodes if n.op.name == "counted_draw"]
    assert [n.args[6] for n in draws] == [0, 1, 2]
    assert [n.args[3] for n in draws] == ["uniform", "normal", "uniform"]


UNTOUCHED: dict[str, Any] = {
    "another generator": lambda x: x.uniform_(generator=lu.Generator()),
    "a permutation": lambda x: lu.randperm(5),
    "no formula": lambda x: x.cauchy_(),
    "no draw": lambda x: x * 2,
}


@pytest.mark.parametrize("name", UNTOUCHED)
def test_other_draws_stay(name: str) -> None:
    graph = pure(lambda x: UNTOUCHED[name](x.clone()), (6, 8))
    made, key = count_draws(graph, default_generator)
    assert key is None
    assert made is graph


def test_probabilities_for_each_element() -> None:
    def fn(p: Any) -> Any:
        return draw_each(p, "bernoulli", None, p.dtype, default_generator)

    graph = pure(fn, (40, 50))
    made, key = count_draws(graph, default_generator)
    assert key is not None
    kernel = backends.get("cpu").fuse(made)
    p = np.linspace(0, 1, 2000, dtype=np.float32).reshape(40, 50)
    out = guest(np.zeros((40, 50)), dt.float32)
    kernel([guest(p, dt.float32), guest(np.array([1, 2]), dt.int64)], [out])
    assert out.values.reshape(-1)[:200].mean() < 0.15
    assert out.values.reshape(-1)[-200:].mean() > 0.85


def test_backward_computes_the_mask_again() -> None:
    def step(x: Any) -> Any:
        y = x.detach().requires_grad_()
        z = lu.nn.functional.dropout(y.sin(), 0.25)
        return lu.autograd.grad((z.cumsum(0) ** 2).sum(), y)[0]

    graph, _ = count_draws(pure(step, (6, 8)), default_generator)
    graph = dead.run(cse.run(graph))
    count = [n.op.name for n in graph.nodes].count("counted_draw")
    made = separate_draws(graph)
    verify(made)
    assert count == 1
    draws = [n for n in made.nodes if n.op.name == "counted_draw"]
    assert len(draws) == 2
    assert draws[0].args == draws[1].args


def test_keys_follow_the_seed() -> None:
    lu.manual_seed(3)
    first = [new_key().tolist() for _ in range(3)]
    state = lu.get_rng_state()
    more = new_key().tolist()
    lu.manual_seed(3)
    assert [new_key().tolist() for _ in range(3)] == first
    lu.set_rng_state(state)
    assert new_key().tolist() == more
    assert len({tuple(k) for k in [*first, more]}) == 4
