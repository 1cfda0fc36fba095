"""Real functions by name: vector code where there is some, else the C library lane by lane."""

from __future__ import annotations

from collections.abc import Callable

from lucerne._src.backends.cpu.emit.builder import F32, LLVMFunction, LLVMValue
from lucerne._src.backends.cpu.math import (
    arcs,
    circular,
    double,
    error,
    exponential,
    logarithm,
    wide,
)
from lucerne._src.backends.cpu.math.calls import libm

Builder = Callable[..., LLVMValue]

FLOAT32: dict[str, Builder] = {
    **wide.FUNCTIONS,
    "exp": exponential.exp,
    "exp2": exponential.exp2,
    "sigmoid": exponential.sigmoid,
    "silu": exponential.silu,
    "tanh": exponential.tanh,
    "gelu_tanh": exponential.gelu_tanh,
    "erf": error.erf,
    "erfc": error.erfc,
    "normal_cdf": error.normal_cdf,
    "gelu": error.gelu,
    "sin": circular.sin,
    "cos": circular.cos,
    "sin_pi": circular.sin_pi,
    "log": logarithm.log,
    "log1p": logarithm.log1p,
    "log2": logarithm.log2,
    "log10": logarithm.log10,
    "logaddexp": logarithm.logaddexp,
    "logaddexp2": logarithm.logaddexp2,
    "logit": logarithm.logit,
    "asin": arcs.asin,
    "acos": arcs.acos,
    "atan": arcs.atan,
}
"""Functions written for lanes of float32."""
FLOAT64: dict[str, Builder] = {**double.FUNCTIONS}
"""Functions written for lanes of float64."""

_NATIVE = {"floor": "floor", "ceil": "ceil", "trunc": "trunc", "round": "rint", "sqrt": "sqrt"}


def is_written(name: str, type: object) -> bool:
    """Whether there is vector code for a function of this element type."""
    return name in (FLOAT32 if type is F32 else FLOAT64)


def real_function(f: LLVMFunction, name: str, *args: LLVMValue) -> LLVMValue:
    """A function of real floats."""
    if name in _NATIVE:
        return f.intrinsic(f"llvm.{_NATIVE[name]}", args[0].type, args)
    written = FLOAT32 if args[0].type.element is F32 else FLOAT64
    if name in written:
        return written[name](f, *args)
    return libm(f, name, *args)
