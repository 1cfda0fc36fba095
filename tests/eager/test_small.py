"""Single answers that were not torch's."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest

import lucerne

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.torch

INF, NAN = math.inf, math.nan
Call = Callable[[Any], Any]


def _slope(t: Any, f: Callable[[Any], Any], values: Any, dtype: str = "float32") -> Any:
    x = t.tensor(values, dtype=getattr(t, dtype), requires_grad=True)
    f(x).sum().backward()
    return x.grad


def _seeded(t: Any, draw: Call) -> Any:
    t.manual_seed(7)
    return draw(t)


def _mean(t: Any, dtype: str = "float32") -> Any:
    return (t.arange(12.0).reshape(3, 4).t() + 1).to(getattr(t, dtype))


def _cat(t: Any, dim: int = 0, *shape: int) -> Any:
    part = t.empty(0, requires_grad=True)
    other = t.ones(shape or (4,)).requires_grad_()
    t.cat([part, other, part, other], dim).sum().backward()
    return t.cat([part.grad, other.grad.reshape(-1)])


def _pooled(t: Any, kind: str, size: int, *shape: int) -> Any:
    return getattr(t.nn.functional, f"adaptive_{kind}")(t.ones(shape), size)


def _drawn(t: Any, dtype: str, count: int) -> Any:
    return _seeded(t, lambda t: t.multinomial(_mean(t, dtype), count))


ROWS: dict[str, Call] = {
    "chebyshev of bytes": lambda t: t.special.shifted_chebyshev_polynomial_t(
        t.tensor([0], dtype=t.uint8), t.tensor([3])
    ),
    "chebyshev in float64": lambda t: t.special.shifted_chebyshev_polynomial_u(
        t.tensor([0.3, 0.9]), t.tensor([5.0, 2.0], dtype=t.float64)
    ),
    "norm 0, slope at 1e30": lambda t: _slope(
        t, lambda x: t.nn.functional.normalize(x, p=0, dim=0), [1e30, INF, 3.0]
    ),
    "cdist of nan, p = 0": lambda t: t.cdist(
        t.tensor([[1.0, NAN, 0.0]]), t.tensor([[1.0, 2.0, 3.0]]), p=0.0
    ),
    "pdist of nan, p = 0": lambda t: t.pdist(t.tensor([[1.0, NAN], [1.0, 2.0]]), p=0.0),
    "acosh, slope at -inf": lambda t: _slope(t, t.acosh, [-INF, 2.0, INF]),
    "pdist of one row, slope": lambda t: _slope(t, t.pdist, [[INF, 1.0]]),
    "logit, slope at nan": lambda t: _slope(t, lambda x: t.logit(x, eps=1e-3), [NAN, 0.5, 2.0]),
    "gaussian_nll_loss at inf": lambda t: t.nn.functional.gaussian_nll_loss(
        t.tensor([1.0]), t.tensor([2.0]), t.tensor([INF])
    ),
    "gaussian_nll_loss, slope below eps": lambda t: _slope(
        t,
        lambda v: t.nn.functional.gaussian_nll_loss(t.ones(2), t.zeros(2), v),
        [1e-9, 2.0],
    ),
    "bincount of nothing": lambda t: t.bincount(
        t.tensor([], dtype=t.int64), t.tensor([], dtype=t.int64), minlength=2
    ),
    "normal of a mean and a wider std": lambda t: _seeded(
        t, lambda t: t.normal(_mean(t), _mean(t, "float64"))
    ),
    "normal of a permuted std": lambda t: _seeded(t, lambda t: t.normal(2.7, _mean(t))),
    "normal of a permuted mean": lambda t: _seeded(t, lambda t: t.normal(_mean(t), 0.5)),
    "arange to a bool": lambda t: t.arange(0, True),
    "huber_loss of two types": lambda t: t.nn.functional.huber_loss(
        t.ones(2), t.zeros(2, dtype=t.float64)
    ),
    "soft_margin_loss of two types": lambda t: t.nn.functional.soft_margin_loss(
        t.ones(2), t.ones(2, dtype=t.float64)
    ),
    "view_copy of a transposed tensor": lambda t: t.view_copy(
        t.arange(6.0).reshape(2, 3).t(), (6,)
    ),
    "isin of bytes": lambda t: t.isin(t.tensor([1, 44], dtype=t.uint8), 300),
    "inner of one number": lambda t: t.inner(t.tensor(2.0), t.tensor([1.0, 2.0], dtype=t.float64)),
    "a bool to a bool": lambda t: t.tensor([True, False]) ** True,
    "a bool to false": lambda t: t.tensor([True, False]) ** False,
    "cat with an empty part": _cat,
    "cat with an empty part beside rows": lambda t: _cat(t, 0, 2, 2),
    "cat with an empty part beside columns": lambda t: _cat(t, 1, 2, 3),
    "multinomial of permuted bfloat16": lambda t: _drawn(t, "bfloat16", 2),
    "multinomial of permuted float32": lambda t: _drawn(t, "float32", 3),
    "one of permuted float64": lambda t: _drawn(t, "float64", 1),
    "means of no channels": lambda t: _pooled(t, "avg_pool2d", 2, 1, 0, 4, 4),
    "means of no channels, one image": lambda t: _pooled(t, "avg_pool3d", 2, 0, 4, 4, 4),
    "one mean of no channels": lambda t: _pooled(t, "avg_pool3d", 1, 2, 0, 4, 4, 4),
    "one mean of no pixels": lambda t: _pooled(t, "avg_pool2d", 1, 1, 2, 0, 0),
    "maxima of no channels": lambda t: _pooled(t, "max_pool2d", 2, 0, 4, 4),
}


def _told(x: Any) -> Any:
    if x is None:
        return None
    values = [round(v, 5) if isinstance(v, float) else v for v in x.flatten().tolist()]
    return str(x.dtype).removeprefix("torch."), tuple(x.shape), str(values)


@pytest.mark.parametrize("name", ROWS)
def test_as_in_torch(name: str) -> None:
    assert _told(ROWS[name](lucerne)) == _told(ROWS[name](torch))


def test_diagonals_of_nothing_have_a_history() -> None:
    for f in (lucerne.diag_embed, lucerne.diag, lucerne.diagflat):
        x = lucerne.empty(0, requires_grad=True)
        y = f(x)
        assert y.requires_grad
        y.sum().backward()
        assert x.grad.shape == (0,)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64", "complex64"])
def test_nan_to_num_has_the_limits_of_the_type(dtype: str) -> None:
    def row(t: Any) -> Any:
        return t.tensor([INF, -INF, NAN, 1.5]).to(getattr(t, dtype))

    expected = torch.nan_to_num(row(torch)).tolist()
    assert lucerne.nan_to_num(row(lucerne)).tolist() == expected
    assert lucerne.compile(lambda x: lucerne.nan_to_num(x))(row(lucerne)).tolist() == expected
    assert row(lucerne).nan_to_num_().tolist() == expected
