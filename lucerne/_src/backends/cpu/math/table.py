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
from lucerne._src.ir.scalar.protocol import ROUNDING

Builder = Callable[..., LLVMValue]

FLOAT32: dict[str, Builder] = wide.FUNCTIONS | {
    fn.__name__: fn
    for fn in (
        exponential.exp, exponential.exp2, exponential.sigmoid, exponential.silu, exponential.tanh,
        exponential.gelu_tanh, error.erf, error.erfc, error.normal_cdf, error.gelu, circular.sin,
        circular.cos, circular.sin_pi, logarithm.log, logarithm.log1p, logarithm.log2,
        logarithm.log10, logarithm.logaddexp, logarithm.logaddexp2, logarithm.logit, arcs.asin,
        arcs.acos, arcs.atan,
    )
}  # fmt: skip
"""Functions written for lanes of float32."""
FLOAT64: dict[str, Builder] = double.FUNCTIONS
"""Functions written for lanes of float64."""


def is_written(name: str, type: object) -> bool:
    """Whether there is vector code for a function of this element type."""
    return name in (FLOAT32 if type is F32 else FLOAT64)


def real_function(f: LLVMFunction, name: str, *args: LLVMValue) -> LLVMValue:
    """A function of real floats."""
    if name in ROUNDING or name == "sqrt":
        name = "rint" if name == "round" else name
        return f.intrinsic(f"llvm.{name}", args[0].type, args)
    written = FLOAT32 if args[0].type.element is F32 else FLOAT64
    if name in written:
        return written[name](f, *args)
    return libm(f, name, *args)
