"""The watch runs."""

from __future__ import annotations

import gc
import time
from pathlib import Path

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


def test_a_process_without_a_turn_is_not_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    threads = {name: tmp_path / name / "schedstat" for name in ("7", "8")}
    for file in threads.values():
        file.parent.mkdir()
        file.write_text("5 1000000000 1\n")
    clock = iter([100.0, 110.0, 120.0, 130.0, 200.0])
    monkeypatch.setattr(time, "monotonic", lambda: next(clock))
    monkeypatch.setattr(pace, "Path", lambda name: tmp_path)
    watch = pace.Watch(1)
    assert watch.seconds() == 10  # it slept, or ran
    threads["7"].write_text("5 9000000000 1\n")
    assert watch.seconds() == 20 - 8
    threads["7"].unlink()
    threads["7"].parent.rmdir()
    threads["8"].write_text("5 3000000000 1\n")
    assert watch.seconds() == 30 - 8 - 2  # what an ended thread has waited stays
    threads["8"].write_text("5 999000000000 1\n")
    assert watch.seconds() == 100 / pace.Watch.MOST  # in the end the clock decides
