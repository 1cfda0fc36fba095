"""Symbolic sizes: the algebra obeys the laws of integers."""

from __future__ import annotations

import operator
import pickle
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from lucerne.ir.symbols import (
    RELATIONS,
    Expr,
    Guard,
    SymInt,
    bounds,
    decide,
    expr,
    guarding,
    maximum,
    minimum,
    parse,
    plain,
    symbol,
)

NAMES = ("a", "b", "c")
SIZES = st.fixed_dictionaries({n: st.integers(2, 40) for n in NAMES})
PAIRS = {
    "add": operator.add, "sub": operator.sub, "mul": operator.mul, "floordiv": operator.floordiv,
    "mod": operator.mod, "min": min, "max": max,
}  # fmt: skip
SYMBOLIC: dict[str, Any] = {**PAIRS, "min": minimum, "max": maximum}

TREES = st.recursive(
    st.one_of(st.sampled_from(NAMES), st.integers(-6, 12)),
    lambda inner: st.tuples(st.sampled_from(sorted(PAIRS)), inner, inner),
    max_leaves=7,
)


def built(tree: Any) -> Expr:
    if isinstance(tree, tuple):
        found: Expr = SYMBOLIC[tree[0]](built(tree[1]), built(tree[2]))
        return found
    return symbol(tree) if isinstance(tree, str) else expr(tree)


def counted(tree: Any, sizes: dict[str, int]) -> int:
    if isinstance(tree, tuple):
        return int(PAIRS[tree[0]](counted(tree[1], sizes), counted(tree[2], sizes)))
    return sizes[tree] if isinstance(tree, str) else tree


def both(tree: Any, sizes: dict[str, int]) -> tuple[Expr, int]:
    try:
        return built(tree), counted(tree, sizes)
    except ZeroDivisionError:
        assume(False)
        raise


@given(TREES, SIZES)
def test_an_expression_is_what_it_computes(tree: Any, sizes: dict[str, int]) -> None:
    e, value = both(tree, sizes)
    assert e.at(sizes) == value


@given(TREES, SIZES)
def test_text_can_be_parsed(tree: Any, sizes: dict[str, int]) -> None:
    e, _ = both(tree, sizes)
    assert parse(repr(e)) == e
    assert pickle.loads(pickle.dumps(e)) == e
    assert hash(parse(repr(e))) == hash(e)


@given(TREES, SIZES)
def test_values_lie_within_bounds(tree: Any, sizes: dict[str, int]) -> None:
    e, value = both(tree, sizes)
    low, high = bounds(e)
    assert low <= value <= high


@given(TREES, TREES, SIZES, st.sampled_from(sorted(RELATIONS, key=str)))
def test_what_is_decided_is_so(a: Any, b: Any, sizes: dict[str, int], relation: Any) -> None:
    (e, v), (f, w) = both(a, sizes), both(b, sizes)
    answer = decide(relation, e, f)
    assert answer is None or answer == relation(v, w)


@given(TREES, TREES, SIZES)
def test_substitution_is_evaluation(a: Any, b: Any, sizes: dict[str, int]) -> None:
    (e, _), (f, w) = both(a, sizes), both(b, sizes)
    try:
        assert e.replace({"a": f}).at(sizes) == e.at({**sizes, "a": w})
        assert e.replace(sizes).constant == e.at(sizes)
    except ZeroDivisionError:
        assume(False)


@given(TREES, TREES, TREES, SIZES)
def test_polynomials_have_one_form(a: Any, b: Any, c: Any, sizes: dict[str, int]) -> None:
    e, f, g = (both(x, sizes)[0] for x in (a, b, c))
    assert (e + f) * g == g * f + e * g
    assert e - f == -(f - e)
    assert (e - f) * (e + f) == e**2 - f * f


@given(TREES, SIZES, st.integers(1, 9))
def test_what_divides_is_divided(tree: Any, sizes: dict[str, int], n: int) -> None:
    e, _ = both(tree, sizes)
    assert (e * n) // n == e
    assert (e * n) % n == 0
    a = symbol("a")
    assert (e * a) // a == e
    assert (e * a) % a == 0


