"""A sample of `python -m tests.keys`, and keys in Python."""

from __future__ import annotations

import itertools
import math
from typing import Any

import pytest

import lucerne as torch
from lucerne._src.base.exact import exact
from tests.keys import pairs

SAMPLE = (
    ("full", "int64"), ("fill_", "uint8"), ("masked_fill", "int64"), ("where", "int64"),
    ("clamp min", "int64"), ("clamp min", "float32"), ("add_", "int64"), ("or", "int64"),
    ("floor_divide", "int64"), ("remainder", "int64"), ("copysign", "float32"), ("pad", "int64"),
    ("index", "int64"), ("sum", "float32"), ("narrow", "float32"), ("tril", "float32"),
    ("and", "float32"), ("softmax", "float32"), ("nan_to_num", "float32"), ("std", "float64"),
    ("arange", "float32"),
)  # fmt: skip


@pytest.mark.parametrize(("call", "dtype"), SAMPLE)
def test_a_call_does_not_depend_on_what_ran_before(call: str, dtype: str) -> None:
    assert list(pairs.confused(call, dtype)) == []


def test_a_confused_cache_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    known: dict[Any, Any] = {}
    full = torch.full
    monkeypatch.setitem(pairs.CALLS, "cached", lambda x, m, v: known.setdefault(v, full((2,), v)))
    monkeypatch.setattr(pairs.plans, "clear_plans", known.clear)
    assert len(list(pairs.confused("cached", "float32", (0.0, -0.0)))) == 4
    assert len(list(pairs.confused("cached", "int64", (1, True, 1.0)))) > 0


def test_exact_keys_are_equal_only_for_equal_values() -> None:
    def spelt(v: Any) -> tuple[type, str]:
        sign = "-" if isinstance(v, float) and math.copysign(1.0, v) < 0 else ""
        return type(v), sign + repr(v)

    for a, b in itertools.product(pairs.VALUES, repeat=2):
        assert (exact(a) == exact(b)) == (spelt(a) == spelt(b)), (a, b)
    assert exact((1, (2.0, True))) == exact((1, (2.0, True)))


def test_the_smallest_number_after_nought() -> None:
    """The very calls that were confused: the top bit of a word was lost."""
    limits = torch.iinfo(torch.int64)
    y = torch.tensor([5, -5])
    for few, other in ((0, limits.min), (-1, limits.max), (2**62, -(2**62))):
        torch.full((2,), few)
        assert torch.full((2,), other).tolist() == [other] * 2
        y.masked_fill(y > 0, few)
        assert y.masked_fill(y > 0, other).tolist() == [other, -5]
    y[0]
    with pytest.raises(IndexError):
        y[limits.min]


GUARDED = (True, 1, 1.0, False, 0, 0.0, -0.0, math.nan, 2**62, -(2**62), None, "a", 0j,
           complex(0, -0.0))  # fmt: skip


def test_compiled_functions_tell_arguments_apart() -> None:
    """Guards on values: what Python calls equal is another argument."""

    def f(x: Any, s: Any) -> Any:
        return x + len(repr(s)), repr(s), type(s).__name__

    x = torch.zeros(2)
    for a, b in itertools.permutations(GUARDED, 2):
        g = torch.compile(f)
        g(x, a)
        tensor, text, kind = g(x, b)
        assert (text, kind) == (repr(b), type(b).__name__)
        assert tensor.tolist() == [len(repr(b))] * 2
