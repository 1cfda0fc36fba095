"""The sweep says which release broke a scenario, and when none did."""

from __future__ import annotations

from collections.abc import Iterable

import pytest

from tests.ecosystem import releases


def test_closure_of_a_cycle() -> None:
    asks = {"a": ["b"], "b": ["a", "c"], "c": []}
    assert releases.closure("a", asks.__getitem__) == {"a", "b", "c"}


def test_required_knows_what_is_installed() -> None:
    assert "numpy" in releases.required("lucerne")
    assert releases.required("a-distribution-that-nobody-wrote") == []


def sweep(versions: dict[str, str], **states: str) -> dict[str, object]:
    rows = {name: {"state": state, "why": "TypeError: x"} for name, state in states.items()}
    return {"versions": versions, "scenarios": rows}


CASES: list[tuple[dict[str, str], dict[str, str], list[str]]] = [
    ({"a": "1", "b": "1"}, {"s": "ok"}, []),
    ({"a": "2", "b": "1"}, {"s": "fails"}, ["s broke: a 1 -> 2: TypeError: x"]),
    ({"a": "1", "b": "2"}, {"s": "fails"}, ["s broke: b 1 -> 2: TypeError: x"]),
    ({"a": "1", "b": "1", "c": "9"}, {"s": "fails"}, ["s broke: no library of it changed, so"]),
    ({"a": "1", "b": "1"}, {"s": "absent", "new": "fails"}, []),
]


@pytest.mark.parametrize(("versions", "states", "said"), CASES)
def test_says_what_broke(versions: dict[str, str], states: dict[str, str], said: list[str]) -> None:
    def needs(name: str) -> set[str]:
        asks: dict[str, Iterable[str]] = {"a": ["b"], "b": []}
        return releases.closure("a", asks.__getitem__)

    before = sweep({"a": "1", "b": "1"}, s="ok")
    lines = releases.broken(before, sweep(versions, **states), needs)
    assert [line.startswith(start) for line, start in zip(lines, said, strict=True)] == [
        True
    ] * len(said)
