"""Products fused with the element-wise ops after them: the bits of kernels run one by one.

All tensors end (or start) at memory nobody may touch; scratch and results are full of nan.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

from lucerne._src.backends.cpu.backend import CpuBackend
from lucerne._src.backends.cpu.gemm.amx.products import has_amx
from lucerne._src.backends.cpu.gemm.fuse import steps_over
from lucerne._src.backends.cpu.math.number import NotTaken
from lucerne._src.base import dtype as dt
from lucerne._src.base.device import device
from lucerne._src.ir import op as op_
from lucerne._src.ir.graph import Graph, Node, Value
from lucerne._src.ir.meta import NUMBER_METAS, TensorMeta, make_meta
from tests.cpu.guarded import Guest

HOST = device("cpu")
Shape = tuple[int, ...]


class Build:
    """A graph written call by call: `g.call("add2", x, y)`."""

    def __init__(self) -> None:
        self.graph = Graph()

    def input(
        self, shape: Shape, dtype: dt.dtype = dt.float32, strides: Shape | None = None
    ) -> Value:
        return self.graph.input(make_meta(dtype, shape, strides, HOST))

    def call(self, name: str, *args: Any) -> Value:
        op = op_.get(name)
        if op.kind == op_.VIEW:
            source = args[0].meta
            seen = op.body(source, *args[1:])
            meta = make_meta(source.dtype, tuple(seen.shape), tuple(seen.strides), HOST)
        else:
            metas = [_meta(a, k) for a, k in zip(args, op.kinds, strict=True)]
            assert op.meta is not None, name
            meta = op.meta(*metas)
        return self.graph.call(op, args, [meta])[0]

    def linear(self, x: Value, w: Value, bias: Value | None = None) -> Value:
        return self.call("nn.functional.linear", x, w, bias)

    def product(self, x: Value, y: Value) -> Value:
        return self.call("batch_matmul", x, y)

    def cast(self, x: Value, dtype: dt.dtype) -> Value:
        return self.call("cast", x, dtype)

    def gelu(self, x: Value) -> Value:
        return self.call("nn.functional.gelu", x, "none")

    def ends(self, *outputs: Value) -> Graph:
        self.graph.outputs = outputs
        return self.graph


def _meta(a: Any, kind: str) -> Any:
    if type(a) is Value:
        return a.meta
    return NUMBER_METAS[type(a)] if kind == op_.TENSOR and a is not None else a


def filled(rng: np.random.Generator, meta: TensorMeta) -> Guest:
    made = Guest(meta, at_end=bool(rng.integers(2)))
    is_mask = meta.dtype is dt.bool_
    made.fill(np.asarray(rng.random(meta.shape) < 0.5 if is_mask else rng.normal(size=meta.shape)))
    return made


class Seen:
    """A view: the storage of another tensor, with a meta and an offset of its own."""

    def __init__(self, base: Any, meta: TensorMeta, offset: int) -> None:
        self._meta, self._offset, self._storage, self._array = meta, offset, base._storage, None


def run(kernel: Any, inputs: list[Any], outputs: list[Any]) -> None:
    """Run a kernel over scratch full of nan (of one that may keep its weight packed: without)."""
    kernel = getattr(kernel, "kernel", kernel)
    if not hasattr(kernel, "block"):
        kernel(inputs, outputs)
        return
    words, space = kernel.block(inputs, outputs)
    if kernel.workspace:
        ctypes.memset(words[len(outputs) + len(inputs)], 0xFF, kernel.workspace)
    assert kernel.call(ctypes.addressof(words)) == 0
    del space


def one_by_one(graph: Graph, inputs: list[Any]) -> list[Any]:
    """The outputs of a graph, each op by its own kernel."""
    backend = CpuBackend()
    known: dict[int, Any] = {v.index: t for v, t in zip(graph.inputs, inputs, strict=True)}
    for node in graph.nodes:
        out = node.outputs[0]
        if node.op.kind == op_.VIEW:
            base = known[node.args[0].index]
            offset = base._offset + node.op.body(base._meta, *node.args[1:]).offset
            known[out.index] = Seen(base, out.meta, offset)
            continue
        known[out.index] = Guest(out.meta)
        alone, given = _alone(node)
        run(backend.compile(alone), [known[v.index] for v in given], [known[out.index]])
    assert not backend.fallbacks, backend.fallbacks
    return [known[v.index] for v in graph.outputs]


def _alone(node: Node) -> tuple[Graph, list[Value]]:
    """The graph of one node. Its inputs are its arguments, also those it reads twice."""
    graph = Graph()
    given = [a for a in node.args if type(a) is Value]
    placed = [graph.input(a.meta) if type(a) is Value else a for a in node.args]
    graph.outputs = graph.call(node.op, tuple(placed), [v.meta for v in node.outputs])
    return graph, given


def bits(t: Any) -> np.ndarray[Any, Any]:
    """The elements of a tensor (or view) as they are stored."""
    m = t._meta
    place = t._storage.bytes[t._offset * m.dtype.itemsize :]
    flat = place[: len(place) // m.dtype.itemsize * m.dtype.itemsize].view(f"u{m.dtype.itemsize}")
    return np.lib.stride_tricks.as_strided(flat, m.shape, m.byte_strides).copy()


def assert_same_bits(graph: Graph, seed: int = 0) -> None:
    """One kernel gives what the kernels of the ops give one after the other."""
    rng = np.random.default_rng(seed)
    inputs = [filled(rng, v.meta) for v in graph.inputs]
    kernel = CpuBackend().fuse(graph)
    assert kernel is not None, f"not fused:\n{graph}"
    outputs = [Guest(v.meta, at_end=bool(rng.integers(2))) for v in graph.outputs]
    run(kernel, inputs, outputs)
    for v, found, wanted in zip(graph.outputs, outputs, one_by_one(graph, inputs), strict=True):
        np.testing.assert_array_equal(bits(found), bits(wanted), f"{v} of\n{graph}")


# ---- rows: the product, what follows, shapes ----------------------------------------------------

KINDS = ("linear", "linear bias", "product", "turned", "add_product")
TYPES = [dt.float32, dt.bfloat16, dt.float64, dt.float16]
SHAPES = [
    (1, 1, 1), (1, 40, 33), (3, 17, 20), (5, 7, 0), (13, 70, 30), (33, 31, 65), (64, 64, 64),
    (100, 96, 400), (130, 50, 800), (2, 600, 70), (1, 130, 300),
]  # fmt: skip


def product(g: Build, kind: str, dtype: dt.dtype, m: int, n: int, k: int) -> Value:
    """A product (m, k) @ (k, n) of some kind."""
    if kind in ("linear", "linear bias"):
        bias = g.input((n,), dtype) if kind == "linear bias" else None
        return g.linear(g.input((m, k), dtype), g.input((n, k), dtype), bias)
    if kind == "turned":  # dW = g^T @ x
        return g.product(g.call("transpose", g.input((k, m), dtype), 0, 1), g.input((k, n), dtype))
    if kind == "add_product":
        return g.call(
            "add_product", g.input((m, n), dtype), g.input((m, k), dtype), g.input((k, n), dtype)
        )
    return g.product(g.input((m, k), dtype), g.input((k, n), dtype))


After = Callable[[Build, Value], tuple[Value, ...]]


def gelu_both(g: Build, h: Value) -> tuple[Value, ...]:
    return h, g.gelu(h)


def residual(g: Build, h: Value) -> tuple[Value, ...]:
    return (g.call("add2", h, g.input(tuple(h.meta.shape), h.meta.dtype)),)


def gradient(g: Build, h: Value) -> tuple[Value, ...]:
    """gelu's, as its body says it."""
    x = g.input(tuple(h.meta.shape), h.meta.dtype)
    erf = g.call("erf", g.call("mul", x, 0.7071067811865476))
    below = g.call("mul", g.call("add2", erf, 1), 0.5)
    density = g.call("exp", g.call("mul", g.call("mul", x, x), -0.5))
    slope = g.call("add2", below, g.call("mul", x, g.call("mul", density, 0.3989422804014327)))
    return (g.call("mul", h, slope),)


