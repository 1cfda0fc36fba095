"""Sparse tensors in files, copies, layers and optimizers; what is refused and how."""

import copy
import io
import pickle
from typing import Any

import numpy as np
import pytest

import lucerne

torch = pytest.importorskip("torch")
pytestmark = [
    pytest.mark.torch,
    pytest.mark.filterwarnings("ignore:Sparse"),
]

MADE = {
    "coo": lambda t: t.arange(6.0).reshape(2, 3).to_sparse(),
    "uncoalesced": lambda t: t.sparse_coo_tensor([[1, 0, 1]], [1.0, 2.0, 3.0], (3,)),
    "hybrid": lambda t: t.arange(12.0).reshape(2, 3, 2).to_sparse(2),
    "csr": lambda t: t.arange(6.0).reshape(2, 3).to_sparse_csr(),
    "csc": lambda t: t.arange(6.0).reshape(2, 3).to_sparse_csc(),
    "bsr": lambda t: t.arange(24.0).reshape(4, 6).to_sparse_bsr((2, 3)),
    "bsc": lambda t: t.arange(24.0).reshape(4, 6).to_sparse_bsc((2, 3)),
    "batch": lambda t: t.ones(2, 2, 3).to_sparse_csr(),
}


def _sent(source: Any, target: Any, value: Any) -> Any:
    stream = io.BytesIO()
    source.save(value, stream)
    stream.seek(0)
    return target.load(stream)


@pytest.mark.parametrize("name", MADE)
@pytest.mark.parametrize("way", ["to torch", "from torch", "own"])
def test_files(name: str, way: str) -> None:
    source = torch if way == "from torch" else lucerne
    target = torch if way == "to torch" else lucerne
    value = {"w": MADE[name](source), "b": source.ones(2)}
    found = _sent(source, target, value)["w"]
    wanted = MADE[name](target)
    assert repr(found) == repr(wanted)
    if found.is_sparse:
        assert found.is_coalesced() == wanted.is_coalesced()


def test_damaged_files_are_refused() -> None:
    s = torch.sparse_coo_tensor([[0, 5]], [1.0, 2.0], (2,))
    stream = io.BytesIO()
    torch.save(s, stream)
    stream.seek(0)
    with pytest.raises(lucerne.serialization.LoadError, match="size is inconsistent with indices"):
        lucerne.load(stream)


def test_a_sparse_parameter_goes_through_files() -> None:
    p = lucerne.nn.Parameter(lucerne.eye(2).to_sparse())
    found = _sent(lucerne, torch, {"p": p})["p"]
    assert isinstance(found, torch.nn.Parameter)
    assert found.layout is torch.sparse_coo
    again = _sent(torch, lucerne, {"p": found})["p"]
    assert isinstance(again, lucerne.nn.Parameter)
    assert again.layout is lucerne.sparse_coo


@pytest.mark.parametrize("name", MADE)
def test_copies(name: str) -> None:
    s = MADE[name](lucerne)
    for made in (copy.deepcopy(s), pickle.loads(pickle.dumps(s)), copy.copy(s), s.clone()):
        assert repr(made) == repr(s)
        assert made is not s
    other = copy.deepcopy(s.requires_grad_())
    assert other.requires_grad
    assert other._values() is not s._values()


@pytest.mark.parametrize("name", ["coo", "csr", "csc", "bsr"])
def test_refusals_name_the_line(name: str) -> None:
    s = MADE[name](lucerne)
    with pytest.raises(NotImplementedError) as caught:
        s.exp()
    assert "exp has no sparse form" in str(caught.value)
    assert "test_use.py" in str(caught.value)
    assert "to_dense()" in str(caught.value)


def test_what_torch_lacks() -> None:
    """Where Lucerne does more: gradients of sine, narrow, division of compressed tensors."""
    s = lucerne.eye(2).to_sparse().requires_grad_()
    s.sin().to_dense().sum().backward()
    np.testing.assert_allclose(s.grad._values().numpy(), np.cos([1.0, 1.0]), rtol=1e-6)
    assert s.detach().narrow(1, 1, 1).to_dense().tolist() == [[0.0], [1.0]]
    assert (lucerne.eye(2).to_sparse_csr() / 2).to_dense().tolist() == [[0.5, 0.0], [0.0, 0.5]]
    assert lucerne.equal(s.detach(), lucerne.eye(2).to_sparse())
    d = lucerne.arange(4.0).reshape(2, 2)
    c = lucerne.eye(2).to_sparse_csr().requires_grad_()
    (c @ d).sum().backward()
    assert c.grad.layout is lucerne.sparse_csr
    assert c.grad.to_dense().tolist() == [[1.0, 0.0], [0.0, 5.0]]


