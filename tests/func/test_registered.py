"""Transforms take registered classes apart, as PyTorch's do: a row for each transform."""

from __future__ import annotations

import importlib
from collections import defaultdict
from collections.abc import Iterator
from typing import Any

import pytest

import lucerne

real = pytest.importorskip("torch", reason="PyTorch is the oracle of these rows")


class Pair:
    """A container with a name, which is part of the structure."""

    def __init__(self, a: Any, b: Any, name: str = "") -> None:
        self.a, self.b, self.name = a, b, name

    def __repr__(self) -> str:
        return f"Pair({self.a}, {self.b}, {self.name})"


@pytest.fixture(autouse=True)
def registered() -> Iterator[None]:
    """In both registries, for the test."""
    trees = [importlib.import_module(f"{x.__name__}.utils._pytree") for x in (lucerne, real)]
    for tree in trees:
        tree.register_pytree_node(
            Pair, lambda p: ([p.a, p.b], p.name), lambda xs, name: Pair(xs[0], xs[1], name)
        )
    yield
    for tree in trees:
        tree._deregister_pytree_node(Pair)


def pair(t: Any, name: str = "it") -> Pair:
    return Pair(t.arange(6.0).view(2, 3), {"c": t.tensor([1.0, 2.0])}, name)


def total(p: Pair) -> Any:
    return (p.a**2).sum() + (p.b["c"] ** 3).sum()


def twice(p: Pair) -> Pair:
    return Pair(p.a * 2, [p.b["c"].exp()], "made")


ROWS: dict[str, Any] = {
    "vmap": lambda t: t.vmap(twice)(pair(t)),
    "vmap along another": lambda t: t.vmap(lambda p, x: Pair(p.a, x), in_dims=(0, 1))(
        pair(t), t.ones(3, 2)
    ),
    "vmap in chunks": lambda t: t.vmap(twice, chunk_size=1)(pair(t)),
    "vmap of a defaultdict": lambda t: t.vmap(lambda d: d["a"] + 1)(
        defaultdict(list, a=t.ones(2, 3))
    ),
    "grad": lambda t: t.func.grad(total)(pair(t)),
    "grad_and_value": lambda t: t.func.grad_and_value(total)(pair(t)),
    "grad with aux": lambda t: t.func.grad(lambda p: (total(p), twice(p)), has_aux=True)(pair(t)),
    "vjp": lambda t: t.func.vjp(twice, pair(t))[1](Pair(t.ones(2, 3), [t.ones(2)], "made")),
    "jvp": lambda t: t.func.jvp(twice, (pair(t),), (pair(t),)),
    "jvp of another name": lambda t: t.func.jvp(twice, (pair(t),), (pair(t, "else"),)),
    "jacrev": lambda t: t.func.jacrev(lambda p: p.b["c"] ** 2)(pair(t)),
    "functionalize": lambda t: t.func.functionalize(lambda p: Pair(p.a.add_(1), 0))(pair(t)),
}


def of(module: Any, row: Any) -> str:
    try:
        return repr(row(module)).replace("grad_fn", "")
    except Exception as error:
        return type(error).__name__


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("row", ROWS.values(), ids=ROWS)
def test_as_torch(row: Any) -> None:
    assert of(lucerne, row) == of(real, row)
