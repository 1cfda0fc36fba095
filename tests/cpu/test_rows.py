"""Composites that run as one kernel, against the same graph on the reference backend."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import lucerne as torch
from lucerne import backends
from lucerne._src.backends.cpu.backend import CpuBackend
from lucerne._src.backends.cpu.fused.fuse import fused_kernel
from lucerne._src.backends.cpu.fused.layout import LoopLayout
from lucerne._src.backends.cpu.fused.passes import Schedule
from lucerne._src.backends.cpu.fused.program import FusedProgram
from lucerne._src.backends.cpu.runtime import pool
from lucerne._src.base import dtype as dt
from lucerne._src.ir import op as op_
from lucerne._src.ir.graph import Graph, one_op_graph
from lucerne._src.tensor.autograd import record
from lucerne._src.tensor.eager.composite_graph import traced
from tests.cpu.both import HOST, Tensor, tensor

SHAPES = ((64, 100), (3, 20, 33), (7,), (2, 3, 4, 5), (40, 3), (2, 9000))
FLOATS = (dt.float32, dt.float64, dt.bfloat16)
CLOSE = {dt.float32: 2e-6, dt.float64: 1e-13, dt.bfloat16: 2e-2}


def graph_of(name: str, args: tuple[Any, ...]) -> Graph:
    """The graph of a composite called on tensors like these."""
    op = op_.get(name)

    def fake(a: Any) -> Any:
        if not isinstance(a, Tensor):
            return a
        made = torch.empty_strided(tuple(a._meta.shape), a._meta.strides, dtype=a._meta.dtype)
        return made.to("cpu")

    def body(op: Any, args: Any) -> Any:
        return record.in_opmath(op, args) if op.needs_opmath else record.call_body(op, args)

    found = traced(op, tuple(fake(a) for a in args), HOST, body)
    assert found is not None, f"{name} can't be traced"
    return found[0]


def run(compile: Any, graph: Graph, args: tuple[Any, ...]) -> list[Tensor]:
    outs = [Tensor(v.meta) for v in graph.outputs]
    compile(graph)([a for a in args if isinstance(a, Tensor)], outs)
    assert all(o._storage.intact for o in outs), "written outside of an output"
    return outs


def check(name: str, *args: Any, scale: float = 1.0) -> None:
    graph = graph_of(name, args)
    assert fused_kernel(graph) is not None, f"not one kernel:\n{graph}"
    found = run(fused_kernel, graph, args)
    wanted = run(backends.get("reference").compile, graph, args)
    for a, b in zip(found, wanted, strict=True):
        tolerance = CLOSE[a._meta.dtype] * scale
        np.testing.assert_allclose(a.values, b.values, tolerance, tolerance, err_msg=str(graph))


@pytest.mark.parametrize("dtype", FLOATS, ids=lambda d: d.name)
@pytest.mark.parametrize("name", ["softmax", "log_softmax"])
def test_softmax_along_every_dim(name: str, dtype: dt.dtype) -> None:
    rng = np.random.default_rng(0)
    for shape in SHAPES:
        for dim in range(len(shape)):
            layout = ("plain", "turned", "sliced")[int(rng.integers(3))]
            check(name, tensor(rng, dtype, shape, layout), dim, None, scale=4)


@pytest.mark.parametrize("name", ["_softmax_backward_data", "_log_softmax_backward_data"])
def test_softmax_backward(name: str) -> None:
    rng = np.random.default_rng(1)
    for shape in ((64, 100), (5, 7, 9), (3, 5000)):
        for dim in range(len(shape)):
            g, y = (tensor(rng, dt.float32, shape) for _ in range(2))
            check(name, g, y, dim, dt.float32, scale=50)


@pytest.mark.parametrize("dtype", FLOATS, ids=lambda d: d.name)
def test_statistics(dtype: dt.dtype) -> None:
    rng = np.random.default_rng(2)
    for shape in SHAPES:
        x = tensor(rng, dtype, shape, "turned" if rng.random() < 0.3 else "plain")
        for dim in (None, (0,), (len(shape) - 1,)):
            keep = bool(rng.integers(2))
            check("mean", x, dim, keep, None, scale=4)
            check("variance", x, dim, 0, keep, scale=4)
            check("deviation", x, dim, 0, keep, scale=4)
            check("logsumexp", x, dim or tuple(range(len(shape))), keep, scale=4)
            for order in (1, 2, float("inf"), 0):
                check("p_norm", x, order, dim, keep, scale=4)


@pytest.mark.parametrize("dtype", FLOATS, ids=lambda d: d.name)
def test_norms(dtype: dt.dtype) -> None:
    rng = np.random.default_rng(3)
    for rows, length in ((5, 384), (64, 10), (1, 33), (200, 1), (2, 5000)):
        x = tensor(rng, dtype, (rows, length))
        w, b = (tensor(rng, dtype, (length,)) for _ in range(2))
        check("layer_norm_rows", x, w, b, (1,), 1e-5, scale=20)
        check("native_layer_norm", x, (length,), w, None, 1e-5, scale=20)
        check("nn.functional.rms_norm", x, (length,), w, 1e-6, scale=8)
    check("standardize", tensor(rng, dtype, (4, 6, 5, 7)), (0, 2, 3), 1e-5, scale=20)


def test_losses_that_end_in_one_number() -> None:
    rng = np.random.default_rng(4)
    for shape in ((3,), (50, 33), (90000,)):
        x, y = (tensor(rng, dt.float32, shape) for _ in range(2))
        for reduction in ("mean", "sum", "none"):
            check("nn.functional.mse_loss", x, y, None, None, reduction, None, scale=4)
            check("nn.functional.l1_loss", x, y, None, None, reduction, None, scale=4)
            check("nn.functional.huber_loss", x, y, reduction, 1.0, None, scale=4)


def test_results_do_not_depend_on_the_number_of_threads() -> None:
    rng = np.random.default_rng(5)
    x = tensor(rng, dt.float32, (300, 500))
    graphs = [graph_of("softmax", (x, d, None)) for d in (0, 1)]
    graphs.append(graph_of("variance", (x, None, 1, False)))
    before, results = pool.threads(), []
    try:
        for threads in (1, 2, 3):
            pool.set_threads(threads)
            results.append([run(fused_kernel, g, (x,))[0].values for g in graphs])
    finally:
        pool.set_threads(before)
    for other in results[1:]:
        for a, b in zip(results[0], other, strict=True):
            np.testing.assert_array_equal(a, b)


def test_rows_of_infinities_and_nan() -> None:
    x = tensor(np.random.default_rng(6), dt.float32, (4, 40))
    x.values[0], x.values[1, 3], x.values[2, 5] = -np.inf, np.nan, np.inf
    for name in ("softmax", "log_softmax"):
        check(name, x, 1, None, scale=4)
    check("logsumexp", x, (1,), False)


def test_exponentials_are_kept_in_the_result_and_not_computed_twice() -> None:
    x = tensor(np.random.default_rng(7), dt.float32, (8, 64))
    schedule = Schedule(LoopLayout(FusedProgram(graph_of("softmax", (x, 1, None)))))
    assert len(schedule.passes) == 3
    assert len(schedule.in_result) == 1
    wide = Schedule(LoopLayout(FusedProgram(graph_of("log_softmax", (x, 1, None)))))
    assert not wide.in_result
    assert not wide.in_scratch


@pytest.mark.parametrize("name", ["cumsum", "median", "nn.functional.cross_entropy"])
def test_what_is_not_rows_is_not_claimed(name: str) -> None:
    op = op_.table().get(name)
    assert op is None or not CpuBackend().fuses(op)


# ---- kernels of their own -----------------------------------------------------------------------


def through_rule(name: str, args: tuple[Any, ...]) -> list[Tensor]:
    op = op_.get(name)
    metas = tuple(a._meta if isinstance(a, Tensor) else a for a in args)
    found = op.meta(*metas)  # type: ignore[misc]
    metas_out = found if isinstance(found, tuple) else (found,)
    graph = one_op_graph(op, metas, metas_out)
    return run(CpuBackend().fuse, graph, args)


def classes(rng: np.random.Generator, rows: int, count: int, ignored: int) -> Tensor:
    target = tensor(rng, dt.int64, (rows,))
    target.values[...] = rng.integers(0, count, rows)
    target.values[rng.random(rows) < 0.2] = ignored
    return target


@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("dtype", FLOATS, ids=lambda d: d.name)
def test_cross_entropy(dtype: dt.dtype, weighted: bool, reduction: str) -> None:
    rng = np.random.default_rng(8)
    for rows, count in ((5, 10), (64, 3), (3, 1000)):
        x = tensor(rng, dtype, (rows, count))
        target = classes(rng, rows, count, -100)
        weight = tensor(rng, dtype, (count,)) if weighted else None
        if weight is not None and dtype.native:
            weight.values[...] = np.abs(weight.values)
        elif weight is not None:
            weight.bits[...] &= 0x7FFF
        g = tensor(rng, dtype, (rows,) if reduction == "none" else ())
        for name, args in (
            ("cross_entropy_classes", (x, target, weight, reduction, -100)),
            ("cross_entropy_classes_backward", (g, x, target, weight, reduction, -100)),
        ):
            found = through_rule(name, args)[0]
            wanted = on_reference(name, args)
            close = CLOSE[dtype] * 8
            np.testing.assert_allclose(found.values, wanted, close, close)


def on_reference(name: str, args: tuple[Any, ...]) -> Any:
    """The body of a composite, op by op on the reference device."""

    def made(a: Any) -> Any:
        if not isinstance(a, Tensor):
            return a
        values = torch.tensor(a.values.tolist(), dtype=a._meta.dtype)
        return values.reshape(tuple(a._meta.shape)).to("reference")

    found = op_.get(name).public(*(made(a) for a in args))
    several = found if isinstance(found, tuple) else (found,)
    arrays = [np.array(t.double().tolist()).reshape(tuple(t.shape)) for t in several]
    return arrays if isinstance(found, tuple) else arrays[0]


def test_a_target_that_is_no_class_is_refused() -> None:
    rng = np.random.default_rng(9)
    x, target = tensor(rng, dt.float32, (4, 5)), classes(rng, 4, 5, -1)
    for wrong in (5, -3):
        target.values[2] = wrong
        with pytest.raises(IndexError, match=f"Target {wrong} is out of bounds"):
            through_rule("cross_entropy_classes", (x, target, None, "mean", -1))


@pytest.mark.parametrize("dtype", FLOATS, ids=lambda d: d.name)
def test_layer_norm_backward(dtype: dt.dtype) -> None:
    rng = np.random.default_rng(10)
    for rows, length in ((5, 384), (70, 10), (1, 33), (300, 40)):
        g, x = (tensor(rng, dtype, (rows, length)) for _ in range(2))
        args = (g, x, tensor(rng, dtype, (length,)), (1,), 1e-5)
        found = through_rule("layer_norm_backward", args)
        for a, b in zip(found, on_reference("layer_norm_backward", args), strict=True):
            close = CLOSE[dtype] * 30
            np.testing.assert_allclose(a.values, b, close, close)


ORDERS = [
    ((4, 6, 5, 9), "plain"),
    ((4, 6, 5, 9), "channels last"),
    ((70, 33), "plain"),
    ((2, 3, 200), "plain"),
]


@pytest.mark.parametrize("dtype", FLOATS, ids=lambda d: d.name)
@pytest.mark.parametrize(("shape", "layout"), ORDERS)
def test_batch_norm(dtype: dt.dtype, shape: tuple[int, ...], layout: str) -> None:
    rng = np.random.default_rng(11)
    g, x = (tensor(rng, dtype, shape, layout) for _ in range(2))
    weight, bias = (tensor(rng, dtype, shape[1:2]) for _ in range(2))
    args = (x, weight, bias, 1e-5)
    found, wanted = through_rule("channel_norm", args), on_reference("channel_norm", args)
    back = (g, x, weight, *found[1:], 1e-5)
    found = found + through_rule("channel_norm_backward", back)
    wanted += on_reference("channel_norm_backward", back)
    for a, b in zip(found, wanted, strict=True):
        close = CLOSE[dtype] * 60
        np.testing.assert_allclose(a.values, b, close, close)
