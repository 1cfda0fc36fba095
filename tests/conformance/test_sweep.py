"""The sweep finds nothing in torch itself, and what is planted in a copy of it."""

from typing import Any

import numpy as np
import pytest
import torch

from tests.conformance import catalog, gaps, proofs, sweep, sweep_writes
from tests.conformance.bridge import torch_bridge
from tests.conformance.context import Context

pytestmark = pytest.mark.torch
CHECKS = {
    "M11": sweep.check_layouts,
    "M11v": sweep.check_values,
    "M11i": sweep_writes.check_targets,
    "M11o": sweep_writes.check_outs,
}


class Planted(Context):
    """torch, but for one function."""

    fault: Any = None

    @property
    def function(self) -> Any:  # type: ignore[override]
        return self.fault


def planted(fault: Any) -> Context:
    context = Planted(catalog.load()["add"], torch_bridge())
    object.__setattr__(context, "fault", fault)
    return context


@pytest.mark.parametrize("metric", CHECKS)
@pytest.mark.parametrize("name", ["add", "cumsum", "nn.functional.linear"])
def test_torch_agrees_with_itself(name: str, metric: str) -> None:
    entry = catalog.load()[name]
    if metric == "M11i" and entry.op.inplace_variant is None:
        return
    if metric == "M11o" and name == "nn.functional.linear":
        return  # torch refuses one of its cases (known_gaps.json)
    [tally] = CHECKS[metric](Context(entry, torch_bridge()), torch.float32)
    assert tally.ok, tally.failures[:3]
    assert tally.samples


def _piecewise(x: Any, other: Any, *, alpha: Any = 1, out: Any = None) -> Any:
    """Each element is written before the next is read."""
    whole = torch.add(x.clone(), other, alpha=alpha)
    if out is None:
        return whole
    for at in np.ndindex(*whole.shape):
        theirs = other[at] if isinstance(other, torch.Tensor) and other.shape == x.shape else other
        if isinstance(theirs, torch.Tensor) and theirs.dim():
            return torch.add(x, other, alpha=alpha, out=out)
        out[at] = x[at] + alpha * theirs if x.shape == whole.shape else whole[at]
    return out


def _contiguously(x: Any, other: Any, *, alpha: Any = 1, out: Any = None) -> Any:
    """Memory is written as if there were no gaps."""
    whole = torch.add(x, other, alpha=alpha)
    if out is None:
        return whole
    out.as_strided((out.numel(),), (1,)).copy_(whole.reshape(-1))
    return out


_LAST: dict[Any, Any] = {}


def _by_meta(x: Any, other: Any, *, alpha: Any = 1) -> Any:
    """What is remembered of a call is used for another place."""
    start = _LAST.setdefault((x.shape, x.stride()), x.storage_offset())
    if start and x.untyped_storage().nbytes() >= (start + x.numel()) * x.element_size():
        x = x.as_strided(x.shape, x.stride(), start)
    return torch.add(x, other, alpha=alpha)


@pytest.mark.parametrize(
    ("fault", "metric", "case"),
    [
        (_piecewise, "M11o", "behind the input's first"),
        (_contiguously, "M11o", "every second"),
        (_by_meta, "M11", "behind 3"),
    ],
    ids=["piecewise", "contiguously", "by meta"],
)
def test_planted_faults_are_found(fault: Any, metric: str, case: str) -> None:
    [tally] = CHECKS[metric](planted(fault), torch.float32)
    assert any(failure.sample.startswith(case) for failure in tally.failures)


@pytest.mark.parametrize(
    ("ours", "theirs", "truth", "said"),
    [
        (1.0, 1.0, 2.0, None),
        (1.0, 2.0, 1.0, proofs.OURS),
        (1.0, 2.0, 2.0, proofs.TORCH),
        (1.0, 2.0, 3.0, proofs.NEITHER),
        (np.inf, 3e38, 1e60, proofs.OURS),
        (np.nan, np.inf, np.nan, proofs.OURS),
        (np.nan, np.inf, 1e60, proofs.TORCH),
    ],
)
def test_verdicts(ours: float, theirs: float, truth: float, said: str | None) -> None:
    sides = [[np.array([x])] for x in (ours, theirs, truth)]
    assert proofs.verdict(*sides, torch.float32) == said
    assert proofs.verdict(None, sides[1], sides[1], torch.float32) == proofs.TORCH
    assert proofs.verdict(sides[0], None, sides[2], torch.float32) is None


def test_a_transform_is_judged_by_its_largest_number() -> None:
    sides = [[np.array([1e30, x])] for x in (1e20, 0.0, 0.0)]
    assert proofs.verdict(*sides, torch.float32) == proofs.TORCH
    assert proofs.verdict(*sides, torch.float32, normwise=True) is None
    sides = [[np.array([1e30, x])] for x in (1e25, 0.0, 0.0)]
    assert proofs.verdict(*sides, torch.float32, normwise=True) == proofs.TORCH


def test_every_reason_is_of_an_entry_with_a_gap() -> None:
    known = {(gap.op, gap.metric) for gap in gaps.load()}
    for name, what in proofs.REASONS:
        metrics = {what} if what in proofs.CHANGES else set(proofs.CHANGES)
        assert any((name, metric) in known for metric in metrics), (name, what)
    assert proofs.reason(("linalg.eigvals", "M11", "torch.float64", "")) is None
