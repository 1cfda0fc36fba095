"""A convolution with element-wise ops in one kernel gives the bits of the ops one by one."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import pytest

from lucerne import backends
from lucerne._src.backends.cpu.conv.amx import fprop_plan
from lucerne._src.backends.cpu.runtime import pool
from lucerne._src.base import dtype as dt
from lucerne._src.ir import op as op_
from lucerne._src.ir.graph import Graph, Value
from lucerne._src.ir.meta import make_meta
from tests.cpu.guarded import Guest, strides_of
from tests.cpu.test_channel_fused import HOST, given, one_by_one, same_bits

CPU: Any = backends.get("cpu")


class Maker:
    """A graph that begins with a convolution 3x3 (or 1x1)."""

    def __init__(
        self, layout: str, *, size: int = 9, taps: int = 3, stride: int = 1, bias: bool = False,
        groups: int = 1, dtype: dt.dtype = dt.float32,
    ) -> None:  # fmt: skip
        self.graph, self.layout, self.dtype = Graph(), layout, dtype
        x = self._input((3, 20 * groups, size, size))
        w = self._input((36 * groups, 20, taps, taps))
        b = self._input((36 * groups,)) if bias else None
        pad = taps // 2
        args = (x, w, b, (stride, stride), (pad, pad), (1, 1), groups)
        op = op_.get("conv")
        assert op.meta is not None
        metas = tuple(a.meta if isinstance(a, Value) else a for a in args)
        [self.y] = self.graph.call(op, args, [op.meta(*metas)])

    def _input(self, shape: tuple[int, ...]) -> Value:
        layout = self.layout if len(shape) == 4 else "planes"
        return self.graph.input(make_meta(self.dtype, shape, strides_of(shape, layout), HOST))

    def full(self) -> Value:
        return self.graph.input(self.y.meta)

    def channel(self) -> Value:
        shape = (self.y.meta.shape[1], 1, 1)
        return self.graph.input(make_meta(self.dtype, shape, (1, 1, 1), HOST))

    def call(self, name: str, *args: Any) -> Value:
        kind = dt.bool_ if name == "le" else self.dtype
        meta = make_meta(kind, self.y.meta.shape, self.y.meta.strides, HOST)
        return self.graph.call(op_.get(name), args, [meta])[0]

    def norm_relu(self, residual: bool) -> Graph:
        """Batch norm by known statistics, as its body is written."""
        y = self.call("sub2", self.y, self.channel())
        for name in ("mul", "mul", "add2"):
            y = self.call(name, y, self.channel())
        y = self.call("add2", y, self.full()) if residual else y
        self.graph.outputs = (self.call("relu", y),)
        return self.graph


@pytest.fixture(params=[False, True], ids=["as chosen", "tiles for all"])
def engine(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(CPU, "_fused", {})  # what was fused before stands there
    if request.param:
        monkeypatch.setattr(fprop_plan, "_LEAST_PRODUCTS", 0)
        monkeypatch.setattr(fprop_plan, "_MOST_WASTE", 1e9)


@pytest.mark.usefixtures("engine")
@pytest.mark.parametrize("layout", ["planes", "channels"])
@pytest.mark.parametrize("residual", [False, True])
def test_norm_and_relu(layout: str, residual: bool) -> None:
    same_bits(Maker(layout).norm_relu(residual))
    same_bits(Maker(layout, size=16, stride=2, groups=2).norm_relu(residual), threads=2)
    same_bits(Maker(layout, dtype=dt.bfloat16).norm_relu(residual))


@pytest.mark.parametrize("layout", ["planes", "channels"])
def test_bias_and_relu(layout: str) -> None:
    maker = Maker(layout, bias=True)
    maker.graph.outputs = (maker.call("relu", maker.y),)
    same_bits(maker.graph)


def test_one_by_one_of_channels() -> None:
    same_bits(Maker("channels", taps=1).norm_relu(True))


@pytest.mark.usefixtures("engine")
def test_infinities_come_through(request: pytest.FixtureRequest) -> None:
    """The spare kernel has the same ops behind it."""
    request.addfinalizer(partial(pool.set_threads, pool.threads()))
    pool.set_threads(1)
    graph = Maker("planes").norm_relu(True)
    inputs = given(graph)
    values = inputs[0].values.copy()
    values[1, 3, 4, 4] = np.inf
    inputs[0].fill(values)
    kernel = CPU.fuse(graph)
    found = Guest(graph.outputs[0].meta)
    kernel(inputs, [found])
    [want] = one_by_one(graph, inputs)
    assert np.array_equal(found._view, want._view, equal_nan=True)


def test_other_forms_are_left_alone() -> None:
    """The plain result too, a result of another type, an operand of one row, pixels in lanes."""
    both = Maker("planes")
    both.graph.outputs = (both.call("relu", both.y), both.y)
    mask = Maker("planes")
    mask.graph.outputs = (mask.call("le", mask.y, 0),)
    narrow = Maker("planes")
    row = narrow.graph.input(make_meta(dt.float32, (9,), (1,), HOST))
    narrow.graph.outputs = (narrow.call("add2", narrow.y, row),)
    pixels = Maker("planes", taps=1, size=16)
    pixels.graph.outputs = (pixels.call("relu", pixels.y),)
    for maker in (both, mask, narrow, pixels):
        assert CPU.fuse(maker.graph) is None, maker.graph
