"""Pieces that vector functions are made of, on floats of any lane count (none: scalars).

Where the processor has AVX-512 its instructions for exponents and reciprocals are used on whole
registers; everywhere else arithmetic and bit operations do the same.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from lucerne._src.backends.cpu.emit.builder import F32, F64, I8, I32, LLVMFunction, LLVMValue
from lucerne._src.backends.cpu.emit.target import HOST
from lucerne._src.backends.cpu.emit.types import I16, Type, int_of


def has_special(type: Type) -> bool:
    """Whether AVX-512 has its exponent and reciprocal instructions for this vector."""
    return HOST.has_avx512 and bool(type.lanes) and type.nbytes in (16, 32, 64)


def _name(base: str, type: Type) -> str:
    return f"llvm.x86.avx512.{base}.{'ps' if type.element is F32 else 'pd'}.{type.nbytes * 8}"


def _mask_type(type: Type) -> Type:
    return I16 if type.lanes == 16 else I8


def halves(f: LLVMFunction, fn: Callable[..., LLVMValue], *args: LLVMValue) -> LLVMValue:
    """`fn` on the two halves of vectors wider than a register, joined again."""
    lanes = args[0].type.lanes
    low = [f.shuffle(a, None, range(lanes // 2)) for a in args]
    high = [f.shuffle(a, None, range(lanes // 2, lanes)) for a in args]
    return f.shuffle(fn(*low), fn(*high), range(lanes))


def too_wide(type: Type) -> bool:
    return HOST.has_avx512 and type.nbytes == 128


def rounded(c: float, digits: int = 24) -> float:
    """A constant with so many binary digits: those of a float32."""
    mantissa, exponent = math.frexp(c)
    return math.ldexp(round(mantissa * 2**digits), exponent - digits)


def absolute(f: LLVMFunction, x: LLVMValue) -> LLVMValue:
    return f.intrinsic("llvm.fabs", x.type, [x])


def copysign(f: LLVMFunction, size: Any, sign: LLVMValue) -> LLVMValue:
    return f.intrinsic("llvm.copysign", sign.type, [f.constant(size, sign.type), sign])


def nearest(f: LLVMFunction, x: LLVMValue) -> LLVMValue:
    """The nearest integer, ties to even."""
    return f.intrinsic("llvm.rint", x.type, [x])


def at_most(f: LLVMFunction, x: LLVMValue, bound: float) -> LLVMValue:
    """min(x, bound); nan stays."""
    return f.select(f.compare("gt", x, bound), f.constant(bound, x.type), x)


def at_least(f: LLVMFunction, x: LLVMValue, bound: float) -> LLVMValue:
    """max(x, bound); nan stays."""
    return f.select(f.compare("lt", x, bound), f.constant(bound, x.type), x)


def polynomial(f: LLVMFunction, x: LLVMValue, coefficients: Sequence[float]) -> LLVMValue:
    """Horner's scheme, highest power first."""
    total = f.constant(coefficients[0], x.type)
    for c in coefficients[1:]:
        total = f.fma(total, x, c)
    return total


def polynomial_pairs(
    f: LLVMFunction, x: LLVMValue, square: LLVMValue, coefficients: Sequence[float]
) -> LLVMValue:
    """As `polynomial`, even and odd powers apart: half as deep, for long ones."""
    odd = len(coefficients) % 2
    first, second = coefficients[odd::2], coefficients[1 - odd :: 2]
    # With an odd count the highest power is even: it belongs to the constant term's half.
    one, two = polynomial(f, square, first), polynomial(f, square, second)
    return f.fma(one, x, two)


def power_of_two(f: LLVMFunction, n: LLVMValue) -> LLVMValue:
    """2 ** n for an integral float n within the normal range."""
    kind = int_of(n.type)
    digits, bias = (23, 127) if n.type.element is F32 else (52, 1023)
    return f.bitcast((f.convert("fptosi", n, kind) + bias) << digits, n.type)


def scale(
    f: LLVMFunction,
    x: LLVMValue,
    n: LLVMValue,
    keep: LLVMValue | None = None,
    other: LLVMValue | None = None,
) -> LLVMValue:
    """x * 2 ** n for an integral float n of any size; `other` (zero) where `keep` is off.

    Lanes that are off do not compute: an underflow costs hundreds of cycles.
    """
    if has_special(x.type):
        return _scalef(f, x, n, keep, f.zero(x.type) if other is None else other)
    if keep is not None:
        n = f.select(keep, n, 0.0)
    kind = int_of(n.type)
    whole = f.convert("fptosi", n, kind)
    half = whole >> 1
    digits, bias = (23, 127) if n.type.element is F32 else (52, 1023)
    for part in (half, whole - half):
        x = x * f.bitcast((part + bias) << digits, x.type)
    return x if keep is None else f.select(keep, x, 0.0 if other is None else other)


