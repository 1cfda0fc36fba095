"""Control flow beside PyTorch's, where it has the op on the CPU (it compiles each: slow)."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import lucerne as lu
from lucerne._higher_order_ops import map as our_map
from lucerne._higher_order_ops import scan as our_scan

pytestmark = pytest.mark.torch
torch = pytest.importorskip("torch")
torch_map = pytest.importorskip("torch._higher_order_ops.map").map
torch_scan = pytest.importorskip("torch._higher_order_ops.scan").scan

HOPS: dict[Any, Any] = {
    torch: {"cond": torch.cond, "while": torch.while_loop, "scan": torch_scan, "map": torch_map},
    lu: {"cond": lu.cond, "while": lu.while_loop, "scan": our_scan, "map": our_map},
}


def _scan(t: Any, x: Any, **options: Any) -> Any:
    return HOPS[t]["scan"](lambda c, v: (c * v + v, c + v), t.ones(3), x, **options)


CASES: dict[str, Any] = {
    "scan": _scan,
    "scan, reverse": lambda t, x: _scan(t, x, reverse=True),
    "scan, last dim": lambda t, x: _scan(t, x.t(), dim=1),
    "map": lambda t, x: HOPS[t]["map"](lambda v: v.sin() * 2, x),
}
SLOW: dict[str, Any] = {
    "cond": lambda t, x: HOPS[t]["cond"](x.sum() > 0, lambda x: x.sin(), lambda x: x.cos(), (x,)),
    "while": lambda t, x: HOPS[t]["while"](
        lambda x, n: x.sum() > 1, lambda x, n: (x / 2, n + 1), (x, t.tensor(0))
    ),
}


def _check(case: Any) -> None:
    data = np.random.default_rng(0).uniform(0.1, 1, (4, 3)).astype(np.float32)
    want = case(torch, torch.from_numpy(data.copy()))
    got = case(lu, lu.from_numpy(data.copy()))
    wants = want if isinstance(want, (tuple, list)) else [want]
    gots = got if isinstance(got, (tuple, list)) else [got]
    for a, b in zip(gots, wants, strict=True):
        np.testing.assert_allclose(a.numpy(), b.numpy(), rtol=1e-6)


@pytest.mark.nightly
@pytest.mark.parametrize("name", CASES)
def test_same_as_torch(name: str) -> None:
    _check(CASES[name])


@pytest.mark.nightly
@pytest.mark.parametrize("name", SLOW)
def test_same_as_torch_which_compiles_it(name: str) -> None:
    _check(SLOW[name])


def test_check_notices_a_difference() -> None:
    with pytest.raises(AssertionError):
        _check(lambda t, x: x if t is torch else x + 1)
