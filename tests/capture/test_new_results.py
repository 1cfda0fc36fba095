"""A function that returns a new object returns another one at each call, compiled as it is."""

from __future__ import annotations

import functools
import types
from typing import Any

import numpy as np
import pytest

import lucerne as torch

D = torch.distributions


class Own:
    def __init__(self, x: Any) -> None:
        self.x = x


NEW: dict[str, Any] = {
    "an array": lambda x: np.ones(3),
    "an array of the size": lambda x: np.zeros(x.shape),
    "an object": lambda x: object(),
    "bytes that change": lambda x: bytearray(3),
    "a namespace": lambda x: types.SimpleNamespace(x=x * 2),
    "a partial": lambda x: functools.partial(len, x),
    "of a class": lambda x: Own(x * 2),
    "a class": lambda x: type("Made", (), {}),
    "a set": lambda x: {1, 2},
    "a method": lambda x: [1].append,
    "a module": lambda x: torch.nn.ReLU(),
    "a module with parameters": lambda x: torch.nn.Linear(2, 2),
    "a generator": lambda x: torch.Generator(),
    "a loader": lambda x: torch.utils.data.DataLoader([1]),
    "a dataset": lambda x: torch.utils.data.TensorDataset(x),
    "a scaler": lambda x: torch.amp.GradScaler("cpu", enabled=False),
    "a distribution": lambda x: D.Normal(x, 1.0),
    "one that is not checked": lambda x: D.Normal(x, 1.0, validate_args=False),
    "a transform": lambda x: D.transforms.AffineTransform(x, 2.0),
    "a storage": lambda x: x.untyped_storage(),
    "a slice by tensors": lambda x: slice(x.sum(), None),
}
VALUES: dict[str, Any] = {
    "a dtype": lambda x: x.dtype,
    "a device": lambda x: torch.device("cpu"),
    "limits": lambda x: torch.finfo(x.dtype).max,
    "a slice": lambda x: slice(0, 2),
    "a complex number": lambda x: complex(1, 2),
    "a size": lambda x: x.shape,
}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", NEW)
def test_each_call_makes_one(name: str) -> None:
    def fn(x: Any) -> Any:
        return x * 2, NEW[name](x)

    compiled = torch.compile(fn)
    found = [compiled(torch.full((2,), float(k))) for k in range(4)]
    assert len({id(made) for _, made in found}) == 4
    for k, (y, made) in enumerate(found):
        assert y.tolist() == [2.0 * k] * 2
        assert type(made).__name__ == type(fn(torch.ones(2))[1]).__name__


@pytest.mark.parametrize("name", ["a distribution", "one that is not checked"])
def test_what_is_in_it_is_of_the_call(name: str) -> None:
    compiled = torch.compile(lambda x: NEW[name](x * 3), fullgraph=True)
    for k in range(4):
        assert compiled(torch.full((2,), float(k))).mean.tolist() == [3.0 * k] * 2


def test_an_array_that_is_written_to_is_not_met_again() -> None:
    compiled = torch.compile(lambda x: (x * 2, np.ones(2)))
    for _ in range(3):
        made = compiled(torch.ones(2))[1]
        assert made.tolist() == [1.0, 1.0]
        made[:] = 7


@pytest.mark.parametrize("name", VALUES)
def test_a_value_is_part_of_the_graph(name: str) -> None:
    compiled = torch.compile(lambda x: (x * 2, VALUES[name](x)), fullgraph=True)
    for _ in range(3):
        assert compiled(torch.ones(2))[1] == VALUES[name](torch.ones(2))