A, B = symbol("a"), symbol("b")
FORMS = {
    "(a + 1) * b - b": ((A + 1) * B - B, "a*b"),
    "(4a + 2) // 4": ((4 * A + 2) // 4, "a"),
    "(a + 3) // 2": ((A + 3) // 2, "((a + 1)//2) + 1"),
    "(ab + b) // (a + 1)": ((A * B + B) // (A + 1), "b"),
    "min(a, a + b)": (minimum(A, A + B), "a"),
    "max(a, 2)": (maximum(A, 2), "a"),
    "min(a, min(b, 7))": (minimum(A, minimum(B, 7)), "min(7, a, b)"),
    "(a % b) % b": (A % B % B, "(a%b)"),
    "nothing": (A - A, "0"),
}


@pytest.mark.parametrize("name", FORMS)
def test_normal_forms(name: str) -> None:
    e, text = FORMS[name]
    assert repr(e) == text


DECIDED = [
    (decide(operator.gt, A, 1), True), (decide(operator.eq, A, 1), False),
    (decide(operator.ge, A * B, A + B), True), (decide(operator.lt, A, A + B), True),
    (decide(operator.gt, A, 32), None), (decide(operator.eq, A, B), None),
    (decide(operator.eq, A * 2, A + A), True), (decide(operator.gt, A // 2, 0), True),
    (decide(operator.lt, A % 4, 4), True), (decide(operator.le, minimum(A, B), A), None),
]  # fmt: skip


@pytest.mark.parametrize("k", range(len(DECIDED)))
def test_decisions(k: int) -> None:
    found, wanted = DECIDED[k]
    assert found is wanted


def test_mistakes() -> None:
    with pytest.raises(ZeroDivisionError):
        A // 0
    with pytest.raises(ZeroDivisionError):
        A % (B - B)
    for text in ("a ** 2", "f(a)", "1.5", "a.b"):
        with pytest.raises(ValueError, match="no size"):
            parse(text)
    with pytest.raises(ValueError, match="identifier"):
        symbol("a b")


# ---- sizes in running Python --------------------------------------------------------------------


@given(TREES, SIZES)
def test_symints_calculate_like_ints(tree: Any, sizes: dict[str, int]) -> None:
    def run(t: Any) -> Any:
        if isinstance(t, tuple):
            return PAIRS[t[0]](run(t[1]), run(t[2]))
        return SymInt(sizes[t], symbol(t)) if isinstance(t, str) else t

    _, value = both(tree, sizes)
    with guarding() as guards:
        found = run(tree)
    assert plain(found) == value
    assert type(plain(found)) is int
    assert expr(found).at(sizes) == value
    assert all(g.holds(sizes) for g in guards)


def test_guards_are_what_was_decided() -> None:
    n = SymInt(20, symbol("n"))
    with guarding() as guards:
        assert not n > 32
        assert n * 2 == 40
        assert n  # at least two: always so
        assert n >= 2
        assert n * 2 == 40
    assert list(guards) == [
        Guard(symbol("n"), operator.gt, expr(32), False),
        Guard(2 * symbol("n"), operator.eq, expr(40), True),
    ]
    first, second = guards
    assert first.holds({"n": 32})
    assert not first.holds({"n": 33})
    assert not second.holds({"n": 21})


def test_outside_nothing_is_guarded() -> None:
    n = SymInt(20, symbol("n"))
    assert n > 3
    assert n != 3


def test_a_symint_is_an_int_elsewhere() -> None:
    n = SymInt(3, symbol("n"))
    assert list(range(n)) == [0, 1, 2]
    assert "abc"[: n - 1] == "ab"
    assert {3: "three"}[n] == "three"
    assert n / 2 == 1.5
    assert n * 0.5 == 1.5
    assert type(n * 0.5) is float
    assert abs(-n) == 3
    assert type(n - n) is int
    assert type(pickle.loads(pickle.dumps(n))) is int
    assert f"{n}" == "3"
