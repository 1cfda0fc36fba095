"""A tensor of a transform has no bytes: used in another thread, which knows no transform, it must
be refused. A kernel that took it would write to address 0."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest

import lucerne as torch

F = torch.nn.functional
SIZE = 100
WEIGHT = torch.ones(SIZE, SIZE)


def written() -> Any:
    return torch.zeros(SIZE)


USES: dict[str, Callable[[Any], Any]] = {
    "add": lambda x: x + 1,
    "sum": lambda x: x.sum(),
    "matmul": lambda x: x @ WEIGHT,
    "softmax": lambda x: torch.softmax(x, 0),
    "in place": lambda x: x.add_(1),
    "copied from": lambda x: written().copy_(x),
    "stored": lambda x: written().__setitem__(3, x[0]),
    "a view": lambda x: x.view(10, 10) + 1,
    "item": lambda x: x.sum().item(),
    "numpy": lambda x: x.numpy(),
    "tolist": lambda x: x.tolist(),
    "printed": repr,
    "linear": lambda x: F.linear(x, WEIGHT),
    "layer_norm": lambda x: F.layer_norm(x, (SIZE,)),
    "convolution": lambda x: F.conv1d(x.view(1, 1, SIZE), torch.ones(1, 1, 3)),
    "cat": lambda x: torch.cat([x, written()]),
    "sort": lambda x: x.sort(),
    "backward": lambda x: x.requires_grad_().mul(2).sum().backward(),
    "compiled": lambda x: torch.compile(lambda a: a * 2 + 1)(x),
}


def in_another_thread(use: Callable[[], Any]) -> Any:
    """What the call gives there: its result, or its error."""
    found: list[Any] = []

    def run() -> None:
        try:
            found.append(use())
        except Exception as error:
            found.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    return found[0]


@pytest.mark.parametrize("name", USES)
def test_other_threads_refuse_tensors_without_bytes(name: str) -> None:
    use, found = USES[name], []
    use(torch.ones(SIZE))  # the call is remembered: machine code would take it from here on

    def watched(x: Any) -> Any:
        found.append(in_another_thread(lambda: use(x)))
        return x

    torch.vmap(watched)(torch.ones(3, SIZE))
    assert isinstance(found[0], RuntimeError)
    assert "no bytes" in str(found[0])
