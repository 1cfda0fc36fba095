"""The sweep says which release broke a scenario, and when none did."""

from __future__ import annotations

import sys
from collections.abc import Iterable

import pytest

from tests.ecosystem import batches, causal, releases
from tests.ecosystem import sweep as sweeps


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


@pytest.mark.parametrize(
    ("state", "difference", "own", "judged"),
    [
        ("ok", None, None, "ok"),
        ("ok", 4e-6, None, "ok"),
        ("ok", 1e-4, None, "differs"),
        ("ok", 1e-4, 6e-5, "ok"),
        ("ok", float("inf"), 1e-3, "differs"),
        ("fails", 1.0, None, "fails"),
    ],
)
def test_numbers_are_judged(
    state: str, difference: float | None, own: float | None, judged: str
) -> None:
    row = sweeps.Row("s", "a", state, "", 0.0, None, difference, own)
    assert sweeps.judged(row).state == judged


WANT = {"loss": 4.0, "gradients": [7, 100.0], "text": [[1, 2]]}


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"loss": 4.00001}, ""),
        ({"loss": 4.001}, "loss: 4.001 for 4.0"),
        ({"gradients": [7, 101.0]}, "gradients: 101.0 for 100.0"),
        ({"gradients": [6, 100.0]}, "gradients: 6 for 7"),
        ({"text": [[1, 3]]}, "text: [1, 3] for [1, 2]"),
        ({"at": "build", "error": "TypeError: x"}, "build: TypeError: x"),
    ],
)
def test_language_models_are_judged(changed: dict[str, object], said: str) -> None:
    assert causal.wrong({**WANT, **changed}, WANT) == said


def test_a_process_that_ends_costs_one_name() -> None:
    program = (
        "import json, sys\n"
        "for name in sys.argv[1:]:\n"
        "    assert name != 'b'\n"
        "    print('RESULT', json.dumps({'kind': name}))\n"
    )
    told = list(batches.run([sys.executable, "-c", program], ["a", "b", "c"], 60))
    assert [(row["kind"], "error" in row) for row in told] == [
        ("a", False),
        ("b", True),
        ("c", False),
    ]
