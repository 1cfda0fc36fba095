"""Programs as users write them, mapped and in a loop: indexing, control flow, layers."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import lucerne
from lucerne.func import vmap

X = lucerne.arange(24.0).view(4, 2, 3)
I = lucerne.tensor([0, 1, 1, 0])
J = lucerne.tensor([[0, 2], [1, 2], [2, 0], [0, 1]])
MASK = lucerne.tensor([[True, False, True]] * 4)
LSTM = lucerne.nn.LSTM(3, 2)
functional = lucerne.nn.functional


def put(x: Any, index: Any, value: Any) -> Any:
    y = x.clone()
    y[index] = value
    return y


def derived(x: Any) -> Any:
    x = x.clone().requires_grad_()
    (x**2).sum().backward()
    return x.grad


def halved(x: Any) -> Any:
    start = x.sum(), lucerne.tensor(0)
    return lucerne.while_loop(lambda v, n: v > 1, lambda v, n: (v / 2, n + 1), start)[1]


PROGRAMS: list[tuple[str, Callable[..., Any], tuple[Any, ...]]] = [
    ("x[i]", lambda x, i: x[i], (X, I)),
    ("x[:, j]", lambda x, j: x[:, j], (X, J)),
    ("x[i, j]", lambda x, i, j: x[i, j], (X, I, J)),
    ("x[..., i]", lambda x, i: x[..., i], (X, I)),
    ("whole[i]", lambda i: X[i], (I,)),
    ("whole[:, :, j]", lambda j: X[:, :, j], (J,)),
    ("x[i] = 0", lambda x, i: put(x, i, 0.0), (X, I)),
    ("x[:, j] = v", lambda x, j: put(x, (slice(None), j), x[:, :2] * 10), (X, J)),
    ("x[:, mask] = 0", lambda x, m: put(x, (slice(None), m), 0.0), (X, MASK)),
    ("backward inside", derived, (X,)),
    ("unpacking", lambda x: x[0] * sum(row.sum() for row in x), (X,)),
    ("views in place", lambda x: x.clone().unsqueeze_(0).squeeze_(0).t_(), (X,)),
    ("new_zeros", lambda x: x.new_zeros(2, 3).copy_(x), (X,)),
    ("einsum", lambda x: lucerne.einsum("ij,kj->ik", x, x), (X,)),
    ("topk", lambda x: x.topk(2, -1).indices, (X,)),
    ("lstm", lambda x: LSTM(x)[0], (X,)),
    ("batch norm", lambda x: functional.batch_norm(x, None, None, training=True), (X,)),
    ("attention", lambda x: functional.scaled_dot_product_attention(x, x, x), (X / 24,)),
    ("cond", lambda x: lucerne.cond(x.sum() > 60, lambda x: x * 2, lambda x: -x, (x,)), (X,)),
    ("while_loop", halved, (X,)),
]


@pytest.mark.parametrize(("name", "f", "given"), PROGRAMS, ids=[p[0] for p in PROGRAMS])
def test_programs(name: str, f: Callable[..., Any], given: tuple[Any, ...]) -> None:
    want = lucerne.stack([f(*row) for row in zip(*given, strict=True)])
    got = vmap(f)(*given)
    assert got.dtype is want.dtype
    assert np.allclose(got.detach().numpy(), want.detach().numpy(), atol=1e-6)


def test_branches_must_be_alike() -> None:
    with pytest.raises(RuntimeError, match="different structures"):
        vmap(lambda x: lucerne.cond(x.sum() > 0, lambda x: x, lambda x: (x,), (x,)))(X)
