"""Bags of embeddings whose borders are data: one graph, checked at each call."""

from __future__ import annotations

from typing import Any

import pytest

import lucerne as torch

OFFSETS = {
    "in order": [0, 2, 5, 9],
    "empty bags": [0, 0, 4, 4, 12],
    "one": [0],
    "all in the first": [0, 12],
}


@pytest.mark.parametrize("mode", ["sum", "mean", "max"])
@pytest.mark.parametrize("name", OFFSETS)
@pytest.mark.parametrize("weighted", [False, True])
def test_one_graph_for_any_borders(mode: str, name: str, weighted: bool) -> None:
    if weighted and mode != "sum":
        with pytest.raises(NotImplementedError, match="per_sample_weights"):
            _called(torch.nn.functional.embedding_bag, mode, OFFSETS[name], weighted)
        return
    compiled = torch.compile(torch.nn.functional.embedding_bag, fullgraph=True)
    for offsets in (OFFSETS[name], [0, *sorted(n // 2 for n in OFFSETS[name][1:])]):
        ours = _called(compiled, mode, offsets, weighted)
        theirs = _called(torch.nn.functional.embedding_bag, mode, offsets, weighted)
        for a, b in zip(ours, theirs, strict=True):
            assert torch.allclose(a, b, atol=1e-6), (mode, offsets)
    assert compiled.traces == 1


def _called(fn: Any, mode: str, offsets: list[int], weighted: bool) -> list[Any]:
    """The result, and the gradient of the table."""
    torch.manual_seed(0)
    table = torch.randn(20, 3, requires_grad=True)
    at = torch.randint(0, 20, (12,))
    weights = torch.rand(12) if weighted else None
    out = fn(at, table, torch.tensor(offsets), mode=mode, per_sample_weights=weights)
    (out * torch.arange(3.0)).sum().backward()
    return [out.detach(), table.grad]


@pytest.mark.parametrize(
    ("offsets", "text"),
    [([1, 2, 3], r"offsets\[0\] has to be 0"), ([0, 2, 13], "can not be greater than input's")],
)
def test_refusals_are_eagers(offsets: list[int], text: str) -> None:
    compiled = torch.compile(torch.nn.functional.embedding_bag, fullgraph=True)
    table, at = torch.randn(20, 3), torch.randint(0, 20, (12,))
    compiled(at, table, torch.tensor([0, 2, 3]), mode="sum")
    with pytest.raises(RuntimeError, match=text):
        compiled(at, table, torch.tensor(offsets), mode="sum")
