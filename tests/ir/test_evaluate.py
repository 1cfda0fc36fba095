"""Formulas as code give what the formulas give; guards of metas hold in every trace."""

from __future__ import annotations

import operator
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

import lucerne as torch
from lucerne._src.base.device import device
from lucerne._src.ir.meta import make_meta
from lucerne._src.ir.symbolic.evaluate import evaluator, predicate, things_at
from lucerne._src.ir.symbolic.expressions import CHOICES, Guard, symbol
from lucerne._src.ir.symbolic.numbers import (
    SymInt,
    choice,
    double_bits,
    formula,
    guarding,
    if_at_least,
    larger,
    least,
    most,
    to_int,
    values_at,
)

NAMES = ["s0", "s1"]
_RELATIONS = [operator.lt, operator.le, operator.eq, operator.ne, operator.ge, operator.gt]


def numbers(depth: int) -> Any:
    """Integers that follow from two sizes."""
    leaf = st.one_of(st.integers(1, 70), st.sampled_from(NAMES))
    if not depth:
        return leaf
    inner = numbers(depth - 1)
    return st.one_of(
        leaf,
        st.tuples(st.sampled_from("+*/%-"), inner, inner),
        st.tuples(st.sampled_from(["least", "most", "int", "bits"]), inner, inner),
        st.tuples(st.just("if"), inner, inner, inner, inner),
    )


def built(tree: Any, sizes: dict[str, Any]) -> Any:
    if isinstance(tree, str):
        return sizes[tree]
    if isinstance(tree, int):
        return tree
    op, *args = tree
    a, b, *rest = [built(x, sizes) for x in args]
    if op == "if":
        return if_at_least(a, b, *rest)
    if op in "/%":
        b = most(b, 1)
        return a // b if op == "/" else a % b
    if op == "int":
        return to_int(larger(a * 1.5, b / 3))
    if op == "bits":
        return double_bits(a * 0.25) % 1000 + b
    plain = {"+": operator.add, "*": operator.mul, "-": operator.sub, "least": least, "most": most}
    return plain[op](a, b)


SIZES = st.integers(2, 300)


@given(st.lists(numbers(3), min_size=1, max_size=4), SIZES, SIZES, SIZES, SIZES)
def test_formulas_are_the_numbers_of_any_size(
    trees: list[Any], a: int, b: int, c: int, d: int
) -> None:
    hints = {"s0": SymInt(a, symbol("s0")), "s1": SymInt(b, symbol("s1"))}
    with guarding() as guards:
        found = [built(t, hints) for t in trees]
    there = {"s0": c, "s1": d}
    expected = [built(t, there) for t in trees]
    if all(g.holds(there) for g in guards):
        assert evaluator([formula(x) for x in found], NAMES)(c, d) == expected
        assert things_at([tuple(found)], NAMES)(c, d) == [tuple(expected)]
    assert predicate(guards, NAMES)(c, d) == all(g.holds(there) for g in guards)


@given(numbers(2), numbers(2), st.sampled_from(_RELATIONS), st.booleans(), SIZES, SIZES)
def test_a_predicate_asks_what_its_guards_ask(
    left: Any, right: Any, relation: Any, result: bool, a: int, b: int
) -> None:
    hints = {name: SymInt(9, symbol(name)) for name in NAMES}
    with guarding():
        guard = Guard(formula(built(left, hints)), relation, formula(built(right, hints)), result)
    assert predicate([guard], NAMES)(a, b) == guard.holds({"s0": a, "s1": b})


def test_a_formula_without_a_value_holds_for_nothing() -> None:
    n = symbol("s0")
    guard = Guard(10 // (n - 5), operator.ge, symbol("s1"), True)
    assert not predicate([guard], NAMES)(5, 2)
    assert predicate([guard], NAMES)(6, 2)


def test_a_choice_is_made_once_for_all_its_results() -> None:
    calls = []

    def cut(n: int, m: int) -> tuple[int, ...]:
        calls.append((n, m))
        return n // m, n % m

    CHOICES.append(cut)
    with guarding():
        found = choice(len(CHOICES) - 1, (SymInt(17, symbol("s0")), 5))
    evaluate = evaluator([formula(x) for x in found], ["s0"])
    calls.clear()
    assert evaluate(23) == [4, 3]
    assert calls == [(23, 5)]
    assert [formula(x).at({"s0": 31}) for x in found] == [6, 1]


def test_a_number_is_that_of_the_sizes_it_is_asked_at() -> None:
    n = SymInt(20, symbol("s0"))
    with values_at({"s0": 33}):
        assert f"{n} of {n + 1}" == "33 of 34"
        assert n > 32


def test_a_meta_that_is_met_again_leaves_its_guards_again() -> None:
    def guards() -> tuple[list[Guard], Any]:
        with guarding() as found:
            n = SymInt(16, symbol("s0"))
            kept = make_meta(torch.float32, (4, n), (16, 1), device("cpu"))  # dense if s0 is 16
        return list(found), kept

    first, kept = guards()
    second, again = guards()
    assert kept is again
    assert first == second
    assert first
