"""Random functional graphs: small tensors, many dtypes, constants, views, copies, writes."""

from __future__ import annotations

import random
from typing import Any

import lucerne
from lucerne._src.base import layout as lo
from lucerne._src.ir import op as op_
from lucerne._src.ir.graph import Graph, Node, Value, operands, verify
from lucerne._src.transforms import interpret
from lucerne._src.transforms.interpret import blank
from lucerne._src.transforms.rewrite import result_metas
from tests.transforms.tracing import CPU, meta

SHAPES = [(), (1,), (3,), (2, 3), (1, 3), (2, 1), (2, 2), (0, 3)]
DTYPES = [lucerne.float32, lucerne.float32, lucerne.float64, lucerne.bfloat16, lucerne.int64,
          lucerne.int32, lucerne.bool, lucerne.float16]  # fmt: skip
NUMBERS = [0, 1, -1, 2, 0.0, -0.0, 1.0, 0.5, True, False, float("nan"), float("inf")]
UNARY = ["neg", "relu", "abs", "exp", "floor", "trunc", "sqrt", "logical_not", "isnan"]
BINARY = ["add2", "sub2", "mul", "true_divide", "maximum", "minimum", "eq", "lt", "logical_and"]
FOLDS = ["sum", "amax", "amin", "any_dims"]


class Maker:
    """Writes one random graph."""

    def __init__(self, seed: int, draws: bool = False) -> None:
        self.rng = random.Random(seed)
        self.graph = Graph()
        self.pool: list[Value] = []
        self.draws = draws

    def make(self, size: int) -> Graph:
        rng = self.rng
        for _ in range(rng.randint(1, 4)):
            self.pool.append(self.graph.input(meta(*rng.choice(SHAPES), dtype=rng.choice(DTYPES))))
        for _ in range(size):
            self.step()
        made = self.pool[len(self.graph.inputs) :] or self.pool
        self.graph.outputs = tuple(rng.choice(made) for _ in range(rng.randint(1, 4)))
        for v in self.graph.inputs:
            fitting = [w for w in made if w.meta is v.meta and w is not v]
            if fitting and rng.random() < 0.3:
                self.graph.writes.append((v, rng.choice(fitting)))
        verify(self.graph)
        return self.graph

    def step(self) -> None:
        name, args = self.rng.choice(self.steps)(self)
        op = op_.get(name)
        try:
            outputs = tuple(map(self.graph.value, result_metas(op, args)))
            interpret.run_node(
                Node(op, args, outputs), {v.index: blank(v.meta) for v in operands(args)}
            )
        except (RuntimeError, IndexError, TypeError, NotImplementedError):
            return  # no such call
        self.graph.nodes.append(Node(op, args, outputs))
        self.pool += outputs

    def any(self) -> Value:
        late = self.pool[-4:] if self.rng.random() < 0.5 else self.pool
        return self.rng.choice(late)

    def operand(self) -> Any:
        return self.rng.choice(NUMBERS) if self.rng.random() < 0.3 else self.any()

    def unary(self) -> Any:
        return self.rng.choice(UNARY), (self.any(),)

    def binary(self) -> Any:
        a, b = self.any(), self.operand()
        pair = (a, b) if self.rng.random() < 0.7 else (b, a)
        return self.rng.choice(BINARY), pair

    def scaled(self) -> Any:
        return "add_scaled", (self.any(), self.any(), self.rng.choice([1, -1, 2, 1.0, 0.5]))

    def choice(self) -> Any:
        condition = next((v for v in self.pool[::-1] if v.meta.dtype is lucerne.bool), self.any())
        return "choose", (condition, self.operand(), self.operand())

    def constant(self) -> Any:
        shape, dtype = self.rng.choice(SHAPES), self.rng.choice(DTYPES)
        value = self.rng.choice([0, 1, 2, True])
        if dtype.is_floating_point:
            value = self.rng.choice([0.0, -0.0, 1.0, 0.5, 1e-3])
        return "filled", (shape, value, dtype, CPU, None)

    def count(self) -> Any:
        args = (self.rng.randint(-2, 3), self.rng.randint(1, 3), 3, lucerne.int64, CPU)
        return "counted", args

    def cast(self) -> Any:
        return "cast", (self.any(), self.rng.choice(DTYPES))

    def clone(self) -> Any:
        return "clone_as", (self.any(), self.rng.choice([lo.preserve_format, lo.contiguous_format]))

    def copy(self) -> Any:
        return "copy", (self.any(), self.operand())

    def fold(self) -> Any:
        v, name = self.any(), self.rng.choice(FOLDS)
        dim = tuple(self.rng.sample(range(v.meta.ndim), self.rng.randint(0, v.meta.ndim)))
        keep = self.rng.random() < 0.5
        return name, (v, dim, keep, None) if name == "sum" else (v, dim, keep)

    def join(self) -> Any:
        v = self.any()
        alike = [
            w for w in self.pool if w.meta.dtype is v.meta.dtype and w.meta.ndim == v.meta.ndim
        ]
        parts = tuple(self.rng.choice(alike) for _ in range(self.rng.randint(1, 3)))
        return "cat", (parts, 0)

    def pad(self) -> Any:
        v = self.any()
        zero, some = (0,) * v.meta.ndim, (self.rng.randint(0, 1),) * v.meta.ndim
        return "padded", (v, 0, zero, some, zero)

    def view(self) -> Any:
        v = self.any()
        shape, ndim = tuple(v.meta.shape), v.meta.ndim
        spread = tuple(n if n != 1 else self.rng.choice([1, 3]) for n in shape)
        order = tuple(self.rng.sample(range(ndim), ndim))
        choices = [
            ("view", (v, shape)), ("view", (v, (-1,))), ("view", (v, (1, *shape))),
            ("expand", (v, spread)), ("expand", (v, (2, *spread))), ("permute", (v, order)),
            ("unsqueeze", (v, self.rng.randint(0, ndim))), ("squeeze", (v, None)),
            ("alias", (v,)), ("t", (v,)), ("as_strided", (v, shape, v.meta.strides, 0)),
        ]  # fmt: skip
        if ndim:
            choices += [
                ("transpose", (v, 0, ndim - 1)),
                ("ops.aten.slice", (v, 0, self.rng.randint(0, 1), None, 1)),
                ("split_with_sizes", (v, (shape[0],), 0)),
            ]
        return self.rng.choice(choices)

    steps = (unary, unary, binary, binary, binary, scaled, choice, constant, constant, count, cast,
             cast, clone, copy, fold, fold, join, pad, view, view, view, view)  # fmt: skip


def program(seed: int, size: int = 14) -> Graph:
    return Maker(seed).make(size)
