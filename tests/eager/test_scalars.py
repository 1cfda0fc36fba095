"""Python numbers that do not fit: refused as torch refuses them, or kept as torch keeps them."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest

import lucerne

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.torch

Call = Callable[[Any, Any, Any, Any], Any]


def _set(x: Any, value: Any) -> Any:
    x[0] = value
    return x


CALLS: dict[str, Call] = {
    "eq": lambda t, x, m, v: x == v,
    "lt": lambda t, x, m, v: x < v,
    "add": lambda t, x, m, v: x + v,
    "radd": lambda t, x, m, v: v + x,
    "mul": lambda t, x, m, v: x * v,
    "and": lambda t, x, m, v: x & v,
    "fill_": lambda t, x, m, v: x.fill_(v),
    "where": lambda t, x, m, v: t.where(m, x, v),
    "where first": lambda t, x, m, v: t.where(m, v, x),
    "masked_fill": lambda t, x, m, v: x.masked_fill(m, v),
    "clamp": lambda t, x, m, v: x.clamp(max=v),
    "threshold": lambda t, x, m, v: t.nn.functional.threshold(x, v, v),
    "hardtanh": lambda t, x, m, v: t.nn.functional.hardtanh(x, 0, v),
    "add alpha": lambda t, x, m, v: t.add(x, x, alpha=v),
    "addcmul": lambda t, x, m, v: t.addcmul(x, x, x, value=v),
    "setitem": lambda t, x, m, v: _set(x, v),
    "scatter": lambda t, x, m, v: x.scatter(0, t.tensor([0]), v),
    "full": lambda t, x, m, v: t.full((2,), v, dtype=x.dtype),
    "tensor": lambda t, x, m, v: t.tensor([v], dtype=x.dtype),
    "pow": lambda t, x, m, v: x**v,
}
INTEGERS = ("uint8", "int8", "int16", "int32", "int64")
NUMBERS = (2**64, -(2**64), 2**63 - 1, -(2**63), 300, -200, 70000, -2.5, 2.5, 300.5, 1e10)
HALF = ("clamp", "pow", "full", "add alpha")
TEXTS_APART = {("setitem", 2**64), ("setitem", -(2**64))}
"""Where torch's text depends on which of its own paths is taken."""


def _outcome(module: Any, call: Call, dtype: str, value: Any) -> Any:
    x = module.tensor([1, 2]).to(getattr(module, dtype))
    m = module.tensor([True, False])
    try:
        found = call(module, x, m, value)
    except (RuntimeError, OverflowError, ValueError, TypeError, NotImplementedError) as error:
        return type(error).__name__, str(error).split("\n")[0]
    return str(found.dtype).removeprefix("torch."), [repr(v) for v in found.tolist()]


@pytest.mark.parametrize("dtype", INTEGERS)
@pytest.mark.parametrize("name", CALLS)
def test_numbers_beside_integers(name: str, dtype: str) -> None:
    for value in NUMBERS:
        expected = _outcome(torch, CALLS[name], dtype, value)
        found = _outcome(lucerne, CALLS[name], dtype, value)
        again = _outcome(lucerne, CALLS[name], dtype, value)
        if (name, value) in TEXTS_APART:
            expected, found, again = expected[0], found[0], again[0]
        if expected[0] == "float32" and name != "pow":  # the same type, rounded where torch rounds
            assert found[0] == expected[0]
            continue
        assert found == expected == again, value


@pytest.mark.parametrize("name", HALF)
def test_numbers_beside_half_floats(name: str) -> None:
    for value in (2**31, 70000, 65504, -(2**31), 1e10, math.inf):
        expected = _outcome(torch, CALLS[name], "float16", value)
        assert _outcome(lucerne, CALLS[name], "float16", value) == expected, value


@pytest.mark.parametrize("dtype", ["float32", "float16", "int64", "bool"])
def test_ints_that_no_type_holds(dtype: str) -> None:
    for name in ("eq", "lt", "add", "mul", "radd"):
        for value in (2**64, -(2**64), 2**70, -(2**63) - 1):
            expected = _outcome(torch, CALLS[name], dtype, value)
            assert expected[0] == "OverflowError"
            for _ in range(3):
                assert _outcome(lucerne, CALLS[name], dtype, value) == expected


def test_compiled_code_refuses_them_too() -> None:
    x = lucerne.tensor([1, 2], dtype=lucerne.uint8)
    for f in (
        lambda x: x + 2**64,
        lambda x: x.add(x, alpha=300),
        lambda x: x.masked_fill(x > 1, 300),
    ):
        with pytest.raises((OverflowError, RuntimeError), match=r"too big|without overflow"):
            lucerne.compile(f)(x)


INTEGERS = ("uint8", "int8", "int16", "int32", "int64", "uint16", "uint32", "uint64")


@pytest.mark.parametrize("dtype", INTEGERS)
def test_ranges_in_the_fast_path(dtype: str) -> None:
    """The machine code has its own comparison: at each bound, after calls that fit."""

    def outcome(t: Any, value: int) -> Any:
        try:
            return t.full((2,), value, dtype=getattr(t, dtype)).tolist()
        except RuntimeError as error:
            return str(error)

    for _ in range(4):
        outcome(lucerne, 1)
    for bits in (7, 8, 15, 16, 31, 32, 62):
        for value in (s * (1 << bits) + k for s in (1, -1) for k in (-1, 0, 1)):
            assert outcome(lucerne, value) == outcome(torch, value), value
