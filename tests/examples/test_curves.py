"""The first steps of every example on both frameworks; `python -m tests.examples` makes 200."""

from __future__ import annotations

import pytest

from tests.examples.curves import NEEDS, SLOW, Comparison, compare, names

pytestmark = pytest.mark.torch


ROWS = [pytest.param(n, marks=[pytest.mark.nightly] if n in SLOW else []) for n in names()]


@pytest.mark.parametrize("name", ROWS)
def test_first_steps_agree(name: str) -> None:
    if name in NEEDS:
        pytest.importorskip(NEEDS[name], reason=f"examples/{name} reads data from that package")
    found = compare(name, 3)
    assert found.passed, found.line()


LOG = {"losses": [1.0, 0.5], "initial": "a", "seconds": 0.0}
WRONG = [{"initial": "b"}, {"losses": [1.0, 0.501]}]


@pytest.mark.parametrize("change", WRONG)
def test_a_difference_is_noticed(change: dict[str, object]) -> None:
    assert Comparison("same", LOG, LOG).passed
    assert not Comparison("other", LOG, LOG | change).passed
