"""Small programs that planted bugs were missed without: see `python -m tests.compiler.mutants`."""

from __future__ import annotations

from typing import Any

import pytest

import lucerne as torch


def compiled(fn: Any) -> Any:
    return torch.compile(fn, fullgraph=True)


# ---- arguments of two storages in one memory ----------------------------------------------------


def added_twice(a: Any, b: Any) -> Any:
    a.add_(b)
    a.add_(b)
    return b * 1


def cleared_and_added(a: Any, b: Any) -> Any:
    b.zero_()
    a.add_(3.0)
    return a + b


def written_between(a: Any, b: Any) -> Any:
    before = b.flip(0)
    a.mul_(2.0)
    return before - b.flip(0)


@pytest.mark.parametrize("fn", [added_twice, cleared_and_added, written_between])
def test_what_is_written_to_a_tensor_is_seen_in_its_data(fn: Any) -> None:
    """`x` and `x.data` count their writes apart: two storages, one memory."""
    results = []
    for run in (fn, compiled(fn)):
        x = torch.arange(5.0)
        results.append((run(x, x.data).tolist(), x.tolist()))
    assert results[0] == results[1]


# ---- a part of a constant -----------------------------------------------------------------------


def rows_of_the_second_half(x: Any) -> Any:
    places = torch.tensor(list(range(100)))
    return x[places[50:]]


def taken_from_the_end(x: Any) -> Any:
    places = torch.tensor([[3, 1], [2, 0]])
    return x.index_select(0, places[1]), x.index_select(0, places[0])


@pytest.mark.parametrize("fn", [rows_of_the_second_half, taken_from_the_end])
def test_a_part_of_a_constant_begins_where_it_begins(fn: Any) -> None:
    x = torch.arange(100.0)
    want, got = fn(x), compiled(fn)(x)
    for a, b in zip(want if isinstance(want, tuple) else [want], _several(got), strict=True):
        assert a.tolist() == b.tolist()


def _several(x: Any) -> Any:
    return x if isinstance(x, tuple) else [x]


# ---- operands inside of a kernel ----------------------------------------------------------------


def test_operands_are_rounded_inside_of_a_kernel_too() -> None:
    """257 is 256 in bfloat16, whose step there is 2: the first product is 256, not 257, and the
    difference of both is 0, not -1 (which a kernel that keeps 257 would find)."""

    def fn(a: Any, b: Any) -> Any:
        return a * b - a

    a = torch.tensor([257, 1025, 3, 513], dtype=torch.int32)
    b = torch.tensor([1.0, 0.5, 3.0, 2.0], dtype=torch.bfloat16)
    want = [0.0, -512.0, 6.0, 512.0]
    assert fn(a, b).tolist() == want
    assert compiled(fn)(a, b).tolist() == want


# ---- a quotient that looks like softmax ---------------------------------------------------------


def share(x: Any) -> Any:
    return x / x.sum(-1, keepdim=True)


def share_of_exponentials(x: Any) -> Any:
    e = x.exp()
    return e / e.sum(-1, keepdim=True)


@pytest.mark.parametrize(("fn", "value"), [(share, 1e-40), (share_of_exponentials, -95.0)])
def test_a_sum_whose_reciprocal_is_no_number_divides(fn: Any, value: float) -> None:
    """A softmax's sum is at least one, so it multiplies by the reciprocal; other sums may be so
    small that theirs is infinite."""
    x = torch.full((3, 5), value)
    assert compiled(fn)(x).tolist() == fn(x).tolist()
    torch.testing.assert_close(fn(x), torch.full((3, 5), 0.2))
