"""What leaves a device: refused with the line and the rule to write, or billed."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import lucerne as torch
from lucerne import backends, cli
from lucerne._src.backends.contract.fallback_report import Bill
from lucerne.profiler import profile
from tests.chip import slate

ROOT = Path(__file__).parents[2]
MATRIX = [[2.0, 1.0], [0.0, 3.0]]


def register(lacking: str) -> None:
    """Slate without a rule for one primitive."""
    kind = type(slate.make())

    class Lacking(kind):  # type: ignore[misc, valid-type]
        def supports(self, op: Any) -> bool:
            return op.qualified != lacking and bool(super().supports(op))

        def compile(self, graph: Any) -> Any:
            if graph.nodes[0].op.qualified == lacking:
                raise NotImplementedError(f"no rule for {lacking}")
            return super().compile(graph)

    backends.register("lame", Lacking())


def test_without_a_rule_the_error_teaches() -> None:
    register("sort_along")
    x = torch.tensor([3.0, 1.0]).to("lame")
    with pytest.raises(NotImplementedError) as caught:
        x.sort()
    text = str(caught.value)
    assert text.startswith("no rule for sort_along\nAt ")
    assert "test_bill.py:" in text
    assert "primitive sort_along(input, dim" in text
    assert 'set_fallback("host")' in text
    assert len(backends.bill()) == 0


CALLS: dict[str, tuple[str, Callable[[Any], Any]]] = {
    "two results": ("sort_along", lambda x: x.sort(dim=0)),
    "a reduction": ("sum", lambda x: x.sum(1)),
    "numbers": ("add2", lambda x: x + 2.5),
    "a list": ("cat", lambda x: torch.cat([x, x], 1)),
    "made there": ("filled", lambda x: torch.full((2,), 7.0, device=x.device) + x[0]),
    "strided": ("neg", lambda x: x.t()[1:].neg()),
    "in place": ("mul", lambda x: x.clone().t()[0].mul_(3.0)),
    "sizes that depend on data": ("nonzero", lambda x: (x > 1.5).nonzero()),
}


@pytest.mark.parametrize("name", CALLS)
def test_the_host_gives_the_same_and_it_is_billed(name: str) -> None:
    lacking, call = CALLS[name]
    register(lacking)
    backends.set_fallback("host")
    x = torch.tensor(MATRIX)
    got, want = call(x.to("lame")), call(x)
    got, want = (r if isinstance(r, tuple) else (r,) for r in (got, want))
    for g, w in zip(got, want, strict=True):
        assert g.device.type == "lame"
        assert torch.equal(g.cpu(), w)
    (row,) = [r for r in backends.bill().rows() if r["op"] == lacking]
    assert row["device"] == "lame"
    assert row["times"] >= 1
    assert row["bytes_in"] > 0
    assert any(re.search(r"test_bill\.py:\d+ in ", line) for line in row["lines"])


def test_gradients_through_the_host() -> None:
    register("batch_matmul")
    backends.set_fallback("host")
    x = torch.tensor(MATRIX).to("lame").requires_grad_()
    (x @ x).sum().backward()
    y = torch.tensor(MATRIX, requires_grad=True)
    (y @ y).sum().backward()
    assert torch.equal(x.grad.cpu(), y.grad)
    assert next(iter(backends.bill())).times == 3


def test_a_compiled_function_is_billed_too() -> None:
    register("sum")

    def f(x: Any) -> Any:
        return (x * 2).sum(0)

    x = torch.tensor(MATRIX).to("lame")
    with backends.fallback("host"):
        assert torch.compile(f)(x).tolist() == [4.0, 8.0]
    assert [r["op"] for r in backends.bill().rows()] == ["sum"]


def test_random_numbers_are_the_hosts_and_billed_without_asking() -> None:
    torch.manual_seed(5)
    want = torch.rand(3)
    torch.manual_seed(5)
    assert torch.equal(torch.rand(3, device="slate").cpu(), want)
    (row,) = backends.bill().rows()
    assert (row["op"], row["bytes_out"], row["bytes_in"]) == ("draw", 0, 12)


def test_the_table() -> None:
    bill = Bill()
    bill.add("chip", "sort_along", (1500, 12), 0.25, "model.py:3 in f")
    bill.add("chip", "sort_along", (1500, 12), 0.25, "model.py:9 in f")
    text = str(bill)
    assert re.search(r"sort_along +chip +2 +3\.0 kB +24 B +500\.00  model\.py:3 .*1 more", text)
    assert str(Bill.of([*bill.rows(), *bill.rows()])).count("6.0 kB") == 2
    before = bill.snapshot()
    bill.add("chip", "sum", (4, 4), 0.1, "model.py:4 in f")
    assert [e.op for e in bill.since(before)] == ["sum"]
    bill.clear()
    assert str(bill) == "nothing left its device"


def test_a_profile_shows_it() -> None:
    register("sum")
    x = torch.tensor(MATRIX).to("lame")
    with backends.fallback("host"), profile() as p:
        x.sum()
    assert "fallback::sum" in {e.key for e in p.key_averages()}


def test_a_mode_that_does_not_exist() -> None:
    with pytest.raises(ValueError, match='expected "refuse" or "host", got \'maybe\''):
        backends.set_fallback("maybe")


def test_a_strict_conformance_run_fails(capsys: pytest.CaptureFixture[str]) -> None:
    register("neg")
    run = ["conformance", "--device", "lame", "--op", "neg", "--tier", "T0", "--summary"]
    assert cli.main(run) == 1
    assert "next op worth writing: neg" in capsys.readouterr().out
    assert cli.main([*run, "--fallback", "host"]) in (0, 1)
    assert "left the device:" in capsys.readouterr().out
    assert cli.main([*run, "--fallback", "host", "--strict"]) == 1
    assert "strict: an op left the device" in capsys.readouterr().err


def test_the_bill_is_printed_at_the_end() -> None:
    code = (
        "import lucerne as torch; from lucerne import backends; from tests.chip import slate;"
        "backends.register('slate', slate.make()); torch.rand(2, device='slate')"
    )
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "LUCERNE_FALLBACK_BILL": "1"}
    done = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True
    )
    assert "left their device:" in done.stderr
    assert "draw" in done.stderr


def test_an_explanation_shows_it() -> None:
    register("sum")
    x = torch.tensor(MATRIX).to("lame")
    with backends.fallback("host"):
        found = torch.explain(lambda x: (x * 2).sum(0))(x)
    assert found.result.tolist() == [4.0, 8.0]
    assert [row["op"] for row in found.report.bill] == ["sum"]
    assert "left its device\n  op  " in str(found)