def relu_gradient(g: Build, h: Value) -> tuple[Value, ...]:
    y = g.input(tuple(h.meta.shape), h.meta.dtype)
    return (g.call("choose", g.call("le", y, 0), 0, h),)


def relu(g: Build, h: Value) -> tuple[Value, ...]:
    return (g.call("relu", h),)


def other_type(g: Build, h: Value) -> tuple[Value, ...]:
    to = dt.bfloat16 if h.meta.dtype is dt.float32 else dt.float32
    return (g.cast(h, to),)


def both_types(g: Build, h: Value) -> tuple[Value, ...]:
    to = dt.bfloat16 if h.meta.dtype is dt.float32 else dt.float32
    wide = g.cast(h, to)
    return g.call("mul", wide, 0.3), h, wide


def many(g: Build, h: Value) -> tuple[Value, ...]:
    """A row, a column, a scalar, a mask, and tensors of other types."""
    m, n = h.meta.shape[-2:]
    row, column = g.input((n,), dt.float32), g.input((m, 1), h.meta.dtype)
    scalar = g.call("expand", g.input((), h.meta.dtype), tuple(h.meta.shape))
    mask = g.input(tuple(h.meta.shape), dt.bool_)
    twice = g.call("add2", row, row)
    x = g.call("mul", g.call("mul", h, column), scalar)
    y = g.call("add2", x, twice)
    return x, g.call("mul", y, mask), y


