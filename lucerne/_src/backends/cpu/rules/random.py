"""Rules of the random primitives: torch's CPU streams, drawn natively where they are long.

A generator whose words are the Mersenne twister's (it has `native_state`) is drawn from in place.
Other generators, short draws and rare distributions go through the generator's own methods.
"""

from __future__ import annotations

import ctypes
import math
import struct
from collections.abc import Sequence
from dataclasses import astuple
from typing import Any

import numpy as np

from lucerne._src import backends
from lucerne._src.backends.cpu.fused.fuse import fused_kernel
from lucerne._src.backends.cpu.random import fill as rf
from lucerne._src.backends.cpu.random.fill import Fill, FillCode
from lucerne._src.backends.cpu.rules.table import rule
from lucerne._src.backends.cpu.runtime.code import compiled
from lucerne._src.backends.cpu.runtime.kernel import address_of, float_word
from lucerne._src.base import dtype as dt
from lucerne._src.base.memory import array_over
from lucerne._src.ir.graph import Graph, Node, map_values, one_op_graph
from lucerne._src.ir.meta import TensorMeta

_CALL = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_void_p)
_FLOATS = (dt.float32, dt.float64, dt.float16, dt.bfloat16)
_WHOLE = {
    dt.bool_: (0, 1), dt.uint8: (0, 2**8 - 1), dt.int8: (-(2**7), 2**7 - 1),
    dt.int16: (-(2**15), 2**15 - 1), dt.int32: (-(2**31), 2**31 - 1),
    dt.int64: (-(2**63), 2**63 - 1),
    **{t: (-(2 ** (t.digits - 1)), 2 ** (t.digits - 1)) for t in _FLOATS},
}  # fmt: skip
"""The integers each dtype holds without question."""

_WIDE_RANGE = 1 << 28
"""From here on an integer takes a word of 64 bits."""
_MANY = (2**32 - 1) // 20
"""Permutations of more are drawn in another way."""

Words = list[int]


def _single(value: float) -> float:
    return float(struct.unpack("<f", struct.pack("<f", value))[0])


class Draw:
    """The executable of a draw: native when it can be, else as the reference backend does it."""

    def __init__(self, node: Node, meta: TensorMeta) -> None:
        self.node, self.meta = node, meta
        self.dtype: dt.dtype = meta.dtype
        self.n = meta.numel
        self._reference: Any = None
        self._calls: dict[Fill, Any] = {}

    def __call__(self, inputs: Sequence[Any], outputs: Sequence[Any]) -> None:
        generator = inputs[-1]
        engine: Any = getattr(generator, "_engine", None)
        plan = self.plan(inputs) if self.n and hasattr(engine, "native_state") else None
        if plan is None:
            self.reference()(inputs, outputs)
            return
        self.fill(generator, address_of(outputs[0]), *plan)

    def fill(self, generator: Any, target: int, form: Fill, numbers: Words, each: int) -> None:
        """Draw `n` elements into memory at `target`."""
        words = (ctypes.c_int64 * 8)(target, 0, self.n, *numbers)
        words[rf.EACH] = each
        call = self._call(form)
        with generator.lock:
            words[rf.STATE] = generator._engine.native_state()
            call(ctypes.addressof(words))

    def plan(self, inputs: Sequence[Any]) -> tuple[Fill, Words, int] | None:
        """The form, the numbers, and where the elements' parameters are; None: not natively."""
        raise NotImplementedError

    def _call(self, form: Fill) -> Any:
        found = self._calls.get(form)
        if found is None:
            code = compiled(("draw", *astuple(form)), lambda m: FillCode(m, form).write())
            found = self._calls[form] = _CALL(code["entry"])
        return found

    def reference(self) -> Any:
        if self._reference is None:
            args = map_values(lambda v: v.meta, self.node.args)
            graph = one_op_graph(self.node.op, args, [v.meta for v in self.node.outputs])
            self._reference = backends.get("reference").compile(graph)
        return self._reference


# ---- one distribution for all elements -----------------------------------------------------------


