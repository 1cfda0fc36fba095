"""Native draws continue the generator's stream bit for bit."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from lucerne._src.base import dtype as dt
from lucerne._src.ir import op as op_
from lucerne._src.ir.graph import one_op_graph
from lucerne._src.tensor.random import Generator
from tests.cpu.calls import Array, executable, guest

FLOATS = (dt.float32, dt.float64, dt.float16, dt.bfloat16)
SIZES = (1, 16, 33, 623, 624, 700, 5000)

# distribution, its two numbers, dtypes
DRAWS: tuple[tuple[str, float, float, tuple[dt.dtype, ...]], ...] = (
    ("uniform", 0.0, 1.0, FLOATS),
    ("uniform", -0.7, 1.3, FLOATS),
    ("normal", 0.0, 1.0, FLOATS),
    ("normal", 0.3, 0.02, FLOATS),
    ("bernoulli", 0.3, 0.0, (*FLOATS, dt.bool_, dt.int64, dt.uint8)),
    ("exponential", 1.7, 0.0, FLOATS),
    ("integers", -50, 77, (*FLOATS, dt.int64, dt.int8)),
    ("integers", math.nan, 2, (dt.bool_, dt.int32)),
    ("integers", -(2**40), 2**50, (dt.int64,)),
    ("permutation", 0.0, 0.0, (dt.int64,)),
)


def _drawn(engine: bool, args: tuple[Any, ...], n: int, dtype: dt.dtype) -> tuple[Array, Any]:
    """What a fresh generator gives, after a few words that leave its state inside a block."""
    op = op_.get("draw")
    generator = Generator().manual_seed(7)
    generator.words32(5)
    target, out = guest(np.zeros(n), dtype), guest(np.zeros(n), dtype)
    graph = one_op_graph(op, (target._meta, *args, dtype, generator), (out._meta,))
    executable(graph, engine)([target, *args[1:], generator], [out])
    return out.values.copy(), generator.state_bytes()


@pytest.mark.parametrize(("name", "first", "second", "dtypes"), DRAWS, ids=str)
def test_draws_are_those_of_the_generator(
    name: str, first: float, second: float, dtypes: tuple[dt.dtype, ...]
) -> None:
    for dtype in dtypes:
        for n in SIZES:
            wanted, state = _drawn(False, (name, first, second), n, dtype)
            found, after = _drawn(True, (name, first, second), n, dtype)
            assert found.tobytes() == wanted.tobytes(), (dtype, n)
            np.testing.assert_array_equal(after, state)


@pytest.mark.parametrize("dtype", FLOATS, ids=lambda t: t.name)
def test_bernoulli_by_element(dtype: dt.dtype) -> None:
    op = op_.get("draw_each")
    chances = np.linspace(0, 1, 777)
    results = []
    for engine in (False, True):
        generator = Generator().manual_seed(3)
        source, out = guest(chances, dtype), guest(chances, dtype)
        args = (source._meta, "bernoulli", None, dtype, generator)
        executable(one_op_graph(op, args, (out._meta,)), engine)([source, generator], [out])
        results.append((out.values.tobytes(), generator.state_bytes().tobytes()))
    assert results[0] == results[1]
