"""`lucerne conformance`: what it scores, what it catches, and what it does with bad files."""

from __future__ import annotations

import functools
import importlib.util
import json
import re
import shutil
from collections.abc import Callable, Sequence
from importlib import resources
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import lucerne as torch
from lucerne import backends, cli
from lucerne._src.conformance import (
    Case,
    DataError,
    Outcome,
    frozen_cases,
    oracle,
    oracle_cases,
    report,
    run,
)
from lucerne._src.conformance.page import page
from lucerne._src.conformance.run import check, primitives_of
from lucerne._src.ir import op as op_
from lucerne._src.ir.graph import Graph
from lucerne._src.ir.op import Op
from lucerne.backends import api

DATA = Path(str(resources.files("lucerne._src.conformance") / "data"))
# Public functions of torch's database that are not written yet.
KNOWN_REST: set[str] = set()


@functools.cache
def all_cases() -> tuple[Case, ...]:
    return (*frozen_cases(torch), *oracle_cases())


def cases_of(*names: str) -> list[Case]:
    return [c for c in all_cases() if c.op in names]


# ---- the reference device ----------------------------------------------------------------------


def test_the_reference_device_agrees_in_everything() -> None:
    found = run(all_cases(), "reference")
    assert len(found) > 2500
    without_scipy = {o.op for o in found if "pip install scipy" in o.first_failure}
    if importlib.util.find_spec("scipy"):
        assert not without_scipy
    else:  # some special functions are SciPy's alone; what models call must work without it
        needed = [o for o in found if o.op in without_scipy and o.tier in ("T0", "T1") and not o.ok]
        assert {o.op for o in needed} <= {"i0", "digamma"}
        assert all(o.first_failure.startswith("gradient") for o in needed)
    rest = KNOWN_REST | without_scipy
    wrong = [o for o in found if not o.ok and o.op not in rest]
    assert not wrong, report.text(wrong, "reference")
    assert {o.op for o in found if not o.ok} == rest, "take what works now off the list"


def test_every_tier_and_common_dtype_has_cases() -> None:
    counted = {(c.tier, c.dtype) for c in all_cases()}
    for tier in ("T0", "T1"):
        for dtype in ("float32", "float64", "bfloat16", "int64", "bool", "complex64"):
            assert (tier, dtype) in counted
    assert sum(c.part == "gradient" for c in all_cases()) > 500


def test_every_entry_with_an_oracle_has_cases() -> None:
    checked = {c.op for c in all_cases() if c.tier == "entry"}
    with_oracle = {op.qualified for op in op_.table().values() if op.oracle is not None}
    assert with_oracle - checked == set(), "default samples do not fit: give the entry samples="


def test_nearly_every_primitive_is_exercised() -> None:
    """A backend that passes has been asked about its whole contract."""
    used: set[str] = set()
    for case in all_cases():
        if case.dtype == "float32":
            used |= primitives_of(case)
    kinds = (op_.STRUCTURAL, op_.REDUCTION)
    unused = {o.qualified for o in op_.table().values() if o.kind in kinds} - used
    assert unused <= UNUSED, f"no case runs {sorted(unused - UNUSED)}"


# Factorisations that have no single right answer; what only the compiler puts into graphs.
UNUSED = {"qr_reflectors", "ldl_packed", "ldl_apply_inverse", "put_region", "counted_draw"}


# ---- devices with faults -----------------------------------------------------------------------


class Wrapped:
    """The reference backend behind a filter."""

    contract_version = 4

    def __init__(
        self,
        lacks: Sequence[str] = (),
        spoil: str = "",
        how: Callable[[Any], Any] = lambda array: array + 1,
    ) -> None:
        self.inner = backends.get("reference")
        self.lacks, self.spoil, self.how = set(lacks), spoil, how

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)

    def supports(self, op: Op) -> bool:
        return op.qualified not in self.lacks and self.inner.supports(op)

    def compile(self, graph: Graph) -> api.Executable:
        name = graph.nodes[0].op.qualified
        if name in self.lacks:
            raise NotImplementedError(f"no rule for {name}")
        execute = self.inner.compile(graph)
        if name != self.spoil:
            return execute

        def spoiled(inputs: Sequence[Any], outputs: Sequence[Any]) -> Any:
            found = execute(inputs, outputs)
            buffer = outputs[0]._storage.buffer
            values = buffer.view(outputs[0]._meta.dtype.storage)
            values[...] = self.how(values)
            return found

        return spoiled


