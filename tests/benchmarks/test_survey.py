"""The survey of all ops: rows, limits, tables."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.torch
pytest.importorskip("torch")

from benchmarks.survey import __main__ as command  # noqa: E402
from benchmarks.survey import measure, report, rows  # noqa: E402
from benchmarks.survey.measure import OutOfTimeError, Row, within  # noqa: E402

SOME = [
    Row("fast", "T0", "large", "forward", ours=5.0, torch=10.0),
    Row("slow", "T0", "large", "forward", ours=30.0, torch=10.0),
    Row("broken", "T0", "large", "forward", note="RuntimeError: no"),
]


def test_the_worst_comes_first() -> None:
    lines = report.table(SOME).splitlines()
    assert [line.split()[0] for line in lines] == ["op", "slow", "fast"]
    assert report.table(SOME, 1).count("\n") == 1


def test_the_summary_counts() -> None:
    assert report.summary(SOME).splitlines()[-1] == "| large, forward | T0 | 2 | 1 | 1 | 1 | 1 |"
    assert report.untimed(SOME) == "broken (large forward): RuntimeError: no"


def test_a_run_is_saved_and_shown(tmp_path: Path, capsys: Any) -> None:
    report.save(SOME, tmp_path / "rows.json")
    assert report.load(tmp_path / "rows.json") == SOME
    assert command.run(command.parse(["--show", str(tmp_path / "rows.json")])) == 0
    assert "slow" in capsys.readouterr().out


def test_an_op_has_so_much_time() -> None:
    with pytest.raises(OutOfTimeError, match=r"more than 0\.01 s"), within(0.01):
        time.sleep(5)
    with within(5.0):
        time.sleep(0.001)


def test_wrong_values_are_seen() -> None:
    import torch

    from tests.conformance.bridge import torch_bridge

    a = torch.ones(3)
    assert measure._difference(a, a.clone(), torch_bridge()) == ""
    assert measure._difference(a, a * 1.1, torch_bridge()).startswith("wrong by 1.0e-01")


@pytest.mark.nightly
def test_a_few_ops_are_surveyed() -> None:
    options = command.parse(["--op", "gather,softmax,abs", "--backward", "--seconds", "0.01"])
    found = rows.collect(options)
    assert {r.name for r in found} >= {"gather", "softmax", "abs"}
    assert not [r.note for r in found if r.note]
