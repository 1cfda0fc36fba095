"""The check for equal bits can fail: on a digest that differs, an error, a process that is gone."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from benchmarks import determinism
from benchmarks.determinism import Work, asked, judged, surroundings
from benchmarks.sides import OURS, OURS_EAGER

Answer = dict[str, Any]
WORK = Work(OURS, ("mlp", "gpt"), processes=3)


def fine(job: Answer, number: int) -> Answer:
    return {"digests": {program: f"{program} bits" for program in job["programs"]}}


def differs_once(job: Answer, number: int) -> Answer:
    return {"digests": {"mlp": "same", "gpt": "other" if number == 4 else "same"}}


def differs_with_threads(job: Answer, number: int) -> Answer:
    return {"digests": {"mlp": "same", "gpt": str(job["threads"])}}


def ends_once(job: Answer, number: int) -> Answer:
    return {"error": "the process ended: Fatal: boom"} if number == 3 else fine(job, number)


def ends_always(job: Answer, number: int) -> Answer:
    return {"error": "ValueError: no"}


def leaves_one_out(job: Answer, number: int) -> Answer:
    return {"digests": {"mlp": "same"}}


ROWS: dict[str, tuple[Callable[[Answer, int], Answer], list[str], str]] = {
    "equal": (fine, ["PASS", "PASS"], "distinct digests"),
    "one differs": (differs_once, ["PASS", "MISS"], "2 different results of 6 processes"),
    "threads": (differs_with_threads, ["PASS", "MISS"], "2 different results of 6 processes"),
    "one ends": (ends_once, ["MISS", "MISS"], "1 processes without an answer, the last one: the"),
    "all end": (ends_always, ["MISS", "MISS"], "6 processes without an answer"),
    "a gap": (leaves_one_out, ["PASS", "MISS"], "6 processes without an answer, the last one: no"),
}


@pytest.mark.parametrize("name", ROWS)
def test_rows_are_judged(name: str) -> None:
    ask, verdicts, note = ROWS[name]
    rows = list(judged([WORK], [asked(WORK, ask)]))
    assert [r.name.partition(",")[0] for r in rows] == ["mlp", "gpt"]
    told = ["PASS" if r.passed else "MISS" for r in rows]
    assert told == verdicts
    assert note in rows[-1].note


def test_processes_are_unlike_each_other() -> None:
    seen = [tuple(surroundings(k).values()) for k in range(40)]
    assert len(set(seen)) == 40
    assert all(0 <= int(surroundings(k)["PYTHONHASHSEED"]) < 2**32 for k in range(40))
    assert {job["threads"] for job in WORK.jobs()} == {1, 2}
    assert len(WORK.jobs()) == 6


def test_eager_trains_for_longer() -> None:
    compiled, eager = determinism.works(["mlp"], 2, small=False, eager=True)
    assert (compiled.side, eager.side) == (OURS, OURS_EAGER)
    assert (compiled.programs, eager.programs) == (("mlp",), ("mlp", "char_gpt"))
    assert determinism.STEPS["char_gpt"] == 20


def test_real_processes_that_fail_are_seen() -> None:
    """A worker that raises tells what it raised, and the row is not passed."""
    work = Work(OURS_EAGER, ("nonsense",), processes=1, small=True, threads=(1,))
    (row,) = judged([work], [asked(work)])
    assert row.passed is False
    assert "KeyError: 'nonsense'" in row.note
