"""Random numbers in compiled functions are made on the device, by the formula of the host."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import lucerne as torch
from lucerne import backends

F = torch.nn.functional
ROWS: dict[str, Callable[[Any], Any]] = {
    "dropout": lambda x: F.dropout(x * 2, 0.5),
    "uniform": lambda x: x + torch.rand_like(x),
    "normal": lambda x: x + torch.randn(3, 4, device=x.device),
    "whole numbers": lambda x: x + torch.randint(0, 9, (3, 4), device=x.device),
    "zeros and ones": lambda x: x + torch.empty_like(x).bernoulli_(0.3),
    "several": lambda x: torch.rand_like(x) * torch.randn_like(x) + F.dropout(x, 0.3),
}


def drawn(name: str, device: str) -> Any:
    compiled = torch.compile(ROWS[name], fullgraph=True)
    torch.manual_seed(3)
    x = torch.ones(3, 4).to(device)
    return [compiled(x).cpu().numpy() for _ in range(2)]


@pytest.mark.parametrize("name", ROWS)
def test_numbers_are_made_on_the_device_as_on_the_host(name: str) -> None:
    found = drawn(name, "slate")
    assert str(backends.bill()) == "nothing left its device"
    for a, b in zip(found, drawn(name, "cpu"), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)
    assert not np.array_equal(*found)


def test_the_backward_pass_has_the_same_mask() -> None:
    x = torch.ones(20, device="slate", requires_grad=True)
    compiled = torch.compile(lambda x: F.dropout(x, 0.5), fullgraph=True)
    y = compiled(x)
    y.sum().backward()
    assert torch.equal(y.detach().cpu(), x.grad.cpu())
    assert str(backends.bill()) == "nothing left its device"


def test_a_device_without_the_formula_draws_as_before() -> None:
    kind = type(backends.get("slate"))

    class Plain(kind):  # type: ignore[misc, valid-type]
        def supports(self, op: Any) -> bool:
            return op.qualified != "counted_draw" and bool(super().supports(op))

    backends.register("slate", Plain())
    compiled = torch.compile(lambda x: x + torch.rand_like(x), fullgraph=True)
    torch.manual_seed(0)
    found = compiled(torch.zeros(3, device="slate")).cpu()
    torch.manual_seed(0)
    assert torch.equal(found, torch.rand(3))
    assert "draw" in str(backends.bill())


def test_every_bit_as_eager_draws_from_the_generator() -> None:
    compiled = torch.compile(lambda x: x + torch.rand_like(x), mode="bitwise")
    torch.manual_seed(0)
    found = compiled(torch.zeros(3, device="slate")).cpu()
    torch.manual_seed(0)
    assert torch.equal(found, torch.rand(3))
