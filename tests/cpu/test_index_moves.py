"""gather, scatter, advanced indexing and nonzero of the CPU engine against the reference."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lucerne._src.backends.cpu.index.walk import IndexDim, plan_walk
from lucerne._src.backends.cpu.runtime import pool
from lucerne._src.base import dtype as dt
from lucerne._src.ir import op as op_
from lucerne._src.ir.graph import one_op_graph
from tests.cpu.calls import LAYOUTS, check, executable, guest, inputs_of, numbers, outcome, run

DTYPES = (
    dt.float32, dt.float64, dt.float16, dt.bfloat16, dt.int64, dt.int32, dt.int8, dt.uint8,
    dt.bool_, dt.complex64, dt.complex128,
)  # fmt: skip
FOLDS = ("set", "add", "mul", "max", "min")
SHAPES: tuple[tuple[int, ...], ...] = ((), (7,), (4, 9), (3, 5, 40))


def _index(rng: np.random.Generator, size: int, shape: tuple[int, ...], low: int = 0) -> Any:
    return rng.integers(low, size, shape) if size else np.zeros(shape, np.int64)


@pytest.mark.parametrize("dtype", DTYPES, ids=lambda t: t.name)
def test_gather_along_every_dimension(dtype: dt.dtype) -> None:
    rng = np.random.default_rng(1)
    for shape in SHAPES:
        for dim in range(max(1, len(shape))):
            taken = tuple(6 if d == dim else n for d, n in enumerate(shape))
            index = guest(_index(rng, shape[dim] if shape else 1, taken), dt.int64)
            for layout in LAYOUTS:
                check(
                    "gather", [guest(numbers(rng, dtype, shape), dtype, layout), dim, index, False]
                )


@pytest.mark.parametrize("fold", FOLDS)
@pytest.mark.parametrize("dtype", DTYPES, ids=lambda t: t.name)
def test_scatter_folds_where_positions_repeat(dtype: dt.dtype, fold: str) -> None:
    if dtype.is_complex and fold not in ("set", "add"):
        pytest.skip("the reference does it")
    rng = np.random.default_rng(2)
    for shape, dim in (((5,), 0), ((6, 8), 0), ((6, 8), 1), ((3, 4, 5), 1)):
        taken = tuple(9 if d == dim else n for d, n in enumerate(shape))
        layout = LAYOUTS[dim]
        kind = dt.int32 if dim else dt.int64
        index = guest(_index(rng, shape[dim], taken), kind, layout)
        values = guest(np.minimum(numbers(rng, dtype, taken), 1), dtype, layout)
        target = guest(numbers(rng, dtype, shape), dtype, layout)
        check("scatter", [target, dim, index, values, fold], 2e-2 if dtype.digits < 12 else 0)


INDEXINGS: tuple[tuple[tuple[int, ...], tuple[Any, ...]], ...] = (
    ((5, 6), ((3,), None)), ((5, 6), (None, (4,))), ((5, 6), ((3,), (3,))),
    ((5, 6), ((3, 1), (4,))), ((4, 5, 6), ((2,), None, (2,))), ((4, 5, 6), (None, (2, 2), (2,))),
    ((4, 5, 6), ((0,),)), ((300, 70), ((400,),)),
)  # fmt: skip


@pytest.mark.parametrize("dtype", DTYPES, ids=lambda t: t.name)
def test_advanced_indexing_reads_and_writes(dtype: dt.dtype) -> None:
    rng = np.random.default_rng(3)
    for k, (shape, listed) in enumerate(INDEXINGS):
        layout = LAYOUTS[k % 3]
        indices = tuple(
            None if s is None else guest(_index(rng, shape[d], s, -shape[d]), dt.int64, layout)
            for d, s in enumerate(listed)
        )
        source = guest(numbers(rng, dtype, shape), dtype, layout)
        check("index", [source, indices, True])
        (read,) = run("index", [source, indices, True], engine=False)
        values = guest(numbers(rng, dtype, read._meta.shape), dtype, layout)
        for accumulate in (False, True):
            close = 2e-2 if accumulate and dtype.digits in (8, 11) else 0
            check("index_put", [source, indices, values, accumulate, True], close)


BAD: tuple[tuple[str, list[Any]], ...] = (
    ("gather", [1, [[0, 4], [-9, 7]], False]),
    ("gather", [0, [[0, 3]], False]),
    ("scatter", [1, [[4]], "add"]),
    ("scatter", [0, [[-1]], "set"]),
    ("index", [[[0, 3]], True]),
    ("index", [[None, [0, -5]], True]),
    ("index", [[[-1, 0]], False]),
    ("index_put", [[[0, 1], [9, -8]], False, True]),
)


@pytest.mark.parametrize(("name", "rest"), BAD, ids=str)
def test_positions_out_of_bounds_are_refused_in_the_same_words(name: str, rest: list[Any]) -> None:
    source = guest(np.arange(12.0).reshape(3, 4), dt.float32)
    if name in ("gather", "scatter"):
        dim, index, last = rest
        at = guest(index, dt.int64)
        middle = [] if name == "gather" else [guest(np.ones(at._meta.shape), dt.float32)]
        check(name, [source, dim, at, *middle, last])
        return
    indices = tuple(None if i is None else guest(i, dt.int64) for i in rest[0])
    given = [guest(1.0, dt.float32)] if name == "index_put" else []
    check(name, [source, indices, *given, *rest[1:]])


def test_written_in_place_nothing_changes_when_an_index_is_wrong() -> None:
    op = op_.get("index_put")
    target = guest(np.zeros((4, 3)), dt.float32)
    args = [target, (guest([1, 9], dt.int64),), guest(5.0, dt.float32), False, True]
    metas = (target._meta, (args[1][0]._meta,), args[2]._meta, False, True)
    call = executable(one_op_graph(op, metas, (target._meta,)), engine=True)
    with pytest.raises(IndexError):
        call(inputs_of(op, args), [target])
    assert not target.values.any()
    args[1][0].fill(np.array([1, 3]))
    call(inputs_of(op, args), [target])
    assert target.values.sum(1).tolist() == [0, 15, 0, 15]


def test_results_do_not_depend_on_the_number_of_threads() -> None:
    rng = np.random.default_rng(4)
    table = guest(rng.standard_normal((50, 300)), dt.float32)
    rows = (guest(rng.integers(0, 50, 900), dt.int64),)
    values = guest(rng.standard_normal((900, 300)), dt.float32)
    index = guest(rng.integers(0, 50, (900, 300)), dt.int64)
    before, found = pool.threads(), []
    try:
        for threads in (1, 2, 4):
            pool.set_threads(threads)
            found.append(
                [
                    outcome("index_put", [table, rows, values, True, True], engine=True)[0],
                    outcome("scatter", [table, 0, index, values, "add"], engine=True)[0],
                ]
            )
    finally:
        pool.set_threads(before)
    for other in found[1:]:
        for a, b in zip(found[0], other, strict=True):
            assert a.tobytes() == b.tobytes()


@pytest.mark.parametrize("dtype", DTYPES, ids=lambda t: t.name)
def test_nonzero_lists_positions_in_order(dtype: dt.dtype) -> None:
    rng = np.random.default_rng(5)
    op = op_.get("nonzero")
    for shape in ((), (0,), (1000,), (7, 3), (2, 70), (3, 2, 90)):
        values = np.where(rng.random(shape) < 0.5, numbers(rng, dtype, shape), 0)
        for layout in LAYOUTS:
            x = guest(values, dtype, layout)
            found, kind = executable(one_op_graph(op, (x._meta,), ()), True)([x], [])
            assert kind is dt.int64
            np.testing.assert_array_equal(found, np.argwhere(values))


dims = st.lists(
    st.tuples(st.integers(1, 6), st.integers(0, 40), st.integers(0, 40), st.booleans()),
    min_size=1,
    max_size=4,
)


@given(dims)
@settings(max_examples=60)
def test_a_walk_visits_every_element_once_and_keeps_bound_loops_whole(listed: Any) -> None:
    given_dims = [IndexDim(n, (8 * a, 8 * b), free) for n, a, b, free in listed]
    walk = plan_walk(given_dims, 8)
    assert walk.numel == int(np.prod([d.size for d in given_dims]))
    bound = [d.size for d in walk.dims if not d.free]
    assert int(np.prod(bound)) == int(np.prod([d.size for d in given_dims if not d.free]))
    if not all(d.free for d in walk.dims[:-1]):
        tail = next(k for k, d in enumerate(walk.dims) if not d.free)
        assert walk.chunk_rows % int(np.prod([d.size for d in walk.dims[tail:-1]])) == 0
    assert walk.pieces == 1 or walk.inner.free
    assert walk.pieces * walk.piece >= walk.inner.size
