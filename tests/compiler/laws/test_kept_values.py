"""Rows that are walked several times: what is kept from one walk to the next is kept until read.

Each function needs `e` (costly, so it is kept) in more than one walk over its rows, and has results
in whose memory it could lie meanwhile.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import lucerne as torch


def total(x: Any) -> Any:
    return x.sum(-1, keepdim=True)


def read_after_the_result(x: Any) -> Any:
    e = torch.exp(x)
    first = e / total(e)  # written in the second walk
    return first, e * total(first * e)  # reads e in the third


def read_by_a_sum_beside_the_result(x: Any) -> Any:
    e = torch.exp(x)
    first = x * total(e)  # written in the second walk, without e
    return first, total(e * total(e))  # which reads e in the same walk


def two_kept_in_two_results(x: Any) -> Any:
    e, s = torch.exp(x), torch.sin(x)
    once, again = total(e), total(s)
    return x * once, e * again + s, total(e * again) * s, total(s * once) - e


def kept_through_three_walks(x: Any) -> Any:
    e = torch.tanh(x)
    a = total(e)
    b = total(e * a)
    c = total(e + b)
    return x * a, x * b, x * c, e * c


FUNCTIONS = [
    read_after_the_result,
    read_by_a_sum_beside_the_result,
    two_kept_in_two_results,
    kept_through_three_walks,
]


def assert_alike(fn: Callable[[Any], Any], x: Any, make: Any = torch.compile) -> None:
    made = make(fn)
    found, wanted = made(x), fn(x)
    assert len(found) == len(wanted)
    for got, want in zip(found, wanted, strict=True):
        torch.testing.assert_close(got, want)
    assert made.given_up is None, made.given_up


@pytest.mark.parametrize("fn", FUNCTIONS, ids=lambda fn: fn.__name__)
@pytest.mark.parametrize("shape", [(2, 3), (3, 40), (33, 5)], ids=str)
def test_kept_until_read(fn: Callable[[Any], Any], shape: tuple[int, ...]) -> None:
    assert_alike(fn, torch.linspace(-1, 1, shape[0] * shape[1]).reshape(shape))


@given(steps=st.lists(st.tuples(*[st.integers(0, 9)] * 3), min_size=2, max_size=7))
@settings(max_examples=12, deadline=None)
def test_random_walks(steps: list[tuple[int, int, int]]) -> None:
    """Values over sums of values over sums, all of them results."""

    def fn(x: Any) -> Any:
        made = [torch.exp(x), torch.sin(x)]
        for how, i, j in steps:
            a, b = made[i % len(made)], made[j % len(made)]
            made.append((a * total(b), total(a) - b, torch.tanh(a) + total(a * b))[how % 3] / 4)
        return made[2:]

    assert_alike(fn, torch.linspace(-1, 1, 15).reshape(3, 5))


def test_the_comparison_fails() -> None:
    with pytest.raises(AssertionError):
        assert_alike(read_after_the_result, torch.ones(2, 2), lambda _: kept_through_three_walks)
    with pytest.raises(AssertionError):
        assert_alike(lambda x: (x,), torch.ones(2, 2), lambda _: lambda x: (x + 1,))
