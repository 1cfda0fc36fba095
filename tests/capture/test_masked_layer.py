"""Layers that change their own weight by `.data`, and `super()` behind a break."""

from __future__ import annotations

from typing import Any

import pytest

import lucerne as torch

nn = torch.nn


class InPlace(nn.Conv2d):
    def forward(self, x: Any) -> Any:
        self.weight.data *= 0.5
        return torch.conv2d(x, self.weight, self.bias)


class Masked(nn.Conv2d):
    def forward(self, x: Any) -> Any:
        self.weight.data *= self.weight.data > 0
        return super().forward(x)


class Counted(nn.Conv2d):
    """Its method is called by `Conv2d.forward`, and does more than compute."""

    count = 0

    def _conv_forward(self, x: Any, weight: Any, bias: Any) -> Any:
        Counted.count += 1
        return super()._conv_forward(x, weight, bias)

    def forward(self, x: Any) -> Any:
        self.weight.data *= 1
        return super().forward(x)


@pytest.mark.parametrize("kind", [InPlace, Masked, Counted])
@pytest.mark.filterwarnings("error")
def test_as_uncompiled(kind: Any) -> None:
    torch.manual_seed(0)
    ours, theirs = kind(1, 2, 3), kind(1, 2, 3)
    theirs.load_state_dict(ours.state_dict())
    compiled = torch.compile(ours, fullgraph=kind is InPlace)
    for _ in range(4):
        x = torch.randn(1, 1, 5, 5)
        Counted.count = 0
        assert torch.allclose(compiled(x), theirs(x), atol=1e-6)
        assert Counted.count == (2 if kind is Counted else 0)
        assert torch.equal(ours.weight, theirs.weight)


@pytest.mark.torch
def test_data_of_its_own_keeps_the_version() -> None:
    import torch as theirs

    found = []
    for one in (torch, theirs):
        x = one.ones(3, requires_grad=True)
        y = (x * x).sum()
        x.data *= 2
        version = x._version
        y.backward()
        other = one.ones(3)
        data = other.data
        other.data = data
        data.add_(1)
        found.append((version, x.tolist(), x.grad.tolist(), other.tolist(), other._version))
    assert found[0] == found[1]
