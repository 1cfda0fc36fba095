"""One ONNX graph being written: nodes, constants, and formulas of sizes."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from lucerne._src.base import dtype as dt
from lucerne._src.ir.symbolic.expressions import Expr, FloatExpr
from lucerne.export.onnx.errors import NotExpressibleError
from lucerne.export.onnx.machine import OnnxMachine
from lucerne.export.onnx.packages import onnx_package
from lucerne.export.onnx.types import code_of, proto

_SHARED = 64
"""Constants of at most so many elements are written once."""
_SIZES = {"minimum": "Min", "maximum": "Max"}
_FLOATS = {
    "add": "Add", "sub": "Sub", "mul": "Mul", "truediv": "Div", "neg": "Neg", "abs": "Abs",
    "fabs": "Abs", "sqrt": "Sqrt", "exp": "Exp", "log": "Log", "fpow": "Pow", "pow": "Pow",
    "fmax": "Max",
}  # fmt: skip


class Writer:
    """Nodes in order, constants by name, and which names sizes have."""

    def __init__(self, opset: int) -> None:
        self.opset = opset
        self.nodes: list[Any] = []
        self.initializers: dict[str, Any] = {}
        self.machine = OnnxMachine(self)
        self.sizes: dict[str, str] = {}
        """By symbol: the name of an int64 tensor of shape [1]."""
        self.taken: set[str] = set()
        self._known: dict[Any, str] = {}
        self._count = 0

    def fresh(self, prefix: str = "v") -> str:
        self._count += 1
        while f"{prefix}{self._count}" in self.taken:
            self._count += 1
        return f"{prefix}{self._count}"

    def node(self, kind: str, inputs: Iterable[str], **attributes: Any) -> str:
        """A node with one result; one that was written before is taken again."""
        inputs = list(inputs)
        key = (kind, *inputs, repr(attributes))
        if key not in self._known:
            self._known[key] = self.several(kind, inputs, 1, **attributes)[0]
        return self._known[key]

    def several(self, kind: str, inputs: Sequence[str], count: int, **attributes: Any) -> list[str]:
        names = [self.fresh() for _ in range(count)]
        made = onnx_package().helper.make_node(kind, list(inputs), names, **attributes)
        self.nodes.append(made)
        return names

    # ---- constants -------------------------------------------------------------------------------

    def initializer(self, array: Any, name: str = "") -> str:
        array = np.asarray(array, order="C")
        key = None
        if array.size <= _SHARED and not name:
            key = ("constant", array.dtype.str, array.shape, array.tobytes())
            if key in self._known:
                return self._known[key]
        name = name or self.fresh("c")
        self.initializers[name] = proto(array, name)
        if key is not None:
            self._known[key] = name
        return name

    def constant(self, value: Any, dtype: dt.dtype) -> str:
        """A number without dimensions."""
        code_of(dtype)
        if dtype in (dt.float16, dt.bfloat16):
            return self.cast(self.initializer(np.array(value, np.float32)), dtype)
        with np.errstate(all="ignore"):
            storage = np.bool_ if dtype is dt.bool_ else dtype.storage
            return self.initializer(np.array(value).astype(storage))

    def cast(self, name: str, dtype: dt.dtype) -> str:
        return self.node("Cast", [name], to=code_of(dtype))

    # ---- sizes -----------------------------------------------------------------------------------

    def ints(self, values: Iterable[Any]) -> str:
        """A list of numbers, some of them formulas of sizes, as an int64 tensor."""
        values = list(values)
        if not any(isinstance(v, Expr) for v in values):
            return self.initializer(np.array(values, np.int64))
        return self.node("Concat", [self.size(v) for v in values], axis=0)

    def size(self, v: Any) -> str:
        """A number or a formula as an int64 tensor of shape [1]."""
        if not isinstance(v, Expr):
            return self.initializer(np.array([v], np.int64))
        total = None
        for monomial, coefficient in v.terms.items():
            term = self.size(coefficient) if coefficient != 1 or not monomial else None
            for atom in monomial:
                made = self._atom(atom)
                term = made if term is None else self.node("Mul", [term, made])
            assert term is not None
            total = term if total is None else self.node("Add", [total, term])
        return self.size(0) if total is None else total

    def scalar(self, v: Any) -> str:
        """The same without dimensions."""
        if not isinstance(v, Expr):
            return self.initializer(np.array(v, np.int64))
        return self.node("Squeeze", [self.size(v), self.ints([0])])

    def _atom(self, atom: Any) -> str:
        if atom.op == "symbol":
            return self.sizes[atom.name]
        parts = [self.size(a) for a in atom.args]
        if atom.op == "modulo":
            return self.node("Mod", parts)
        if atom.op == "floordiv":  # Div cuts off: the rest is taken away first
            rest = self.node("Mod", parts)
            return self.node("Div", [self.node("Sub", [parts[0], rest]), parts[1]])
        if atom.op not in _SIZES:
            raise NotExpressibleError(f"a size that is {atom}")
        return self.node(_SIZES[atom.op], parts)

    def float_of(self, v: Any) -> str:
        """A float that follows from sizes, in float64 without dimensions."""
        if isinstance(v, Expr):
            return self.cast(self.scalar(v), dt.float64)
        if not isinstance(v, FloatExpr):
            return self.constant(float(v), dt.float64)
        parts = [self.float_of(a) for a in v.args]
        if v.op == "float":
            return parts[0]
        if v.op not in _FLOATS:
            raise NotExpressibleError(f"a number that is {v}")
        return self.node(_FLOATS[v.op], parts)

    def positions(self, sizes: Sequence[Any], strides: Sequence[Any], offset: Any) -> str:
        """Where the elements of a view lie in a memory, as an int64 tensor of its shape."""
        if not any(isinstance(x, Expr) for x in (*sizes, *strides, offset)):
            found = np.full(sizes, offset, np.int64)
            for d, (n, s) in enumerate(zip(sizes, strides, strict=True)):
                shape = [-1 if k == d else 1 for k in range(len(sizes))]
                found = found + (np.arange(n, dtype=np.int64) * s).reshape(shape)
            return self.initializer(found)
        total = self.scalar(offset)
        for d, (n, s) in enumerate(zip(sizes, strides, strict=True)):
            along = self.node("Mul", [self.counted(n), self.scalar(s)])
            shape = [-1 if k == d else 1 for k in range(len(sizes))]
            total = self.node("Add", [total, self.node("Reshape", [along, self.ints(shape)])])
        return total

    def counted(self, length: Any) -> str:
        """0, 1, ... as int64."""
        if not isinstance(length, Expr):
            return self.initializer(np.arange(length, dtype=np.int64))
        zero, one = (self.initializer(np.array(k, np.int64)) for k in (0, 1))
        return self.node("Range", [zero, self.scalar(length), one])

    def shape(self, name: str, start: int = 0, end: int | None = None) -> str:
        """The sizes of a tensor from one dimension to another."""
        return self.node("Shape", [name], start=start, **({} if end is None else {"end": end}))
