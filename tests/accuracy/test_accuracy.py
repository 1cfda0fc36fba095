"""Float32 functions are exact to 4 units or to their condition, and not far from torch's.

A small number of values here; 10 ** 6 in each range: `python -m tests.accuracy`, or at night.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import lucerne

torch = pytest.importorskip("torch", reason="torch is what we are measured beside")
pytest.importorskip("scipy", reason="SciPy is the reference")
pytest.importorskip("mpmath", reason="mpmath is what the reference is held to")

from tests.accuracy import page  # noqa: E402
from tests.accuracy.__main__ import detail, reduction_text, summary, text  # noqa: E402
from tests.accuracy.measure import Found, errors, measured, runner  # noqa: E402
from tests.accuracy.reductions import REDUCTIONS, Outcome, Reduction, outcome  # noqa: E402
from tests.accuracy.rows import ROWS, Row  # noqa: E402

pytestmark = pytest.mark.torch
FEW, MANY = 2000, 10**6
OURS, THEIRS = runner(lucerne), runner(torch)
BY_NAME = {row.name: row for row in ROWS}


def found(row: Row, count: int, ours: Any = OURS, proofs: int = 0) -> Found:
    return Found(row, list(measured(row, ours, THEIRS, count, proofs)))


def told(done: Found) -> str:
    return "\n".join([text(done), *map(detail, done.wrong)])


@pytest.mark.parametrize("name", BY_NAME)
def test_function(name: str) -> None:
    done = found(BY_NAME[name], FEW)
    assert not done.wrong, told(done)
    assert len(done.cells) == 10


@pytest.mark.nightly
@pytest.mark.parametrize("name", BY_NAME)
def test_function_at_many_values(name: str) -> None:
    done = found(BY_NAME[name], MANY, proofs=8)
    assert not done.wrong, told(done)


@pytest.mark.parametrize("row", REDUCTIONS, ids=lambda row: row.name)
def test_reduction(row: Reduction) -> None:
    done = outcome(row, lucerne, torch, 100_000)
    assert done.good, reduction_text(done)


def test_there_are_as_many_functions_as_promised() -> None:
    assert len(BY_NAME) == len(ROWS) >= 77
    assert {"NumPy", "SciPy"} == {row.source for row in ROWS}
    seen = {c.label: c.proved for name in ("exp", "atan2") for c in found(BY_NAME[name], 10).cells}
    assert all(seen.values()), f"mpmath has not seen {seen}"


# ---- the gate itself ----------------------------------------------------------------------------


def _off_by(units: float) -> Any:
    """Ours, every hundredth result wrong by so many units."""

    def run(row: Row, *xs: Any) -> Any:
        y = OURS(row, *xs)
        some = y[::100]
        with np.errstate(invalid="ignore"):
            y[::100] = np.where(np.isfinite(some), some + units * np.spacing(np.abs(some)), some)
        return y

    return run


@pytest.mark.parametrize("name", ["exp", "special.erfc", "sqrt"])
def test_a_planted_error_is_found(name: str) -> None:
    done = found(BY_NAME[name], 400, _off_by(5))
    assert sum(cell.too_far for cell in done.cells) >= 3
    assert "ABOVE" in text(done)
    assert "1 wrong" in summary([done], [], 400)
    assert not found(BY_NAME[name], 400).wrong


def test_an_error_of_more_than_four_times_torchs_is_found() -> None:
    done = found(BY_NAME["sqrt"], 400, _off_by(3))
    assert not any(cell.too_far for cell in done.cells)
    assert sum(cell.beyond_torch for cell in done.cells) >= 8
    assert "BEYOND TORCH" in text(done)


def test_a_wrong_reference_is_found() -> None:
    row = Row("exp", lambda x: np.exp(x) * (1 + 1e-6), BY_NAME["exp"].exact)
    assert any(cell.bad_reference for cell in found(row, 100).cells)


def test_condition_excuses_what_half_a_unit_of_the_operand_changes() -> None:
    """log(x) near 1, from an operand moved by less, and by more, than half a unit."""

    def moved(units: float) -> Any:
        def run(row: Row, x: Any) -> Any:
            return np.log(x.astype(np.float64) + units * np.spacing(x)).astype(np.float32)

        return run

    few, many = (found(BY_NAME["log"], 400, moved(units)) for units in (0.4, 2.0))
    assert few.most("ours") > 100
    assert not any(cell.too_far for cell in few.cells)
    assert any(cell.too_far for cell in many.cells)


def test_infinity_is_the_number_after_the_largest() -> None:
    top = np.float32(3.4028235e38)
    got = np.array([np.inf, top, 1.0, np.nan, np.nan], np.float32)
    truth = np.array([float(top), 1e300, np.inf, np.nan, 1.0])
    assert errors(got, truth).tolist()[:2] == [1, 1]
    assert errors(got, truth)[2] > 1e7
    assert errors(got, truth).tolist()[3:] == [0, np.inf]


def test_the_page_shows_what_is_wrong() -> None:
    good, bad = (found(BY_NAME["exp"], 200, run) for run in (OURS, _off_by(5)))
    sound = Outcome(REDUCTIONS[0], 1e-8, 1e-8)
    assert "class=bad" not in page.html([good], [sound], "")
    shown = page.html([bad], [Outcome(REDUCTIONS[0], 1e-3, 1e-8)], "one wrong")
    assert shown.count("class=bad") >= 2
    assert "http" not in shown


def test_logaddexp_keeps_what_log_2_loses() -> None:
    """Where the larger one is below 0, the sum with log(2) is rounded and then cancels."""
    generator = np.random.default_rng(0)
    a = generator.uniform(-1.0, -0.1, MANY).astype(np.float32)
    b = a - generator.uniform(0.0, 5.0, MANY).astype(np.float32)
    found = lucerne.logaddexp(lucerne.from_numpy(a), lucerne.from_numpy(b)).numpy()
    exact = np.logaddexp(a.astype(np.float64), b.astype(np.float64))
    units = np.abs(found - exact) / np.spacing(np.abs(exact).astype(np.float32))
    assert units[np.abs(exact) > 0.1].max() < 4
