"""Calls that must raise: for the values of their operands, or for their dtypes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import lucerne as torch

F = torch.nn.functional


@dataclass(frozen=True)
class Row:
    """`call(*given())` raises in eager mode."""

    name: str
    given: Callable[[], tuple[Any, ...]]
    call: Callable[..., Any]

    def __str__(self) -> str:
        return self.name


def _whole(*values: int) -> Any:
    return torch.tensor(values)


def _nought() -> tuple[Any, ...]:
    return torch.tensor([7, -7, 3]), torch.tensor([2, 0, 1])


def _beyond() -> tuple[Any, ...]:
    return torch.arange(6.0).reshape(2, 3), torch.tensor([[0, 7, 1]])


def _row_beyond() -> tuple[Any, ...]:
    return torch.arange(6.0).reshape(2, 3), torch.tensor([0, 9])


def _before() -> tuple[Any, ...]:
    return torch.arange(6.0).reshape(2, 3), torch.tensor([0, -9])


def _classes() -> tuple[Any, ...]:
    return torch.arange(6.0).reshape(2, 3), torch.tensor([0, 5])


def _square(*rows: list[float]) -> Callable[[], tuple[Any, ...]]:
    return lambda: (torch.tensor(rows),)


_SINGULAR = _square([1.0, 2.0], [2.0, 4.0])
_INDEFINITE = _square([1.0, 2.0], [2.0, 1.0])
_NAN = _square([float("nan"), 1.0], [1.0, 1.0])


def _floats(*values: float) -> Callable[[], tuple[Any, ...]]:
    return lambda: (torch.tensor(values),)


VALUES = [
    Row("floor_divide", _nought, lambda x, y: x // y),
    Row("remainder", _nought, lambda x, y: x % y),
    Row("fmod", _nought, torch.fmod),
    Row("div_trunc", _nought, lambda x, y: torch.div(x, y, rounding_mode="trunc")),
    Row("div_floor", _nought, lambda x, y: torch.div(x, y, rounding_mode="floor")),
    Row("divided_by_number", lambda: (_whole(3, 4),), lambda x: x // 0),
    Row("number_divided", lambda: (_whole(3, 0),), lambda x: 5 // x),
    Row("floor_divide_", _nought, lambda x, y: x.clone().floor_divide_(y)),
    Row("of_computed", _nought, lambda x, y: (x + 1) // (y * 2)),
    Row("gather", _beyond, lambda x, i: x.gather(1, i)),
    Row("take_along_dim", _beyond, lambda x, i: torch.take_along_dim(x, i, 1)),
    Row("index_select", _row_beyond, lambda x, i: x.index_select(0, i)),
    Row("index", _row_beyond, lambda x, i: x[i]),
    Row("index_negative", _before, lambda x, i: x[i]),
    Row("index_of_computed", _row_beyond, lambda x, i: (x * 2)[i + 0]),
    Row("take", _row_beyond, torch.take),
    Row("embedding", _row_beyond, lambda x, i: F.embedding(i, x)),
    Row("embedding_bag", _row_beyond, lambda x, i: F.embedding_bag(i[None], x)),
    Row("index_put", _row_beyond, lambda x, i: x.index_put((i,), torch.ones(3))),
    Row("set_item", _row_beyond, lambda x, i: x.clone().__setitem__(i, 1.0)),
    Row("index_add", _row_beyond, lambda x, i: x.index_add(0, i, torch.ones(2, 3))),
    Row("index_copy", _row_beyond, lambda x, i: x.index_copy(0, i, torch.ones(2, 3))),
    Row("index_fill", _row_beyond, lambda x, i: x.index_fill(0, i, 1.0)),
    Row("scatter", _beyond, lambda x, i: x.scatter(1, i, 1.0)),
    Row("scatter_add", _beyond, lambda x, i: x.scatter_add(1, i, torch.ones(1, 3))),
    Row("scatter_reduce", _beyond, lambda x, i: x.scatter_reduce(1, i, torch.ones(1, 3), "amax")),
    Row("one_hot", lambda: (_whole(0, 3),), lambda x: F.one_hot(x, 3)),
    Row("cross_entropy", _classes, F.cross_entropy),
    Row("nll_loss", _classes, lambda x, t: F.nll_loss(x.log_softmax(1), t)),
    Row("multi_margin_loss", _classes, F.multi_margin_loss),
    Row("binary_cross_entropy", _floats(0.5, 2.0), lambda x: F.binary_cross_entropy(x, x * 0 + 1)),
    Row("bernoulli", _floats(0.5, 2.0), torch.bernoulli),
    Row("multinomial", _floats(-1.0, 2.0), lambda x: torch.multinomial(x, 1)),
    Row("multinomial_of_nothing", _floats(0.0, 0.0), lambda x: torch.multinomial(x, 1)),
    Row("normal", _floats(1.0, -1.0), lambda x: torch.normal(0.0, x)),
    Row("poisson", _floats(1.0, -1.0), torch.poisson),
    Row("bincount", lambda: (_whole(1, -1),), torch.bincount),
    Row("repeat_interleave", lambda: (_whole(1, -1),), torch.repeat_interleave),
    Row("gaussian_nll", _floats(1.0, -1.0), lambda x: F.gaussian_nll_loss(x, x, x)),
    Row("cholesky", _INDEFINITE, torch.linalg.cholesky),
    Row("inv", _SINGULAR, torch.linalg.inv),
    Row("solve", _SINGULAR, lambda a: torch.linalg.solve(a, torch.ones(2))),
    Row("lu_factor", _SINGULAR, torch.linalg.lu_factor),
    Row("eig", _NAN, torch.linalg.eig),
    Row("svd", _NAN, torch.linalg.svd),
    Row("svdvals", _NAN, torch.linalg.svdvals),
    Row("inv_of_computed", _SINGULAR, lambda a: torch.linalg.inv(a * 2)),
]  # fmt: skip

DTYPES = [
    Row("bool_abs", _floats(1.0, 2.0), lambda x: (x > 0).abs()),
    Row("bool_neg", _floats(1.0, 2.0), lambda x: -(x > 0)),
    Row("bool_minus", _floats(1.0, 2.0), lambda x: (x > 0) - (x > 1)),
    Row("int_gelu", _floats(1.0, 2.0), lambda x: F.gelu(x.long())),
    Row("int_silu", _floats(1.0, 2.0), lambda x: F.silu(x.int())),
    Row("float_and", _floats(1.0, 2.0), lambda x: x & x),
    Row("bool_relu", _floats(1.0, 2.0), lambda x: (x > 0).relu()),
    Row("complex_less", _floats(1.0, 2.0), lambda x: x.to(torch.complex64) < 1),
    Row("int_mean", _floats(1.0, 2.0), lambda x: x.long().mean()),
    Row("int_dot", _floats(1.0, 2.0), lambda x: x @ x.long()),
]
