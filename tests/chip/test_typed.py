"""The typed machine: complex functions from real ones, integers as C has them, promotion."""

from __future__ import annotations

import math
from typing import Any

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given, settings

from lucerne._src.base import dtype as dt
from lucerne._src.ir.scalar.protocol import ScalarValue, s
from lucerne._src.ir.scalar.typed import INSTRUCTIONS, Typed, TypedNum

_PLAIN: dict[str, Any] = {
    "add": lambda a, b: a + b, "sub": lambda a, b: a - b, "mul": lambda a, b: a * b,
    "div": np.divide, "neg": lambda a: -a, "abs": abs, "fmod": np.fmod, "round": np.rint,
    "quotient": lambda a, b: type(a)(math.trunc(int(a) / int(b))),
    "rest": lambda a, b: type(a)(math.fmod(int(a), int(b))), "pow": lambda a, b: a**b,
    "lt": lambda a, b: a < b, "le": lambda a, b: a <= b, "eq": lambda a, b: a == b,
    "bit_and": lambda a, b: a & b, "bit_or": lambda a, b: a | b, "bit_xor": lambda a, b: a ^ b,
    "bit_not": lambda a: ~a, "shift_left": lambda a, b: a << b, "shift_right": lambda a, b: a >> b,
    "where": lambda c, a, b: a if c else b, "atan": np.arctan, "atan2": np.arctan2,
    "erf": lambda x: np.float64(math.erf(x)), "lgamma": lambda x: np.float64(math.lgamma(x)),
    "nextafter": np.nextafter,
}  # fmt: skip


class Numbers(Typed):
    """Instructions done at once, on NumPy's scalars."""

    def __init__(self) -> None:
        self.failures: list[str] = []

    def emit(self, name: str, dtype: dt.dtype, *operands: Any) -> Any:
        with np.errstate(all="ignore"):
            return _PLAIN.get(name, getattr(np, name, None))(*operands)

    def constant(self, value: Any, dtype: dt.dtype) -> Any:
        return dtype.storage.type(value)

    def convert(self, value: Any, source: dt.dtype, target: dt.dtype) -> Any:
        return target.storage.type(value)

    def require(self, condition: TypedNum, error: type[Exception], text: str) -> None:
        if not condition.re:
            self.failures.append(text)


MACHINE = Numbers()


def number(x: Any) -> ScalarValue:
    if isinstance(x, complex):
        return ScalarValue(MACHINE, TypedNum(dt.complex128, np.float64(x.real), np.float64(x.imag)))
    kind = dt.int64 if isinstance(x, int) else dt.float64
    return ScalarValue(MACHINE, TypedNum(kind, kind.storage.type(x)))


def plain(v: ScalarValue) -> Any:
    num = v.raw
    return num.re if num.im is None else complex(num.re, num.im)


PARTS = st.floats(-3, 3).map(lambda x: round(x, 3))
COMPLEX = st.builds(complex, PARTS, PARTS)
FUNCTIONS = {
    "exp": np.exp, "log": np.log, "sqrt": np.sqrt, "sin": np.sin, "cos": np.cos, "tan": np.tan,
    "sinh": np.sinh, "cosh": np.cosh, "tanh": np.tanh, "asinh": np.arcsinh, "acosh": np.arccosh,
    "reciprocal": np.reciprocal, "sigmoid": lambda z: 1 / (1 + np.exp(-z)),
}  # fmt: skip


@pytest.mark.parametrize("name", FUNCTIONS)
@given(z=COMPLEX.filter(lambda z: abs(z) > 0.05 and abs(z.imag) > 0.01 and abs(z.real) > 0.01))
@settings(max_examples=25, deadline=None)
def test_functions_of_complex_numbers(name: str, z: complex) -> None:
    got = plain(getattr(s, name)(number(z)))
    want = FUNCTIONS[name](np.complex128(z))
    assert abs(got - want) <= 1e-9 * (1 + abs(want))


@given(COMPLEX, COMPLEX.filter(lambda z: abs(z) > 1e-2))
@settings(max_examples=50, deadline=None)
def test_arithmetic_of_complex_numbers(a: complex, b: complex) -> None:
    x, y = number(a), number(b)
    for got, want in ((x + y, a + b), (x - y, a - b), (x * y, a * b), (x / y, a / b)):
        assert abs(plain(got) - want) <= 1e-9 * (1 + abs(want))
    assert plain(s.abs(y)) == pytest.approx(abs(b))
    assert bool(plain(x == x))
    assert plain(s.conj(y)) == b.conjugate()


@given(st.integers(-50, 50), st.integers(-7, 7).filter(bool))
@settings(max_examples=60, deadline=None)
def test_division_of_integers(a: int, b: int) -> None:
    assert plain(s.floor_div_int(number(a), number(b))) == a // b
    assert plain(s.fmod(number(a), number(b))) == math.fmod(a, b)


def test_a_division_by_zero_is_told_and_does_not_happen() -> None:
    MACHINE.failures.clear()
    s.floor_div_int(number(1), number(0))
    assert "ZeroDivisionError" in MACHINE.failures


@pytest.mark.parametrize(("a", "b", "want"), [(2, 10, 1024), (-1, -3, -1), (5, -1, 0), (1, -9, 1)])
def test_powers_of_integers(a: int, b: int, want: int) -> None:
    assert plain(number(a) ** number(b)) == want


def test_nan_wins_and_bools_are_not_added() -> None:
    nan = number(math.nan)
    assert math.isnan(plain(s.maximum(number(1.0), nan)))
    assert math.isnan(plain(s.minimum(nan, number(1.0))))
    yes = number(1.0) == number(1.0)
    assert (yes + yes).raw.dtype is dt.bool_
    assert (yes * number(2)).raw.dtype is dt.int64


@pytest.mark.parametrize(("by", "left", "right"), [(1, 16, 4), (0, 8, 8), (70, 0, 0)])
def test_shifts_by_more_than_there_is(by: int, left: int, right: int) -> None:
    assert plain(s.shift_left(number(8), number(by))) == left
    assert plain(s.shift_right(number(8), number(by))) == right


def test_python_numbers_bend_to_the_machines() -> None:
    small = ScalarValue(MACHINE, TypedNum(dt.int8, np.int8(3)))
    assert (small + 1).raw.dtype is dt.int8
    assert (small + 0.5).raw.dtype is dt.float64
    weak = ScalarValue(MACHINE, TypedNum(dt.float64, np.float64(2.0), weak=True))
    single = ScalarValue(MACHINE, TypedNum(dt.float32, np.float32(1.0)))
    assert (single * weak).raw.dtype is dt.float32


def test_a_missing_instruction_is_named() -> None:
    with pytest.raises(NotImplementedError, match="has no instruction 'add'"):
        Typed().emit("add", dt.float32, 1, 2)
    assert "add" in INSTRUCTIONS
