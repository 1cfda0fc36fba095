"""Classes as guards see them: the number of a class stands for all that was looked up in it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from lucerne._src.base.process import class_version
from lucerne._src.capture.effects.stores import MISSING
from lucerne._src.capture.guards import class_state
from lucerne._src.capture.guards.class_state import ClassState, by_class
from lucerne._src.capture.guards.sources import ClassSource, Source


class Base:
    pass


class Kind(Base):
    size = 1


def _guard(kind: type, names: tuple[str, ...]) -> tuple[Callable[[], bool], dict[str, Any]]:
    """The check of what a class holds under some names, and what it runs on."""
    found = [Source(ClassSource(kind), name, ClassSource(kind).find(name)) for name in names]
    states, others = by_class(found)
    assert (len(states), others) == (1, [])
    scope: dict[str, Any] = {}
    body = states[0].line(0, scope)
    exec(f"def unchanged():\n    {body}\n    return True\n", scope)
    return scope["unchanged"], scope


CHANGES: dict[str, tuple[Callable[[], Any], bool]] = {
    "the value": (lambda: setattr(Kind, "size", 2), False),
    "the value, by an equal one": (lambda: setattr(Kind, "size", int("1")), True),
    "a name that was not there": (lambda: setattr(Kind, "depth", property(id)), False),
    "such a name in a base": (lambda: setattr(Base, "depth", 3), False),
    "the bases": (lambda: setattr(Kind, "__bases__", (type("New", (), {"depth": 1}),)), False),
    "the bases, by others without it": (
        lambda: setattr(Kind, "__bases__", (type("New", (), {}),)),
        True,
    ),
    "something nobody read": (lambda: setattr(Kind, "width", 3), True),
}


@pytest.mark.parametrize("numbers", [True, False], ids=["numbers", "none"])
@pytest.mark.parametrize("change", CHANGES.values(), ids=[k.replace(" ", "_") for k in CHANGES])
def test_a_change_is_seen(
    change: tuple[Callable[[], Any], bool], numbers: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not numbers:
        monkeypatch.setattr(class_version, "_IS_THERE", False)
    kept = [(k, dict(vars(k))) for k in (Base, Kind)]
    unchanged, _ = _guard(Kind, ("size", "depth"))
    try:
        assert unchanged()
        change[0]()
        assert [unchanged(), unchanged()] == [change[1]] * 2
    finally:
        Kind.__bases__ = (Base,)
        for kind, before in kept:
            for name in set(vars(kind)) - set(before):
                delattr(kind, name)
        Kind.size = 1
    assert unchanged()


def test_names_are_compared_once_after_a_change(monkeypatch: pytest.MonkeyPatch) -> None:
    class Own:
        size = 1

    unchanged, scope = _guard(Own, ("size",))
    if scope["seen0"] == class_state._NONE:
        pytest.skip("this Python's classes have no number that can be read")
    asked = []
    find = ClassSource.find
    monkeypatch.setattr(ClassSource, "find", lambda s, k: (asked.append(k), find(s, k))[1])
    assert unchanged()
    assert asked == []
    Own.other = 2  # type: ignore[attr-defined]
    assert unchanged()
    assert unchanged()
    assert asked == ["size"]


def test_what_was_not_there_has_no_value() -> None:
    state = ClassState(Kind)
    state.places = [Source(ClassSource(Kind), "depth", MISSING)]
    assert state.holds()
