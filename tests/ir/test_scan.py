"""A decision tried at many sizes at once comes out as it does size by size."""

from __future__ import annotations

import operator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lucerne._src.ir.symbolic.expressions import Guard, defined, expr, minimum, symbol
from lucerne._src.ir.symbolic.scan import first_wrong

N = symbol("n")
NUMBERS = st.one_of(st.integers(-9, 9), st.integers(2**20, 2**34))
FORMULAS = st.recursive(
    st.one_of(st.just(N), NUMBERS.map(expr)),
    lambda inner: st.one_of(
        st.tuples(inner, inner).map(lambda p: p[0] + p[1]),
        st.tuples(inner, inner).map(lambda p: p[0] * p[1]),
        st.tuples(inner, inner).map(lambda p: minimum(*p)),
        st.tuples(inner, st.integers(1, 7)).map(lambda p: p[0] // p[1]),
        st.tuples(inner, st.integers(-7, -1)).map(lambda p: p[0] // p[1]),
        st.tuples(inner, st.integers(1, 7)).map(lambda p: p[0] % p[1]),
    ),
    max_leaves=6,
)
ORDER = (operator.eq, operator.ne, operator.lt, operator.le, operator.gt, operator.ge)
RANGES = (range(2, 60), range(40, 1, -1), range(5, 5), range(4000, 9000), range(2**31, 2**31 + 9))


@given(
    FORMULAS, st.sampled_from(ORDER), st.one_of(FORMULAS, NUMBERS), st.booleans(),
    st.sampled_from(RANGES),
)  # fmt: skip
def test_as_size_by_size(left: Any, relation: Any, right: Any, result: bool, sizes: range) -> None:
    guard = Guard(left, relation, right, result)
    want = next((n for n in sizes if not guard.holds({"n": n})), None)
    assert first_wrong(guard, "n", sizes) == want


@pytest.mark.parametrize(
    "guard",
    [
        Guard(N, defined, 0),
        Guard(expr(12) // N, operator.lt, 3),
        Guard(N, operator.lt, 7.5),
        Guard(N**5, operator.lt, 10**9),
    ],
    ids=["defined", "by a size", "a float", "large"],
)
def test_what_arrays_cannot_do(guard: Guard) -> None:
    sizes = range(2, 5000)
    want = next((n for n in sizes if not guard.holds({"n": n})), None)
    assert first_wrong(guard, "n", sizes) == want