AFTER: dict[str, After] = {
    f.__name__: f
    for f in (
        gelu_both, residual, gradient, relu_gradient, relu, other_type, both_types, many,
    )
}  # fmt: skip


def check_row(
    kind: str, after: str, dtype: dt.dtype, shapes: Sequence[tuple[int, int, int]]
) -> None:
    for number, (m, n, k) in enumerate(shapes):
        g = Build()
        h = product(g, kind, dtype, m, n, k)
        graph = g.ends(*AFTER[after](g, h))
        if after == "gradient" and dtype.itemsize == 2:
            assert CpuBackend().fuse(graph) is None, "many roundings run faster in their own loop"
        else:
            assert_same_bits(graph, number)


SOME = [
    pytest.param(KINDS[(i + j) % len(KINDS)], after, t, id=f"{after}-{t.name}")
    for i, after in enumerate(AFTER)
    for j, t in enumerate(TYPES)
    if t in TYPES[:2] or (i + j) % 4 == 0
]


@pytest.mark.parametrize(("kind", "after", "dtype"), SOME)
def test_bits_of_separate_kernels(kind: str, after: str, dtype: dt.dtype) -> None:
    start = list(AFTER).index(after)
    check_row(kind, after, dtype, [SHAPES[start % 11], SHAPES[(start + 5) % 11]])


@pytest.mark.nightly
@pytest.mark.parametrize("dtype", TYPES, ids=lambda d: d.name)
@pytest.mark.parametrize("kind", KINDS)
def test_bits_of_every_combination(kind: str, dtype: dt.dtype) -> None:
    """python -m pytest tests/cpu/test_gemm_fused.py -m nightly"""
    for after in AFTER:
        check_row(kind, after, dtype, SHAPES)


# ---- operands in float32 that count as bfloat16 -------------------------------------------------


def rounded(g: Build, shape: Shape, strides: Shape | None = None) -> Value:
    return g.cast(g.input(shape, dt.float32, strides), dt.bfloat16)


def forward(g: Build, m: int, n: int, k: int) -> Value:
    return g.linear(g.input((m, k), dt.bfloat16), rounded(g, (n, k)), rounded(g, (n,)))


def to_input(g: Build, m: int, n: int, k: int) -> Value:
    return g.product(g.input((m, k), dt.bfloat16), rounded(g, (k, n)))


def both_rounded(g: Build, m: int, n: int, k: int) -> Value:
    return g.product(g.call("transpose", rounded(g, (k, m)), 0, 1), rounded(g, (k, n)))


def rounded_rows(g: Build, m: int, n: int, k: int) -> Value:
    return g.linear(rounded(g, (m, k), (k + 3, 1)), g.input((n, k), dt.bfloat16))


def rounded_view(g: Build, m: int, n: int, k: int) -> Value:
    weight = g.call("transpose", rounded(g, (n, k)), 0, 1)
    return g.product(g.input((m, k), dt.bfloat16), weight)


ROUNDED = [forward, to_input, both_rounded, rounded_rows, rounded_view]
TILED = [(8, 64, 100), (33, 40, 64), (100, 70, 129), (64, 96, 1200), (300, 33, 96)]


@pytest.mark.skipif(not has_amx(), reason="only tiles read float32 as bfloat16")
@pytest.mark.parametrize("make", ROUNDED, ids=lambda f: f.__name__)
def test_operands_rounded_while_they_are_packed(make: Any) -> None:
    for number, (m, n, k) in enumerate(TILED):
        g = Build()
        h = make(g, m, n, k)
        assert_same_bits(g.ends(h, g.gelu(h)) if number % 2 else g.ends(g.cast(h, dt.float32)))


# ---- batches, views, what is not taken ----------------------------------------------------------


@pytest.mark.parametrize("dtype", TYPES[:2], ids=lambda d: d.name)
@pytest.mark.parametrize("shape", [(2, 3, 20, 24, 40), (2, 3, 40, 70, 100)], ids=str)
def test_batches_with_operands_of_every_spread(dtype: dt.dtype, shape: Shape) -> None:
    b, h, m, n, k = shape
    spreads: list[Shape] = [
        (b, h, m, n), (m, n), (n,), (b, 1, m, n), (1, h, m, 1), (b, h, 1, 1), (b, 1, 1, n),
    ]  # fmt: skip
    for spread in spreads:
        g = Build()
        x = g.product(g.input((b, h, m, k), dtype), g.input((b, h, k, n), dtype))
        assert_same_bits(g.ends(g.call("add2", g.call("mul", x, 0.125), g.input(spread, dtype))))


VIEWS: list[tuple[Shape, Shape]] = [
    ((6, 20, 24), (6, 20, 24)), ((2, 3, 20, 24), (2, 3, 20, 24)), ((120, 2, 12), (120, 2, 12)),
    ((2880,), (2880,)),
]  # fmt: skip


