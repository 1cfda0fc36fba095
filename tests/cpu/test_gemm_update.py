"""Products that update the weight whose gradient they are: the bits of both kernels in turn."""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np
import pytest

from lucerne import backends
from lucerne._src.backends.cpu.gemm.amx.products import parts_work
from lucerne._src.backends.cpu.gemm.update import fused_update, suits_update
from lucerne._src.backends.cpu.runtime.kernel import NativeKernel
from lucerne._src.base import dtype as dt
from lucerne._src.ir import op
from lucerne._src.ir.graph import Graph, one_op_graph
from lucerne._src.ir.meta import make_meta
from tests.cpu.guarded import Guest
from tests.cpu.test_gemm_parts import HOST, TURNED, Array, guest, plain
from tests.cpu.test_gemm_turned import threads

pytestmark = pytest.mark.skipif(
    not parts_work(), reason="this machine has no AMX tiles for bfloat16"
)

NUMBERS = (1e-2, 0.9, 0.999, 0.05, 1e-8)
FLAGS = [(False, False, False), (True, False, False), (False, False, True)]
"""Weight decay as in AdamW; amsgrad; maximize."""


def update_graph(
    m: int, n: int, k: int, flags: Any = FLAGS[0], dtype: dt.dtype = dt.float32
) -> Graph:
    """(g.T, x, p, average, average of squares, count, five numbers) -> gradient and new values."""
    graph = Graph()
    factors = [
        graph.input(make_meta(dtype, (m, k), (1, m), HOST)),
        graph.input(make_meta(dtype, (k, n), None, HOST)),
    ]
    out = make_meta(dtype, (m, n), None, HOST)
    p, average, squares = (graph.input(out) for _ in range(3))
    count = graph.input(make_meta(dt.float32, (), None, HOST))
    numbers = [graph.input(float) for _ in NUMBERS]
    (gradient,) = graph.call(op.get("batch_matmul"), tuple(factors), [out])
    lists = ((p,), (gradient,), (average,), (squares,), (), (count,))
    made = graph.call(op.get("adam_update"), (*lists, *numbers, *flags), [out] * 3)
    graph.outputs = (gradient, *made)
    return graph


def run(kernel: NativeKernel, inputs: list[Any], outputs: list[Any]) -> None:
    """Over scratch full of nan."""
    words, space = kernel.block(inputs, outputs)
    tensors = sum(hasattr(x, "_meta") for x in inputs)
    if kernel.workspace:
        ctypes.memset(words[len(outputs) + tensors], 0xFF, kernel.workspace)
    assert kernel.call(ctypes.addressof(words)) == 0
    del space


def drawn(m: int, n: int, k: int) -> list[Array]:
    rng = np.random.default_rng(m * n + k)
    factors = [rng.standard_normal((m, k)), rng.standard_normal((k, n))]
    return [*factors, *(f(size=(m, n)) for f in (rng.normal, rng.normal, rng.uniform))]


def together(sizes: tuple[int, int, int], flags: Any) -> list[Array]:
    """Gradient, parameter and averages after the fused kernel, which writes over the old ones."""
    kernel = fused_update(update_graph(*sizes, flags))
    assert kernel is not None
    at_end = sum(sizes) % 2 == 0
    a, *rest = drawn(*sizes)
    tensors = [guest(a, TURNED, at_end=at_end), *(guest(x, at_end=at_end) for x in rest)]
    count = guest(np.array([[3.0]]))
    gradient = Guest(plain(sizes[:2]), at_end)
    run(kernel, [*tensors, count, *NUMBERS], [gradient, *tensors[2:]])
    return [t.values.copy() for t in (gradient, *tensors[2:])]


def apart(sizes: tuple[int, int, int], flags: Any) -> list[Array]:
    """The same by the kernel of the product and that of the optimizer."""
    a, b, *rest = drawn(*sizes)
    left, right = guest(a, TURNED), guest(b)
    old = [guest(x) for x in rest]
    gradient = Guest(plain(sizes[:2]))
    cpu: Any = backends.get("cpu")
    out = gradient._meta
    product = one_op_graph(op.get("batch_matmul"), (left._meta, right._meta), [out])
    run(cpu.compile(product), [left, right], [gradient])
    count = guest(np.array([[3.0]]))
    lists = ((out,), (out,), (out,), (out,), (), (make_meta(dt.float32, (), None, HOST),))
    update = one_op_graph(op.get("adam_update"), (*lists, *(float,) * 5, *flags), [out] * 3)
    run(cpu.compile(update), [old[0], gradient, *old[1:], count, *NUMBERS], old)
    return [t.values.copy() for t in (gradient, *old)]


SIZES = [(256, 784, 64), (256, 256, 64), (200, 333, 70), (161, 300, 900), (513, 161, 400)]


@pytest.mark.parametrize("sizes", SIZES, ids=str)
def test_the_bits_are_those_of_two_kernels(sizes: tuple[int, int, int]) -> None:
    for flags in FLAGS:
        wanted = apart(sizes, flags)
        for count in (1, 2, 3):
            with threads(count):
                found = together(sizes, flags)
            for x, y in zip(found, wanted, strict=True):
                np.testing.assert_array_equal(x, y)


def test_the_comparison_notices_flags() -> None:
    found, other = (together(SIZES[1], flags) for flags in FLAGS[:2])
    np.testing.assert_array_equal(found[0], other[0])
    assert not np.array_equal(found[1], other[1])


def test_what_is_not_taken() -> None:
    amsgrad = (False, True, False)
    graphs = {
        "amsgrad": update_graph(256, 256, 64, amsgrad),
        "small": update_graph(10, 256, 64),
        "bfloat16": update_graph(256, 256, 64, dtype=dt.bfloat16),
    }
    unread = update_graph(256, 256, 64)
    unread.outputs = unread.outputs[1:]
    graphs["a gradient that nobody gets"] = unread
    twice = update_graph(256, 256, 64)
    node = twice.nodes[1]
    node.args = (*node.args[:6], node.args[6], *node.args[6:7], *node.args[8:])
    graphs["one number for two"] = twice
    amsgrad_node = graphs["amsgrad"].nodes[1]
    amsgrad_node.args = (*amsgrad_node.args[:4], amsgrad_node.args[3], *amsgrad_node.args[5:])
    assert [name for name, graph in graphs.items() if fused_update(graph) is not None] == []


def test_which_products_suit() -> None:
    yes, no = update_graph(256, 256, 64), update_graph(10, 256, 64)
    assert suits_update(yes.nodes[0])
    assert not suits_update(no.nodes[0])
    assert not suits_update(yes.nodes[1])
