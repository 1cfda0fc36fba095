"""One of the killed runs; `python -m tests.runs` makes fifty."""

from __future__ import annotations

import tempfile
from typing import Any

import pytest

from tests.runs import __main__ as killing
from tests.runs import train


def test_a_killed_run_ends_with_the_same_bits() -> None:
    assert killing.check(1) == 0


@pytest.mark.nightly
def test_killed_runs_end_with_the_same_bits() -> None:
    assert killing.check(10) == 0


def test_a_lost_part_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the optimizer's state the end differs: the comparison can fail."""
    whole = train.RunState

    class Forgetful(whole):  # type: ignore[misc, valid-type]
        def __init__(self, **parts: Any) -> None:
            parts.pop("optimizer")
            super().__init__(**parts)

    with tempfile.TemporaryDirectory() as folder:
        wanted = train.train(folder, 12, 0)
    with tempfile.TemporaryDirectory() as folder:
        train.train(folder, 12, 0, stop=8)
        assert train.train(folder, 12, 0) == wanted
    monkeypatch.setattr(train, "RunState", Forgetful)
    with tempfile.TemporaryDirectory() as folder:
        train.train(folder, 12, 0, stop=8)
        assert train.train(folder, 12, 0) != wanted
