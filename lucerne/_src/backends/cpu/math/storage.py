"""Between memory and registers: what a dtype looks like stored, and as it is computed with.

`unpack` takes the stored lanes to the compute form, `pack` rounds back. Stored forms: bool is i8
(0 or 1), bfloat16 i16, the float8 types i8, complex a vector of twice the lanes (re, im, re, ...).
"""

from __future__ import annotations

from lucerne._src.backends.cpu.emit.builder import (
    F16,
    F32,
    F64,
    I1,
    I8,
    I32,
    I64,
    LLVMFunction,
    LLVMValue,
)
from lucerne._src.backends.cpu.emit.target import HOST
from lucerne._src.backends.cpu.emit.types import BF16, I16, Type
from lucerne._src.base import dtype as dt

STORED: dict[dt.dtype, Type] = {
    dt.bool_: I8, dt.uint8: I8, dt.int8: I8, dt.uint16: I16, dt.int16: I16, dt.uint32: I32,
    dt.int32: I32, dt.uint64: I64, dt.int64: I64, dt.float16: F16, dt.bfloat16: I16,
    dt.float32: F32, dt.float64: F64, dt.complex32: F16, dt.complex64: F32, dt.complex128: F64,
    dt.float8_e4m3fn: I8, dt.float8_e5m2: I8, dt.float8_e4m3fnuz: I8, dt.float8_e5m2fnuz: I8,
    dt.float8_e8m0fnu: I8,
}  # fmt: skip
"""The LLVM type of one stored number (of each part, when complex)."""

COMPUTED: dict[dt.dtype, Type] = {
    dt.bool_: I1, dt.uint8: I8, dt.int8: I8, dt.uint16: I16, dt.int16: I16, dt.uint32: I32,
    dt.int32: I32, dt.uint64: I64, dt.int64: I64, dt.float32: F32, dt.float64: F64,
    dt.complex64: F32, dt.complex128: F64,
}  # fmt: skip
"""The LLVM type of one number (of each part) in registers, by compute dtype."""


def unpack(f: LLVMFunction, dtype: dt.dtype, v: LLVMValue) -> LLVMValue:
    """Stored lanes (of one part, when complex) in the compute form."""
    if dtype is dt.bool_:
        return f.compare("ne", v, f.zero(v.type))
    if dtype in (dt.float16, dt.complex32):
        return f.convert("fpext", v, F32)
    if dtype is dt.bfloat16:
        return _bits_as_float(f, f.convert("zext", v, I32) << 16)
    if dtype in _FLOAT8:
        return _unpack_float8(f, dtype, v)
    if dtype is dt.float8_e8m0fnu:
        return _unpack_e8m0(f, v)
    return v


def pack(f: LLVMFunction, dtype: dt.dtype, v: LLVMValue) -> LLVMValue:
    """Compute lanes rounded to the stored form, ties to even."""
    if dtype is dt.bool_:
        return f.convert("zext", v, I8)
    if dtype in (dt.float16, dt.complex32):
        return f.convert("fptrunc", v, F16)
    if dtype is dt.bfloat16:
        return _pack_bfloat16(f, v)
    if dtype in _FLOAT8:
        return _pack_float8(f, dtype, v)
    if dtype is dt.float8_e8m0fnu:
        return _pack_e8m0(f, v)
    return v


def narrowed(f: LLVMFunction, v: LLVMValue, type: Type) -> LLVMValue:
    """Numbers as those of a narrower type, ties to even.

    Without instructions for bfloat16 LLVM would call a function of its own library, which a process
    doesn't have: such processors do it with integers.
    """
    if type.element is BF16 and not HOST.has("avx512_bf16"):
        return f.bitcast(_pack_bfloat16(f, v), BF16.vector(v.type.lanes))
    return f.convert("fptrunc", v, type)


