"""Powers whose exponent is one number for all lanes: the common ones are products."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from lucerne._src.backends.cpu.emit.builder import LLVMFunction, LLVMValue
from lucerne._src.backends.cpu.math.complexes import Pair, multiply

_PRODUCTS: Sequence[tuple[float, Callable[[LLVMValue], LLVMValue]]] = (
    (2.0, lambda x: x * x),
    (3.0, lambda x: x * x * x),
    (-1.0, lambda x: 1.0 / x),
)


def power_by_number(
    f: LLVMFunction, x: LLVMValue, exponent: LLVMValue, general: Callable[[], LLVMValue]
) -> LLVMValue:
    """`x ** exponent`, looking at the exponent once per vector; `general` writes the long way."""
    return _choice(f, x, f.extract(exponent, 0) if exponent.type.lanes else exponent, general, 0)


def complex_power_by_number(
    f: LLVMFunction, x: Pair, exponent: Pair, general: Callable[[], Pair]
) -> Pair:
    """The same for complex numbers: squares and cubes are products."""
    re, im = (f.extract(v, 0) if v.type.lanes else v for v in exponent)
    real = f.compare("eq", im, 0.0)
    with f.if_(real & f.compare("eq", re, 2.0)) as square:
        square.give(*multiply(f, x, x))
    with square.else_():
        with f.if_(real & f.compare("eq", re, 3.0)) as cube:
            cube.give(*multiply(f, multiply(f, x, x), x))
        with cube.else_():
            cube.give(*general())
        square.give(*cube.results)
    return square.results[0], square.results[1]


def _choice(
    f: LLVMFunction, x: LLVMValue, exponent: LLVMValue, general: Callable[[], LLVMValue], at: int
) -> LLVMValue:
    if at == len(_PRODUCTS):
        return general()
    number, product = _PRODUCTS[at]
    with f.if_(f.compare("eq", exponent, number)) as branch:
        branch.give(product(x))
    with branch.else_():
        branch.give(_choice(f, x, exponent, general, at + 1))
    return branch.results[0]
