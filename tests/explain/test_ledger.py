"""The ledger has every compile; a budget that is exceeded raises and says what it was spent on."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

import lucerne as torch
from lucerne._src.base.config import config
from lucerne._src.capture import ledger
from tests.explain.scenes import broken
from tests.explain.test_page import assert_well_formed

BudgetError = torch.compiler.CompileBudgetError


@pytest.fixture(autouse=True)
def fresh() -> Iterator[None]:
    ledger.clear()
    yield
    ledger.clear()
    config.recompile_budget, config.compile_seconds = -1, 0.0


def halves() -> Any:
    return torch.compile(lambda x, k=1: x / 2 * k, dynamic=False)


def test_rows() -> None:
    f = halves()
    f(torch.ones(2))
    f(torch.ones(2))
    f(torch.ones(3))
    first, second = torch.compiler.ledger()
    assert (first.kind, first.why) == (ledger.FIRST, "first call")
    assert second.kind == ledger.RECOMPILE
    assert second.why.startswith("x is float32[3]")
    assert first.file == __file__
    assert first.line > 0
    assert first.nodes == 2
    assert first.steps == 1
    assert first.seconds >= sum(first.stages.values()) * 0.9 > 0
    assert {"capture", "lower", "assemble"} <= first.stages.keys()


def test_other_sizes_of_one_capture() -> None:
    f = torch.compile(lambda x: x * 2, dynamic=True)
    for n in (4, 6, 8):
        f(torch.ones(n, 3))
    kinds = [r.kind for r in torch.compiler.ledger()]
    assert kinds == [ledger.FIRST, ledger.SIZES]  # the program is one for all sizes
    assert f.instances == 2


def test_parts_are_not_recompiles(capsys: pytest.CaptureFixture[str]) -> None:
    torch.compile(broken)(torch.ones(8, 8), 2.0)
    found = torch.compiler.ledger()
    assert any(r.kind == ledger.PART for r in found)
    assert found.recompiles == 0


def test_what_fails_is_in_it() -> None:
    def wrong(x: Any) -> Any:
        return x + torch.ones(5)

    with pytest.raises(RuntimeError):
        torch.compile(wrong)(torch.ones(3))
    assert "RuntimeError" in torch.compiler.ledger()[0].problem


def test_ways_out() -> None:
    halves()(torch.ones(2))
    found = torch.compiler.ledger()
    assert json.loads(json.dumps(found.json()))[0]["why"] == "first call"
    assert "1 compiles, 0 of them recompiles" in str(found)
    assert_well_formed(found.html())
    assert str(ledger.Ledger([])) == "nothing was compiled"
    assert found.seconds == sum(r.seconds for r in found)
    assert len(found) == 1


def test_budget_for_recompiles() -> None:
    f = halves()
    with torch.compiler.budget(recompiles=1) as budget:
        f(torch.ones(2))
        f(torch.ones(3))
        with pytest.raises(BudgetError) as caught:
            f(torch.ones(4))
        assert len(budget.rows) == 3
    told = str(caught.value)
    assert "recompile 2 where the budget allows 1: x is float32[4] on cpu" in told
    assert "compile(dynamic=True)" in told  # what to do
    assert told.count("first call") == 1  # the ledger
    assert f(torch.ones(4)).shape == (4,)  # outside it is compiled as ever


def test_a_function_without_recompiles_fits_any_budget() -> None:
    with torch.compiler.budget(recompiles=0):
        f = halves()
        for _ in range(3):
            f(torch.ones(2))


def test_budget_for_seconds() -> None:
    with torch.compiler.budget(seconds=1e-5), pytest.raises(BudgetError, match="has taken"):
        halves()(torch.ones(2))
    with torch.compiler.budget(seconds=60):
        halves()(torch.ones(2))


def test_inner_and_outer_budgets_both_count() -> None:
    f = halves()
    f(torch.ones(2))
    with torch.compiler.budget(recompiles=1), torch.compiler.budget(recompiles=5):
        f(torch.ones(3))
        with pytest.raises(BudgetError, match="allows 1"):
            f(torch.ones(4))


def test_budget_of_the_process() -> None:
    config.recompile_budget = 0
    f = halves()
    f(torch.ones(2))
    with pytest.raises(BudgetError, match="recompile 1 where the budget allows 0"):
        f(torch.ones(3))


ADVICE = [
    ("x is float32[3] on cpu, it was float32[2] on cpu", "mark_dynamic"),
    ("k is 3, it was 2", "pass it as a tensor"),
    ("its surroundings changed", "pass it as an argument"),
]


@pytest.mark.parametrize(("why", "advice"), ADVICE, ids=[a for _, a in ADVICE])
def test_advice(why: str, advice: str) -> None:
    row = ledger.LedgerRow("f", "", 0, ledger.RECOMPILE, why, 0.0)
    assert advice in ledger._advice(row)
