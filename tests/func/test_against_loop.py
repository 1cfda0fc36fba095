"""A few ops of each kind under vmap against a loop; `python -m tests.func vmap` tries all."""

from typing import Any

import pytest

pytest.importorskip("torch")

from lucerne._src.ir.op import table
from lucerne.func.batching.level import RULES, Call
from tests.conformance import catalog
from tests.func.against_loop import Verdict, check

pytestmark = pytest.mark.torch

OPS = [
    "add", "where", "sum", "argmax", "matmul", "gather", "index_put", "sort", "cumsum", "expand",
    "nn.functional.conv2d", "nn.functional.cross_entropy", "nn.functional.layer_norm", "bincount",
]  # fmt: skip


def verdict_of(name: str, gradients: bool = False) -> Verdict:
    entry = next(e for e in catalog.load().values() if e.name == name)
    return check(entry, 1, gradients=gradients)


@pytest.mark.parametrize("name", OPS)
def test_agrees_with_a_loop(name: str) -> None:
    verdict = verdict_of(name)
    assert not verdict.failures
    assert verdict.calls or verdict.refusals


@pytest.mark.parametrize("name", ["matmul", "nn.functional.layer_norm", "cumsum"])
def test_gradients_agree_with_a_loop(name: str) -> None:
    verdict = verdict_of(name, gradients=True)
    assert not verdict.failures
    assert verdict.calls


def test_a_wrong_rule_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    def wrong(call: Call) -> Any:
        return call.run(call.values[0], (0,))  # turns the batch around

    monkeypatch.setitem(RULES, "flip", wrong)
    assert verdict_of("flip").outcome == "FAIL"


def test_every_primitive_has_a_rule() -> None:
    """Structural ops without one would run once for each of the batch."""
    made = {"filled", "uninitialized", "counted"}  # from nothing: there is no batch
    slow = {"put_region", "counted_draw"}  # made by the compiler, after vmap is gone
    names = {op.qualified for op in table().values() if op.kind == "structural" and not op.host}
    missing = names - set(RULES) - made - slow - {"nonzero"}
    assert not missing
