"""Powers whose exponent is one number for all lanes: the common ones are products."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from lucerne.backends.cpu.emit.builder import Function, Value

_PRODUCTS: Sequence[tuple[float, Callable[[Value], Value]]] = (
    (2.0, lambda x: x * x),
    (3.0, lambda x: x * x * x),
    (-1.0, lambda x: 1.0 / x),
)


def power_by_number(f: Function, x: Value, exponent: Value, general: Callable[[], Value]) -> Value:
    """`x ** exponent`, looking at the exponent once per vector; `general` writes the long way."""
    return _choice(f, x, f.extract(exponent, 0) if exponent.type.lanes else exponent, general, 0)


def _choice(f: Function, x: Value, exponent: Value, general: Callable[[], Value], at: int) -> Value:
    if at == len(_PRODUCTS):
        return general()
    number, product = _PRODUCTS[at]
    with f.if_(f.compare("eq", exponent, number)) as branch:
        branch.give(product(x))
    with branch.else_():
        branch.give(_choice(f, x, exponent, general, at + 1))
    return branch.results[0]
