"""`sparse=True`: gradients that name rows, how they add up, and who takes them."""

from typing import Any

import pytest

import lucerne

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.torch


def _lookup(t: Any, w: Any, *rows: int) -> Any:
    return t.nn.functional.embedding(t.tensor(rows), w, sparse=True).sum()


def _sparse_twice(t: Any, w: Any) -> None:
    _lookup(t, w, 1, 2).backward()
    _lookup(t, w, 2, 0).backward()


def _sparse_then_dense(t: Any, w: Any) -> None:
    _lookup(t, w, 1, 2).backward()
    (w * 2).sum().backward()


def _dense_then_sparse(t: Any, w: Any) -> None:
    (w * 2).sum().backward()
    kept = w.grad
    _lookup(t, w, 1, 1).backward()
    assert w.grad is kept


def _both_at_once(t: Any, w: Any) -> None:
    (_lookup(t, w, 3) + (w * 2).sum()).backward()


@pytest.mark.parametrize(
    "use", [_sparse_twice, _sparse_then_dense, _dense_then_sparse, _both_at_once]
)
def test_gradients_add_up_as_in_torch(use: Any) -> None:
    found = []
    for t in (torch, lucerne):
        w = t.ones(4, 2, requires_grad=True)
        use(t, w)
        found.append((str(w.grad.layout), w.grad.to_dense().tolist()))
    assert found[0] == found[1]


@pytest.mark.filterwarnings("ignore:Sparse invariant checks")  # torch's own, inside Adagrad
@pytest.mark.parametrize("name", ["SparseAdam", "SGD", "Adagrad"])
def test_training_with_sparse_gradients(name: str) -> None:
    found = []
    for t in (torch, lucerne):
        t.manual_seed(0)
        table = t.nn.Embedding(6, 3, padding_idx=0, sparse=True)
        bag = t.nn.EmbeddingBag(6, 3, mode="mean", sparse=True)
        optimizer = getattr(t.optim, name)([table.weight, bag.weight], lr=0.1)
        for step in range(3):
            optimizer.zero_grad()
            words = t.tensor([[1, 2, 0], [2, 5, step]])
            (table(words).pow(2).sum() + bag(words).pow(2).sum()).backward()
            optimizer.step()
        found.append(table.weight.tolist() + bag.weight.tolist())
    for left, right in zip(*found, strict=True):
        assert left == pytest.approx(right, rel=1e-5, abs=1e-6)


def test_frequencies_are_refused() -> None:
    w = lucerne.ones(4, 2, requires_grad=True)
    rows = lucerne.nn.functional.embedding(
        lucerne.tensor([1]), w, scale_grad_by_freq=True, sparse=True
    )
    with pytest.raises(RuntimeError, match="scale_grad_by_freq not supported"):
        rows.sum().backward()
