"""Each exercise: what a reader begins with fails and says why, and the solution passes."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.exercises import room

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "extend" / "exercises.md"


def command(*given: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "tests.exercises", *given],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )


@pytest.fixture(scope="module")
def told() -> dict[int, tuple[str, str]]:
    """What the checks say to the start and to the solution of each exercise."""
    done = command("all")
    assert done.returncode == 0, done.stderr
    rows = [json.loads(line) for line in done.stdout.splitlines()]
    return {number: (start, solution) for number, start, solution in rows}


@pytest.mark.parametrize("number", room.FILES)
def test_the_start_fails_and_is_told_why(number: int, told: dict[int, tuple[str, str]]) -> None:
    assert re.search(room.exercise(number).TOLD, told[number][0]), told[number][0]


@pytest.mark.parametrize("number", room.FILES)
def test_the_solution_passes(number: int, told: dict[int, tuple[str, str]]) -> None:
    assert told[number][1] == ""


def test_there_are_enough_of_them_and_each_is_short_and_described() -> None:
    assert list(room.FILES) == list(range(1, len(room.FILES) + 1))
    assert len(room.FILES) >= 12
    page = PAGE.read_text()
    for number, path in room.FILES.items():
        assert len(path.read_text().splitlines()) < 60, path.name
        assert f"## {number}. " in page, f"the page misses exercise {number}"


def test_a_reader_does_one(tmp_path: Path) -> None:
    mine = tmp_path / "mine.py"
    mine.write_text(room.starting_point(12))
    failed = command("12", str(mine))
    assert failed.returncode == 1
    assert re.search(room.exercise(12).TOLD, failed.stdout)
    solved = room.FILES[12].read_text().replace("def solution(", "def answer(")
    mine.write_text(solved)
    done = command("12", str(mine))
    assert (done.returncode, done.stdout) == (0, "exercise 12: passes\n"), done.stderr


def test_an_unknown_exercise_is_refused() -> None:
    with pytest.raises(SystemExit, match="there are exercises 1 to"):
        room.exercise(99)


def test_nothing_is_left_behind() -> None:
    """What an answer registers is gone afterwards."""
    before = set(room.op_.table())
    entry = next(number for number, path in room.FILES.items() if "pointwise" in path.stem)
    for _ in range(2):  # a second time the name is free again
        with room.room():
            room.exercise(entry).solution()
            assert set(room.op_.table()) > before
        assert set(room.op_.table()) == before
