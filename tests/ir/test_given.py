"""Numbers that are read anew: they calculate like floats, and tell what was decided by them."""

from __future__ import annotations

import operator
import pickle
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lucerne._src.base.unspecialized import GivenFloat, as_number, watching

FLOATS = st.floats(0.125, 8.0)
TWO = [
    operator.add, operator.sub, operator.mul, operator.truediv, operator.pow, operator.mod,
    operator.floordiv,
]  # fmt: skip
RELATIONS = [operator.eq, operator.ne, operator.lt, operator.le, operator.gt, operator.ge]


def number(value: float) -> tuple[GivenFloat, dict[str, float]]:
    owner = {"x": value}
    return GivenFloat(value, (owner, "x")), owner


@given(FLOATS, FLOATS, FLOATS, st.sampled_from(TWO), st.sampled_from(TWO))
def test_formulas_follow_the_source(
    a: float, b: float, later: float, f: Callable[..., Any], h: Callable[..., Any]
) -> None:
    x, owner = number(a)

    def formula(v: Any) -> Any:
        return -h(b, f(v, b)) + f(b, v) * v - abs(v)

    def plain(v: float) -> Any:
        try:
            return formula(v)
        except (ZeroDivisionError, OverflowError) as error:
            return type(error)

    if type(plain(a)) is not float or type(plain(later)) is not float:
        return
    with watching() as uses:
        y = formula(x)
    assert type(y) is GivenFloat
    assert not uses
    assert float.__pos__(y) == plain(a) == y.now()
    owner["x"] = later
    assert y.now() == plain(later)


@given(FLOATS, FLOATS, FLOATS, st.sampled_from(RELATIONS))
def test_relations_are_told(a: float, b: float, later: float, relation: Any) -> None:
    x, owner = number(a)
    with watching() as uses:
        answer = relation(x, b)
        assert relation(b, x) == relation(b, a)
    assert answer == relation(a, b)
    assert len(uses) == 2
    assert all(u.holds() for u in uses)
    owner["x"] = later
    assert uses[0].holds() == (relation(later, b) == answer)


VALUE_USES: dict[str, Callable[[Any], Any]] = {
    "float": float, "int": int, "hash": hash, "round": round, "complex root": lambda x: (-x) ** 0.5,
}  # fmt: skip


@pytest.mark.parametrize("name", VALUE_USES)
def test_uses_of_the_value_hold_for_the_value_only(name: str) -> None:
    x, owner = number(2.5)
    with watching() as uses:
        found = VALUE_USES[name](x)
    assert found == VALUE_USES[name](2.5)
    assert type(found) is not GivenFloat
    assert all(u.holds() for u in uses)
    owner["x"] = 2.75
    assert not all(u.holds() for u in uses)


def test_truth_holds_for_all_numbers_but_zero() -> None:
    x, owner = number(2.5)
    with watching() as uses:
        assert x
    owner["x"] = 9.0
    assert uses[0].holds()
    owner["x"] = 0.0
    assert not uses[0].holds()


def test_as_number_keeps_it() -> None:
    x, _ = number(2.5)
    assert as_number(x) is x
    assert type(as_number(3)) is float


def test_outside_of_a_watch_nothing_is_told() -> None:
    x, _ = number(2.5)
    assert x == 2.5


def test_a_pickle_is_a_plain_float() -> None:
    x, _ = number(2.5)
    assert type(pickle.loads(pickle.dumps(x))) is float
