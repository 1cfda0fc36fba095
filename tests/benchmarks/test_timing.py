"""The clocks of the benchmarks."""

import time
from collections.abc import Callable

from benchmarks.timing import best_in_turn


def ticking() -> Callable[[], float]:
    """A clock on which the first time taken is long, and every other one is 1."""
    ticks = iter([0.0, 5.0, *(float(n) for n in range(5, 100_000))])
    return lambda: next(ticks)


def test_the_best_time_of_each_side_is_taken() -> None:
    sides = {"a": lambda: None, "b": lambda: None}
    assert best_in_turn(sides, ticking(), rounds=1) == {"a": 5.0, "b": 1.0}
    assert best_in_turn(sides, ticking(), rounds=2) == {"a": 1.0, "b": 1.0}
    assert best_in_turn(sides, ticking(), rounds=2, calls=4)["b"] == 0.25


def test_sides_are_asked_in_turn_for_the_time_given() -> None:
    asked: list[str] = []
    sides = {"a": lambda: asked.append("a"), "b": lambda: asked.append("b")}
    start = time.perf_counter()
    assert set(best_in_turn(sides, rounds=2, seconds=0.01)) == {"a", "b"}
    assert time.perf_counter() - start >= 0.01
    assert asked[:4] == ["a", "b", "a", "b"]
