"""Rows whose squares need care, beside rows that do not: the code of both is not the same."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import lucerne as torch

KINDS: dict[str, Callable[[Any], Any]] = {
    "ordinary": lambda row: row,
    "huge": lambda row: row * 1e30,
    "tiny": lambda row: row * 1e-30,
    "far from nought": lambda row: row * 1e-3 + 1e4,
    "all equal": lambda row: row * 0 + 0.1,
    "an infinity": lambda row: torch.cat([row[:1] / 0, row[1:]]),
    "not a number": lambda row: torch.cat([row[:1] * float("nan"), row[1:]]),
}
FUNCTIONS: dict[str, tuple[Callable[..., Any], Callable[..., Any]]] = {
    "norm": (lambda x, d: x.norm(dim=d), lambda x, d: np.sqrt((x * x).sum(d))),
    "std": (lambda x, d: x.std(d), lambda x, d: x.std(d, ddof=1)),
    "var": (lambda x, d: x.var(d), lambda x, d: x.var(d, ddof=1)),
    "std beside norm": (
        lambda x, d: x.std(d) + 0 * x.norm(dim=d).isnan(), lambda x, d: x.std(d, ddof=1),
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", FUNCTIONS)
@pytest.mark.parametrize("dim", [1, 0])
@settings(max_examples=60, deadline=None)
@given(
    kinds=st.lists(st.sampled_from(sorted(KINDS)), min_size=1, max_size=37),
    columns=st.sampled_from([2, 7, 16, 33, 100, 1500]),
    compiled=st.booleans(),
)
def test_each_row_is_right_whatever_the_others_are(
    name: str, dim: int, kinds: list[str], columns: int, compiled: bool
) -> None:
    check(name, dim, kinds, columns, compiled)


@pytest.mark.parametrize("name", FUNCTIONS)
@pytest.mark.parametrize("dim", [1, 0])
@pytest.mark.parametrize("kind", KINDS)
def test_folds_in_pieces(name: str, dim: int, kind: str) -> None:
    """Few rows, so long that several threads share one: a walk may be left out for all of them."""
    check(name, dim, ["ordinary"], 140_000, False)
    check(name, dim, ["ordinary", kind, "ordinary"], 140_000, False)


def check(name: str, dim: int, kinds: list[str], columns: int, compiled: bool) -> None:
    ours, exact = FUNCTIONS[name]
    torch.manual_seed(len(kinds))
    rows = torch.randn(len(kinds), columns)
    x = torch.stack([KINDS[kind](rows[n]) for n, kind in enumerate(kinds)])
    x = x if dim else x.t().contiguous()
    found = (_COMPILED[name, dim](x) if compiled else ours(x, dim)).numpy()
    with np.errstate(all="ignore"):
        wanted = exact(x.numpy().astype(np.float64), dim)
        # Of equal numbers NumPy's own mean is rounded.
        wanted[np.array([k == "all equal" and name != "norm" for k in kinds])] = 0
        np.testing.assert_allclose(found, wanted.astype(np.float32), rtol=2e-5, atol=0)


_COMPILED = {
    (name, dim): torch.compile(functools.partial(ours, d=dim))
    for name, (ours, _) in FUNCTIONS.items()
    for dim in (0, 1)
}


@pytest.mark.parametrize("p", [1.0, 2.0, float("inf")])
def test_gradient_of_renorm_does_not_vanish(p: float) -> None:
    """Scaling the rows only scales the gradient: 1 / norm^2 is nowhere needed."""

    def gradient(scale: float) -> Any:
        x = (torch.arange(12.0).reshape(3, 4) + 1) * scale
        x.requires_grad_()
        (x.renorm(p, 0, 0.5) * torch.arange(12.0).reshape(3, 4)).sum().backward()
        assert x.grad is not None
        return x.grad * scale

    np.testing.assert_allclose(gradient(2.0**100), gradient(1.0), rtol=1e-5, atol=1e-6)
