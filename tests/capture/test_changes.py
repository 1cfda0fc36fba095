"""Whatever is exchanged between two calls, the next one gives what the function gives."""

from __future__ import annotations

import itertools
import warnings
from typing import Any

import pytest

import lucerne as torch
from tests.capture import rows_changes_modules, rows_changes_names
from tests.capture.rows_changes import ROWS

PARTS = rows_changes_modules, rows_changes_names  # importing them fills ROWS

CASES = [(name, change) for name, make in ROWS.items() for change in make().changes]
FIRST = {name: next(iter(make().changes)) for name, make in ROWS.items()}


def cases() -> list[Any]:
    """Each change of a function that is one graph, and of one that runs in parts; of the latter
    most are for the night."""
    found = []
    for name, change in CASES:
        text = f"{name}-{change}".replace(" ", "_")
        found.append(pytest.param(name, change, False, id=f"{text}-whole"))
        marks = () if FIRST[name] == change else (pytest.mark.nightly,)
        found.append(pytest.param(name, change, True, id=f"{text}-parts", marks=marks))
    return found


@torch.compiler.disable
def pause(x: Any) -> Any:
    """Ends a graph."""
    return x


def result_of(fn: Any, x: Any) -> tuple[Any, ...]:
    """What a call gives, or its error."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            found = fn(x)
        except Exception as error:
            return "raised", type(error).__name__
    return found if isinstance(found, tuple) else (found,)


def check_same(found: Any, wanted: Any) -> None:
    """Both runs gave the same, bit for bit."""
    for a, b in itertools.zip_longest(found, wanted):
        if isinstance(b, torch.Tensor):
            assert type(a) is type(b)
            assert a.dtype == b.dtype
            assert a.requires_grad == b.requires_grad
            assert torch.equal(a.detach(), b.detach()), (a, b)
        else:
            assert type(a) is type(b)
            assert repr(a) == repr(b)


def test_a_difference_is_seen() -> None:
    one = torch.ones(2)
    for a, b in [
        (one, one + 1),
        (1, True),
        (one, one.double()),
        (one, one.clone().requires_grad_()),
    ]:
        with pytest.raises(AssertionError):
            check_same((a,), (b,))
    with pytest.raises(AssertionError):
        check_same((one, 2), (one,))


@pytest.mark.parametrize(("name", "change", "parts"), cases())
def test_after_a_change(name: str, change: str, parts: bool) -> None:
    row = ROWS[name]()

    def in_parts(x: Any) -> Any:
        return row.fn(pause(x * 1))

    compiled = torch.compile(in_parts if parts else row.fn, mode="bitwise")
    x = torch.linspace(-1, 1, 6).reshape(2, 3)
    try:
        wanted = result_of(row.fn, x)
        for _ in range(2):
            check_same(result_of(compiled, x), wanted)
        assert wanted[0] != "raised"
        row.changes[change]()
        wanted = result_of(row.fn, x)
        for _ in range(2):
            check_same(result_of(compiled, x), wanted)
    finally:
        row.undo()


def test_the_table_is_long_enough() -> None:
    assert len(CASES) >= 200
