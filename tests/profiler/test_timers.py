"""`utils.benchmark`: statements timed, and tables of them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import lucerne as torch
from lucerne.utils.benchmark import Compare, Measurement, TaskSpec, Timer
from lucerne.utils.benchmark.measurement import select_unit, trim_sigfig, unit_to_english

SPEC = TaskSpec("f(x)", "x = 1", "", "f", "small", "eager")


def test_timeit_runs_the_statement_so_often_in_so_many_threads() -> None:
    seen: list[int] = []
    before = torch.get_num_threads()
    found = Timer(
        "seen.append(torch.get_num_threads())", globals={"seen": seen}, num_threads=1
    ).timeit(50)
    assert found.number_per_run == 50
    assert len(seen) == 52  # and two before, not counted
    assert set(seen) == {1}
    assert torch.get_num_threads() == before


def test_blocks_are_large_enough_and_there_are_several() -> None:
    told: list[tuple[int, float]] = []
    timer = Timer("x + 1", "x = torch.ones(3)")
    found = timer.blocked_autorange(lambda n, s: told.append((n, s)), min_run_time=0.02)
    assert sum(found.raw_times) >= 0.02
    assert found.number_per_run >= 10
    assert told == [(found.number_per_run, t) for t in found.raw_times]
    assert 1e-9 < found.median < 1e-3


def test_adaptive_runs_end_in_time() -> None:
    found = Timer("sum(range(10))").adaptive_autorange(0.0, min_run_time=0.005, max_run_time=0.02)
    assert sum(found.raw_times) < 0.5
    steady = Timer("sum(range(10))").adaptive_autorange(100.0, min_run_time=0.005)
    assert len(steady.times) > 3


@pytest.mark.parametrize("name", ["repeat", "autorange", "collect_callgrind"])
def test_what_is_not_there_says_so(name: str) -> None:
    with pytest.raises(NotImplementedError):
        getattr(Timer("1"), name)()


def test_senseless_timers_are_refused() -> None:
    with pytest.raises(ValueError, match="only a `str` stmt"):
        Timer(lambda: 1)  # type: ignore[arg-type]
    with pytest.raises(NotImplementedError, match="only Python"):
        Timer("1", language="c++")
    with pytest.raises(ValueError, match="global_setup"):
        Timer("1", global_setup="#include")


@given(st.lists(st.floats(1e-6, 1e3), min_size=1, max_size=30), st.integers(1, 1000))
def test_statistics_equal_numpys(times: list[float], number: int) -> None:
    found = Measurement(number, times, SPEC)
    each = np.array(times) / number
    assert found.median == pytest.approx(np.median(each))
    assert found.mean == pytest.approx(np.mean(each))
    low, high = np.quantile(each, [0.25, 0.75])
    assert found.iqr == pytest.approx(high - low, abs=1e-12)
    assert found.significant_figures >= 1
    assert found.has_warnings == (len(times) > 1 and found.iqr / found.median >= 0.1)


@pytest.mark.torch
@pytest.mark.parametrize(
    "times", [[1.0], [1.0, 1.01, 1.02, 0.99], [0.001, 0.0012, 0.0015, 0.002, 0.003]], ids=str
)
def test_measurements_say_the_same_as_torchs(times: list[float]) -> None:
    theirs_of: Any = pytest.importorskip("torch.utils.benchmark")
    spec = theirs_of.TaskSpec("f(x)", "x = 1", "", "f", "small", "eager")
    theirs, ours = theirs_of.Measurement(100, times, spec), Measurement(100, times, SPEC)
    assert repr(ours).splitlines()[1:] == repr(theirs).splitlines()[1:]
    for name in ("median", "mean", "iqr"):
        assert getattr(ours, name) == pytest.approx(getattr(theirs, name))
    assert ours.significant_figures == theirs.significant_figures
    assert (ours.title, ours.as_row_name) == (theirs.title, theirs.as_row_name)


def test_measurements_of_one_thing_are_merged() -> None:
    other = TaskSpec("g(x)", "pass")
    parts = [Measurement(10, [1.0], SPEC), Measurement(20, [4.0], SPEC), Measurement(1, [1], other)]
    first, second = Measurement.merge(parts)
    assert first.times == [0.1, 0.2]
    assert second.task_spec is other


def test_units_and_digits() -> None:
    assert [select_unit(s)[0] for s in (1e-10, 3e-8, 2e-5, 0.1, 70.0)] == [
        "ns", "ns", "us", "ms", "s",
    ]  # fmt: skip
    assert unit_to_english("ms") == "millisecond"
    assert (trim_sigfig(1234.5, 2), trim_sigfig(0.0, 2), trim_sigfig(0.01234, 1)) == (1200, 0, 0.01)


def test_a_comparison_has_a_row_and_a_column_for_each() -> None:
    def measured(row: str, column: str, us: float, threads: int = 1) -> Measurement:
        return Measurement(1, [us / 1e6], TaskSpec("s", "", "", "L", row, column, None, threads))

    table = Compare([measured("a", "one", 1.0), measured("a", "two", 30.5)])
    table.extend_results([measured("b", "one", 2.0), measured("b", "two", 4.0, threads=2)])
    lines = str(table).splitlines()
    assert "L" in lines[0]
    assert [part.strip() for part in lines[1].split("|")] == ["", "one", "two"]
    assert lines[2].startswith("1 threads: ---")
    assert [part.strip() for part in lines[3].split("|")] == ["a", "1.0", "30.5"]
    assert [part.strip() for part in lines[4].split("|")] == ["b", "2.0", ""]
    assert lines[5].startswith("2 threads: ---")
    assert "Times are in microseconds (us)." in lines
    table.colorize(rowwise=True)
    assert "\033[92m" in str(table)
    with pytest.raises(ValueError, match="Expected an instance of `Measurement`"):
        table.extend_results([1])  # type: ignore[list-item]
