"""Fused optimizer steps: the engine's kernel against the formula run op by op."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

import lucerne as torch
from lucerne._src.backends.cpu.backend import CpuBackend
from lucerne._src.backends.cpu.emit.target import HOST
from lucerne._src.base import dtype as dt
from lucerne._src.ir import op as op_
from lucerne._src.ir.graph import one_op_graph
from tests.cpu.both import Tensor, tensor
from tests.cpu.test_rows import CLOSE

SHAPES = ((100, 37), (5,), (1,), (), (20000,))


def lists(rng: np.random.Generator, dtype: dt.dtype, count: int) -> list[tuple[Tensor, ...]]:
    return [tuple(tensor(rng, dtype, s) for s in SHAPES) for _ in range(count)]


def step(name: str, args: tuple[Any, ...], written: list[Tensor]) -> None:
    """Run the kernel of a step in place."""
    op = op_.get(name)
    metas = tuple(tuple(x._meta for x in a) if isinstance(a, tuple) else a for a in args)
    assert op.meta is not None
    kernel = CpuBackend().fuse(one_op_graph(op, metas, op.meta(*metas)))
    assert kernel is not None
    flat: list[Any] = []
    for a, kind in zip(args, op.kinds, strict=True):
        flat += a if kind == "l" else [a] if kind == "n" else []
    kernel(flat, written)
    assert all(t._storage.intact for t in written)


def expected(name: str, args: tuple[Any, ...]) -> list[Any]:
    """The same from the body of the op, one tensor list at a time."""

    def made(t: Tensor) -> Any:
        values = torch.tensor(t.values.tolist(), dtype=t._meta.dtype)
        return values.reshape(tuple(t._meta.shape)).to("reference")

    given = [tuple(made(x) for x in a) if isinstance(a, tuple) else a for a in args]
    found = op_.get(name).public(*given)
    return [np.array(t.double().tolist()).reshape(tuple(t.shape)) for t in found]


def check(name: str, args: tuple[Any, ...], written: list[Tensor], dtype: dt.dtype) -> None:
    wanted = expected(name, args)
    step(name, args, written)
    for a, b in zip(written, wanted, strict=True):
        close = CLOSE[dtype] * 16
        np.testing.assert_allclose(a.values, b, close, close)


@pytest.mark.parametrize("dtype", [dt.float32, dt.float64, dt.bfloat16], ids=lambda d: d.name)
def test_adam(dtype: dt.dtype) -> None:
    rng = np.random.default_rng(0)
    for decoupled, amsgrad, maximize in itertools.product((False, True), repeat=3):
        p, g, m, v, top = lists(rng, dtype, 5)
        for t in (*v, *top):
            if dtype.native:
                t.values[...] = np.abs(t.values)
            else:
                t.bits[...] &= 0x7FFF
        steps = tuple(tensor(rng, dt.float32, ()) for _ in SHAPES)
        for s in steps:
            s.values[...] = 3
        tops = top if amsgrad else ()
        numbers = (1e-2, 0.9, 0.99, 0.1, 1e-8)
        args = (p, g, m, v, tops, steps, *numbers, decoupled, amsgrad, maximize)
        check("adam_update", args, [*p, *m, *v, *tops], dtype)


@pytest.mark.parametrize("dtype", [dt.float32, dt.bfloat16], ids=lambda d: d.name)
def test_sgd(dtype: dt.dtype) -> None:
    rng = np.random.default_rng(1)
    for momentum, nesterov, maximize, first in itertools.product((False, True), repeat=4):
        p, g, b = lists(rng, dtype, 3)
        buffers = b if momentum else ()
        args = (p, g, buffers, 0.1, 0.9, 0.05, 0.3, nesterov, maximize, first)
        check("sgd_update", args, [*p, *buffers], dtype)


@pytest.mark.parametrize("dtype", [dt.float32, dt.float64], ids=lambda d: d.name)
@pytest.mark.parametrize("count", [1, 3, 40])
def test_steps_are_counted_in_one_kernel(dtype: dt.dtype, count: int) -> None:
    rng = np.random.default_rng(5)
    counters = tuple(tensor(rng, dtype, ()) for _ in range(count))
    check("counted_up", (counters,), list(counters), dtype)


@pytest.mark.skipif(not HOST.is_x86, reason="other processors are as fast with tiny numbers")
def test_averages_do_not_stay_tiny() -> None:
    """Of a gradient that became zero the average gets smaller: numbers below 2^-126, a hundred
    times as slow as others, count as zero. All other code computes with them as before."""
    rng = np.random.default_rng(6)
    p, g, m, v = lists(rng, dt.float32, 4)
    tiny = np.float32(2.0**-130)
    for t in (*g, *m, *v):
        t.values[...] = 0
    for t in m:
        t.values[...] = tiny
    steps = tuple(tensor(rng, dt.float32, ()) for _ in SHAPES)
    for s in steps:
        s.values[...] = 3
    before = [t.values.copy() for t in p]
    args = (p, g, m, v, (), steps, 1e-2, 0.9, 0.99, 0.0, 1e-8, False, False, False)
    step("adam_update", args, [*p, *m, *v])
    assert not any(t.values.any() for t in m)
    for t, values in zip(p, before, strict=True):
        np.testing.assert_array_equal(t.values, values)
    assert np.float32(2.0**-120) * np.float32(2.0**-10) == tiny
    many = torch.full((100_000,), 2.0**-120) * 2.0**-10
    assert (many == 2.0**-130).all()
