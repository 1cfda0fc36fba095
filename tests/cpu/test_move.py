"""Data movement of the CPU engine against the reference: the same bits everywhere."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import lucerne
from lucerne._src.backends.cpu.elementwise.space import BROADCAST, TURNED, UNIT, iteration_space
from lucerne._src.base import dtype as dt
from tests.cpu.both import HOST, LAYOUTS, Both, Tensor, check_same, tensor

DTYPES = (
    dt.float32, dt.float64, dt.bfloat16, dt.float16, dt.int64, dt.int32, dt.int16, dt.int8,
    dt.uint8, dt.uint16, dt.uint32, dt.uint64, dt.bool_, dt.complex64, dt.complex128, dt.complex32,
    dt.float8_e4m3fn, dt.float8_e5m2, dt.float8_e4m3fnuz, dt.float8_e5m2fnuz, dt.float8_e8m0fnu,
)  # fmt: skip
RARE = frozenset(t for t in DTYPES if t.name.startswith(("float8", "complex", "uint1", "uint3")))
"""Dtypes that are cast from and to the commonest ones only."""
SIZES = (dt.uint8, dt.int16, dt.float32, dt.complex64, dt.complex128)
SHAPES = ((), (1,), (5,), (2, 0, 3), (9, 40), (33, 17), (3, 5, 4, 9), (2, 3, 20, 18), (70, 130))


def same(name: str, args: list[Any]) -> None:
    call = Both(name, args)
    assert check_same(call, exact=True)
    assert not call.fell_back


@pytest.mark.parametrize("source", DTYPES, ids=lambda t: t.name)
def test_cast_from_each_dtype_to_each(source: dt.dtype) -> None:
    rng = np.random.default_rng(0)
    for target in DTYPES:
        rare = source in RARE or target in RARE
        if source is not target and (not rare or {source, target} & {dt.float32, dt.int64}):
            with np.errstate(all="ignore"):
                check_same(Both("cast", [tensor(rng, source, (67,)), target]), exact=True)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("dtype", SIZES, ids=lambda t: t.name)
def test_copies_between_layouts(dtype: dt.dtype, layout: str) -> None:
    rng = np.random.default_rng(1)
    for shape in SHAPES:
        x = tensor(rng, dtype, shape, layout)
        same("clone_as", [x, lucerne.contiguous_format])
        for goal in ("plain", "turned", "sliced"):
            target = tensor(rng, dtype, shape, goal)
            same("copy", [target, x])
        if len(shape) == 4 and len(x._meta.shape) == 4:
            same("clone_as", [x, lucerne.channels_last])


def test_copy_converts_and_fills() -> None:
    rng = np.random.default_rng(2)
    for goal in ("plain", "turned", "sliced"):
        target = tensor(rng, dt.int32, (12, 30), goal)
        same("copy", [target, tensor(rng, dt.float32, (30,))])
        same("copy", [target, 7])
        same("copy", [target, -2.5])
        same("copy", [tensor(rng, dt.bfloat16, (12, 30), goal), 1.001])
        same("copy", [tensor(rng, dt.complex64, (12, 30), goal), 1 + 2j])


@pytest.mark.parametrize("dtype", DTYPES, ids=lambda t: t.name)
def test_fills_and_counts(dtype: dt.dtype) -> None:
    for value in (0, 3, 1.5, True):
        same("filled", [(3, 50), value, dtype, HOST, None])
    if dtype.category in (dt.INTEGER, dt.FLOAT):
        for start, step in ((0, 1), (-3, 2), (0.5, 0.25), (1, 0.1)):
            same("counted", [start, step, 45, dtype, HOST])


@pytest.mark.parametrize("dtype", SIZES, ids=lambda t: t.name)
def test_joins_and_flips(dtype: dt.dtype) -> None:
    rng = np.random.default_rng(3)
    for layout in ("plain", "turned", "sliced", "expanded"):
        for dim in (0, 1, 2):
            parts = []
            for n in (1, 5, 0, 16):
                shape = [7, 9, 8]
                shape[dim] = n
                parts.append(tensor(rng, dtype, shape, layout))
            same("cat", [tuple(parts), dim])
        for dims in ((0,), (1,), (2,), (0, 2), (0, 1, 2)):
            same("flip", [tensor(rng, dtype, (7, 9, 80), layout), dims])
    same("flip", [tensor(rng, dtype, (0, 3)), (0,)])


@pytest.mark.parametrize("dtype", SIZES, ids=lambda t: t.name)
def test_padding(dtype: dt.dtype) -> None:
    rng = np.random.default_rng(4)
    for shape in ((4, 5, 6), (3, 60, 150), (0, 2, 3)):
        for low, high, interior in (
            ((0, 0, 0), (0, 0, 0), (0, 0, 0)),
            ((1, 2, 3), (3, 2, 1), (0, 0, 0)),
            ((0, 1, 0), (2, 0, 5), (0, 2, 1)),
        ):
            for layout in ("plain", "turned"):
                same("padded", [tensor(rng, dtype, shape, layout), 3, low, high, interior])


@pytest.mark.parametrize("shape", [(1000, 900), (4, 300, 400), (2, 20, 64, 80)])
def test_large_transposes_run_in_chunks(shape: tuple[int, ...]) -> None:
    rng = np.random.default_rng(5)
    for dtype in (dt.uint8, dt.float32, dt.float64):
        same("clone_as", [tensor(rng, dtype, shape, "turned"), lucerne.contiguous_format])
    x = tensor(rng, dt.float32, shape)
    same("cat", [(x, x), 1])
    same("flip", [x, (1,)])


def test_nothing_runs_for_uninitialized_memory() -> None:
    call = Both("uninitialized", [(3, 4), dt.float32, HOST, None])
    out = Tensor(call.out_meta)
    call.engine.compile(call.graph)([], [out])
    assert (out._storage.buffer == 0xA5).all()


# ---- iteration spaces ---------------------------------------------------------------------------


@st.composite
def strided_operands(draw: Any) -> Any:
    shape = draw(st.lists(st.integers(1, 4), max_size=4))
    order = draw(st.permutations(range(len(shape))))
    size = draw(st.sampled_from((1, 4, 16)))
    out, step = [0] * len(shape), size * draw(st.integers(1, 2))
    for d in order:
        out[d], step = step, step * shape[d]
    others = draw(
        st.lists(
            st.lists(st.integers(-3, 12), min_size=len(shape), max_size=len(shape)), max_size=2
        )
    )
    return shape, [(out, size), *(([4 * s for s in o], 4) for o in others)]


def addresses(sizes: Any, strides: Any) -> list[Any]:
    return sorted(
        tuple(sum(i * s for i, s in zip(place, steps, strict=True)) for steps in strides)
        for place in np.ndindex(*sizes)
    )


@given(strided_operands())
def test_a_space_visits_every_element_once(given_: Any) -> None:
    shape, operands = given_
    space = iteration_space(shape, operands)
    assert addresses(space.sizes, space.strides) == addresses(shape, [s for s, _ in operands])


def test_ways_through_a_space() -> None:
    rows = iteration_space((8, 6), [((24, 4), 4), ((24, 4), 4), ((0, 4), 4), ((4, 0), 4)])
    assert rows.ways == UNIT + UNIT + UNIT + BROADCAST
    assert rows.sizes == (6, 8)
    turned = iteration_space((20, 30), [((120, 4), 4), ((4, 80), 4)])
    assert turned.ways == UNIT + TURNED
    flat = iteration_space((8, 6, 5), [((120, 20, 4), 4), ((120, 20, 4), 4)])
    assert flat.flat
    assert flat.sizes == (240,)
    pixels = iteration_space((2, 16, 10, 10), [((6400, 4, 640, 64), 4), ((6400, 400, 40, 4), 4)])
    assert pixels.ways == UNIT + TURNED
    assert pixels.sizes == (16, 100, 2)
