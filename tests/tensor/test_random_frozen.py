"""The random streams as literals: for machines without PyTorch, and against silent change."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from lucerne._src.tensor.random import Generator

f32 = np.float32

FROZEN: list[tuple[str, Callable[[Generator], Any], list[Any]]] = [
    ("words32", lambda g: g.words32(4), [2525503112, 3251949050, 3002649184, 3172895360]),
    (
        "words64",
        lambda g: g.words64(3),
        [10846953275238174202, 12896280049813981824, 3470791090525271588],
    ),
    (
        "rand",
        lambda g: g.uniform(4),
        [0.5317158699035645, 0.8312679529190063, 0.9718379974365234, 0.11930084228515625],
    ),
    (
        "rand float64",
        lambda g: g.uniform(3, kind="float64"),
        [0.25372732026738665, 0.7747043317543358, 0.33521823650125215],
    ),
    (
        "rand bfloat16",
        lambda g: g.uniform(4, kind="bfloat16"),
        [0.53125, 0.83203125, 0.97265625, 0.119140625],
    ),
    (
        "rand float16",
        lambda g: g.uniform(4, kind="float16"),
        [0.53173828125, 0.8310546875, 0.9716796875, 0.11932373046875],
    ),
    (
        "uniform",
        lambda g: g.uniform(4, -0.1, 0.1),
        [0.006343174260109663, 0.06625359505414963, 0.0943676009774208, -0.07613983005285263],
    ),
    (
        "uniform float64",
        lambda g: g.uniform(3, -0.1, 0.1, "float64"),
        [-0.049254535946522675, 0.054940866350867174, -0.03295635269974957],
    ),
    (
        "randn blocks",
        lambda g: g.normal(20)[[0, 3, 8, 15, 19]],
        [
            -1.2262355089187622,
            -0.4656696021556854,
            0.7130761742591858,
            0.6343358159065247,
            0.6530144214630127,
        ],
    ),
    (
        "normal blocks",
        lambda g: g.normal(16, 0.3, 0.02)[:4],
        [0.27547529339790344, 0.29981371760368347, 0.3308391571044922, 0.29068660736083984],
    ),
    (
        "randn bfloat16",
        lambda g: g.normal(17, kind="bfloat16")[-4:],
        [0.99609375, 0.9375, 1.4140625, 0.6328125],
    ),
    (
        "randn pairs libm",
        lambda g: g.normal(3, kind="float64"),
        [-0.04042916736941367, 1.72599212022981, -0.8140387642807665],
    ),
    (
        "randn float64 libm",
        lambda g: g.normal(16, kind="float64")[[0, 8]],
        [-0.7040247420378066, 0.2994621994006874],
    ),
    ("randint", lambda g: g.randint(6, -5, 100), [57, 30, 89, 0, 58, 0]),
    ("randint wide", lambda g: g.randint(2, 0, 2**40), [587367501306, 415489755776]),
    (
        "random_ int64",
        lambda g: g.random_full_range(2, "int64"),
        [1623581238383398394, 3672908012959206016],
    ),
    ("random_ uint8", lambda g: g.random_full_range(5, "uint8"), [136, 250, 96, 128, 27]),
    (
        "random_ float32",
        lambda g: g.random_full_range(3, "float32"),
        [8920562.0, 13946169.0, 16304558.0],
    ),
    ("randperm", lambda g: g.randperm(10), [2, 3, 0, 8, 7, 5, 1, 9, 4, 6]),
    ("bernoulli", lambda g: g.bernoulli_scalar(6, 0.5), [True, False, True, False, False, True]),
    (
        "bernoulli tensor",
        lambda g: g.bernoulli_tensor(np.linspace(0, 1, 6, dtype=f32)),
        [False, False, False, True, True, True],
    ),
    (
        "exponential libm",
        lambda g: g.exponential(3, 0.5, "float64"),
        [0.5853284462712973, 2.9806833166695794, 0.8165929347547953],
    ),
    (
        "log_normal libm",
        lambda g: g.log_normal(2, 0.2, 0.5, "float64"),
        [1.1969604873702948, 2.895031697788926],
    ),
    ("cauchy libm", lambda g: g.cauchy(2, kind="float64"), [-0.976850571359654, 1.168649712497302]),
    ("geometric", lambda g: g.geometric(6, 0.3), [4.0, 1.0, 4.0, 1.0, 1.0, 5.0]),
    ("multinomial", lambda g: g.multinomial(np.array([[1, 2, 3, 4.0]]), 3), [[2, 0, 3]]),
    (
        "multinomial replacement",
        lambda g: g.multinomial(np.array([[1, 2, 3, 4.0]]), 6, True),
        [[1, 3, 2, 3, 3, 1]],
    ),
    ("poisson", lambda g: g.poisson(np.array([0.5, 3, 30, 300])), [0.0, 4.0, 28.0, 297.0]),
    (
        "binomial",
        lambda g: g.binomial(np.array([9, 50.0, 400]), np.array([0.2, 0.9, 0.5])),
        [2.0, 44.0, 187.0],
    ),
    (
        "gamma libm",
        lambda g: g.standard_gamma(np.array([0.3, 2]), "float64"),
        [0.41869245656762316, 0.7593548784331032],
    ),
    (
        "dirichlet libm",
        lambda g: g.dirichlet(np.array([[0.3, 2, 5]]), "float64"),
        [[0.0664322583333323, 0.12048380299060049, 0.8130839386760672]],
    ),
]


@pytest.mark.parametrize(("name", "draw", "expected"), FROZEN, ids=[f[0] for f in FROZEN])
def test_frozen(name: str, draw: Callable[[Generator], Any], expected: list[Any]) -> None:
    drawn = draw(Generator().manual_seed(2024))
    if name.endswith("libm"):  # another libm may differ in the last bit
        np.testing.assert_allclose(drawn, expected, rtol=3e-15)
    else:
        assert drawn.tolist() == expected
