"""The watch runs."""

from __future__ import annotations

import gc

import pytest

from tests.support import pace


def test_the_shortest_of_some_runs() -> None:
    steps = iter([30_000, 1000, 30_000])
    assert pace.fastest(lambda: sum(range(next(steps)))) < pace.fastest(lambda: sum(range(20_000)))
    assert gc.isenabled()


def test_a_bound_grows_with_the_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pace, "_QUIET", 1e3)
    assert pace.slowness() == 1
    monkeypatch.setattr(pace, "_QUIET", 1e-6)
    assert pace.slowness() > 50
