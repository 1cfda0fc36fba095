"""Operands of different dtypes beside 16-bit floats: bit for bit what torch makes of them.

torch rounds operands to the common type, whatever their shape, and computes in float32; products
and quotients read a second operand of one element whole. The rows hold (op, dtype of the 16-bit
tensor, dtype and shape of the other operand, which of the two comes first).
"""

from __future__ import annotations

import itertools
import operator
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import lucerne as lu

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.torch

Function = Callable[[Any, Any, Any], Any]
# 64 elements: torch's kernels for `alpha` compute the last elements of other counts in other steps
SHAPES: dict[str, tuple[int, ...]] = {"0-dim": (), "one": (1,), "one by one": (1, 1), "many": (64,)}
DTYPES = ("int64", "int32", "uint8", "bool", "float32", "float64", "bfloat16", "float16")
NUMBERS = {"int": 1711, "float": 1.7713}
NARROW = ("bfloat16", "float16")

OPS: dict[str, Function] = {
    "+": lambda m, a, b: a + b,
    "-": lambda m, a, b: a - b,
    "*": lambda m, a, b: a * b,
    "/": lambda m, a, b: a / b,
    "add": lambda m, a, b: m.add(a, b),
    "add with alpha": lambda m, a, b: m.add(a, b, alpha=1.7),
    "sub with alpha": lambda m, a, b: m.sub(a, b, alpha=1.7),
    "rsub": lambda m, a, b: m.rsub(a, b),
    "mul": lambda m, a, b: m.mul(a, b),
    "div": lambda m, a, b: m.div(a, b),
    "pow": lambda m, a, b: m.pow(a, b),
    "atan2": lambda m, a, b: m.atan2(a, b),
    "fmod": lambda m, a, b: m.fmod(a, b),
    "remainder": lambda m, a, b: m.remainder(a, b),
    "maximum": lambda m, a, b: m.maximum(a, b),
    "fmin": lambda m, a, b: m.fmin(a, b),
    "where": lambda m, a, b: m.where(m.tensor([True]), a, b),
    "hypot": lambda m, a, b: m.hypot(a, b),
    "copysign": lambda m, a, b: m.copysign(a, b),
    "lerp": lambda m, a, b: m.lerp(a, b, 0.3),
    "addcmul": lambda m, a, b: m.addcmul(a, b, b, value=0.3),
    "logaddexp": lambda m, a, b: m.logaddexp(a, b),
    "nextafter": lambda m, a, b: m.nextafter(a, b),
}
COMPILED = ("+", "*", "/", "where")
SHORT = {"dtypes": ("int64", "float32", "bfloat16"), "shapes": ("0-dim", "many")}
LONG = {"dtypes": DTYPES, "shapes": tuple(SHAPES)}
ALPHA = ("add with alpha", "sub with alpha")
"""Of results that do not fill torch's vectors it rounds the product too: compared are full ones."""


def _values(dtype: str, shape: tuple[int, ...], seed: int) -> np.ndarray[Any, Any]:
    """Values that 16-bit floats do not hold, in float64 or as whole numbers."""
    draw = np.random.default_rng(seed)
    if dtype == "bool":
        return draw.integers(0, 2, shape).astype(bool)
    if dtype == "uint8":
        return draw.integers(1, 255, shape)
    if dtype.startswith("int"):
        return draw.integers(257, 2000, shape)
    return draw.random(shape) * 3 + 0.2


def _tensor(m: Any, dtype: str, shape: str, seed: int) -> Any:
    return m.tensor(_values(dtype, SHAPES[shape], seed).tolist(), dtype=getattr(m, dtype))


def _pairs(m: Any, narrow: str, rows: dict[str, Any]) -> list[tuple[str, Any, Any]]:
    """Every pair of operands with its name."""
    found = []
    for mine in rows["shapes"]:
        low = _tensor(m, narrow, mine, 1)
        others = [
            (f"{dtype} {shape}", _tensor(m, dtype, shape, 2))
            for dtype, shape in itertools.product(rows["dtypes"], rows["shapes"])
        ]
        for name, other in [*others, *((f"Python {k}", n) for k, n in NUMBERS.items())]:
            found.append((f"{narrow} {mine}, {name}", low, other))
            found.append((f"{name}, {narrow} {mine}", other, low))
    return found


def _result(function: Function, m: Any, a: Any, b: Any) -> Any:
    """The result, or None where the call is refused or does not give a 16-bit float."""
    try:
        made = function(m, a, b)
    except (RuntimeError, TypeError, NotImplementedError):
        return None
    return made if str(made.dtype).removeprefix("torch.") in NARROW else None


