"""The compiler's benchmark compares like with like: all sides compute the same."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

from benchmarks import rows, sides
from benchmarks.rows import Row
from benchmarks.sides import JAX, OURS, OURS_EAGER, TORCH, TORCH_COMPILE
from benchmarks.worker import Worker

pytestmark = pytest.mark.torch
needs_jax = pytest.mark.skipif(
    importlib.util.find_spec("jax") is None, reason="JAX is not installed: one rival less"
)


def programs(*quick: str) -> list[object]:
    """All programs; those that take long to compile only at night (`pytest -m nightly`)."""
    return [
        name if name in quick else pytest.param(name, marks=pytest.mark.nightly)
        for name in sides.SIZES
    ]


def values_of(side: str, program: str) -> dict[str, list[float]]:
    """What every way of a side computes first, at the small size."""
    return {
        f"{side} ({way})": sides.build(side, way, program, small=True).values
        for way in sides.ways(program)[side]
    }


@pytest.mark.parametrize("program", programs("gpt", "mlp", "decode"))
def test_lucerne_computes_what_torch_computes(program: str) -> None:
    found = {
        k: v for side in (TORCH, OURS, OURS_EAGER) for k, v in values_of(side, program).items()
    }
    assert len(found) >= 3
    assert sides.disagreement(program, found) == ""


@needs_jax
@pytest.mark.parametrize("program", programs("mlp"))
def test_jax_computes_what_torch_computes(program: str) -> None:
    first = sides.ways(program)[TORCH][0]
    found = {TORCH: sides.build(TORCH, first, program, small=True).values}
    assert sides.disagreement(program, {**found, **values_of(JAX, program)}) == ""


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("program", programs())
def test_compiled_torch_computes_what_torch_computes(program: str) -> None:
    first = sides.ways(program)[TORCH][0]
    found = {TORCH: sides.build(TORCH, first, program, small=True).values}
    assert sides.disagreement(program, {**found, **values_of(TORCH_COMPILE, program)}) == ""


def test_a_side_that_computes_something_else_is_noticed() -> None:
    good = {"a": [1.0, 2.0], "b": [1.0, 2.0]}
    assert sides.disagreement("gpt", good) == ""
    assert sides.disagreement("gpt", {**good, "c": [1.0, 2.01]}).startswith("WRONG: a and c")
    assert sides.disagreement("gpt_bf16", {**good, "c": [1.0, 2.01]}) == ""
    assert sides.disagreement("gpt", {**good, "c": [1.0, float("nan")]}).startswith("WRONG")


VERDICTS = {
    "within": (Row("s", "n", {OURS: 0.7, TORCH: 1.0, JAX: 2.0}, limit=0.8), "PASS"),
    "the best rival counts": (Row("s", "n", {OURS: 0.7, TORCH: 1.0, JAX: 0.8}, limit=0.8), "MISS"),
    "only some rivals": (
        Row("s", "n", {OURS: 0.7, TORCH: 1.0, JAX: 0.8}, limit=0.8, rivals=(TORCH,)),
        "PASS",
    ),
    "a rate": (Row("s", "n", {OURS: 13.1, TORCH: 10.0}, limit=1.3, more=True), "PASS"),
    "a low rate": (Row("s", "n", {OURS: 12.0, TORCH: 10.0}, limit=1.3, more=True), "MISS"),
    "eager stands in": (Row("s", "n", {OURS_EAGER: 0.7, TORCH: 1.0}, limit=0.8), "PASS"),
    "absolute": (Row("s", "n", {OURS: 3.5}, limit_ours=3.0), "MISS"),
    "wrong": (Row("s", "n", {OURS: 0.1, TORCH: 1.0}, limit=0.8, note="WRONG: a and b"), "MISS"),
    "nothing measured": (Row("s", "n", {TORCH: 1.0}, limit=0.8), "absent"),
    "a busy machine": (Row("s", "n", {OURS: 0.7, TORCH: 1.0}, limit=0.8, busy=0.9), "PASS?"),
}


@pytest.mark.parametrize("name", VERDICTS)
def test_rows_are_judged(name: str) -> None:
    row, verdict = VERDICTS[name]
    assert row.verdict == verdict
    assert verdict in rows.line(row)


def test_the_page_shows_every_row(tmp_path: Path) -> None:
    facts = {"when": "now", "threads": 2, "machine": "<this>", "how": "so", "seconds": 1.0}
    shown = [row for row, _ in VERDICTS.values()]
    rows.write_html(str(tmp_path / "page.html"), shown, facts)
    text = (tmp_path / "page.html").read_text()
    assert text.count("<tr>") == len(shown) + 1
    assert "MISS" in text
    assert "&lt;this&gt;" in text


def test_a_worker_answers() -> None:
    job = {"side": OURS_EAGER, "way": "plain", "program": "mlp", "kind": "time"}
    with Worker({**job, "threads": 1, "small": True}) as worker:
        assert worker.error is None
        assert len(worker.first["values"]) == sides.CHECKED
        found = worker.ask({"repeats": 3, "inner": 2, "processor": True})
        assert len(found["seconds"]) == 3
        assert min(found["seconds"]) > 0


def test_a_worker_that_fails_says_why() -> None:
    job = {"side": OURS_EAGER, "way": "plain", "program": "nonsense", "kind": "time"}
    with Worker({**job, "threads": 1, "small": True}) as worker:
        assert worker.error == "KeyError: 'nonsense'"
