"""Code that must raise raises when compiled, used or not, with eager's type and text."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import pytest

import lucerne as torch
from lucerne._src.ir import op as op_
from tests.faults.rows_raising import DTYPES, VALUES, Row

_ROWS = [*VALUES, *DTYPES]


def raised(fn: Callable[..., Any], *args: Any) -> tuple[type, str] | None:
    """What a call raises; None: nothing."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            fn(*args)
    except Exception as error:
        return type(error), str(error).partition("\n")[0]
    return None


def _used(row: Row) -> Callable[..., Any]:
    return lambda *args: row.call(*args)


def _unused(row: Row) -> Callable[..., Any]:
    def run(*args: Any) -> Any:
        row.call(*args)
        return args[0] + 1

    return run


def _unused_in_step(row: Row) -> Callable[..., Any]:
    weight = torch.ones(3, requires_grad=True)

    def run(*args: Any) -> Any:
        row.call(*args)
        (weight * 2).sum().backward()
        return weight.grad

    return run


def _unused_before_backward(row: Row) -> Callable[..., Any]:
    weight = torch.ones(3, requires_grad=True)

    def run(*args: Any) -> Any:
        row.call(*args)
        return (weight * weight).sum()

    return run


WAYS = [_used, _unused, _unused_in_step, _unused_before_backward]


@pytest.mark.parametrize("row", _ROWS, ids=str)
@pytest.mark.parametrize("way", WAYS, ids=lambda w: w.__name__.strip("_"))
def test_what_must_raise_raises(row: Row, way: Callable[[Row], Callable[..., Any]]) -> None:
    want = raised(way(row), *row.given())
    assert want is not None, "the row does not raise in eager mode"
    compiled = torch.compile(way(row))
    assert raised(compiled, *row.given()) == want
    assert raised(compiled, *row.given()) == want, "the second call"


@pytest.mark.parametrize("row", _ROWS, ids=str)
def test_a_graph_that_was_fine_raises(row: Row) -> None:
    """The first call has values that are fine where that can be said; the second has not."""
    good = tuple(
        torch.ones_like(t) if not t.is_floating_point() else t.abs() + 1 for t in row.given()
    )
    fn = _unused(row)
    if raised(fn, *good) is not None:
        pytest.skip("no values are fine for this row")
    compiled = torch.compile(fn)
    assert raised(compiled, *good) is None
    assert raised(compiled, *row.given()) == raised(fn, *row.given())


def test_the_comparison_can_fail() -> None:
    assert raised(lambda: 1) is None
    said = "invalid literal for int() with base 10: 'x'"
    assert raised(lambda: int("x")) == (ValueError, said)


def test_kernels_that_look_at_values_say_so() -> None:
    """Every op of the table whose kernel may fail has the field at its entry."""
    table = op_.table()
    checked = {o.qualified for o in table.values() if o.checks}
    assert {"index", "gather", "scatter", "embedding", "eigh_factors", "floor_divide"} <= checked
