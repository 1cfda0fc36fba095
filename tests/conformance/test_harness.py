"""The harness itself: it passes torch against torch, and it notices what is wrong."""

import json
import math
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from tests.conformance import (
    catalog,
    gaps,
    gradcheck,
    html,
    metrics,
    names,
    own_cases,
    rebind,
    report,
    runner,
    tree,
)
from tests.conformance.bridge import Bridge, Memo, torch_bridge
from tests.conformance.context import Context, Limits
from tests.conformance.faults import FAULTS, FaultyBridge
from tests.conformance.forward import check_forward, check_reference
from tests.conformance.metrics import Task
from tests.conformance.outcome import same_error
from tests.conformance.own_cases.tools import DTYPES
from tests.conformance.result import Tally
from tests.conformance.tolerance import VALUES, distance, within_float64_rule

pytestmark = [pytest.mark.torch, pytest.mark.slow]

# A little of everything: views, reductions, pairs of outputs, random, complex, in-place, errors.
SUBSET = [
    "add",
    "as_strided",
    "cat",
    "einsum",
    "linalg.svd",
    "masked.sum",
    "max.reduction_with_dim",
    "mul",
    "nn.functional.batch_norm",
    "nn.functional.dropout",
    "nn.functional.relu",
    "normal",
    "sparse.mm.reduce",
    "sqrt",
    "transpose",
    "view",
]
DAILY = ("as_strided", "max.reduction_with_dim", "nn.functional.relu", "normal", "sqrt")
FEW = Limits(samples=4, reference=2, double_backward=1)
UNSIGNED = ("uint16", "uint32", "uint64")
ODD = ("complex32", "float8_e4m3fn", "float8_e5m2")


@pytest.fixture(autouse=True)
def one_thread() -> None:
    torch.set_num_threads(1)


def run_all(name: str, bridge: Bridge) -> list[Tally]:
    entry = catalog.load()[name]
    tasks = metrics.plan([entry], metrics.METRICS)
    return [tally for task in tasks for tally in metrics.perform(task, bridge, FEW)]


# torch against torch


@pytest.mark.parametrize(
    "name", [x if x in DAILY else pytest.param(x, marks=pytest.mark.nightly) for x in SUBSET]
)
def test_torch_passes_against_itself(name: str) -> None:
    tallies = run_all(name, torch_bridge())
    assert tallies
    assert not report.failures_text(tallies, verbose=True)
    assert sum(tally.samples for tally in tallies) > 0


def test_own_cases_pass_with_torch() -> None:
    bridge = torch_bridge()
    tallies = [own_cases.check(name, bridge) for name in own_cases.load()]
    assert len(tallies) >= 150
    assert not report.failures_text(tallies, verbose=True)


def test_names_that_are_missing_have_a_reason() -> None:
    for space in names.survey():
        if space.name in names.LEFT_OUT:
            listed = {n for key in names.LEFT_OUT[space.name] for n in key.split(", ")}
            assert set(space.missing) <= listed, set(space.missing) - listed


def test_names_of_torch_are_all_present() -> None:
    spaces = {space.name: space for space in names.survey("torch")}
    for name in ("torch", "torch.Tensor", "torch.nn", "torch.nn.functional", "torch.linalg"):
        assert not spaces[name].missing
        assert spaces[name].tested > 0


# Planted faults

# fault -> an entry on which it must show
SHOWN_ON = {
    "value off by 0.1 %": "add",
    "float64 result": "sqrt",
    "extra dimension": "mul",
    "copy instead of view": "transpose",
    "hidden nan": "std",
    "changed input": "sqrt",
    "list instead of tuple": "max.reduction_with_dim",
    "gradient off by 1 %": "mul",
    "second gradient missing": "mul",
    "memory order reversed": "add",
    "swallowed error": "cat",
    "wrong kind of error": "cat",
    "out= ignored": "add",
    "in-place returns a copy": "mul",
}


