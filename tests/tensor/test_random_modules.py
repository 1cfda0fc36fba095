"""What PyTorch's modules, initialisers and loaders draw, spelled as draws of ours."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import pytest

from lucerne._src.tensor.random import Generator

f32 = np.float32
X = np.random.RandomState(0).randn(64, 33).astype(f32)
X4 = X.reshape(8, 8, 33, 1)
KAIMING = math.sqrt(2.0) / math.sqrt(30)
XAVIER = math.sqrt(3.0) * math.sqrt(2.0 / 70)


class Row(NamedTuple):
    """PyTorch's result and ours from the same seed."""

    name: str
    theirs: Callable[[Any], Any]
    ours: Callable[[Generator], Any]


def keep(g: Generator, p: float, shape: tuple[int, ...]) -> Any:
    """Dropout's mask, scaled."""
    return g.bernoulli_scalar(math.prod(shape), 1 - p).reshape(shape).astype(f32) / f32(1 - p)


def symmetric(g: Generator, bound: float, *sizes: int) -> Any:
    return np.concatenate([g.uniform(n, -bound, bound) for n in sizes])


def linear(g: Generator, fan: int, weight: int, bias: int) -> Any:
    """Kaiming uniform with a = sqrt(5) for the weight, then 1 / sqrt(fan) for the bias."""
    bound = math.sqrt(3.0) * (math.sqrt(2.0 / 6) / math.sqrt(fan))
    return np.concatenate([symmetric(g, bound, weight), symmetric(g, 1 / math.sqrt(fan), bias)])


def truncated(g: Generator, std: float, limit: float) -> Any:
    """The whole tensor is drawn again until nothing is left outside."""
    values = g.normal(1000, 0.0, std)
    while (outside := np.abs(values) > limit).any():
        values = np.where(outside, g.normal(1000, 0.0, std), values)
    return values


def flat(module: Any) -> Any:
    return np.concatenate([p.detach().numpy().ravel() for p in module.parameters()])


def shuffled(t: Any, generator: Any = None) -> Any:
    data = t.utils.data.TensorDataset(t.arange(50))
    loader = t.utils.data.DataLoader(data, batch_size=10, shuffle=True, generator=generator)
    return t.cat([batch[0] for batch in loader])


def shuffle_by_default(g: Generator) -> Any:
    """The loader takes a base seed; the sampler seeds a generator of its own."""
    _, seed = g.random_full_range(2, "int64").tolist()
    return Generator().manual_seed(seed).randperm(50)


def shuffle_by_own(_: Generator) -> Any:
    """With generator=: a base seed and the permutation come from it."""
    own = Generator().manual_seed(5)
    own.random_full_range(1, "int64")
    return own.randperm(50)


ROWS = [
    *(
        Row(
            f"dropout {p}",
            lambda t, p=p: t.nn.functional.dropout(t.from_numpy(X), p, True),
            lambda g, p=p: X * keep(g, p, X.shape),
        )
        for p in (0.5, 0.1, 0.3)
    ),
    Row(
        "dropout2d",
        lambda t: t.nn.functional.dropout2d(t.from_numpy(X4), 0.4, True),
        lambda g: X4 * keep(g, 0.4, (8, 8, 1, 1)),
    ),
    Row(
        "dropout of a transpose: the mask follows memory",
        lambda t: t.nn.functional.dropout(t.from_numpy(X).t(), 0.3, True),
        lambda g: X.T * keep(g, 0.3, X.shape).T,
    ),
    Row("Linear", lambda t: flat(t.nn.Linear(20, 30)), lambda g: linear(g, 20, 600, 30)),
    Row("Conv2d", lambda t: flat(t.nn.Conv2d(3, 8, 3)), lambda g: linear(g, 27, 216, 8)),
    Row("Embedding", lambda t: flat(t.nn.Embedding(11, 5)), lambda g: g.normal(55)),
    Row(
        "LSTM",
        lambda t: flat(t.nn.LSTM(4, 6)),
        lambda g: symmetric(g, 1 / math.sqrt(6), 96, 144, 24, 24),
    ),
    Row(
        "kaiming_normal_",
        lambda t: t.nn.init.kaiming_normal_(t.empty(40, 30)).reshape(-1),
        lambda g: g.normal(1200, 0, KAIMING),
    ),
    Row(
        "xavier_uniform_",
        lambda t: t.nn.init.xavier_uniform_(t.empty(40, 30)).reshape(-1),
        lambda g: g.uniform(1200, -XAVIER, XAVIER),
    ),
    *(
        Row(
            f"trunc_normal_ std={std}",
            lambda t, s=std, a=a: t.nn.init.trunc_normal_(t.empty(1000), std=s, a=-a, b=a),
            lambda g, s=std, a=a: truncated(g, s, a),
        )
        for std, a in ((0.02, 2), (1.0, 1))
    ),
    Row("DataLoader", shuffled, shuffle_by_default),
    Row(
        "DataLoader(generator=)",
        lambda t: shuffled(t, t.Generator().manual_seed(5)),
        shuffle_by_own,
    ),
    Row(
        "random_split",
        lambda t: t.utils.data.random_split(range(30), [20, 10])[0].indices,
        lambda g: g.randperm(30)[:20],
    ),
]


@pytest.mark.torch
@pytest.mark.parametrize("row", ROWS, ids=lambda r: r.name)
def test_modules_boil_down_to_draws(row: Row) -> None:
    torch = pytest.importorskip("torch", reason="PyTorch is the oracle of the random streams")
    torch.manual_seed(7)
    theirs = np.asarray(row.theirs(torch))
    np.testing.assert_array_equal(row.ours(Generator().manual_seed(7)), theirs)


@pytest.mark.torch
def test_orthogonal_is_the_qr_of_a_normal_matrix() -> None:
    torch = pytest.importorskip("torch", reason="PyTorch is the oracle of the random streams")
    torch.manual_seed(7)
    theirs = torch.nn.init.orthogonal_(torch.empty(20, 20)).numpy()
    q, r = np.linalg.qr(Generator().manual_seed(7).normal(400).reshape(20, 20))
    np.testing.assert_allclose(q * np.sign(np.diag(r)), theirs, atol=1e-5)
