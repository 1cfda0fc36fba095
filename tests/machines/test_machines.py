"""Results don't depend on threads or on which calls are known; the tool can tell."""

from __future__ import annotations

import pytest

from tests.machines import __main__ as tool


def test_a_difference_is_told() -> None:
    told = tool.different({"this": "a: 1\nb: 2", "4 threads": "a: 1\nb: 3", "avx2": "a: 7\nb: 7"})
    assert told == ["DIFFERS '4 threads' from 'this': b: 2 | b: 3"]
    assert not tool.different({"this": "a: 1", "1 thread": "a: 1"})


def test_settings_are_those_of_one_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LUCERNE_THREADS", "7")
    monkeypatch.setenv("SOMETHING", "else")
    found = tool.settings("avx2")
    assert "LUCERNE_THREADS" not in found
    assert (found["LUCERNE_CPU_FEATURES"], found["SOMETHING"]) == ("-amx,-avx512", "else")


def test_a_process_that_fails_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(tool.MACHINES, "none", {"LUCERNE_HOST_BACKEND": "no such"})
    with pytest.raises(RuntimeError, match="failed on 'none'"):
        tool.digest("none")


def test_training_steps_have_the_same_bits() -> None:
    """With 4 threads, and with a table of known calls in which they push each other out."""
    machines = ("1 thread", "4 threads", "2 known calls")
    assert tool.different({m: tool.digest(m, "attention") for m in machines}) == []
