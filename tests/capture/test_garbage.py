"""Programs that compile again and again keep no garbage of their captures."""

from __future__ import annotations

import dataclasses
import gc
import weakref
from typing import Any

import pytest

import lucerne
from lucerne._src.base.process.garbage import Unhurried
from lucerne._src.capture.compiled import Compiled
from lucerne._src.capture.effects import new_objects
from lucerne._src.ir import dispatch


def _alive_after(count: int) -> int:
    """How many of so many compiled functions, each used once, are still there."""
    functions = []

    def once(k: int) -> None:
        def fn(x: lucerne.Tensor) -> lucerne.Tensor:
            return fn.scale * x.sin()  # type: ignore[attr-defined, no-any-return]

        fn.scale = k  # type: ignore[attr-defined]
        lucerne.compile(fn)(lucerne.ones(3))
        functions.append(weakref.ref(fn))

    for k in range(count):
        once(k % 4)
    return sum(ref() is not None for ref in functions)


def test_garbage_of_captures_is_swept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(new_objects, "_LEAST_SWEPT", 4_000)
    monkeypatch.setattr(new_objects, "_SHARE", 1 << 60)  # however large the process is
    monkeypatch.setattr(new_objects._sweep, "limit", 4_000)
    monkeypatch.setattr(new_objects._sweep, "unseen", 0)
    monkeypatch.setattr(new_objects._sweep, "swept", 0)
    gc.collect()
    assert _alive_after(100) <= 95


def test_without_the_sweep_it_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    """The collector forgets what was set aside: the test above can fail."""
    monkeypatch.setattr(new_objects._sweep, "limit", 1 << 60)
    gc.collect()
    assert _alive_after(100) == 100


def test_a_user_who_turned_the_collector_off_keeps_it_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(new_objects._sweep, "limit", 0)
    gc.disable()
    try:
        before = gc.get_stats()[2]["collections"]
        lucerne.compile(lambda x: x * 3)(lucerne.ones(2))
        assert gc.get_stats()[2]["collections"] == before
    finally:
        gc.enable()


def test_what_the_collector_calls_is_no_matter_of_the_function() -> None:
    """It comes between any two instructions, also while native code asks `__lt__` of objects."""

    @dataclasses.dataclass(order=True)
    class Key:
        number: int

    phases: list[str] = []
    inside: list[str] = []

    def note(phase: str) -> None:
        phases.append(phase)
        inside.extend(k for k, f in [("trace", dispatch.capturing())] if f)

    def callback(phase: str, info: dict[str, int]) -> None:
        note(phase)

    def fn(x: lucerne.Tensor) -> lucerne.Tensor:
        for key in sorted([Key(3), Key(1), Key(2)]):
            x = x * key.number + len(f"{key}")
        return x

    before = gc.get_threshold()
    gc.callbacks.append(callback)
    gc.set_threshold(1)
    try:
        found = lucerne.compile(fn, fullgraph=True)(lucerne.ones(3))
    finally:
        gc.set_threshold(*before)
        gc.callbacks.remove(callback)
    assert found.equal(fn(lucerne.ones(3)))
    assert phases.count("start") > 10
    assert inside, "the collector never came while the function was traced"


def test_the_oldest_objects_are_not_looked_at_while_something_is_compiled(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A deep model makes objects for seconds, which nearly all stay."""
    seen: list[int] = []
    made = Compiled._make

    def make(self: Compiled, *given: Any) -> Any:
        seen.append(gc.get_threshold()[2])
        return made(self, *given)

    monkeypatch.setattr(Compiled, "_make", make)
    before = gc.get_threshold()
    lucerne.compile(lambda x: x * 3)(lucerne.ones(2))
    assert seen
    assert seen[0] > 1000 * before[2]
    assert gc.get_threshold() == before


def test_a_threshold_that_is_set_inside_stays() -> None:
    before = gc.get_threshold()
    try:
        with Unhurried(young=True):
            gc.set_threshold(500, 7, 3)
        assert gc.get_threshold() == (500, 7, 3)
    finally:
        gc.set_threshold(*before)