def test_a_falsified_op_is_caught_and_named(capsys: Any) -> None:
    backends.register("liar", Wrapped(spoil="tanh"))
    command = ["conformance", "--device", "liar", "--op", "tanh", "--op", "sin"]
    assert cli.main(command) == 1
    printed = capsys.readouterr().out
    assert re.search(r"T[012] +tanh +float32 .* numbers differ", printed)
    assert not re.search(r"^ .* sin ", printed, re.MULTILINE)
    assert "next op worth writing: tanh" in printed


def test_a_small_error_in_a_gradient_is_caught() -> None:
    backends.register("drifting", Wrapped(spoil="mul", how=lambda array: array * 1.01))
    outcomes = run([c for c in cases_of("exp") if c.part == "gradient"], "drifting")
    assert outcomes
    assert all(o.first_failure.startswith("gradient: ") for o in outcomes)


def test_a_missing_op_is_reported_with_what_waits_for_it(capsys: Any) -> None:
    backends.register("young", Wrapped(lacks=["amax"]))
    command = ["conformance", "--device", "young", "--op", "softmax", "--op", "amax", "--op", "mul"]
    assert cli.main(command) == 1
    printed = capsys.readouterr().out
    assert re.search(r"T0 +softmax +float32 .*no rule for amax", printed)
    assert "next op worth writing: amax (the device has no rule for it" in printed


class Passing(Wrapped):
    """Passes one op on to another backend, and counts."""

    def __init__(self, passed: str) -> None:
        super().__init__()
        self.passed = passed
        self.fallbacks: dict[str, int] = {}

    def compile(self, graph: Graph) -> api.Executable:
        name = graph.nodes[0].op.qualified
        if name == self.passed:
            self.fallbacks[name] = self.fallbacks.get(name, 0) + 1
        return super().compile(graph)


def test_what_a_device_leaves_to_another_is_listed_by_tier(capsys: Any) -> None:
    backends.register("passing", Passing("tanh"))
    command = ["conformance", "--device", "passing", "--summary"]
    assert cli.main([*command, "--op", "exp"]) == 0
    assert "left to" not in capsys.readouterr().out
    assert cli.main([*command, "--op", "tanh", "--op", "exp"]) == 0
    printed = capsys.readouterr().out
    assert re.search(r"left to the reference backend.*\n  T0 +tanh \d+\n", printed)


def test_a_device_that_leaves_results_elsewhere_is_caught() -> None:
    case = next(c for c in cases_of("exp") if c.tier != "entry")
    stray = Case(case.op, case.tier, case.dtype, lambda device: case.run("cpu"), case.expected)
    assert check(stray, "reference") == "it is on cpu, not on reference"


def test_an_unknown_device_is_an_error_of_use(capsys: Any) -> None:
    assert cli.main(["conformance", "--device", "nochip"]) == 2
    assert "no backend serves device 'nochip'" in capsys.readouterr().err
    assert cli.main(["conformance", "--op", "no_such_op"]) == 2
    assert "no cases for no_such_op" in capsys.readouterr().err


# ---- reports -----------------------------------------------------------------------------------


def test_scores_and_the_next_op() -> None:
    outcomes = [
        Outcome("a", "T1", "float32", 1, 2, "wrong"), Outcome("b", "T0", "float32", 2, 2),
        Outcome("c", "T2", "float32", 0, 1, "wrong"), Outcome("a", "T1", "int64", 0, 1, "wrong"),
    ]  # fmt: skip
    assert report.score(outcomes) == 25.0
    assert report.next_op(outcomes) == "a (T1; fails in 2 dtypes)"
    assert report.next_op(outcomes[1:2]) == ""
    assert report.text(outcomes[1:2], "x").endswith("nothing fails")


