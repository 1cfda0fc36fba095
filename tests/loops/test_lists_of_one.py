"""Views that give lists, of a dimension of size one: a list of one view, in all kinds of groups."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import pytest

import lucerne as torch

LISTS: dict[str, Callable[[Any], Any]] = {
    "unbind": lambda v: v.unbind(0)[0],
    "split": lambda v: v.split(1, 0)[0],
    "chunk": lambda v: v.chunk(1, 0)[0],
    "tensor_split": lambda v: v.tensor_split(1, 0)[0],
}
AROUND: dict[str, Callable[[Any, Callable[[Any], Any]], Any]] = {
    "elements": lambda x, part: part((x * 2).exp()) + 1,
    "a fold": lambda x, part: part(x.exp().sum(0, keepdim=True)) * x,
    "with itself": lambda x, part: x.sin() + part(x.sin()),
    "behind a product": lambda x, part: part((x @ x.t()).relu()) * 2,
    "an operand of a product": lambda x, part: part((x * 2)[None]) @ x.t(),
}


@pytest.mark.parametrize("around", AROUND)
@pytest.mark.parametrize("view", LISTS)
def test_a_list_of_one(view: str, around: str) -> None:
    def fn(x: Any) -> Any:
        return AROUND[around](x, LISTS[view])

    for shape in ((1, 6), (1, 1)):
        torch.manual_seed(0)
        x = torch.randn(*shape)
        found = []
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            for call in (fn, torch.compile(fn, fullgraph=True)):
                leaf = x.clone().requires_grad_()
                y = call(leaf)
                y.sum().backward()
                found.append((y.detach(), leaf.grad, call(x)))
        for eager, compiled in zip(*found, strict=True):
            torch.testing.assert_close(compiled, eager)
