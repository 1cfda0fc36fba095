"""Whatever can be compiled can be explained: as a table, as a page, as data."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

import lucerne as torch
from lucerne import nn
from tests.explain.test_page import assert_well_formed


def x() -> Any:
    torch.manual_seed(0)
    return torch.rand(8, 8)


def on(backend: Any, fn: Callable[..., Any]) -> Any:
    return torch.compile(fn, backend=backend)


ROWS: dict[str, Callable[[], tuple[Any, ...]]] = {
    "identity": lambda: (lambda a: a, x()),
    "a view": lambda: (lambda a: a.T, x()),
    "no tensor returned": lambda: (lambda a: 3, x()),
    "no tensor at all": lambda: (lambda a, b: a + b, 1, 2),
    "in place": lambda: (lambda a: a.add_(1), x()),
    "no elements": lambda: (lambda a: a * 2, torch.ones(0, 3)),
    "a single number": lambda: (lambda a: a * 2, torch.tensor(2.0)),
    "random": lambda: (lambda a: torch.dropout(a, 0.5, True) + torch.rand(8, 8), x()),
    "indices": lambda: (lambda i, t: t[i], torch.tensor([1, 2]), x()),
    "one word": lambda: (nn.Embedding(1, 4), torch.zeros(3, dtype=torch.int64)),
    "images": lambda: (nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU()), torch.rand(1, 3, 6, 6)),
    "recurrent": lambda: (nn.LSTM(8, 8), torch.rand(2, 2, 8)),
    "complex": lambda: (lambda a: torch.fft.fft(a).abs(), x()),
    "two dtypes": lambda: (lambda a: (a.double() @ a.double()).sum(), x()),
    "data-dependent shape": lambda: (lambda a: a[a > 0.5].sum() * 2, x()),
    "bitwise": lambda: (torch.compile(lambda a: (a * 2).sum(), mode="bitwise"), x()),
    "another backend": lambda: (on("reference", lambda a: (a * 2).sum()), x()),
    "a function as backend": lambda: (on(lambda g, _: g.forward, lambda a: a * 2), x()),
}


@pytest.mark.parametrize("row", ROWS.values(), ids=list(ROWS))
def test_everything_can_be_explained(row: Callable[[], tuple[Any, ...]]) -> None:
    fn, *args = row()
    found = torch.explain(fn)(*args)
    assert str(found)
    json.dumps(found.json())
    assert_well_formed(found.html())
    assert found.report.parts
    if found.report.parts[0].kernels:
        assert all(k.verdict for k in found.report.kernels())
