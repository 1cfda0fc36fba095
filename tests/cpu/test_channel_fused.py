"""Batch norm with element-wise ops in one kernel gives the bits of the ops one by one."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

from lucerne import backends
from lucerne._src.backends.cpu.runtime import pool
from lucerne._src.base import dtype as dt
from lucerne._src.base.device import device
from lucerne._src.ir import op as op_
from lucerne._src.ir.graph import Graph, Value, one_op_graph
from lucerne._src.ir.meta import NUMBER_METAS, TensorMeta, make_meta
from lucerne._src.loops.group import Fusion, Grouping
from tests.cpu.guarded import Guest, guest, strides_of

CPU: Any = backends.get("cpu")
HOST = device("cpu")
SHAPES = [(3, 5, 7, 9), (2, 64, 8, 8), (4, 17, 1, 1), (1, 1, 1, 3), (33, 20), (2, 3, 4, 5, 2)]
DTYPES = [dt.float32, dt.float64, dt.bfloat16]
EPS = 1e-5


@pytest.fixture(autouse=True)
def _threads() -> Iterator[None]:
    before = pool.threads()
    yield
    pool.set_threads(before)


class Maker:
    """A graph under construction, for tensors of one shape and layout."""

    def __init__(self, shape: tuple[int, ...], dtype: dt.dtype, layout: str) -> None:
        self.graph, self.dtype = Graph(), dtype
        self.full = make_meta(dtype, shape, strides_of(shape, layout), HOST)
        self.channel = make_meta(dtype, (shape[1],), (1,), HOST)
        self.stats = make_meta(dtype.compute, (shape[1],), (1,), HOST)

    def rows(self) -> Value:
        return self.graph.input(self.full)

    def one_a_plane(self) -> Value:
        """The same number all over a plane, as the gradient of a mean has it."""
        _, c, *rest = self.full.shape
        meta = make_meta(self.dtype, self.full.shape, (c, 1, *(0 for _ in rest)), HOST)
        return self.graph.input(meta)

    def call(self, name: str, *args: Any) -> Any:
        op = op_.get(name)
        metas = tuple(a.meta if isinstance(a, Value) else a for a in args)
        if op.kind == op_.POINTWISE:
            kind = dt.bool_ if name in ("le", "gt") else self.dtype
            made = make_meta(kind, self.full.shape, self.full.strides, HOST)
            return self.graph.call(op, args, [made])[0]
        assert op.meta is not None
        return self.graph.call(op, args, op.meta(*metas))

    def norm(self, x: Value) -> Any:
        weight, bias = self.graph.input(self.channel), self.graph.input(self.channel)
        return self.call("channel_norm", x, weight, bias, EPS)

    def backward(self, g: Value, x: Value) -> Any:
        weight, mean, var = (self.graph.input(m) for m in (self.channel, self.stats, self.stats))
        return self.call("channel_norm_backward", g, x, weight, mean, var, EPS)

    def masked(self, g: Value) -> Value:
        """The gradient behind a relu."""
        found: Value = self.call("choose", self.call("le", self.rows(), 0), 0, g)
        return found


def norm_relu(m: Maker) -> None:
    y, mean, var = m.norm(m.rows())
    m.graph.outputs = (m.call("relu", y), mean, var)


def norm_relu_both(m: Maker) -> None:
    y, mean, var = m.norm(m.rows())
    m.graph.outputs = (mean, m.call("relu", y), y, var)


def norm_add_relu(m: Maker) -> None:
    y, mean, var = m.norm(m.rows())
    m.graph.outputs = (m.call("relu", m.call("add2", y, m.rows())), mean, var)


def norm_add_relu_sum_kept(m: Maker) -> None:
    residual = m.rows()
    y, mean, var = m.norm(m.rows())
    both = m.call("add2", residual, y)
    m.graph.outputs = (both, m.call("relu", both), mean, var)


def norm_without_statistics(m: Maker) -> None:
    y, *_ = m.norm(m.rows())
    m.graph.outputs = (m.call("mul", m.call("exp", y), 0.3),)


def masked_backward(m: Maker) -> None:
    m.graph.outputs = m.backward(m.masked(m.rows()), m.rows())


def masked_backward_kept(m: Maker) -> None:
    g = m.masked(m.rows())
    dx, dw, db = m.backward(g, m.rows())
    m.graph.outputs = (dx, g, dw, db)


def masked_sum_backward(m: Maker) -> None:
    g = m.masked(m.call("add2", m.rows(), m.rows()))
    dx, *_ = m.backward(g, m.rows())
    m.graph.outputs = (g, dx)


def backward_never_zero(m: Maker) -> None:
    """Lanes beyond the end must not count, whatever an op makes of nothing."""
    m.graph.outputs = m.backward(m.call("exp", m.rows()), m.rows())


FORMS = [
    norm_relu, norm_relu_both, norm_add_relu, norm_add_relu_sum_kept, norm_without_statistics,
    masked_backward, masked_backward_kept, masked_sum_backward, backward_never_zero,
]  # fmt: skip


def one_by_one(graph: Graph, inputs: list[Guest]) -> list[Guest]:
    """Every node by its own kernel."""
    known: dict[int, Guest] = {v.index: x for v, x in zip(graph.inputs, inputs, strict=True)}
    for node in graph.nodes:
        args: tuple[Any, ...] = tuple(a.meta if isinstance(a, Value) else a for a in node.args)
        given, numbers = [], []
        for k, (a, kind) in enumerate(zip(node.args, node.op.kinds, strict=True)):
            if isinstance(a, Value):
                given.append(known[a.index])
            elif kind in "tno" and a is not None:
                number = int if isinstance(a, int) else float
                args = (*args[:k], NUMBER_METAS[number], *args[k + 1 :])
                numbers.append(a)
        single = one_op_graph(node.op, args, [v.meta for v in node.outputs])
        kernel = CPU.fuse(single) if node.op.kind == op_.COMPOSITE else CPU.compile(single)
        results = [Guest(v.meta) for v in node.outputs]
        kernel([*given, *numbers], results)
        known |= {v.index: r for v, r in zip(node.outputs, results, strict=True)}
    return [known[v.index] for v in graph.outputs]


def given(graph: Graph) -> list[Guest]:
    rng = np.random.default_rng(5)
    made = []
    for v in graph.inputs:
        assert isinstance(v.meta, TensorMeta)
        x = Guest(v.meta, at_end=bool(rng.integers(2)))
        values = rng.standard_normal(v.meta.shape)
        if 0 in v.meta.strides:
            first = (slice(None), slice(None), *[slice(0, 1)] * (values.ndim - 2))
            values = np.broadcast_to(values[first], v.meta.shape)
        x.fill(np.abs(values) + 0.1 if v.meta.ndim == 1 else values)
        made.append(x)
    return made


def same_bits(graph: Graph, threads: int = 1) -> None:
    pool.set_threads(threads)
    kernel = CPU.fuse(graph)
    assert kernel is not None, f"not taken:\n{graph}"
    inputs = given(graph)
    found = [Guest(v.meta) for v in graph.outputs]
    kernel(inputs, found)
    pool.set_threads(1)
    for k, (a, b) in enumerate(zip(found, one_by_one(graph, inputs), strict=True)):
        assert np.array_equal(a._view, b._view, equal_nan=True), f"output {k} of\n{graph}"


@pytest.mark.parametrize("form", FORMS, ids=lambda f: f.__name__)
@pytest.mark.parametrize("layout", ["planes", "channels"])
def test_bits(form: Callable[[Maker], None], layout: str) -> None:
    for shape in SHAPES:
        maker = Maker(shape, dt.float32, layout)
        form(maker)
        same_bits(maker.graph)


@pytest.mark.parametrize("form", FORMS, ids=lambda f: f.__name__)
@pytest.mark.parametrize("dtype", DTYPES[1:], ids=str)
def test_bits_of_other_types(form: Callable[[Maker], None], dtype: dt.dtype) -> None:
    maker = Maker((3, 5, 7, 9), dtype, "planes")
    form(maker)
    same_bits(maker.graph)


@pytest.mark.parametrize("layout", ["planes", "channels"])
@pytest.mark.parametrize("form", [norm_add_relu, masked_backward_kept], ids=lambda f: f.__name__)
def test_bits_on_two_threads(form: Callable[[Maker], None], layout: str) -> None:
    maker = Maker((8, 40, 16, 16), dt.float32, layout)
    form(maker)
    same_bits(maker.graph, threads=2)


def test_gradient_of_a_mean_stands_still_on_a_plane() -> None:
    maker = Maker((3, 5, 7, 9), dt.float32, "planes")
    maker.graph.outputs = maker.backward(maker.masked(maker.one_a_plane()), maker.rows())
    same_bits(maker.graph)


def test_other_forms_are_left_alone() -> None:
    """Two norms, a norm of something computed, a gradient nobody wants, an operand of one row."""
    two = Maker((2, 3, 4, 4), dt.float32, "planes")
    a, *_ = two.norm(two.rows())
    b, *_ = two.norm(two.rows())
    two.graph.outputs = (two.call("add2", a, b),)
    computed = Maker((2, 3, 4, 4), dt.float32, "planes")
    computed.graph.outputs = computed.norm(computed.call("relu", computed.rows()))
    unused = Maker((2, 3, 4, 4), dt.float32, "planes")
    unused.graph.outputs = unused.backward(unused.masked(unused.rows()), unused.rows())[1:]
    narrow = Maker((2, 3, 4, 4), dt.float32, "planes")
    y, *_ = narrow.norm(narrow.rows())
    row = narrow.graph.input(make_meta(dt.float32, (4,), (1,), HOST))
    narrow.graph.outputs = (narrow.call("add2", y, row),)
    for maker in (two, computed, unused, narrow):
        assert CPU.fuse(maker.graph) is None, maker.graph


@pytest.mark.parametrize("form", [norm_add_relu, masked_backward_kept, masked_sum_backward])
def test_these_are_groups(form: Callable[[Maker], None]) -> None:
    """The compiler finds them: ops behind a norm, ops that make a gradient."""
    maker = Maker((2, 3, 4, 4), dt.float32, "planes")
    form(maker)
    found = Grouping(maker.graph, Fusion(CPU.anchors, CPU.prologue_anchors)).groups()
    assert found == [list(range(len(maker.graph.nodes)))]


def test_the_check_sees_a_wrong_bit(monkeypatch: pytest.MonkeyPatch) -> None:
    maker = Maker((2, 3, 4, 4), dt.float32, "planes")
    norm_relu(maker)
    rng = np.random.default_rng(1)

    def wrong(graph: Graph, inputs: list[Guest]) -> list[Guest]:
        return [guest(rng, tuple(v.meta.shape), v.meta.dtype, "planes") for v in graph.outputs]

    monkeypatch.setattr("tests.cpu.test_channel_fused.one_by_one", wrong)
    with pytest.raises(AssertionError, match="output 0"):
        same_bits(maker.graph)
