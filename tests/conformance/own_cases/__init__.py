"""Our own rows for what op_db lacks: each is run with torch and with Lucerne, and compared.

A row is a function of the module: `lambda t: t.tensor([1, 2])`. It returns any nest of tensors and
Python values; tensors must agree in dtype, shape, strides, requires_grad and value.
"""

from types import ModuleType
from typing import Any

import numpy as np
import torch

from tests.conformance import tree
from tests.conformance.bridge import Bridge
from tests.conformance.compare import Comparison, Policy, significant_strides
from tests.conformance.context import quiet
from tests.conformance.own_cases import (
    autograd,
    breadth,
    creation,
    functional,
    hooks,
    indexing,
    inplace,
    printing,
    promotion,
    random,
    reading,
    training,
)
from tests.conformance.own_cases.tools import NOT_IMPLEMENTED, Rows
from tests.conformance.result import Sample, Tally

TIER = "own"
MODULES: list[ModuleType] = [
    autograd,
    breadth,
    creation,
    functional,
    hooks,
    indexing,
    inplace,
    printing,
    promotion,
    random,
    reading,
    training,
]


def load() -> Rows:
    """All rows as `module.row`."""
    rows: Rows = {}
    for module in MODULES:
        prefix = module.__name__.rsplit(".", 1)[-1]
        rows.update({f"{prefix}.{name}": row for name, row in module.ROWS.items()})
    return rows


def check(name: str, bridge: Bridge) -> Tally:
    """One row on both sides."""
    tally = Tally("own", name, TIER, "")
    row = load()[name]
    with quiet(), tally.sample("") as sample:
        torch.manual_seed(0)
        expected = row(torch)
        try:
            bridge.seed(0)
            got = row(bridge.module)
        except Exception as error:
            sample.raised(error, "runs")
        else:
            policy = Policy(exact=name.startswith("random."))
            _compare(Comparison(sample, bridge, policy), expected, got)
    return tally


def _compare(comparison: Comparison, expected: Any, got: Any) -> None:
    want, have = tree.outline(expected), tree.outline(got)
    sample = comparison.sample
    if not sample.expect(want == have, "structure", lambda: f"{want} got {have}"):
        return
    for (place, left), (_, right) in zip(tree.paths(expected), tree.paths(got), strict=True):
        if isinstance(left, str) and left == NOT_IMPLEMENTED:
            continue  # torch has no kernel: whatever the other side does is allowed
        if isinstance(left, np.ndarray):
            _compare_arrays(sample, place, left, right)
        elif comparison.leaf(place, left, right) and isinstance(left, torch.Tensor):
            _compare_facts(sample, place, left, right)


def _compare_arrays(sample: Sample, place: str, want: np.ndarray, have: Any) -> None:
    same = isinstance(have, np.ndarray) and want.dtype == have.dtype
    same = same and np.array_equal(want, have)
    sample.expect(same, "array", f"[{place}] {want!r} got {have!r}")


def _compare_facts(sample: Sample, place: str, want: torch.Tensor, have: Any) -> None:
    if want.layout == torch.strided and want.numel() > 0:
        strides = significant_strides(want) == significant_strides(have)
        sample.expect(strides, "stride", f"[{place}] {want.stride()} got {have.stride()}")
    flags = want.requires_grad == have.requires_grad
    sample.expect(flags, "requires_grad", f"[{place}] {want.requires_grad}")
