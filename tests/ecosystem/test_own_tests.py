"""What the comparison of libraries' own tests says, and that its page is that of the last run."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from tests.ecosystem import own_tests

FILE = """
import pytest
def test_passes(): pass
def test_fails(): assert 1 == 2, "first\\nsecond"
@pytest.mark.xfail
def test_expected(): assert False
@pytest.fixture
def broken(): raise ValueError("no")
def test_set_up(broken): pass
def test_slow():
    while True: pass
"""
OUTCOMES = {
    "test_passes": ("passed", ""),
    "test_fails": ("failed", "AssertionError: first"),
    "test_expected": ("skipped", ""),
    "test_set_up": ("failed", "ValueError: no"),
    "test_slow": ("failed", "TimeoutError: more than 1 s of CPU"),
}


def outcomes(folder: Path, text: str, seconds: float = 60.0) -> dict[str, tuple[str, str]]:
    (folder / "test_a.py").write_text(text)
    around = {"OWN_SECONDS": "1"}
    rows = own_tests.outcomes(sys.executable, ["test_a.py"], folder, around, seconds)
    return {test: (row["outcome"], row["why"]) for test, row in rows.items()}


def test_outcomes_of_a_file(tmp_path: Path) -> None:
    found = outcomes(tmp_path, FILE)
    assert found.pop("test_a.py")[0] == "ended"
    assert found == {f"test_a.py::{name}": told for name, told in OUTCOMES.items()}


@pytest.mark.parametrize(
    ("text", "seconds", "told"),
    [
        ("import no_such_module", 60.0, ("uncollected", "ModuleNotFoundError: No module named")),
        ("import os; os._exit(3)", 60.0, ("ended", "")),
        ("import time; time.sleep(60)", 2.0, ("ended", "the file took longer than 2 s")),
    ],
)
def test_files_that_do_not_run(
    tmp_path: Path, text: str, seconds: float, told: tuple[str, str]
) -> None:
    outcome, why = outcomes(tmp_path, text, seconds)["test_a.py"]
    assert outcome == told[0]
    assert why.startswith(told[1])


def row(outcome: str, why: str = "") -> dict[str, Any]:
    return {"outcome": outcome, "why": why, "seconds": 2.0}


def test_what_torch_does_not_pass_is_not_counted() -> None:
    theirs = {"f::a": row("passed"), "f::b": row("failed"), "f::c": row("skipped")}
    theirs |= {"f::d": row("passed"), "g::e": row("passed")}
    ours = {"f::a": row("passed"), "f::d": row("failed", "X: no"), "f::e": row("failed")}
    want = own_tests.File(2, {"f::d": "failed: X: no"}, 2.0, 2.0)
    assert own_tests.compared("f", theirs, ours) == want


def test_what_did_not_run_is_missed() -> None:
    theirs = {"f::a": row("passed"), "f::b": row("passed"), "f::c": row("passed")}
    ours = {"f::a": row("passed"), "f::b": row("skipped"), "f": row("ended", "too long")}
    misses = {"f::b": "skipped", "f::c": "ended: too long"}
    assert own_tests.compared("f", theirs, ours) == own_tests.File(3, misses, 2.0, 2.0)


def test_the_page_is_of_the_last_run() -> None:
    assert own_tests.PAGE.read_text() == own_tests.as_markdown(own_tests.recorded())