@pytest.mark.parametrize("name", list(FAULTS))
def test_planted_fault_is_caught(name: str) -> None:
    fault = FAULTS[name]
    entry = catalog.load()[SHOWN_ON[name]]
    [task] = metrics.plan([entry], [fault.metric])
    tallies = metrics.perform(task, FaultyBridge(fault), Limits())
    [tally] = [tally for tally in tallies if tally.metric == fault.metric]
    assert fault.check in {failure.check for failure in tally.failures}
    assert not tally.ok


def test_stronger_samples_see_what_plain_ones_do_not() -> None:
    context = Context(catalog.load()["sqrt"], FaultyBridge(FAULTS["hidden nan"]))
    assert check_forward(context)[0].ok
    assert not check_reference(context)[0].ok


def test_missing_op_fails() -> None:
    class Lacking(Bridge):
        def resolve(self, entry: Any) -> Any:
            raise rebind.MissingError(entry.name)

    tallies = run_all("sqrt", Lacking(torch))
    verdicts = {tally.metric: tally.ok for tally in tallies}
    assert not any(verdicts[metric] for metric in ("M1", "M2", "M3", "M4", "M5o", "M7", "M8"))


def test_own_case_that_differs_fails() -> None:
    class Off(Bridge):
        def from_other(self, x: Any) -> torch.Tensor:
            found = super().from_other(x)
            return found + 1 if found.dtype == torch.float32 else found

    assert not own_cases.check("inplace.seen by views", Off(torch)).ok


# Workers


def crash(*args: Any, **kwargs: Any) -> Any:
    os._exit(3)


def hang(*args: Any, **kwargs: Any) -> Any:
    time.sleep(60)


class Broken(Bridge):
    """Fine, except for two ops."""

    def resolve(self, entry: Any) -> Any:
        broken: dict[str, Callable[..., Any]] = {"sqrt": crash, "exp": hang}
        return broken.get(entry.name) or super().resolve(entry)


def test_crash_and_hang_fail_one_entry_each() -> None:
    tasks = [Task(name, "forward") for name in ("sqrt", "exp", "add", "mul", "sin")]
    options = runner.Options(2, timeout=8.0, limits=FEW, make_bridge=lambda: Broken(torch))
    tallies = {t.entry: t for t in runner.run(tasks, options) if t.metric == "M1"}
    assert tallies["sqrt"].failures[0].check == "crash"
    assert tallies["exp"].failures[0].check == "timeout"
    assert all(tallies[name].ok for name in ("add", "mul", "sin"))


def test_bridge_that_cannot_start_fails_every_task() -> None:
    def refuse() -> Bridge:
        raise ImportError("no framework")

    options = runner.Options(jobs=1, limits=FEW, make_bridge=refuse)
    tallies = runner.run([Task("add", "forward"), Task("mul", "forward")], options)
    assert {tally.entry for tally in tallies} == {"add", "mul"}
    assert not any(tally.ok for tally in tallies)


# Parts


def test_denominators_are_frozen(monkeypatch: pytest.MonkeyPatch) -> None:
    entries = catalog.load().values()
    assert catalog.denominators(entries) == catalog.FROZEN
    assert sum(catalog.FROZEN["forward"].values()) == 692
    assert sum(catalog.FROZEN["gradient"].values()) == 540
    changed = {**catalog.FROZEN, "forward": {"T0": 1, "T1": 2, "T2": 3}}
    monkeypatch.setattr(catalog, "FROZEN", changed)
    with pytest.raises(RuntimeError, match="op database changed"):
        catalog.load.__wrapped__()


def test_dtype_pairs_are_counted() -> None:
    entries = list(catalog.load().values())
    assert len(metrics.plan(entries, ["M4"])) == 2700
    assert len(metrics.plan(entries, ["M4"], dtypes=None)) == 6053


