"""Bodies of pointwise ops as ONNX nodes: the scalar protocol on whole tensors (ONNX broadcasts)."""

from __future__ import annotations

import math
from typing import Any

from lucerne._src.base import dtype as dt
from lucerne._src.ir.scalar.typed import Typed, TypedNum
from lucerne.export.onnx.errors import NotExpressibleError

_INSTRUCTIONS = {
    "add": "Add", "sub": "Sub", "mul": "Mul", "div": "Div", "neg": "Neg", "quotient": "Div",
    "pow": "Pow", "abs": "Abs", "floor": "Floor", "ceil": "Ceil", "round": "Round", "sqrt": "Sqrt",
    "exp": "Exp", "log": "Log", "sin": "Sin", "cos": "Cos", "tan": "Tan", "atan": "Atan",
    "tanh": "Tanh", "erf": "Erf", "lt": "Less", "le": "LessOrEqual", "eq": "Equal",
    "where": "Where", "asin": "Asin", "acos": "Acos", "sinh": "Sinh", "cosh": "Cosh",
    "asinh": "Asinh", "acosh": "Acosh", "atanh": "Atanh", "bit_and": "BitwiseAnd",
    "bit_or": "BitwiseOr", "bit_xor": "BitwiseXor", "bit_not": "BitwiseNot",
}  # fmt: skip
"""An instruction of the protocol as an ONNX operator of the same meaning."""
_OF_BOOLS = {"bit_and": "And", "bit_or": "Or", "bit_xor": "Xor", "bit_not": "Not", "eq": "Equal"}
_COMPARISONS = ("lt", "le", "eq")
_ENGINES_HAVE = (dt.int32, dt.int64)
"""Integers that engines have arithmetic for; others are computed in int64 and wrapped."""
_LANCZOS = (
    676.5203681218851, -1259.1392167224028, 771.32342877765313, -176.61502916214059,
    12.507343278686905, -0.13857109526572012, 9.9843695780195716e-6, 1.5056327351493116e-7,
)  # fmt: skip


