"""Shadow mode beside a device with memory of its own."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import pytest

import lucerne as torch
from lucerne import backends, nn
from lucerne._src.backends.contract.tensor_view import elements
from lucerne._src.capture.shadow.replay import held_copy
from lucerne._src.capture.shadow.reproduce import in_memory


def _written(x: Any) -> Any:
    x.mul_(2)
    return x.sum()


def _part(x: Any) -> Any:
    x[:, 1] = x[:, 0]
    return x.exp()


def _drawn(x: Any) -> Any:
    return x + torch.rand(2, 3, device=x.device)


FUNCTIONS: dict[str, Callable[[Any], Any]] = {
    "plain": lambda x: (x * 2 + 1).sum(1), "written": _written, "part": _part, "drawn": _drawn,
    "view": lambda x: x.t()[1:],
}  # fmt: skip


@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_function_is_compared(name: str) -> None:
    f = torch.compile(
        FUNCTIONS[name], options={"shadow": 2, "shadow_action": "raise"}, fullgraph=True
    )
    plain = torch.compile(FUNCTIONS[name])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for _ in range(3):
            x = torch.arange(6.0).reshape(2, 3).to("slate")
            torch.manual_seed(1)
            found = f(x)
            y = torch.arange(6.0).reshape(2, 3).to("slate")
            torch.manual_seed(1)
            assert found.tolist() == plain(y).tolist()
            assert x.tolist() == y.tolist()


def _trained(**options: Any) -> list[float]:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(3, 8), nn.ReLU(), nn.Linear(8, 2)).to("slate")
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)

    def step(x: Any) -> Any:
        optimizer.zero_grad()
        loss = model(x).square().mean()
        loss.backward()
        optimizer.step()
        return loss.detach()

    f = torch.compile(step, **options)
    x = torch.arange(12.0).reshape(4, 3).to("slate") / 12
    return [f(x).item() for _ in range(4)]


def test_a_training_step_is_compared() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = _trained(options={"shadow": 2, "shadow_action": "raise"})
    assert found == pytest.approx(_trained(disable=True))


def test_a_value_in_memory_of_the_device() -> None:
    x = torch.arange(6.0).reshape(2, 3).to("slate").t()
    spot = in_memory(held_copy(x), backends.get("slate"))
    assert elements(spot).tolist() == x.tolist()
