"""`nn.init` draws what torch draws: the same bits, and the generator is left in the same state."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.nn.agree import assert_agree, assert_equal

pytestmark = pytest.mark.torch
SHAPES = [(3, 4), (40, 30), (5, 3, 3, 3)]
FILLS: dict[str, Callable[[Any, Any], Any]] = {
    "uniform_": lambda i, x: i.uniform_(x, -2.0, 3.0),
    "normal_": lambda i, x: i.normal_(x, 1.0, 2.0),
    "constant_": lambda i, x: i.constant_(x, 0.3),
    "ones_": lambda i, x: i.ones_(x),
    "zeros_": lambda i, x: i.zeros_(x),
    "xavier_uniform_": lambda i, x: i.xavier_uniform_(x, i.calculate_gain("relu")),
    "xavier_normal_": lambda i, x: i.xavier_normal_(x, i.calculate_gain("tanh")),
    "kaiming_uniform_": lambda i, x: i.kaiming_uniform_(x, 0.3, "fan_out"),
    "kaiming_normal_": lambda i, x: i.kaiming_normal_(x, nonlinearity="relu"),
    "trunc_normal_": lambda i, x: i.trunc_normal_(x),
    "trunc_normal_ narrow": lambda i, x: i.trunc_normal_(x, 0.0, 1.0, 0.5, 0.6),
    "trunc_normal_ shifted": lambda i, x: i.trunc_normal_(x, 0.3, 2.0, -1.0, 0.6),
}


@pytest.mark.parametrize("dtype", ["float32", "float64", "bfloat16"])
@pytest.mark.parametrize("name", FILLS)
def test_same_bits(name: str, dtype: str) -> None:
    def case(t: Any) -> Any:
        drawn = [FILLS[name](t.nn.init, t.zeros(s, dtype=getattr(t, dtype))) for s in SHAPES]
        return [[x.double() for x in drawn], t.get_rng_state()]

    assert_equal(case)


def test_own_generator() -> None:
    def case(t: Any) -> Any:
        g = t.Generator()
        g.manual_seed(7)
        init, x = t.nn.init, t.zeros(6, 5)
        drawn = [init.xavier_normal_(x, generator=g).clone()]
        drawn.append(init.trunc_normal_(x, generator=g).clone())
        drawn.append(init.kaiming_uniform_(x, generator=g).clone())
        return [drawn, g.get_state(), t.get_rng_state()]

    assert_equal(case)


def test_structured() -> None:
    def case(t: Any) -> Any:
        init = t.nn.init
        return [
            init.sparse_(t.zeros(30, 20), 0.3),
            init.eye_(t.zeros(4, 5)),
            init.dirac_(t.zeros(6, 2, 3, 3), 2),
            init.dirac_(t.zeros(6, 2, 3)),
            init.dirac_(t.zeros(6, 2, 3, 4, 5), 3),
        ]

    assert_equal(case)


def test_orthogonal_agrees() -> None:
    """Not to the bit: the matrices come from another QR."""

    def case(t: Any) -> Any:
        return [[t.nn.init.orthogonal_(t.zeros(s), 2.0) for s in SHAPES], t.get_rng_state()]

    assert_agree(case, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("param", [None, 0.2, 2])
def test_gains(param: Any) -> None:
    names = ["linear", "conv_transpose2d", "sigmoid", "tanh", "relu", "leaky_relu", "selu"]

    def case(t: Any) -> Any:
        return [t.nn.init.calculate_gain(name, param) for name in names]

    assert_equal(case)


def test_keeps_requires_grad_and_records_nothing() -> None:
    def case(t: Any) -> Any:
        x = t.zeros(3, 3, requires_grad=True)
        found = t.nn.init.trunc_normal_(x)
        return [found is x, x.requires_grad, x.grad_fn is None]

    assert_equal(case)