def test_the_page_is_self_contained_and_escaped(tmp_path: Path, capsys: Any) -> None:
    made = page([Outcome("<b>", "T0", "float32", 0, 1, "got <i> & 'that'")], "de&vice")
    assert "<b>" not in made
    assert "&lt;i&gt; &amp; &#x27;that&#x27;" in made
    assert "http" not in made
    target = tmp_path / "page.html"
    assert cli.main(["conformance", "--op", "mul", "--html", str(target)]) == 0
    assert "100.0 %" in target.read_text()
    assert "nothing fails" in capsys.readouterr().out


# ---- files that can't be trusted ---------------------------------------------------------------


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name in ("cases.json", "arrays.npz"):
        shutil.copy(DATA / name, tmp_path)
    return tmp_path


def rewrite(folder: Path, change: Callable[[list[Any]], None]) -> None:
    cases = json.loads((folder / "cases.json").read_text())
    change(cases)
    (folder / "cases.json").write_text(json.dumps(cases))


def refused(folder: Path, message: str) -> None:
    with pytest.raises(DataError, match=message):
        list(frozen_cases(torch, folder))


def test_damaged_files_are_refused_in_words(folder: Path, capsys: Any) -> None:
    text = (folder / "cases.json").read_text()
    (folder / "cases.json").write_text(text[:1000])
    refused(folder, "cases.json is not JSON")
    assert cli.main(["conformance", "--data", str(folder)]) == 2
    assert "is not JSON" in capsys.readouterr().err
    (folder / "cases.json").unlink()
    refused(folder, "can't read .*cases.json: No such file")
    (folder / "cases.json").write_text('{"not": "a list"}')
    refused(folder, "must be a list of objects")


def test_damaged_arrays_are_refused_in_words(folder: Path) -> None:
    good = (folder / "arrays.npz").read_bytes()
    (folder / "arrays.npz").write_bytes(good[: len(good) // 2])
    refused(folder, "arrays.npz")
    (folder / "arrays.npz").write_bytes(good[:200] + bytes(100) + good[300:])
    refused(folder, "arrays.npz")
    np.savez(folder / "arrays.npz", bytes=np.zeros(10, np.uint8))
    refused(folder, "its hash differs")
    np.savez(folder / "arrays.npz", bytes=np.zeros(10, np.float32))
    refused(folder, "one array of bytes")


def test_pickled_arrays_are_not_opened(folder: Path) -> None:
    np.savez(folder / "arrays.npz", bytes=np.array([print], dtype=object))
    refused(folder, "damaged: Object arrays cannot be loaded")


@pytest.mark.parametrize(
    "call",
    ["cli.os.system", "_meta", "Tensor._storage", "ops.aten.slice", "nn.functional.__class__"],
)
def test_a_call_may_only_name_a_public_function(folder: Path, call: str) -> None:
    rewrite(folder, lambda cases: cases[1].update(call=call))
    refused(folder, "is not a public function")


def test_malformed_cases_are_named_by_number(folder: Path) -> None:
    rewrite(
        folder,
        lambda cases: cases[3].update(expected={"at": 10**9, "shape": [2], "dtype": "int64"}),
    )
    refused(folder, "case 3 in cases.json is malformed: a tensor lies outside")
    rewrite(folder, lambda cases: cases[2].pop("args"))
    refused(folder, "case 2 in cases.json is malformed")
    rewrite(folder, lambda cases: cases[0].update(format=99))
    refused(folder, "format 99, this version reads 1")


def test_samples_are_read_as_documented() -> None:
    gather = op_.get("gather")
    (call,) = oracle.calls(gather)
    assert call == ((2, 3), 1, [[0, 2], [1, 1]], False)
    (case,) = oracle._case(gather, call, torch.float64, 0)
    answer = case.run("cpu")
    assert answer.dtype is torch.float64
    assert np.array_equal(answer.numpy(), case.expected)