# torch warns of complex32 once in a process: in the first test that makes one.
@pytest.mark.filterwarnings("ignore:ComplexHalf support is experimental:UserWarning")
@pytest.mark.parametrize("name", [*DTYPES, *UNSIGNED, *ODD])
def test_bridge_carries_every_dtype(name: str) -> None:
    dtype = getattr(torch, name)
    raw = torch.from_numpy(np.arange(96, dtype=np.uint8) % 2)
    t = raw.view(dtype).as_strided((2, 2), (1, 2), 1)
    bridge = torch_bridge()
    there = bridge.to_other(t, Memo())
    assert there.stride() == (1, 2)
    assert there.storage_offset() == 1
    back = bridge.from_other(there)
    assert back.dtype == dtype
    assert torch.equal(back.contiguous().view(torch.uint8), t.contiguous().view(torch.uint8))


def test_bridge_keeps_shared_memory() -> None:
    bridge, memo = torch_bridge(), Memo()
    base = torch.zeros(6)
    left, right = bridge.carry([base[:4], base[2:].view(torch.int32)], memo)
    left[2] = 1.0
    assert right[0] == torch.tensor(1.0).view(torch.int32)
    assert base.sum() == 0


def test_rebind_replaces_the_module() -> None:
    class Other:
        __name__ = "other"
        einsum = staticmethod(lambda equation, tensors: ("einsum", equation, tensors))
        Tensor = object

    function = rebind.resolve(Other, "einsum", catalog.load()["einsum"].op.op)
    assert function(["x"], "ij") == ("einsum", "ij", ["x"])
    with pytest.raises(rebind.MissingError):
        rebind.resolve(Other, "add", torch.add)


def test_distance_and_special_values() -> None:
    tolerance = VALUES[torch.float32]
    x = torch.tensor([1.0, math.nan, math.inf])
    assert distance(x, x.clone(), tolerance) == 0
    assert distance(x, torch.tensor([1.0, 0.0, math.inf]), tolerance) == math.inf
    assert distance(x, torch.tensor([1.0, math.nan, -math.inf]), tolerance) == math.inf
    assert 0.4 < distance(torch.tensor([1.0]), torch.tensor([1.00001]), tolerance) < 0.6
    assert distance(torch.tensor([1]), torch.tensor([2]), tolerance) == math.inf


def test_float64_rule_accepts_only_what_is_as_near_as_torch() -> None:
    truth = torch.tensor([1.0], dtype=torch.float64)
    tolerance = VALUES[torch.float32]
    torchs = torch.tensor([1.001])
    assert within_float64_rule(truth, torchs, torch.tensor([0.997]), tolerance)
    assert not within_float64_rule(truth, torchs, torch.tensor([0.995]), tolerance)
    assert not within_float64_rule(truth, torchs, torch.tensor([math.nan]), tolerance)
    assert not within_float64_rule(truth, torch.tensor([1.0]), torch.tensor([1.001]), tolerance)


def test_errors_must_be_catchable_alike() -> None:
    assert same_error(torch.linalg.LinAlgError("singular"), RuntimeError("singular"))
    assert same_error(IndexError("a"), IndexError("b"))
    assert not same_error(RuntimeError("a"), NotImplementedError("b"))
    assert not same_error(RuntimeError("a"), TypeError("b"))


def test_outline_sees_names_and_kinds() -> None:
    pair = torch.max(torch.ones(2, 2), 0)
    assert tree.outline(pair) == ("tuple(values, indices)", "*", "*")
    assert tree.outline([1, (2,)]) != tree.outline([1, [2]])
    assert tree.outline(torch.Size([2])) == "*"


def test_gradcheck_bridge() -> None:
    bridge = torch_bridge()
    x = torch.randn(3, 4, dtype=torch.float64, requires_grad=True)
    assert gradcheck.gradcheck(torch.sigmoid, bridge, (x,))
    wrong = FAULTS["gradient off by 1 %"].wrap(torch.sigmoid)
    assert not gradcheck.gradcheck(wrong, bridge, (x,))
    entry = catalog.load()["mul"]
    assert gradcheck.gradcheck_entry(entry, bridge) == []
    assert gradcheck.gradcheck_entry(entry, FaultyBridge(FAULTS["gradient off by 1 %"]))


