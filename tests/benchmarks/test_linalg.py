"""The benchmark of matrices and transforms: rows that both sides can run, and its verdict."""

from __future__ import annotations

import pytest

from benchmarks import linalg
from benchmarks.timing import Effort

pytestmark = pytest.mark.torch


def effort() -> Effort:
    made = Effort(rounds=1, repeats=1, pause=0.0, seconds=0.01)
    made.one_thread = True
    return made


def test_rows_have_different_names() -> None:
    titles = [row.title for row in linalg.every_row()]
    assert len(set(titles)) == len(titles) > 500


@pytest.mark.parametrize(
    "title", ["inv 4 f32", "solve 16 c64 grad", "rfft 16 f64", "complex.square 10 c64"]
)
def test_a_row_is_measured_on_both_sides(title: str) -> None:
    (row,) = [r for r in linalg.every_row() if r.title == title]
    found = linalg.measure(row, effort())
    assert found.ours > 0
    assert found.theirs > 0
    assert title in linalg.line(found)


def test_the_verdict() -> None:
    row = linalg.every_row()[0]
    assert "MISS" in linalg.line(linalg.Found(row, 2.0, 1.0))
    assert "MISS" not in linalg.line(linalg.Found(row, 1.0, 1.0))
