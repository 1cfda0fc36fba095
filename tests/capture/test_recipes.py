"""Whole programs inside of one compiled function do what they do uncompiled."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from typing import Any

import pytest

import lucerne as torch
from lucerne import nn
from tests.capture.recipes import RECIPES

F = nn.functional


def _alike(a: Any, b: Any) -> bool:
    if isinstance(a, torch.Tensor):
        if not isinstance(b, torch.Tensor) or (a.shape, a.dtype) != (b.shape, b.dtype):
            return False
        if a.dtype.is_floating_point:
            return torch.allclose(a, b, rtol=1e-5, atol=1e-6, equal_nan=True)
        return torch.equal(a, b)
    if isinstance(a, dict):
        return isinstance(b, dict) and list(a) == list(b) and _alike([*a.values()], [*b.values()])
    if isinstance(a, (list, tuple)):
        same = type(a) is type(b) and len(a) == len(b)
        return same and all(_alike(x, y) for x, y in zip(a, b, strict=True))
    if isinstance(a, float):
        return isinstance(b, float) and math.isclose(a, b, rel_tol=1e-5, abs_tol=1e-6)
    return type(a) is type(b) and a == b


def _run(function: Callable[..., Any]) -> Any:
    torch.manual_seed(0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return function(torch, nn, F)


@pytest.mark.parametrize("recipe", RECIPES, ids=lambda f: f.__name__)
def test_compiled_as_eager(recipe: Callable[..., Any]) -> None:
    want = _run(recipe)
    compiled = torch.compile(recipe, mode="bitwise")
    for _ in range(2):
        assert _alike(_run(compiled), want)


def test_differences_are_seen() -> None:
    one = {"a": [torch.ones(2), (1, 2.0, None)]}
    assert _alike(one, {"a": [torch.ones(2), (1, 2.0, None)]})
    for other in (
        {"a": [torch.ones(2) + 1e-3, (1, 2.0, None)]}, {"a": [torch.ones(3), (1, 2.0, None)]},
        {"a": [torch.ones(2), (1, 2.1, None)]}, {"a": [torch.ones(2), (1, 2.0, 0)]},
        {"b": one["a"]}, {"a": [None, (1, 2.0, None)]}, {"a": [torch.ones(2), [1, 2.0, None]]},
    ):  # fmt: skip
        assert not _alike(one, other)