def test_a_graph_convolution_trains_as_with_torch() -> None:
    """Weights of a sparse adjacency, a sparse layer and a dense one, three steps of SGD."""
    found = []
    for t in (torch, lucerne):
        t.manual_seed(0)
        features, target = t.randn(5, 4), t.randn(5, 2)
        edges = t.tensor([[0, 1, 2, 3, 4, 0], [1, 2, 3, 4, 0, 3]])
        strength = t.nn.Parameter(t.ones(6))
        layer = t.nn.Linear(4, 2)
        optimizer = t.optim.SGD([strength, *layer.parameters()], lr=0.1)
        for _ in range(3):
            optimizer.zero_grad()
            around = t.sparse_coo_tensor(edges, strength, (5, 5))
            loss = ((t.sparse.mm(around, layer(features)) - target) ** 2).mean()
            loss.backward()
            optimizer.step()
        found.append((loss.item(), strength.detach().tolist(), layer.weight.detach().tolist()))
    np.testing.assert_allclose(found[1][0], found[0][0], rtol=1e-5)
    np.testing.assert_allclose(found[1][1], found[0][1], rtol=1e-5)
    np.testing.assert_allclose(found[1][2], found[0][2], rtol=1e-5, atol=1e-6)


def test_the_dense_sum_touches_only_what_is_stored() -> None:
    table = lucerne.zeros(1000, 4)
    rows = lucerne.sparse_coo_tensor([[7, 7]], lucerne.ones(2, 4), (1000, 4))
    before = table.data_ptr()
    table.add_(rows, alpha=-0.5)
    assert table.data_ptr() == before
    assert table[7].tolist() == [-1.0] * 4
    assert float(table.abs().sum()) == 4.0


def test_gradcheck_of_sparse_inputs() -> None:
    s = lucerne.eye(3, dtype=lucerne.float64).to_sparse().requires_grad_()
    d = lucerne.rand(3, 2, dtype=lucerne.float64, requires_grad=True)
    check = lucerne.sparse.as_sparse_gradcheck(lucerne.autograd.gradcheck)
    assert check(lambda s, d: (s @ d).sin(), (s, d), masked=True)
    c = lucerne.eye(3, dtype=lucerne.float64).to_sparse_csr().requires_grad_()
    left, right = (lucerne.rand(3, 3, dtype=lucerne.float64, requires_grad=True) for _ in range(2))
    assert check(lambda c, a, b: lucerne.sparse.sampled_addmm(c, a, b), (c, left, right))
    assert check(lambda s: lucerne.sparse.softmax(s, 1), (s,))
    again = lucerne.autograd.gradgradcheck
    assert again(lambda v, d: s.detach().with_values(v) @ d, (s._vals.clone().requires_grad_(), d))


def test_parts_are_copied() -> None:
    coo, csr, csc = (MADE[k](lucerne) for k in ("coo", "csr", "csc"))
    rows = [
        (lucerne.indices_copy, coo, coo.indices()), (lucerne.values_copy, coo, coo.values()),
        (lucerne.crow_indices_copy, csr, csr.crow_indices()),
        (lucerne.col_indices_copy, csr, csr.col_indices()),
        (lucerne.ccol_indices_copy, csc, csc.ccol_indices()),
        (lucerne.row_indices_copy, csc, csc.row_indices()),
    ]  # fmt: skip
    for function, s, part in rows:
        made = function(s)
        assert made.tolist() == part.tolist()
        assert made.data_ptr() != part.data_ptr()


def test_a_column_outside_is_an_error_and_no_crash() -> None:
    s = lucerne.eye(3).to_sparse_csr()
    s.col_indices().fill_(99)
    with pytest.raises(IndexError, match="column 99"):
        s @ lucerne.ones(3, 2)
