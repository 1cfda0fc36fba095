"""Numbers in registers: a dtype with its LLVM value (two when complex), and conversions."""

from __future__ import annotations

from typing import Any

import numpy as np

from lucerne._src.backends.cpu.emit.builder import F32, I32, I64, LLVMFunction, LLVMValue
from lucerne._src.backends.cpu.math.storage import COMPUTED
from lucerne._src.base import dtype as dt


class NotTaken(NotImplementedError):  # noqa: N818 - not an error: a case left to others
    """The engine can't express this: the rule that asked returns None, the reference runs it."""


class Num:
    """A value of the machine: `re` and, when complex, `im`; `dtype` is a compute dtype.

    `weak` marks a number given at run time that promotes as a Python number does. `uniform` says
    that all lanes hold the same number: some functions then look at it once.
    """

    __slots__ = ("dtype", "im", "re", "uniform", "weak")

    def __init__(
        self,
        dtype: dt.dtype,
        re: LLVMValue,
        im: LLVMValue | None = None,
        *,
        weak: bool = False,
        uniform: bool = False,
    ) -> None:
        self.dtype, self.re, self.im, self.weak, self.uniform = dtype, re, im, weak, uniform

    def __repr__(self) -> str:
        return f"Num({self.dtype.name}, {self.re!r}{'' if self.im is None else f', {self.im!r}'})"


def common_dtype(*operands: Any) -> dt.dtype:
    """NumPy's common type: Python numbers (and weak ones) bend to the other operands."""
    return dt.from_numpy_dtype(np.result_type(*[_promoting(x) for x in operands]))


_PYTHON = {dt.BOOL: False, dt.INTEGER: 0, dt.FLOAT: 0.0, dt.COMPLEX: 0j}


def _promoting(x: Any) -> Any:
    if isinstance(x, Num):
        return _PYTHON[x.dtype.category] if x.weak else x.dtype.storage
    return _PYTHON[_category(x)]


def _category(x: Any) -> int:
    if isinstance(x, (bool, np.bool_)):
        return dt.BOOL
    if isinstance(x, (int, np.integer)):
        return dt.INTEGER
    return dt.FLOAT if isinstance(x, (float, np.floating)) else dt.COMPLEX


def constant(f: LLVMFunction, x: Any, dtype: dt.dtype, lanes: int) -> Num:
    """A Python number in every lane, as C converts it."""
    type = COMPUTED[dtype].vector(lanes)
    if dtype.category == dt.COMPLEX:
        z = complex(x)
        return Num(dtype, f.constant(z.real, type), f.constant(z.imag, type), uniform=True)
    if isinstance(x, (complex, np.complexfloating)):
        x = x.real
    if dtype is dt.bool_:
        return Num(dtype, f.constant(int(bool(x)), type), uniform=True)
    if dtype.category == dt.INTEGER:
        kept = int(x) & ((1 << type.bits) - 1)
        return Num(
            dtype, f.constant(kept - (kept >> (type.bits - 1) << type.bits), type), uniform=True
        )
    return Num(dtype, f.constant(float(x), type), uniform=True)


# ---- conversion ---------------------------------------------------------------------------------


def cast(f: LLVMFunction, x: Num, dtype: dt.dtype) -> Num:
    """The value as another compute dtype, with C's meaning (complex to real drops `im`)."""
    if x.dtype is dtype:
        return x if not x.weak else Num(dtype, x.re, x.im, uniform=x.uniform)
    if dtype.category == dt.COMPLEX:
        part = COMPUTED[dtype]
        re = cast_real(f, x.re, _real(x.dtype), dtype.to_real())
        im = f.zero(part.vector(re.type.lanes))
        if x.im is not None:
            im = cast_real(f, x.im, _real(x.dtype), dtype.to_real())
        return Num(dtype, re, im, uniform=x.uniform)
    if x.im is not None and dtype is dt.bool_:
        either = cast_real(f, x.re, _real(x.dtype), dtype) | cast_real(
            f, x.im, _real(x.dtype), dtype
        )
        return Num(dtype, either, uniform=x.uniform)
    return Num(dtype, cast_real(f, x.re, _real(x.dtype), dtype), uniform=x.uniform)


def _real(dtype: dt.dtype) -> dt.dtype:
    return dtype.to_real() if dtype.category == dt.COMPLEX else dtype


def cast_real(f: LLVMFunction, v: LLVMValue, source: dt.dtype, target: dt.dtype) -> LLVMValue:
    """One part converted."""
    if source is target:
        return v
    if target is dt.bool_:
        return f.compare("ne", v, f.zero(v.type) if not v.type.is_float else 0.0)
    type = COMPUTED[target].vector(v.type.lanes)
    if source is dt.bool_:
        if target.category == dt.FLOAT:
            return f.select(v, f.constant(1.0, type), 0.0)
        return f.convert("zext", v, type)
    if source.category == dt.INTEGER:
        if target.category == dt.FLOAT:
            return f.convert("sitofp" if source.is_signed else "uitofp", v, type)
        if type.bits == v.type.bits:
            return v
        wider = "sext" if source.is_signed else "zext"
        return f.convert("trunc" if type.bits < v.type.bits else wider, v, type)
    if target.category == dt.FLOAT:
        return f.convert("fpext" if type.bits > v.type.bits else "fptrunc", v, type)
    return _float_to_int(f, v, target)


def _float_to_int(f: LLVMFunction, v: LLVMValue, target: dt.dtype) -> LLVMValue:
    """Truncate; what does not fit wraps through int64 as x86 code does (nan: the least integer)."""
    type = COMPUTED[target].vector(v.type.lanes)
    if target is dt.uint64:
        return _float_to_uint64(f, v)
    if type.bits == 8 and v.type.element is F32:
        # Beyond int32 a float32 is a multiple of 256, or has no bits down there at all.
        return f.convert("trunc", _in_range(f, v, 31, I32, 0), type)
    if target is dt.int32 and v.type.element is F32:
        return _in_range(f, v, 31, I32, -(1 << 31))
    whole = _in_range(f, v, 63, I64, -(1 << 63))
    return f.convert("trunc", whole, type)


def _in_range(f: LLVMFunction, v: LLVMValue, bits: int, type: Any, otherwise: int) -> LLVMValue:
    """fptosi where the value fits `bits` and a sign, a fixed number elsewhere."""
    bound = 2.0**bits
    inside = f.compare("ge", v, -bound) & f.compare("lt", v, bound)
    whole = f.convert("fptosi", f.select(inside, v, 0.0), type)
    return f.select(inside, whole, otherwise)


def _float_to_uint64(f: LLVMFunction, v: LLVMValue) -> LLVMValue:
    """Values from 2 ** 63 on are taken down by it, converted, and taken up again."""
    high = f.compare("ge", v, 2.0**63)
    low = _in_range(f, f.select(high, v - 2.0**63, v), 63, I64, -(1 << 63))
    return f.select(high, low ^ f.constant(-(1 << 63), low.type), low)
