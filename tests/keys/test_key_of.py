"""Keys of calls: what they tell apart, and when there is none."""

from __future__ import annotations

from typing import Any

import pytest

import lucerne as torch
from lucerne._src.ir import op as op_
from lucerne._src.tensor.eager.keys import key_of, metas_of, results_of

X, Y = torch.ones(2, 3), torch.ones(3)
G = torch.ones(2, 3, requires_grad=True)


class Own(torch.Tensor):
    """A type that is not plain."""


OWN = torch.ones(2, 3).as_subclass(Own)

ROWS: list[tuple[str, tuple[Any, ...], bool, bool]] = [
    ("add2", (X, Y), True, False),
    ("add2", (G, Y), True, True),
    ("add2", (Y, G), True, True),
    ("add2", (X, 1.0), True, False),
    ("add2", (1, G), True, True),
    ("add2", (OWN, X), False, False),
    ("add2", (X, "a word"), False, False),
    ("sum", (G, (0,), False, None), True, True),
    ("cat", ((X, G), 0), True, True),
    ("cat", ((X, OWN), 0), False, False),
    ("cat", ([X, X], 0), False, False),
]
"""Op, arguments, whether there is a key, whether one of them needs a gradient."""


@pytest.mark.parametrize(("name", "args", "keyed", "grad"), ROWS)
def test_key(name: str, args: tuple[Any, ...], keyed: bool, grad: bool) -> None:
    key, needs = key_of(op_.get(name), args)
    assert (key is not None) is keyed
    assert not keyed or needs is grad


ALIKE = [
    ("add2", (X, 1), (X, 1.0)), ("add2", (X, True), (X, 1)), ("add2", (X, Y), (X, X)),
    ("sum", (X, (0,), True, None), (X, (0,), 1, None)), ("cat", ((X, X), 0), ((X,), 0)),
]  # fmt: skip


@pytest.mark.parametrize(("name", "one", "other"), ALIKE)
def test_what_python_calls_equal_is_told_apart(name: str, one: Any, other: Any) -> None:
    op = op_.get(name)
    assert key_of(op, one)[0] == key_of(op, one)[0] != key_of(op, other)[0]


def test_types_that_answer_nothing_have_a_key_where_they_are_named() -> None:
    op = op_.get("add2")
    assert key_of(op, (OWN, OWN), {Own})[0] == key_of(op, (X, X))[0]


def test_metas_of_results_follow_the_default_dtype() -> None:
    op = op_.get("true_divide")
    whole = torch.ones(2, dtype=torch.int64)
    asked = lambda: results_of(op, metas_of(op, (whole, whole)), (whole, whole))[0].dtype  # noqa: E731
    try:
        assert asked() is torch.float32
        torch.set_default_dtype(torch.float64)
        assert asked() is torch.float64
    finally:
        torch.set_default_dtype(torch.float32)