class OnnxMachine(Typed):
    """Writes an instruction as a node."""

    def __init__(self, out: Any) -> None:
        self.out = out
        """The `Writer` that nodes are written by (which makes the machine)."""

    def has(self, name: str) -> bool:
        return name in _INSTRUCTIONS or name in ("fmod", "rest", "trunc", "atan2", "lgamma")

    def emit(self, name: str, dtype: dt.dtype, *operands: Any) -> str:
        if dtype is dt.bool_:
            return self._of_bools(name, *operands)
        if dtype.category == dt.INTEGER and dtype not in _ENGINES_HAVE:
            return self._widened(name, dtype, operands)
        special = getattr(type(self), f"_{name}_node", None)
        if special is not None:
            made: str = special(self, dtype, *operands)
            return made
        if name not in _INSTRUCTIONS:
            raise NotExpressibleError(f"ONNX has no {name} of {dtype.name}")
        return self.out.node(_INSTRUCTIONS[name], operands)

    def _of_bools(self, name: str, *operands: str) -> str:
        out = self.out
        if name == "where":  # engines have none of bools
            condition, yes, no = operands
            other = out.node("And", [out.node("Not", [condition]), no])
            return out.node("Or", [out.node("And", [condition, yes]), other])
        if name in ("lt", "le"):
            a, b = (out.cast(x, dt.int32) for x in operands)
            return out.node(_INSTRUCTIONS[name], [a, b])
        if name not in _OF_BOOLS:
            raise NotExpressibleError(f"ONNX has no {name} of bools")
        return out.node(_OF_BOOLS[name], operands)

    def _widened(self, name: str, dtype: dt.dtype, operands: tuple[str, ...]) -> str:
        """In int64, then wrapped."""
        if dtype is dt.uint64 and name in ("lt", "le", "quotient", "rest", "shift_right"):
            raise NotExpressibleError(f"{name} of uint64, which engines have not")
        wide = [
            x if k == 0 and name == "where" else self.out.cast(x, dt.int64)
            for k, x in enumerate(operands)
        ]
        made = self.emit(name, dt.int64, *wide)
        return made if name in _COMPARISONS else self.out.cast(made, dtype)

    # ---- instructions that are several nodes ---------------------------------------------------

    def _fmod_node(self, dtype: dt.dtype, a: str, b: str) -> str:
        return self.out.node("Mod", [a, b], fmod=1)

    _rest_node = _fmod_node

    def _trunc_node(self, dtype: dt.dtype, x: str) -> str:
        out = self.out
        down = out.node("Less", [x, out.constant(0, dtype)])
        return out.node("Where", [down, out.node("Ceil", [x]), out.node("Floor", [x])])

    def _atan2_node(self, dtype: dt.dtype, y: str, x: str) -> str:
        out = self.out
        zero = out.constant(0, dtype)
        plain = out.node("Atan", [out.node("Div", [y, x])])
        # 1/y is -inf for -0.0: the sign of zero decides on which side of the cut it lies
        one = out.constant(1, dtype)
        below = out.node("Or", [
            out.node("Less", [y, zero]),
            out.node("And", [
                out.node("Equal", [y, zero]),
                out.node("Less", [out.node("Div", [one, y]), zero]),
            ]),
        ])  # fmt: skip
        turn = out.node(
            "Where", [below, out.constant(-math.pi, dtype), out.constant(math.pi, dtype)]
        )
        behind = out.node("Less", [x, zero])
        made = out.node("Where", [behind, out.node("Add", [plain, turn]), plain])
        both = out.node("And", [out.node("Equal", [x, zero]), out.node("Equal", [y, zero])])
        behind = out.node("Less", [out.node("Div", [one, x]), zero])
        at_zero = out.node("Where", [behind, turn, y])
        return out.node("Where", [both, at_zero, made])

    def _lgamma_node(self, dtype: dt.dtype, x: str) -> str:
        """Lanczos for x >= 1/2, below by the reflection with the sine."""
        out = self.out
        half, one = out.constant(0.5, dtype), out.constant(1, dtype)
        small = out.node("Less", [x, half])
        above = self._log_gamma_above(dtype, out.node("Where", [
            small, out.node("Sub", [one, x]), x]))  # fmt: skip
        pi = out.constant(math.pi, dtype)
        part = out.node("Sub", [x, out.node("Floor", [x])])
        sine = out.node("Abs", [out.node("Sin", [out.node("Mul", [part, pi])])])
        cut = out.node("Log", [out.node("Div", [pi, sine])])
        return out.node("Where", [small, out.node("Sub", [cut, above]), above])

    def _log_gamma_above(self, dtype: dt.dtype, x: str) -> str:
        out = self.out
        z, total = (
            out.node("Sub", [x, out.constant(1, dtype)]),
            out.constant(0.99999999999980993, dtype),
        )
        for k, g in enumerate(_LANCZOS):
            below = out.node("Add", [z, out.constant(k + 1.0, dtype)])
            total = out.node("Add", [total, out.node("Div", [out.constant(g, dtype), below])])
        t = out.node("Add", [z, out.constant(7.5, dtype)])
        first = out.node(
            "Mul", [out.node("Add", [z, out.constant(0.5, dtype)]), out.node("Log", [t])]
        )
        first = out.node("Add", [first, out.constant(0.91893853320467274, dtype)])
        return out.node("Add", [out.node("Sub", [first, t]), out.node("Log", [total])])

    def _shift_left_node(self, dtype: dt.dtype, x: str, count: str) -> str:
        return self.out.node("Mul", [x, self._power_of_two(dtype, count)])

    def _shift_right_node(self, dtype: dt.dtype, x: str, count: str) -> str:
        power = self._power_of_two(dtype, count)
        rest = self.out.node("Mod", [x, power])  # as Python has it: the quotient rounds down
        return self.out.node("Div", [self.out.node("Sub", [x, rest]), power])

    def _power_of_two(self, dtype: dt.dtype, count: str) -> str:
        return self.out.node("Pow", [self.out.constant(2, dtype), count])

    # ---- the rest of the protocol ----------------------------------------------------------------

    def is_nan(self, x: Any) -> TypedNum:
        [num] = self._together(x)
        if num.im is not None:
            raise NotExpressibleError("ONNX has no complex numbers")
        if num.dtype.category < dt.FLOAT:
            return TypedNum(dt.bool_, self.out.constant(False, dt.bool_))
        return TypedNum(dt.bool_, self.out.node("IsNaN", [num.re]))

    def constant(self, value: Any, dtype: dt.dtype) -> str:
        return self.out.constant(value, dtype)

    def convert(self, value: str, source: dt.dtype, target: dt.dtype) -> str:
        return self.out.cast(value, target)

    def widen(self, stored: str, dtype: dt.dtype) -> str:
        return self.out.cast(stored, dtype.compute)

    def narrow(self, value: str, dtype: dt.dtype) -> str:
        return self.out.cast(value, dtype)

    def pair(self, re: Any, im: Any) -> TypedNum:
        raise NotExpressibleError("ONNX has no complex numbers")

    complex = pair

    def __getattr__(self, name: str) -> Any:
        try:
            return super().__getattr__(name)
        except NotImplementedError:
            raise NotExpressibleError(f"ONNX has no function {name!r}") from None
