"""A function under a decorator that switches a mode is one graph, like the mode inside of it."""

from __future__ import annotations

from typing import Any

import pytest

import lucerne as torch

SWITCHES = {
    "no_grad": torch.no_grad,
    "enable_grad": torch.enable_grad,
    "inference_mode": torch.inference_mode,
    "set_grad_enabled": lambda: torch.set_grad_enabled(False),
    "autocast": lambda: torch.autocast("cpu", torch.bfloat16),
}


@pytest.mark.parametrize("name", SWITCHES)
def test_a_decorated_function_is_one_graph(name: str) -> None:
    weight = torch.randn(4, 4, requires_grad=True)

    def plain(x: Any) -> Any:
        return torch.relu(x @ weight)

    decorated = SWITCHES[name]()(plain)
    compiled = torch.compile(decorated, fullgraph=True)
    x = torch.randn(2, 4)
    for _ in range(2):
        found, wanted = compiled(x), decorated(x)
        assert torch.equal(found, wanted)
        assert found.requires_grad == wanted.requires_grad
        assert found.dtype == wanted.dtype
        assert torch.is_grad_enabled()