@pytest.mark.parametrize(("seen", "other"), VIEWS, ids=str)
def test_views_that_only_cut_the_result_anew(seen: Shape, other: Shape) -> None:
    g = Build()
    h = g.product(g.input((120, 40)), g.input((40, 24)))
    y = g.call("add2", g.call("view", h, seen), g.input(other))
    assert_same_bits(g.ends(h, y, g.call("relu", h)))


@pytest.mark.parametrize("seen", [(120, 1, 24), (1, 120, 24), (120, 24, 1), (120, 24)], ids=str)
def test_a_view_of_what_was_read_before(seen: Shape) -> None:
    """The product and a view of it are one load; the account of the loops names both."""
    g = Build()
    h = g.product(g.input((120, 40)), g.input((40, 24)))
    y = g.call("mul", h, g.input((24,)))
    graph = g.ends(y, g.call("mul", g.call("view", h, seen), g.input(seen)))
    assert CpuBackend().fuse(graph) is not None
    assert_same_bits(graph)


def test_strided_operands() -> None:
    """Rows with gaps, an operand that is a part of a larger one, an expanded one."""
    for dtype in TYPES[:2]:
        g = Build()
        x, w = g.input((33, 64), dtype, (70, 1)), g.input((3, 64, 40), dtype)
        h = g.product(x, g.call("select", w, 0, 2))
        r = g.input((33, 40), dtype, (48, 1))
        s = g.call("expand", g.call("select", g.input((2, 40), dtype), 0, 1), (33, 40))
        assert_same_bits(g.ends(g.call("add2", g.call("add2", h, r), s)))


def taken(*outputs: Value, graph: Build) -> bool:
    return CpuBackend().fuse(graph.ends(*outputs)) is not None


def test_what_is_left_to_others() -> None:
    g = Build()
    h = g.product(g.input((20, 30)), g.input((30, 20)))
    turned = g.call("transpose", h, 0, 1)
    assert not taken(g.call("add2", h, turned), graph=g), "a tile does not hold its transpose"
    g = Build()
    h = g.product(g.input((20, 30)), g.input((30, 20)))
    assert not taken(g.product(h, g.input((20, 5))), graph=g), "two products"
    g = Build()
    h = g.product(g.input((20, 30)), g.input((30, 1)))
    assert not taken(g.call("add2", h, g.input((20, 7))), graph=g), "more columns than the product"
    g = Build()
    h = g.product(g.input((0, 30)), g.input((30, 4)))
    assert not taken(g.call("relu", h), graph=g), "nothing to do"
    g = Build()
    h = g.product(g.input((4, 20000)), g.input((20000, 4)))
    assert not taken(g.call("relu", h), graph=g), "parts of k are added after the product"
    g = Build()
    h = g.product(g.input((20, 30)), g.input((30, 12)))
    assert not taken(g.call("relu", g.call("select", h, 0, 3)), graph=g), "a part of the product"
    g = Build()
    h = g.call("view", g.product(g.input((20, 30)), g.input((30, 12))), (4, 5, 12))
    assert not taken(g.call("add2", h, g.input((4, 1, 12))), graph=g), "groups of rows"
    g = Build()
    x = g.input((20, 30))
    h = g.product(x, g.input((30, 12)))
    extra = [g.input((20, 12)) for _ in range(12)]
    for t in extra:
        h = g.call("add2", h, t)
    assert not taken(h, graph=g), "more tensors than an entry has room for"


def test_the_comparison_fails_for_other_bits() -> None:
    g = Build()
    h = g.product(g.input((8, 8)), g.input((8, 8)))
    graph = g.ends(g.call("relu", h))
    other = Build()
    h = other.product(other.input((8, 8)), other.input((8, 8)))
    wrong = other.ends(other.call("neg", h))
    rng = np.random.default_rng(0)
    inputs = [filled(rng, v.meta) for v in graph.inputs]
    found, wanted = one_by_one(wrong, inputs), one_by_one(graph, inputs)
    with pytest.raises(AssertionError):
        np.testing.assert_array_equal(bits(found[0]), bits(wanted[0]))


def test_steps_over_another_cut() -> None:
    assert steps_over((6, 4), [(2, 96), (3, 32), (4, 8)]) == [32, 8]
    assert steps_over((2, 3, 4), [(24, 8)]) == [96, 32, 8]
    assert steps_over((6, 4), [(2, 0), (3, 0), (4, 8)]) == [0, 8]
    for shape, axes in [((6, 4), [(2, 96), (3, 40), (4, 8)]), ((6, 4), [(4, 0), (6, 8)])]:
        with pytest.raises(NotTaken):
            steps_over(shape, axes)
