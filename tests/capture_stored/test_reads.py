"""A program from disk is guarded by what its function reads, as one that was captured here."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import lucerne as torch
from lucerne import nn
from lucerne._src.capture.cache.disk.lookup import HIT
from tests.capture_stored.bench import Bench


class Config:
    scale = 2.0
    other = 1

    def __init__(self) -> None:
        self.k, self.seen = 3.0, 0


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer, self.spare = nn.Linear(3, 3), nn.Linear(3, 3)
        self.scale, self.count, self.config = 2.0, 0, Config()

    def forward(self, x: Any) -> Any:
        return self.layer(x) * self.scale * self.config.k


TABLE: dict[str, Any] = {"a": 1.0, "b": [1.0, 2.0], "c": 5}
NET = Net()


def of_a_table(x: Any) -> Any:
    return x * TABLE["a"] + sum(TABLE["b"])


def of_a_class(x: Any) -> Any:
    return x * Config.scale


def of_a_module(x: Any) -> Any:
    return NET(x)


Change = Callable[[], Any]
ROWS: dict[str, tuple[Any, Change, bool]] = {
    "an entry": (of_a_table, lambda: TABLE.update(c=7), False),
    "the entry": (of_a_table, lambda: TABLE.update(a=3.0), True),
    "the list": (of_a_table, lambda: TABLE["b"].append(3.0), True),
    "an attribute of a class": (of_a_class, lambda: setattr(Config, "other", 2), False),
    "the attribute of a class": (of_a_class, lambda: setattr(Config, "scale", 4.0), True),
    "a counter": (of_a_module, lambda: setattr(NET, "count", 1), False),
    "a layer": (of_a_module, lambda: setattr(NET, "spare", nn.Linear(2, 2)), False),
    "the scale": (of_a_module, lambda: setattr(NET, "scale", 3.0), True),
    "the object": (of_a_module, lambda: setattr(NET.config, "k", 1.0), True),
    "the layer": (of_a_module, lambda: setattr(NET, "layer", nn.Linear(3, 3)), True),
}


@pytest.fixture(autouse=True)
def _as_it_was() -> Iterator[None]:
    TABLE.update(a=1.0, b=[1.0, 2.0], c=5)
    Config.scale, Config.other = 2.0, 1
    NET.__dict__.update(Net().__dict__)
    yield
    NET.__dict__.update(Net().__dict__)


@pytest.mark.parametrize("name", ROWS)
def test_a_stored_program(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    bench = Bench(tmp_path / "programs", monkeypatch)
    fn, change, is_read = ROWS[name]
    x = torch.linspace(-1, 1, 6).reshape(2, 3)
    assert bench.ask(fn, x)[1] == "miss"
    compiled = torch.compile(fn)
    assert torch.allclose(compiled(x), fn(x))
    assert [entry.cache for entry in compiled.entries] == [HIT]
    change()
    for _ in range(2):
        assert torch.allclose(compiled(x), fn(x))
    assert len(compiled.entries) == 1 + is_read