# Gate and reports


def tally_of(entry: str, *, ok: bool, metric: str = "M1") -> Tally:
    tally = Tally(metric, entry, "T0", "float32", samples=2, passed=2)
    if not ok:
        tally.lost("value", "off")
    return tally


def test_gate() -> None:
    tallies = [tally_of("add", ok=True), tally_of("mul", ok=False)]
    known = gaps.Gap("mul", "M1", "why")
    assert gaps.judge(tallies, [known], capped=True) == []
    [new] = gaps.judge(tallies, [], capped=True)
    assert new.startswith("new failure: mul M1")
    stale = gaps.Gap("add", "M1", "why")
    assert gaps.judge(tallies, [known, stale], capped=True) == [
        "gap is closed, take it out: add M1"
    ]
    rare = gaps.Gap("add", "M1", "why", samples="full")
    assert gaps.judge(tallies, [known, rare], capped=True) == []
    assert len(gaps.judge(tallies, [known, rare], capped=False)) == 1
    elsewhere = gaps.Gap("add", "M1", "why", samples="machine")
    assert all(gaps.judge(tallies, [known, elsewhere], capped=c) == [] for c in (True, False))


def test_gaps_need_reasons(tmp_path: Path) -> None:
    path = tmp_path / "gaps.json"
    for bad in (
        [{"op": "add", "metric": "M1", "reason": " "}],
        [{"op": "add", "metric": "M99", "reason": "why"}],
        [{"op": "add", "metric": "M1", "reason": "why"}] * 2,
    ):
        path.write_text(json.dumps(bad))
        with pytest.raises(ValueError, match=r"gaps\.json"):
            gaps.load(path)


def test_reports(tmp_path: Path) -> None:
    tallies = [tally_of("add", ok=True), tally_of("mul", ok=False), tally_of("<b>", ok=True)]
    text = report.summary(tallies)
    assert "2/3" in text
    assert "FAIL M1 mul" in report.failures_text(tallies)
    assert "FAIL M1 mul" in report.failures_text(tallies, known={("mul", "M2"): "why"})
    known = report.failures_text(tallies, known={("mul", "M1"): "why"})
    assert known.startswith("known gap: M1 mul")
    assert known.endswith(": why")
    page = tmp_path / "page.html"
    html.write(page, tallies, {"torch": "2.13"})
    assert "mul" in page.read_text()
    data = tmp_path / "data.json"
    report.write_json(data, tallies, {})
    assert json.loads(data.read_text())["rates"]["M1"]["T0"]["entries_passed"] == 2


def test_parity_weighs_tiers() -> None:
    tallies = [
        Tally("M1", "a", "T0", "", 1, 1),
        Tally("M2", "a", "T0", "", 1, 1),
        Tally("M1", "b", "T1", "", 1, 1),
        Tally("M2", "b", "T1", "", 1, 0),
        Tally("M1", "c", "T2", "", 1, 1),
    ]
    assert report.parity(tallies) == pytest.approx(0.7)
    assert report.parity(tallies[:2]) is None


def test_metric_names_expand() -> None:
    assert metrics.expand(["M5", "M1"]) == ["M5i", "M5o", "M1"]
    assert metrics.expand(["M10"]) == ["M10", "M10e", "M10t", "M10s"]
    with pytest.raises(ValueError, match="no metric"):
        metrics.expand(["M99"])


def test_pick_spreads() -> None:
    assert catalog.pick(list(range(10)), 4) == [0, 3, 6, 9]
    assert catalog.pick([1, 2], 4) == [1, 2]
    assert catalog.pick(list(range(5)), 1) == [0]
