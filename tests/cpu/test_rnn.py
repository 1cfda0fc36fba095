"""Recurrent cells: the kernels against the bodies of their ops in float64."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import lucerne
from lucerne._src.backends.cpu.rules.nn.rnn import CELLS
from lucerne._src.backends.cpu.rules.table import RULES
from lucerne._src.backends.cpu.runtime import pool
from lucerne._src.base import dtype as dt
from lucerne._src.ir import op as op_
from lucerne._src.ir.graph import one_op_graph
from tests.cpu.both import Tensor, tensor

SIZES = ((1, 1), (3, 7), (2, 16), (5, 33), (40, 130))


def operands(name: str, rows: int, width: int, layout: str = "plain") -> list[Tensor]:
    rng = np.random.default_rng(1)
    _, in_parts, _ = CELLS[name]
    return [tensor(rng, dt.float32, (rows, width * p), layout) for p in in_parts]


def kernel_of(name: str, inputs: list[Tensor]) -> tuple[Any, list[Tensor]]:
    op = op_.get(name)
    metas = tuple(t._meta for t in inputs)
    assert op.meta is not None
    found = op.meta(*metas)
    out_metas = found if isinstance(found, tuple) else (found,)
    kernel = RULES[name](one_op_graph(op, metas, out_metas).nodes[0])
    return kernel, [Tensor(m) for m in out_metas]


def run(name: str, inputs: list[Tensor]) -> list[Tensor]:
    kernel, outs = kernel_of(name, inputs)
    assert kernel is not None
    kernel(inputs, outs)
    assert all(o._storage.intact for o in outs)
    return outs


def by_body(name: str, inputs: list[Tensor]) -> list[Any]:
    wide = [lucerne.tensor(t.values.astype(np.float64), dtype=lucerne.float64) for t in inputs]
    found = op_.get(name)(*[x.to("reference") for x in wide])
    return [x.numpy() for x in (found if isinstance(found, tuple) else (found,))]


@pytest.mark.parametrize("size", SIZES, ids=str)
@pytest.mark.parametrize("name", CELLS)
def test_kernels_agree_with_the_bodies(name: str, size: tuple[int, int]) -> None:
    inputs = operands(name, *size)
    for found, wanted in zip(run(name, inputs), by_body(name, inputs), strict=True):
        np.testing.assert_allclose(found.values, wanted, rtol=2e-5, atol=2e-6)


@pytest.mark.parametrize("name", CELLS)
def test_rows_may_be_apart_or_repeated(name: str) -> None:
    inputs = operands(name, 4, 9, "expanded")
    for found, wanted in zip(run(name, inputs), by_body(name, inputs), strict=True):
        np.testing.assert_allclose(found.values, wanted, rtol=2e-5, atol=2e-6)


@pytest.mark.parametrize("name", CELLS)
def test_other_layouts_are_left_to_the_body(name: str) -> None:
    assert kernel_of(name, operands(name, 4, 9, "turned"))[0] is None


@pytest.mark.parametrize("name", CELLS)
def test_results_do_not_depend_on_the_number_of_threads(name: str) -> None:
    before, inputs, found = pool.threads(), operands(name, 100, 130), []
    try:
        for count in (1, 2, 4):
            pool.set_threads(count)
            found.append([o.bits.copy() for o in run(name, inputs)])
    finally:
        pool.set_threads(before)
    for other in found[1:]:
        for a, b in zip(found[0], other, strict=True):
            np.testing.assert_array_equal(a, b)


def _leaf(*shape: int) -> Any:
    return lucerne.randn(*shape, dtype=lucerne.float64, requires_grad=True)


CALLS = {
    "lstm": lambda x, h, c: lucerne.lstm_cell(x, (h, c), _weight(12, 4), _weight(12, 3)),
    "gru": lambda x, h, c: lucerne.gru_cell(x, h, _weight(9, 4), _weight(9, 3)),
    "tanh": lambda x, h, c: lucerne.rnn_tanh_cell(x, h, _weight(3, 4), _weight(3, 3)),
    "relu": lambda x, h, c: lucerne.rnn_relu_cell(x, h, _weight(3, 4), _weight(3, 3)),
}


def _weight(*shape: int) -> Any:
    return lucerne.linspace(-1.0, 1.0, shape[0] * shape[1], dtype=lucerne.float64).reshape(shape)


@pytest.mark.parametrize("name", CALLS)
def test_derivatives_of_cells(name: str) -> None:
    lucerne.manual_seed(0)
    inputs = (_leaf(2, 4), _leaf(2, 3), _leaf(2, 3))
    call = CALLS[name] if name == "lstm" else lambda x, h: CALLS[name](x, h, None)
    taken = inputs if name == "lstm" else inputs[:2]
    assert lucerne.autograd.gradcheck(call, taken)
    assert lucerne.autograd.gradgradcheck(call, taken)
