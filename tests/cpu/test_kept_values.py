"""Values that a later pass over the same elements needs again are kept in scratch memory, side by
side: no row may write over what another keeps, however long rows are and however memory lies."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import lucerne as torch

COSTLY: list[Callable[[Any], Any]] = [
    torch.sin, torch.exp, torch.tanh, lambda v: torch.sin(v * 3), torch.sigmoid,
    lambda v: torch.exp(-v), torch.cos, lambda v: torch.tanh(v / 2), torch.atan, torch.erf,
]  # fmt: skip
"""Worth keeping: to compute them again takes longer than to read them."""

LAYOUTS: dict[str, Callable[[int, int, int, Any], Any]] = {
    "in a row": lambda a, b, c, kind: torch.randn(a, b, c, dtype=kind),
    "part of longer rows": lambda a, b, c, kind: torch.randn(a, b, c + 3, dtype=kind)[..., :c],
    "rows apart": lambda a, b, c, kind: torch.randn(a, 2 * b, c, dtype=kind)[:, ::2],
    "turned": lambda a, b, c, kind: torch.randn(c, b, a, dtype=kind).permute(2, 1, 0),
    "channels last": lambda a, b, c, kind: torch.randn(b, c, a, dtype=kind).permute(2, 0, 1),
}
DIMS = [None, (1, 2), (0, 2), (0, 1), 2, 1, 0]


def program(kept: int, dim: Any) -> Callable[[Any], Any]:
    """As many costly values as that, each folded first and needed again with the sums."""

    def fn(v: Any) -> Any:
        values = [f(v) for f in COSTLY[:kept]]
        total = v
        for k, value in enumerate(values):
            total = total + value * value.sum(dim, keepdim=True) * (k + 1)
        return total

    return fn


def check(sizes: tuple[int, int, int], layout: str, kept: int, dim: Any, kind: Any) -> None:
    torch.manual_seed(0)
    v = LAYOUTS[layout](*sizes, kind).mul_(0.5)  # in place: another result would lie in a row
    fn = program(kept, dim)
    torch.testing.assert_close(
        torch.compile(fn, fullgraph=True)(v), fn(v), rtol=1e-5, atol=1e-5 * max(1, v.numel() / 50)
    )


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("kept", [1, 2, 3, 10])
def test_rows_that_are_no_whole_vectors(layout: str, kept: int) -> None:
    for sizes in ((2, 2, 2), (2, 3, 17), (3, 5, 7)):
        for dim in (None, (1, 2)):
            check(sizes, layout, kept, dim, torch.float32)


@settings(max_examples=40, deadline=None)
@given(
    st.tuples(st.integers(1, 5), st.integers(1, 9), st.integers(1, 70)),
    st.sampled_from(list(LAYOUTS)), st.integers(1, 4), st.sampled_from(DIMS),
    st.sampled_from([torch.float32, torch.float64]),
)  # fmt: skip
def test_any_rows(sizes: tuple[int, int, int], layout: str, kept: int, dim: Any, kind: Any) -> None:
    check(sizes, layout, kept, dim, kind)


@pytest.mark.parametrize("row", [815, 816, 1638, 3276, 3277])
def test_as_many_as_there_is_room_for(row: int) -> None:
    """Ten values of rows around the size at which they are no longer kept."""
    for rows in (1, 2, 4):
        check((1, rows, row), "part of longer rows", 10, None, torch.float32)
