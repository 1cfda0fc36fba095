"""Kernels of several ops: views of arguments are read where they begin (compiled functions hand
over arguments that begin there already), operands are rounded to the common type."""

from __future__ import annotations

from typing import Any

import pytest

import lucerne as torch
from lucerne import backends
from lucerne._src.ir import op as op_
from lucerne._src.ir.graph import Graph
from lucerne._src.ir.meta import make_meta

VIEWS: dict[str, tuple[str, tuple[Any, ...], Any]] = {
    "rows": ("ops.aten.slice", (0, 1, 3, 1), lambda x: x[1:3]),
    "columns": ("ops.aten.slice", (1, 2, 6, 2), lambda x: x[:, 2:6:2]),
    "one row": ("select", (0, 2), lambda x: x[2]),
}


@pytest.mark.parametrize("name", VIEWS)
def test_a_kernel_reads_a_view_where_it_begins(name: str) -> None:
    op, args, expected = VIEWS[name]
    x = torch.arange(24.0).reshape(4, 6)
    graph = Graph()
    given = graph.input(x._meta)
    body = op_.get(op)
    geometry = body.body(x._meta, *args)
    meta = make_meta(x._meta.dtype, geometry.shape, geometry.strides, x._meta.device)
    (part,) = graph.call(body, (given, *args), [meta])
    fresh = torch.empty(geometry.shape)
    (doubled,) = graph.call(op_.get("mul"), (part, 2.0), [fresh._meta])
    (made,) = graph.call(op_.get("exp"), (doubled,), [fresh._meta])
    graph.outputs = (made,)
    host: Any = backends.get(backends.HOST)
    run = host.fuse(graph) if hasattr(host, "fuse") else host.compile(graph)
    assert run is not None
    run([x], [fresh])
    torch.testing.assert_close(fresh, (expected(x) * 2).exp())


def test_two_views_of_one_argument_are_two() -> None:
    x = torch.arange(24.0).reshape(4, 6)
    graph = Graph()
    given = graph.input(x._meta)
    body = op_.get("select")
    fresh = torch.empty(6)
    first, second = (graph.call(body, (given, 0, k), [fresh._meta])[0] for k in (1, 3))
    (both,) = graph.call(op_.get("mul"), (first, second), [fresh._meta])
    (made,) = graph.call(op_.get("neg"), (both,), [fresh._meta])
    graph.outputs = (made,)
    host: Any = backends.get(backends.HOST)
    run = host.fuse(graph) if hasattr(host, "fuse") else host.compile(graph)
    run([x], [fresh])
    torch.testing.assert_close(fresh, -(x[1] * x[3]))


@pytest.mark.parametrize("compiled", [False, True])
def test_an_operand_is_rounded_to_the_common_type(compiled: bool) -> None:
    """257 is 256 in bfloat16: 256 * 3 is held exactly, 257 * 3 would become 772."""

    def times(a: Any, b: Any) -> Any:
        return a * b

    run = torch.compile(times) if compiled else times
    b = torch.tensor([3.0], dtype=torch.bfloat16)
    assert run(torch.tensor([257]), b).item() == 768
    assert run(torch.tensor(257), b).item() == 768
    assert run(b, torch.tensor(257)).item() == 772  # a second factor of one element is taken whole
