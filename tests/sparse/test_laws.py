"""Laws: an op on a sparse tensor gives the sparse form of the op on the dense one."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

import lucerne
from lucerne._src.tensor.sparse.elementwise import KEEP_ZERO, LINEAR

LAYOUTS = [lucerne.sparse_coo, lucerne.sparse_csr, lucerne.sparse_csc, lucerne.sparse_bsr,
           lucerne.sparse_bsc]  # fmt: skip
QUICK = (Phase.explicit, Phase.generate)
"""A failing example is small already; making it smaller would take minutes."""
EIGHTHS = st.integers(-8, 8).map(lambda n: n / 8)
FEW = st.one_of(st.just(0.0), EIGHTHS)
MATRICES = hnp.arrays(np.float64, st.sampled_from([(1, 1), (2, 4), (4, 2), (4, 6)]), elements=FEW)


def made(array: np.ndarray, layout: Any, grad: bool = False) -> Any:
    dense = lucerne.tensor(array)
    blocks = {"blocksize": (1, 1) if min(array.shape) == 1 else (2, 2)}
    options = blocks if layout in LAYOUTS[3:] else {}
    return dense.to_sparse(layout=layout, **options).requires_grad_(grad)


def same(found: Any, wanted: Any) -> None:
    """Equal elements; what is nan in one is nan in the other."""
    np.testing.assert_allclose(
        found.to_dense().detach().numpy(), wanted.detach().numpy(), rtol=1e-12, atol=1e-12
    )


def test_same_sees_a_difference() -> None:
    with pytest.raises(AssertionError):
        same(lucerne.eye(2).to_sparse(), lucerne.ones(2, 2))


UNARY = [name for name in (*KEEP_ZERO, *LINEAR) if not name.startswith("resolve")]


@pytest.mark.parametrize("name", UNARY)
@settings(max_examples=5, deadline=None, phases=QUICK)
@given(MATRICES, st.sampled_from(LAYOUTS))
def test_unary(name: str, array: np.ndarray, layout: Any) -> None:
    s = made(np.abs(array) if name in ("sqrt", "log1p") else array, layout)
    same(getattr(s, name)(), getattr(s.to_dense(), name)())


MORE: dict[str, Callable[..., Any]] = {
    "scaled": lambda x: x * 3,
    "divided": lambda x: x / 4,
    "negated": lambda x: -x,
    "squared": lambda x: x**2,
    "doubled": lambda x: x + x,
    "less": lambda x: x - x * 3,
    "product": lambda x: x * x,
    "turned": lambda x: x.t(),
    "transposed": lambda x: x.transpose(0, 1),
    "cloned": lambda x: x.clone(),
    "single": lambda x: x.to(lucerne.float32),
}
COO_ONLY: dict[str, Callable[..., Any]] = {
    "row": lambda x: x[0],
    "column": lambda x: x.select(1, -1),
    "narrow": lambda x: x.narrow(1, 0, 1),
    "rows": lambda x: x.index_select(0, lucerne.tensor([0, 0])),
    "slice": lambda x: x[:, 1:],
    "cat": lambda x: lucerne.cat([x, x], 1),
    "stack": lambda x: lucerne.stack([x, x], 1),
    "unsqueezed": lambda x: x.unsqueeze(1),
    "permuted": lambda x: x.permute(1, 0),
    "squeezed": lambda x: x.unsqueeze(0).squeeze(0),
    "sum": lambda x: x.sum(0),
    "total": lambda x: x.sum(),
    "mean": lambda x: x.mean(),
    "norm": lambda x: x.norm(),
}


@pytest.mark.parametrize("name", [*MORE, *COO_ONLY])
@settings(max_examples=8, deadline=None, phases=QUICK)
@given(MATRICES, st.sampled_from(LAYOUTS))
def test_more(name: str, array: np.ndarray, layout: Any) -> None:
    function = MORE.get(name) or COO_ONLY[name]
    s = made(array, layout if name in MORE else lucerne.sparse_coo)
    same(function(s), function(s.to_dense()))


@settings(max_examples=30, deadline=None, phases=QUICK)
@given(MATRICES, st.sampled_from(LAYOUTS), st.sampled_from(LAYOUTS))
def test_layouts_turn_into_each_other(array: np.ndarray, first: Any, second: Any) -> None:
    s = made(array, first)
    blocked = first in LAYOUTS[3:] and second in LAYOUTS[1:3]
    if blocked:
        s = s.to_sparse()
    blocks = {"blocksize": (1, 1) if min(array.shape) == 1 else (2, 2)}
    turned = s.to_sparse(layout=second, **(blocks if second in LAYOUTS[3:] else {}))
    assert turned.layout is second
    same(turned, lucerne.tensor(array))


@settings(max_examples=40, deadline=None, phases=QUICK)
@given(MATRICES, st.sampled_from(LAYOUTS), st.integers(1, 3))
def test_products_and_their_gradients(array: np.ndarray, layout: Any, width: int) -> None:
    s, d = made(array, layout, grad=True), lucerne.tensor(array, requires_grad=True)
    right = lucerne.arange(array.shape[1] * width, dtype=lucerne.float64).reshape(-1, width)
    ours, theirs = right.clone().requires_grad_(), right.clone().requires_grad_()
    a, b = s @ ours, d @ theirs
    same(a, b)
    (a * a).sum().backward()
    (b * b).sum().backward()
    same(ours.grad, theirs.grad)
    stored = s.detach().with_values(lucerne.ones_like(s._vals)).to_dense()
    same(s.grad, d.grad * stored)


@settings(max_examples=30, deadline=None, phases=QUICK)
@given(MATRICES, MATRICES)
def test_sparse_times_sparse(left: np.ndarray, right: np.ndarray) -> None:
    if left.shape[1] != right.shape[0]:
        left = np.resize(left, (3, right.shape[0]))
    a, b = made(left, lucerne.sparse_coo), made(right, lucerne.sparse_coo)
    same(lucerne.sparse.mm(a, b), lucerne.tensor(left) @ lucerne.tensor(right))


@settings(max_examples=30, deadline=None, phases=QUICK)
@given(st.lists(st.tuples(st.integers(0, 2), st.integers(0, 3), EIGHTHS), max_size=8))
def test_uncoalesced(entries: list[tuple[int, int, float]]) -> None:
    index = lucerne.tensor([[e[0] for e in entries], [e[1] for e in entries]], dtype=lucerne.int64)
    values = lucerne.tensor([e[2] for e in entries], dtype=lucerne.float64)
    s = lucerne.sparse_coo_tensor(index, values, (3, 4))
    done = s.coalesce()
    assert done.is_coalesced()
    same(done, s.to_dense())
    same(s.sin(), s.to_dense().sin())
    same(
        s @ lucerne.ones(4, 2, dtype=lucerne.float64),
        s.to_dense().sum(1, keepdim=True).expand(3, 2),
    )
    keys = (done.indices()[0] * 4 + done.indices()[1]).tolist()
    assert keys == sorted(set(keys))


@pytest.mark.parametrize("dim", [0, 1])
@settings(max_examples=20, deadline=None, phases=QUICK)
@given(MATRICES)
def test_softmax_is_that_of_what_is_stored(dim: int, array: np.ndarray) -> None:
    s = made(array, lucerne.sparse_coo)
    hidden = lucerne.tensor(array).masked_fill(lucerne.tensor(array) == 0, -float("inf"))
    wanted = hidden.softmax(dim).nan_to_num(0.0)
    same(lucerne.sparse.softmax(s, dim), wanted)