def _scalef(
    f: LLVMFunction, x: LLVMValue, n: LLVMValue, keep: LLVMValue | None, other: LLVMValue
) -> LLVMValue:
    mask_type = _mask_type(x.type)
    mask = f.constant(-1, mask_type) if keep is None else _mask_bits(f, keep)
    args = [x, n, other, mask]
    if x.type.nbytes == 64:
        args.append(f.constant(4, I32))
    return f.call(_name("mask.scalef", x.type), x.type, args)


def _mask_bits(f: LLVMFunction, mask: LLVMValue) -> LLVMValue:
    lanes = mask.type.lanes
    if lanes < 8:  # the instruction looks at the low bits only
        mask = f.shuffle(mask, None, [k if k < lanes else 0 for k in range(8)])
    return f.bitcast(mask, I16 if lanes == 16 else I8)


def split_exponent(f: LLVMFunction, x: LLVMValue) -> tuple[LLVMValue, LLVMValue]:
    """(mantissa in [1, 2), exponent) of positive numbers, denormals included.

    Of 0 the exponent is -inf, of inf +inf (mantissa 1); of negative numbers and nan it is nan.
    """
    if has_special(x.type):
        mask, none = f.constant(-1, _mask_type(x.type)), f.zero(x.type)
        last = [f.constant(4, I32)] if x.type.nbytes == 64 else []
        control = f.constant(8, I32)  # interval [1, 2), nan for negative numbers
        exponent = f.call(_name("mask.getexp", x.type), x.type, [x, none, mask, *last])
        mantissa = f.call(_name("mask.getmant", x.type), x.type, [x, control, none, mask, *last])
        return mantissa, exponent
    return _split_by_bits(f, x)


def _split_by_bits(f: LLVMFunction, x: LLVMValue) -> tuple[LLVMValue, LLVMValue]:
    single = x.type.element is F32
    digits, bias, least = (23, 127, 2.0**-126) if single else (52, 1023, 2.0**-1022)
    kind = int_of(x.type)
    tiny = f.compare("lt", x, least)
    bits = f.bitcast(f.select(tiny, x * 2.0**digits, x), kind)
    exponent = f.convert("sitofp", f.bits("lshr", bits, digits) - bias, x.type)
    exponent = f.select(tiny, exponent - float(digits), exponent)
    mantissa = f.bitcast(bits & ((1 << digits) - 1) | (bias << digits), x.type)
    infinity = float("inf")
    exponent = f.select(f.compare("eq", x, 0.0), f.constant(-infinity, x.type), exponent)
    exponent = f.select(f.compare("ult", x, infinity), exponent, x)
    wrong = f.compare("ult", x, 0.0)
    exponent = f.select(wrong, f.constant(float("nan"), x.type), exponent)
    return mantissa, exponent


def reciprocal(f: LLVMFunction, x: LLVMValue) -> LLVMValue:
    """1 / x to about half a unit of float32, for x away from overflow and denormals."""
    if not has_special(x.type) and not too_wide(x.type):
        return 1.0 / x
    guess = reciprocal_guess(f, x)
    return f.fma(guess, f.fma(-x, guess, 1.0), guess)


def reciprocal_guess(f: LLVMFunction, x: LLVMValue) -> LLVMValue:
    """1 / x to 14 bits or better."""
    if too_wide(x.type):
        return halves(f, lambda a: reciprocal_guess(f, a), x)
    if not has_special(x.type):
        return 1.0 / x
    mask, none = f.constant(-1, _mask_type(x.type)), f.zero(x.type)
    return f.call(_name("rcp14", x.type), x.type, [x, none, mask])


def quick_root(f: LLVMFunction, x: LLVMValue) -> LLVMValue:
    """The square root of numbers that are not negative, to one unit of float32: the processor takes
    longer for one that is exact. Numbers below 2^-126 may count as zero."""
    if not has_special(x.type) or x.type.element is not F32:
        return f.intrinsic("llvm.sqrt", x.type, [x])
    mask, none = f.constant(-1, _mask_type(x.type)), f.zero(x.type)
    guess = f.call(_name("rsqrt14", x.type), x.type, [x, none, mask])
    near = x * guess
    found = f.fma(near, f.fma(-near, guess * 0.5, 0.5), near)
    return f.select(_is_end(f, x), x, found)


def quick_quotient(f: LLVMFunction, above: LLVMValue, below: LLVMValue) -> LLVMValue:
    """A quotient to one unit of float32, for divisors below 2^126, and infinity."""
    if not has_special(below.type) or below.type.element is not F32:
        return above / below
    guess = reciprocal_guess(f, below)
    scale = f.fma(guess, f.fma(-below, guess, 1.0), guess)
    near = above * scale
    found = f.fma(f.fma(-near, below, above), scale, near)
    return f.select(_is_end(f, below), above * guess, found)


def _is_end(f: LLVMFunction, x: LLVMValue) -> LLVMValue:
    """Whether numbers are zero or infinite: what comes near them step by step fails there."""
    return f.compare("eq", x, x + x)


def widen(f: LLVMFunction, x: LLVMValue) -> LLVMValue:
    """float32 as float64."""
    return f.convert("fpext", x, F64)


def narrow(f: LLVMFunction, x: LLVMValue) -> LLVMValue:
    return f.convert("fptrunc", x, F32)
