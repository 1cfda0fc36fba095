"""Every finding has tests that are there; the command notices those that fail or are gone."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from tests.reproductions.__main__ import is_good, judge, main
from tests.reproductions.rows import ROWS

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("what", ROWS)
def test_a_finding_has_tests(what: str) -> None:
    assert ROWS[what]
    for name in ROWS[what]:
        file, _, function = name.partition("[")[0].partition("::")
        text = (ROOT / file).read_text(encoding="utf-8")
        there = {n.name for n in ast.walk(ast.parse(text)) if isinstance(n, ast.FunctionDef)}
        assert not function or function in there


def test_failures_and_tests_that_are_gone_are_noticed() -> None:
    outcomes = {
        "a.py::test_one[1]": "passed",
        "a.py::test_one[2]": "failed",
        "a.py::test_two": "passed",
        "a.py::test_twofold": "failed",
    }
    found = judge(("a.py::test_one", "a.py::test_two", "a.py::test_four"), outcomes)
    assert found == Counter(passed=2, failed=1, missing=1)
    assert not is_good(found)
    skipped = {"a.py::test_one[1]": "passed", "a.py::test_one[2]": "skipped", "b.py::t": "skipped"}
    assert judge(("a.py::test_one",), skipped) == Counter(passed=1, skipped=1)
    assert judge(("a.py::test_one", "b.py"), skipped)["missing"] == 1
    assert is_good(Counter(passed=1, skipped=1))
    assert not is_good(Counter(passed=1, missing=1))
    assert is_good(Counter(passed=3))
    assert not is_good(Counter())


def test_the_command_runs_what_it_names(capsys: pytest.CaptureFixture[str]) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "tests.reproductions", "no memory was", "one card"],
        capture_output=True, text=True, cwd=ROOT, timeout=600,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.splitlines()[-1] == "2 findings, 0 without tests that pass"
    with pytest.raises(SystemExit):
        main(["a word that no finding has"])
    assert "no finding has one of the words" in capsys.readouterr().err