def interleave(f: LLVMFunction, re: LLVMValue, im: LLVMValue) -> LLVMValue:
    """Lanes re, im, re, im, ..."""
    n = max(1, re.type.lanes)
    if n == 1:
        pair = f.insert(f.undefined(re.type.vector(2)), re, 0)
        return f.insert(pair, im, 1)
    return f.shuffle(re, im, [k // 2 + (n if k % 2 else 0) for k in range(2 * n)])


def deinterleave(f: LLVMFunction, v: LLVMValue) -> tuple[LLVMValue, LLVMValue]:
    """The even lanes and the odd ones."""
    n = v.type.lanes // 2
    if n == 1:
        return f.extract(v, 0), f.extract(v, 1)
    return f.shuffle(v, None, range(0, 2 * n, 2)), f.shuffle(v, None, range(1, 2 * n, 2))


def _bits_as_float(f: LLVMFunction, bits: LLVMValue) -> LLVMValue:
    return f.bitcast(bits, F32.vector(bits.type.lanes))


def _float_as_bits(f: LLVMFunction, v: LLVMValue) -> LLVMValue:
    return f.bitcast(v, I32.vector(v.type.lanes))


def _pack_bfloat16(f: LLVMFunction, v: LLVMValue) -> LLVMValue:
    """The upper half of the bits after adding half a unit (less one on even): any nan is 0x7FC0.

    (The hardware instruction takes denormals for zero.)
    """
    bits = _float_as_bits(f, v)
    odd = f.bits("lshr", bits, 16) & 1
    rounded = f.bits("lshr", bits + odd + 0x7FFF, 16)
    kept = f.select(f.compare("uno", v, v), f.constant(0x7FC0, bits.type), rounded)
    return f.convert("trunc", kept, I16)


# ---- float8 -------------------------------------------------------------------------------------

_FLOAT8 = {
    dt.float8_e4m3fn: (4, 3, 7, "fn"),
    dt.float8_e5m2: (5, 2, 15, "ieee"),
    dt.float8_e4m3fnuz: (4, 3, 8, "fnuz"),
    dt.float8_e5m2fnuz: (5, 2, 16, "fnuz"),
}
"""Exponent bits, mantissa bits, bias, and what the codes at the edge mean."""


def _unpack_float8(f: LLVMFunction, dtype: dt.dtype, v: LLVMValue) -> LLVMValue:
    _, mantissa, bias, special = _FLOAT8[dtype]
    wide = f.convert("zext", v, I32)
    size = wide & 0x7F
    moved = _bits_as_float(f, (size << (23 - mantissa)) + ((127 - bias) << 23))
    small = f.convert("sitofp", size, F32) * 2.0 ** (1 - bias - mantissa)
    found = f.select(f.compare("lt", size, 1 << mantissa), small, moved)
    nan = f.constant(float("nan"), found.type)
    if special == "fnuz":
        found = f.select(f.compare("eq", wide, 0x80), nan, found)
    elif special == "fn":
        found = f.select(f.compare("eq", size, 0x7F), nan, found)
    else:
        found = f.select(f.compare("eq", size, 0x7C), f.constant(float("inf"), found.type), found)
        found = f.select(f.compare("gt", size, 0x7C), nan, found)
    sign = (wide & 0x80) << 24
    return _bits_as_float(f, _float_as_bits(f, found) | sign)


def _pack_float8(f: LLVMFunction, dtype: dt.dtype, v: LLVMValue) -> LLVMValue:
    """Normal numbers round in their bits, smaller ones by adding a number with their last bit."""
    _, mantissa, bias, special = _FLOAT8[dtype]
    bits = _float_as_bits(f, v)
    sign = f.bits("lshr", bits, 24) & 0x80
    size = bits & 0x7FFFFFFF
    shift = 23 - mantissa
    odd = f.bits("lshr", size, shift) & 1
    normal = f.bits("lshr", size + odd + ((1 << (shift - 1)) - 1), shift)
    normal = normal - ((127 - bias) << mantissa)
    step = 2.0 ** (1 - bias - mantissa + 23)
    small = _float_as_bits(f, _bits_as_float(f, size) + step) & 0x7FFFFF
    least = (127 - bias + 1) << 23
    code = f.select(f.compare("lt", size, least), small, normal)
    limit = {"fn": 0x7E, "ieee": 0x7C, "fnuz": 0x80}[special]
    over = {"fn": 0x7E, "ieee": 0x7C, "fnuz": 0x80}[special]
    code = f.select(f.compare("ult", code, limit), code, f.constant(over, code.type))
    infinite = f.compare("uge", size, 0x7F800000)
    code = f.select(infinite, f.constant(over, code.type), code)
    if special == "fnuz":
        plain = f.compare("eq", code & 0x7F, 0)
        sign = f.select(plain, f.constant(0, sign.type), sign)
    code = code | sign
    nan_code = 0x80 if special == "fnuz" else 0x7F
    code = f.select(f.compare("uno", v, v), f.constant(nan_code, code.type), code)
    return f.convert("trunc", code, I8)


def _unpack_e8m0(f: LLVMFunction, v: LLVMValue) -> LLVMValue:
    wide = f.convert("zext", v, I32)
    found = f.select(f.compare("eq", wide, 0), f.constant(1 << 22, wide.type), wide << 23)
    found = f.select(f.compare("eq", wide, 255), f.constant(0x7FC00000, wide.type), found)
    return _bits_as_float(f, found)


def _pack_e8m0(f: LLVMFunction, v: LLVMValue) -> LLVMValue:
    """The exponent, rounded up from the middle (of denormals only above it)."""
    bits = _float_as_bits(f, v)
    exponent = f.bits("lshr", bits, 23) & 0xFF
    mantissa = bits & 0x7FFFFF
    least = f.select(f.compare("eq", exponent, 0), f.constant(0x400001, bits.type), 0x400000)
    up = f.convert("zext", f.compare("ge", mantissa, least), I32)
    code = f.minimum(exponent + up, 255)
    code = f.select(f.compare("uno", v, v), f.constant(255, code.type), code)
    return f.convert("trunc", code, I8)
