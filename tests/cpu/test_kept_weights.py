"""Packed copies of weights: used again only while nothing wrote to the weight."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import lucerne as torch
from lucerne._src.backends.cpu.gemm import kept

F = torch.nn.functional

WRITES: dict[str, Callable[[Any], Any]] = {
    "in place": lambda w: w.add_(1.0),
    "operator": lambda w: w.__imul__(2.0),
    "through .data": lambda w: w.data.add_(1.0),
    "through a view": lambda w: w[0].add_(1.0),
    "through a view of .data": lambda w: w.data.view(-1)[3:9].zero_(),
    "an element": lambda w: w.__setitem__((1, 2), 7.0),
    "copy_": lambda w: w.copy_(torch.randn(w.shape).to(w.dtype)),
    "through numpy": lambda w: w.float().numpy().__setitem__(0, 5.0),
}


def large(dtype: Any) -> tuple[Any, Any, Any]:
    torch.manual_seed(0)
    return (torch.randn(s).to(dtype) for s in ((256, 512), (768, 512), (768,)))  # type: ignore[return-value]


def product(x: Any, w: Any, b: Any) -> Any:
    return (x.double() @ w.double().t() + (0 if b is None else b.double())).to(x.dtype)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("how", WRITES)
@pytest.mark.parametrize("biased", [True, False])
def test_a_written_weight_is_packed_anew(dtype: Any, how: str, biased: bool) -> None:
    x, w, bias = large(dtype)
    b = bias if biased else None
    near = {"rtol": 2e-2, "atol": 2e-1} if dtype is torch.bfloat16 else {"rtol": 1e-4, "atol": 1e-3}
    for _ in range(3):
        for _ in range(4):
            torch.testing.assert_close(F.linear(x, w, b), product(x, w, b), **near)
        WRITES[how](w)
    torch.testing.assert_close(F.linear(x, w, b), product(x, w, b), **near)


def test_an_unchanged_weight_is_packed_once() -> None:
    x, w, b = large(torch.float32)
    memory = w._storage.buffer
    for uses in range(4):
        F.linear(x, w, b)
        if hasattr(memory, "writes"):
            assert (kept._known[memory][1] is not None) == (uses > 0)


def test_numpy_is_not_trusted() -> None:
    x, w, b = large(torch.float32)
    alias = w.numpy()
    for value in (1.0, 2.0, 3.0):
        alias[:] = value
        torch.testing.assert_close(F.linear(x, w, b), product(x, w, b), rtol=1e-4, atol=1e-3)
