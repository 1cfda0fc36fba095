"""asin, acos and atan in float32, to about a unit and a half.

Coefficients: minimax fits of the relative error (2 ** -27), rounded to float32 one by one.
"""

from __future__ import annotations

from lucerne._src.backends.cpu.emit.builder import LLVMFunction, LLVMValue
from lucerne._src.backends.cpu.math.vector import absolute, copysign, polynomial, reciprocal

_ASIN = (
    0.04221179708838463, 0.02415209263563156, 0.0454760417342186, 0.07495252043008804,
    0.16666753590106964,
)  # fmt: skip
_ATAN = (
    -0.0017875476041808724, 0.010887361131608486, -0.031127002090215683, 0.05790654569864273,
    -0.08400475233793259, 0.10951174795627594, -0.14264051616191864, 0.1999853104352951,
    -0.33333298563957214,
)  # fmt: skip
_HALF_PI = (1.5707963705062866, -4.371138828673793e-08)
"""pi / 2 as two float32 numbers."""


def _near(f: LLVMFunction, x: LLVMValue) -> tuple[LLVMValue, LLVMValue]:
    """(whether |x| > 1/2, asin of |x|, or of sqrt((1 - |x|) / 2) where it is)."""
    size = absolute(f, x)
    large = f.compare("gt", size, 0.5)
    squared = f.select(large, f.fma(size, -0.5, 0.5), size * size)
    root = f.select(large, f.intrinsic("llvm.sqrt", x.type, [squared]), size)
    return large, f.fma(polynomial(f, squared, _ASIN), squared * root, root)


def asin(f: LLVMFunction, x: LLVMValue) -> LLVMValue:
    """Above 1/2: pi / 2 - 2 asin(sqrt((1 - x) / 2))."""
    large, angle = _near(f, x)
    far = f.fma(angle, -2.0, _HALF_PI[1]) + _HALF_PI[0]
    return copysign(f, f.select(large, far, angle), x)


def acos(f: LLVMFunction, x: LLVMValue) -> LLVMValue:
    large, angle = _near(f, x)
    doubled = angle + angle
    low, high = 2 * _HALF_PI[1], 2 * _HALF_PI[0]
    outer = f.select(f.compare("lt", x, 0.0), (low - doubled) + high, doubled)
    inner = (_HALF_PI[1] - copysign(f, angle, x)) + _HALF_PI[0]
    return f.select(large, outer, inner)


def atan(f: LLVMFunction, x: LLVMValue) -> LLVMValue:
    """Above 1: pi / 2 - atan(1 / x)."""
    size = absolute(f, x)
    steep = f.compare("gt", size, 1.0)
    bounded = f.select(f.compare("gt", size, 2.0**60), f.constant(2.0**60, x.type), size)
    ratio = f.select(steep, reciprocal(f, bounded), size)
    square = ratio * ratio
    angle = f.fma(polynomial(f, square, _ATAN), square * ratio, ratio)
    return copysign(f, f.select(steep, (_HALF_PI[1] - angle) + _HALF_PI[0], angle), x)
