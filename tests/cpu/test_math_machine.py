"""The scalar machine in LLVM against the one in NumPy: every instruction, dtype by dtype."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import numpy as np
import pytest

from lucerne._src.backends.cpu.machine import LlvmScalar, NotTaken
from lucerne._src.backends.reference.machine import MACHINE
from lucerne._src.backends.reference.optional import scipy
from lucerne._src.base import dtype as dt
from lucerne._src.ir.scalar.protocol import REQUIRED, ScalarValue, s
from tests.cpu.lanes import over_lanes

Array = np.ndarray[Any, Any]
INTEGERS = (
    dt.uint8, dt.int8, dt.int16, dt.int32, dt.int64, dt.uint16, dt.uint32, dt.uint64,
)  # fmt: skip
FLOATS = (dt.float32, dt.float64)
COMPLEX = (dt.complex64, dt.complex128)
WHOLE = (dt.bool_, *INTEGERS)
ALL = (*WHOLE, *FLOATS, *COMPLEX)
COUNT = 301
SPECIAL = (0.0, -0.0, np.inf, -np.inf, np.nan, 1.0, -1.0, 0.5, -2.5, 1e-40, 3e38, -3e38, 7.0)


def data(dtype: dt.dtype, seed: int) -> Array:
    """Random numbers among the special ones of a type, in an order that meets all pairs."""
    rng = np.random.default_rng(seed)
    kind = dtype.storage
    if dtype is dt.bool_:
        return rng.integers(0, 2, COUNT).astype(bool)
    if kind.kind in "iu":
        info = np.iinfo(kind)
        values = rng.integers(info.min, info.max, COUNT, dtype=kind, endpoint=True)
        values[:100] = rng.integers(0, 9, 100)
        values[100:110] = info.min
        values[110:120] = info.max
        values[120:160] = rng.integers(-5 if kind.kind == "i" else 0, 5, 40)
        return rng.permutation(values)
    if kind.kind == "f":
        values = rng.standard_normal(COUNT) * 4
        values[:130] = np.tile(SPECIAL, 10)
        return rng.permutation(values).astype(kind)
    return (rng.standard_normal(COUNT) + 1j * rng.standard_normal(COUNT)).astype(kind)


ONE = {
    "neg": (*INTEGERS, *FLOATS, *COMPLEX),
    "abs": ALL,
    "floor": FLOATS, "ceil": FLOATS, "trunc": FLOATS, "round": FLOATS,
    "sqrt": (*FLOATS, *COMPLEX), "rsqrt": FLOATS, "reciprocal": FLOATS,
    "exp": (*FLOATS, *COMPLEX), "log": (*FLOATS, *COMPLEX), "tanh": (*FLOATS, *COMPLEX),
    "sin": (*FLOATS, *COMPLEX), "cos": (*FLOATS, *COMPLEX), "tan": (*FLOATS, *COMPLEX),
    "expm1": (*FLOATS, *COMPLEX), "log1p": (*FLOATS, *COMPLEX), "log2": FLOATS, "exp2": FLOATS,
    "asin": (*FLOATS, *COMPLEX), "acosh": (*FLOATS, *COMPLEX), "atanh": (*FLOATS, *COMPLEX),
    "erf": FLOATS, "lgamma": (dt.float64,), "gelu": (dt.float64,),
    "sigmoid": FLOATS, "silu": FLOATS,
    "is_nan": (*FLOATS, *COMPLEX), "is_inf": (*FLOATS, *COMPLEX), "signbit": FLOATS,
    "bit_not": WHOLE, "real": ALL, "imag": COMPLEX, "conj": COMPLEX,
    "frexp_mantissa": FLOATS, "frexp_exponent": FLOATS,
    "digamma": FLOATS, "erfinv": FLOATS, "i0": FLOATS, "i1e": FLOATS, "ndtr": FLOATS,
}  # fmt: skip
TWO = {
    "add": ALL, "sub": (*INTEGERS, *FLOATS, *COMPLEX), "mul": ALL, "div": ALL,
    "minimum": (*WHOLE, *FLOATS), "maximum": (*WHOLE, *FLOATS),
    "fmod": (*INTEGERS, *FLOATS), "floor_div_int": INTEGERS,
    "pow": (*INTEGERS, *FLOATS), "gcd": INTEGERS, "lcm": INTEGERS,
    "atan2": FLOATS, "hypot": FLOATS, "copysign": FLOATS, "nextafter": FLOATS, "complex": FLOATS,
    "lt": (*WHOLE, *FLOATS), "le": (*WHOLE, *FLOATS), "gt": (*WHOLE, *FLOATS),
    "ge": (*WHOLE, *FLOATS), "eq": ALL, "ne": ALL,
    "bit_and": WHOLE, "bit_or": WHOLE, "bit_xor": WHOLE,
    "shift_left": INTEGERS, "shift_right": INTEGERS,
}  # fmt: skip
UNLIKE_AT_INFINITY = ("lgamma", "digamma", "i0")
"""SciPy and torch differ there."""
ROUGH = {"digamma": 1e4, "log1p": 1e3}
"""Units of the last place, where more than usual are allowed: around a zero of the function."""
DIVIDING = ("fmod", "floor_div_int", "gcd", "lcm")
CASES = [
    (name, dtype, count)
    for table, count in ((ONE, 1), (TWO, 2))
    for name, dtypes in table.items()
    for dtype in dtypes
]


def agree(got: Array, want: Array, ulps: float) -> None:
    """Equal; floating results within some units of the last place, infinities and nan exactly."""
    if want.dtype.kind not in "fc":
        np.testing.assert_array_equal(got, want)
        return
    part = want.real.dtype
    with np.errstate(all="ignore"):
        equal = (got.view(part) == want.view(part)) | np.isnan(got.view(part) + want.view(part))
        same = equal.reshape(len(want), -1).all(axis=1) & (np.isnan(got) == np.isnan(want))
        size = np.abs(want)  # of a complex number the smaller part is less exact
        room = np.spacing(np.maximum(size, np.finfo(part).tiny)) * ulps
        near = np.isfinite(got) & np.isfinite(want) & (np.abs(got - want) <= room)
    bad = np.nonzero(~(same | near))[0][:3]
    assert not len(bad), f"at {bad}: got {got[bad]}, not {want[bad]}"


STANDING_IN = ("lgamma", "digamma")


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("lanes", [1, 16])
@pytest.mark.parametrize(
    ("name", "dtype", "count"), CASES, ids=[f"{n}-{d.name}" for n, d, _ in CASES]
)
def test_instructions_agree_with_numpy(name: str, dtype: dt.dtype, count: int, lanes: int) -> None:
    args = [data(dtype, seed) for seed in range(count)]
    if name in DIVIDING and dtype in INTEGERS:
        args[1][args[1] == 0] = 3
    if name == "erfinv":
        args = [np.clip(args[0] / 4, -1.1, 1.1).astype(dtype.storage)]
    if name in UNLIKE_AT_INFINITY:
        args = [np.where(np.isinf(args[0]), 2.5, args[0]).astype(dtype.storage)]
    instruction = getattr(s, name)
    if name in STANDING_IN and dtype is dt.float64 and scipy("special") is None:
        pytest.skip("without SciPy the oracle's float64 stand-in is rougher than the engine")
    try:
        want = np.asarray(instruction(*[ScalarValue(MACHINE, a) for a in args]).raw)
    except NotImplementedError as lack:
        pytest.skip(str(lack))
    run = over_lanes(instruction, [dtype] * count, dt.from_numpy_dtype(want.dtype), lanes)
    agree(run(*args), want, ROUGH.get(name, 100.0 if dtype is dt.float64 else 4.0))


def test_all_required_instructions_are_there() -> None:
    missing = [name for name in REQUIRED if not hasattr(LlvmScalar, name)]
    assert not missing


def test_a_function_the_machine_lacks_is_left_to_others() -> None:
    with pytest.raises(NotTaken):
        over_lanes(s.airy_ai, [dt.complex64], dt.complex64)


# ---- numbers in bodies --------------------------------------------------------------------------

BODIES = {
    "int with floats": (lambda x: x * 2 + 1, dt.float32),
    "float with ints": (lambda x: x * 0.5, dt.int32),
    "float with small ints": (lambda x: x * 0.5, dt.int8),
    "int with bools": (lambda x: x + 1, dt.bool_),
    "complex with floats": (lambda x: x * 1j, dt.float32),
    "choice of two numbers": (lambda x: s.where(x > 0, 1.5, 0), dt.float64),
    "choice with a number": (lambda x: s.where(x > 0, x, 0), dt.int16),
    "number first": (lambda x: 1 - x, dt.float32),
    "mixed": (lambda x: x + s.cast(x > 0, dt.float64), dt.float32),
    "negative with unsigned": (lambda x: s.maximum(x, 3), dt.uint8),
}


@pytest.mark.parametrize("name", BODIES)
def test_numbers_promote_as_in_numpy(name: str) -> None:
    body, dtype = BODIES[name]
    x = data(dtype, 0)
    with np.errstate(all="ignore"):
        want = np.asarray(body(ScalarValue(MACHINE, x)).raw)
    output = dt.from_numpy_dtype(want.dtype)
    kinds: list[dt.dtype] = []

    def noting(v: Any) -> Any:
        result = body(v)
        kinds.append(result.dtype)
        return result

    agree(over_lanes(noting, [dtype], output)(x), want, 0.0)
    assert kinds[0] is output


# ---- division by zero ---------------------------------------------------------------------------


@pytest.mark.parametrize("lanes", [1, 8])
@pytest.mark.parametrize("name", ["fmod", "floor_div_int"])
def test_integer_division_by_zero_is_reported(name: str, lanes: int) -> None:
    run = over_lanes(getattr(s, name), [dt.int32, dt.int32], dt.int32, lanes)
    x = np.full(21, 7, np.int32)
    divisor = np.full(21, 2, np.int32)
    run(x, divisor)  # lanes beyond the end hold zeros, which do not count
    divisor[20] = 0
    with pytest.raises(ZeroDivisionError):
        run(x, divisor)


def test_the_least_integer_by_minus_one_does_not_trap() -> None:
    for dtype in (dt.int8, dt.int32, dt.int64):
        least = np.full(20, np.iinfo(dtype.storage).min, dtype.storage)
        minus = np.full(20, -1, dtype.storage)
        assert (over_lanes(s.floor_div_int, [dtype] * 2, dtype)(least, minus) == least).all()
        assert not over_lanes(s.fmod, [dtype] * 2, dtype)(least, minus).any()


def test_a_compile_does_not_load_scipy() -> None:
    """Constants are folded by this machine, and loading SciPy takes longer than a small compile."""
    text = (
        "import sys, lucerne as torch\n"
        "f = torch.compile(lambda x: (x @ x).relu() * torch.arange(4).exp() + torch.eye(4))\n"
        "f(torch.ones(4, 4))\n"
        "sys.exit('scipy' in sys.modules)\n"
    )
    assert not subprocess.run([sys.executable, "-c", text], check=False).returncode