class DrawAlike(Draw):
    """`draw`: inputs are the tensor, two numbers and the generator."""

    def plan(self, inputs: Sequence[Any]) -> tuple[Fill, Words, int] | None:
        distribution = self.node.args[1]
        found = _PLANS[distribution](self, inputs[1], inputs[2])
        if found is None:
            return None
        wide, numbers = found
        return Fill(distribution, self.dtype.name, wide), numbers, 0

    @property
    def wide(self) -> bool:
        return self.dtype is dt.float64

    def uniform(self, low: float, high: float) -> tuple[bool, Words] | None:
        largest = 6.5e4 if self.dtype is dt.float16 else 1e38
        if self.dtype not in _FLOATS or not max(abs(low), abs(high), high - low) < largest:
            return None
        if self.wide:
            numbers = [low, high - low, high, low]
        else:
            a, b = _single(low), _single(high)
            numbers = [a, _single(b - a), self.rounded(high), self.rounded(low)]
        return self.wide, [float_word(v) for v in numbers]

    def rounded(self, value: float) -> float:
        """A number as the dtype holds it, rounding through float32."""
        value = _single(value)
        if self.dtype is dt.float16:
            return float(struct.unpack("<e", struct.pack("<e", value))[0])
        if self.dtype is dt.bfloat16:
            bits = struct.unpack("<I", struct.pack("<f", value))[0]
            bits = (bits + 0x7FFF + (bits >> 16 & 1)) & 0xFFFF0000
            return float(struct.unpack("<f", struct.pack("<I", bits))[0])
        return value

    def normal(self, mean: float, std: float) -> tuple[bool, Words] | None:
        if self.dtype not in _FLOATS or self.n < 16 or not self.meta.contiguous or not std >= 0:
            return None
        if not max(abs(mean), std) < 1e38:
            return None
        return self.wide, [float_word(float(mean)), float_word(float(std))]

    def bernoulli(self, p: float, _: float) -> tuple[bool, Words] | None:
        if not 0 <= p <= 1 or not (self.dtype in _FLOATS or self.dtype in _WHOLE):
            return None
        return True, [float_word(float(p))]

    def exponential(self, rate: float, _: float) -> tuple[bool, Words] | None:
        if self.dtype not in _FLOATS or not rate > 0:
            return None
        return True, [float_word(-1.0 / rate)]

    def integers(self, first: float, second: float) -> tuple[bool, Words] | None:
        if math.isnan(second) or self.dtype not in _WHOLE:
            return None
        low = 0 if math.isnan(first) else int(first)
        high = int(second)
        least, most = _WHOLE[self.dtype]
        if not least <= low < high <= most + 1 or high - low >= 2**63:
            return None
        return high - low >= _WIDE_RANGE, [low, high - low]

    def permutation(self, _: float, __: float) -> tuple[bool, Words] | None:
        return (False, []) if self.dtype is dt.int64 and 1 < self.n < _MANY else None


_PLANS: dict[str, Any] = {
    "uniform": DrawAlike.uniform,
    "normal": DrawAlike.normal,
    "bernoulli": DrawAlike.bernoulli,
    "exponential": DrawAlike.exponential,
    "integers": DrawAlike.integers,
    "permutation": DrawAlike.permutation,
}


@rule("draw")
def draw(node: Node) -> Any:
    meta: TensorMeta = node.outputs[0].meta
    native = node.args[1] in _PLANS and meta.is_dense and meta.dtype.category != dt.COMPLEX
    return DrawAlike(node, meta) if native else None


# ---- a parameter for each element ----------------------------------------------------------------


class DrawBernoulli(Draw):
    """`draw_each` of zeros and ones; float64 probabilities are compared in float64."""

    def plan(self, inputs: Sequence[Any]) -> tuple[Fill, Words, int] | None:
        form = Fill(rf.BERNOULLI_EACH, self.dtype.name, self.dtype is dt.float64)
        return form, [], address_of(inputs[0])


@rule("draw_each")
def draw_each(node: Node) -> Any:
    meta: TensorMeta = node.outputs[0].meta
    same = node.args[0].meta is meta and meta.contiguous and meta.dtype in _FLOATS
    return DrawBernoulli(node, meta) if same and node.args[1] == "bernoulli" else None


# ---- from counters -------------------------------------------------------------------------------


@rule("counted_draw")
def counted_draw(node: Node) -> Any:
    """Element-wise code like any other, alone here."""
    graph = Graph()
    graph.inputs, graph.nodes, graph.outputs = [node.args[0]], [node], node.outputs
    return fused_kernel(graph) if node.outputs[0].meta.numel else None


# ---- categories by weight ------------------------------------------------------------------------


class DrawCategories(Draw):
    """Largest weight / exponential first: the winners of a race are a sample."""

    def __call__(self, inputs: Sequence[Any], outputs: Sequence[Any]) -> None:
        engine: Any = getattr(inputs[-1], "_engine", None)
        if not self.n or not hasattr(engine, "native_state"):
            self.reference()(inputs, outputs)
            return
        wide = self.dtype is dt.float64
        kind = np.dtype(np.float64 if wide else np.float32)
        clocks = np.empty(self.meta.shape, kind)
        form = Fill(rf.EXPONENTIAL, self.dtype.name, True)
        start = int(clocks.__array_interface__["data"][0])
        self.fill(inputs[-1], start, form, [float_word(-1.0)], 0)
        weights = _array(inputs[0])
        with np.errstate(all="ignore"):
            speed = np.divide(weights, clocks, out=clocks)
        count: int = self.node.args[1]
        target = _array(outputs[0])
        if count == 1:
            target[...] = np.argmax(speed, axis=-1)[..., None]
        else:
            order = np.argsort(-speed, axis=-1, kind="stable")
            target[...] = order[..., :count]


def _array(t: Any) -> np.ndarray[Any, Any]:
    """A tensor's memory as an array."""
    meta: TensorMeta = t._meta
    return array_over(address_of(t), tuple(meta.shape), meta.dtype.storage, meta.byte_strides, t)


@rule("draw_categories")
def draw_categories(node: Node) -> Any:
    meta: TensorMeta = node.args[0].meta
    raced = not node.args[2] or node.args[1] == 1
    plain = meta.dtype in (dt.float32, dt.float64)
    return DrawCategories(node, meta) if raced and plain else None