def differences(
    function: Function,
    narrow: str,
    rows: dict[str, Any] = SHORT,
    run: Callable[..., list[Any]] | None = None,
    least: int = 1,
) -> list[str]:
    """Names of the pairs whose results (of `least` elements or more) differ in a bit.

    `run(function, pairs)` computes ours; without it, eager does.
    """
    theirs, ours = _pairs(torch, narrow, rows), _pairs(lu, narrow, rows)
    asked = [
        (name, pair, wanted)
        for (name, *given), (_, *pair) in zip(theirs, ours, strict=True)
        if (wanted := _result(function, torch, *given)) is not None and wanted.numel() >= least
    ]
    assert asked
    made = (run or _eager)(function, [pair for _, pair, _ in asked])
    return [
        name
        for (name, _, wanted), got in zip(asked, made, strict=True)
        if str(wanted.dtype) != str(got.dtype).replace("lucerne.", "torch.")
        or tuple(wanted.shape) != tuple(got.shape)
        or not np.array_equal(wanted.double().numpy(), got.double().numpy(), equal_nan=True)
    ]


def _eager(function: Function, pairs: list[Any]) -> list[Any]:
    return [function(lu, a, b) for a, b in pairs]


@pytest.mark.parametrize("op", OPS)
def test_pairs_have_torchs_bits(op: str) -> None:
    assert differences(OPS[op], "bfloat16", least=64 if op in ALPHA else 1) == []


@pytest.mark.parametrize("op", ["+", "*"])
def test_pairs_of_every_dtype_and_shape_have_torchs_bits(op: str) -> None:
    assert differences(OPS[op], "bfloat16", LONG) == []


@pytest.mark.nightly
@pytest.mark.parametrize("narrow", NARROW)
@pytest.mark.parametrize("op", OPS)
def test_every_pair_has_torchs_bits(op: str, narrow: str) -> None:
    assert differences(OPS[op], narrow, LONG, least=64 if op in ALPHA else 1) == []


@pytest.mark.parametrize("mode", ["default", "bitwise"])
@pytest.mark.parametrize("op", COMPILED)
def test_compiled_pairs_have_torchs_bits(op: str, mode: str) -> None:
    def run(function: Function, pairs: list[Any]) -> list[Any]:
        def program(given: list[Any]) -> list[Any]:
            return [function(lu, a, b) for a, b in given]

        made: list[Any] = lu.compile(program, mode=mode)(pairs)
        return made

    assert differences(OPS[op], "bfloat16", run=run) == []


def test_the_comparison_sees_an_operand_that_was_not_rounded() -> None:
    """What the helper is for: an integer that was taken whole must be found."""

    def whole(function: Function, pairs: list[Any]) -> list[Any]:
        widened = [[x.float() if hasattr(x, "float") else x for x in pair] for pair in pairs]
        return [function(lu, a, b).bfloat16() for a, b in widened]

    assert "bfloat16 many, int64 many" in differences(OPS["*"], "bfloat16", run=whole)


@pytest.mark.parametrize("mode", ["default", "bitwise"])
@pytest.mark.parametrize("symbol", ["mul", "add", "truediv"])
def test_a_constant_tensor_stays_rounded_in_a_program(symbol: str, mode: str) -> None:
    """The compiler reads `full` as a number: only where that rounds the same."""
    op = getattr(operator, symbol)
    x = lu.tensor(_values("float32", (8,), 3).tolist(), dtype=lu.bfloat16)

    def program(x: Any) -> Any:
        return op(x, lu.full((8,), 257)), op(lu.full((8,), 257), x), op(x, lu.full((1,), 257))

    for got, wanted in zip(lu.compile(program, mode=mode)(x), program(x), strict=True):
        assert got.tolist() == wanted.tolist()


EXPONENTS = [(1.5, 3), (1e-30, 200), (1e30, -220), (1.0, -149), (3.0, 10_000), (-3.0, -10_000)]


@pytest.mark.parametrize("dtype", ["bfloat16", "float16", "float32", "float64"])
def test_ldexp_keeps_the_dtype_and_reaches_every_exponent(dtype: str) -> None:
    x, e = ([row[i] for row in EXPONENTS] for i in (0, 1))
    wanted = torch.ldexp(torch.tensor(x, dtype=getattr(torch, dtype)), torch.tensor(e))
    got = lu.ldexp(lu.tensor(x, dtype=getattr(lu, dtype)), lu.tensor(e))
    assert got.dtype is getattr(lu, dtype)
    assert got.double().tolist() == wanted.double().tolist()


@pytest.mark.parametrize("dtype", NARROW)
def test_nextafter_of_16_bit_floats_steps_through_every_kind_of_number(dtype: str) -> None:
    ends = [
        0.0,
        -0.0,
        1.0,
        -1.0,
        2.0,
        6e-8,
        -6e-8,
        65504.0,
        float("inf"),
        -float("inf"),
        float("nan"),
    ]
    a, b = zip(*itertools.product(ends, ends), strict=True)
    wanted = torch.nextafter(*(torch.tensor(t, dtype=getattr(torch, dtype)) for t in (a, b)))
    got = lu.nextafter(*(lu.tensor(t, dtype=getattr(lu, dtype)) for t in (a, b)))
    plain = wanted == wanted
    assert got.isnan().tolist() == (~plain).tolist()
    bits, mine = wanted[plain].view(torch.int16), got[lu.tensor(plain.tolist())].view(lu.int16)
    assert mine.tolist() == bits.tolist()
