"""Every pointwise op of the CPU engine against the reference, over dtypes and layouts."""

from __future__ import annotations

import zlib
from typing import Any

import numpy as np
import pytest

import lucerne as lucerne  # fills the table of ops
from lucerne._src.base import dtype as dt
from lucerne._src.ir import op as op_
from lucerne._src.ir.op import Op
from tests.cpu.both import LAYOUTS, Both, check_same, tensor

DTYPES = (
    dt.float32, dt.float64, dt.bfloat16, dt.float16, dt.int64, dt.int32, dt.int16, dt.int8,
    dt.uint8, dt.bool_, dt.complex64, dt.complex128,
)  # fmt: skip
POINTWISE = sorted(op.qualified for op in op_.table().values() if op.kind == op_.POINTWISE)
STATICS: dict[str, Any] = {"decimals": 2, "n": 1, "approximate": "tanh", "equal_nan": True}
SHAPES = ((), (5,), (2, 0, 3), (9, 40), (33, 17), (3, 5, 4, 9), (2, 3, 12, 10))
MEANINGFUL = {"complex_of": (dt.FLOAT,), "sum_tanh": (dt.FLOAT, dt.COMPLEX)}
"""Internal ops that are only ever called on some dtypes."""
POLYNOMIALS = tuple(name for name in POINTWISE if "polynomial" in name)


def arguments(op: Op, dtype: dt.dtype, rng: np.random.Generator, shape: tuple[int, ...]) -> Any:
    """Random arguments: tensors in random layouts, numbers and statics."""
    found: list[Any] = []
    for k, p in enumerate(op.params):
        if p.kind == op_.TENSOR:
            condition = op.promote == "where" and k == 0
            layout = "plain" if not found else str(rng.choice(LAYOUTS))
            if not found and rng.random() < 0.5:
                layout = str(rng.choice(("turned", "sliced", "shifted", "expanded")))
            found.append(tensor(rng, dt.bool_ if condition else dtype, shape, layout))
        elif p.kind == op_.SCALAR:
            found.append(0.5 if dtype.category >= dt.FLOAT else 2)
        else:
            found.append(STATICS.get(p.name, p.default))
    return found


@pytest.mark.parametrize("name", [n for n in POINTWISE if n not in POLYNOMIALS])
def test_every_op_in_float32_and_some_other_dtypes(name: str) -> None:
    seed = zlib.crc32(name.encode())
    rng = np.random.default_rng(seed)
    others = [DTYPES[1 + (seed + 5 * k) % (len(DTYPES) - 1)] for k in range(2)]
    for dtype in (dt.float32, *others):
        if dtype.category not in MEANINGFUL.get(name, (dtype.category,)):
            continue
        shape = SHAPES[int(rng.integers(1, len(SHAPES)))]
        check_same(Both(name, arguments(op_.get(name), dtype, rng, shape)))


@pytest.mark.parametrize("name", ["add2", "mul", "lt", "choose", "floor_divide", "clamp_between"])
@pytest.mark.parametrize("dtype", DTYPES, ids=lambda t: t.name)
def test_all_dtypes(name: str, dtype: dt.dtype) -> None:
    rng = np.random.default_rng(7)
    for shape in SHAPES[::2]:
        check_same(Both(name, arguments(op_.get(name), dtype, rng, shape)))


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("first", ["plain", "turned", "sliced", "shifted"])
def test_all_layouts(first: str, layout: str) -> None:
    rng = np.random.default_rng(1)
    for dtype in (dt.float32, dt.uint8, dt.complex64, dt.float64):
        for shape in SHAPES:
            a, b = tensor(rng, dtype, shape, first), tensor(rng, dtype, shape, layout)
            call = Both("add2", [a, b])
            assert check_same(call, exact=True)
            assert not call.fell_back


MIXED = [
    ("add2", dt.float32, dt.float64), ("add2", dt.int32, dt.bfloat16), ("mul", dt.uint8, dt.int8),
    ("true_divide", dt.int64, dt.int32), ("eq", dt.bool_, dt.float16),
    ("maximum", dt.int8, dt.int64), ("add2", dt.float32, dt.complex64),
    ("bitwise_and", dt.bool_, dt.int16),
    ("pow2", dt.bfloat16, dt.float16), ("lt", dt.int64, dt.float32),
]  # fmt: skip


@pytest.mark.parametrize(("name", "first", "second"), MIXED)
def test_operands_of_two_dtypes(name: str, first: dt.dtype, second: dt.dtype) -> None:
    rng = np.random.default_rng(2)
    a, b = tensor(rng, first, (7, 11)), tensor(rng, second, (7, 11), "turned")
    call = Both(name, [a, b])
    assert check_same(call)
    assert not call.fell_back


NUMBERS = [
    ("add2", dt.float32, 3), ("add2", dt.float32, 2**64 - 1), ("add2", dt.bfloat16, 1.001),
    ("maximum", dt.float32, None), ("mul", dt.uint8, 300), ("mul", dt.int64, -(2**63)),
    ("true_divide", dt.int32, 7), ("eq", dt.bfloat16, 0.3), ("add2", dt.float64, 1j),
    ("add2", dt.bool_, True), ("add2", dt.int32, 2.5), ("remainder", dt.int16, 5),
    ("clamp_between", dt.float16, 1.0003), ("eq", dt.int64, 2**62 + 1),
]  # fmt: skip


@pytest.mark.parametrize(("name", "dtype", "value"), NUMBERS)
def test_numbers_as_operands(name: str, dtype: dt.dtype, value: Any) -> None:
    rng = np.random.default_rng(3)
    x = tensor(rng, dtype, (50,))
    if value is None:
        value = x
    rest = [value] * (len(op_.get(name).params) - 1)
    call = Both(name, [x, *rest])
    assert check_same(call)
    assert not call.fell_back


@pytest.mark.parametrize("count", [1, 31, 1000, 200_000])
def test_integer_division_by_zero_is_an_error(count: int) -> None:
    rng = np.random.default_rng(4)
    a, b = tensor(rng, dt.int32, (count,)), tensor(rng, dt.int32, (count,))
    b.bits[...] = 3
    assert check_same(Both("floor_divide", [a, b]), exact=True)
    b.bits[count // 2] = 0
    _, found = Both("floor_divide", [a, b]).run()
    assert isinstance(found, RuntimeError)
    assert str(found) == "ZeroDivisionError"


@pytest.mark.parametrize("shape", [(300_000,), (700, 500), (2, 3, 70_000), (100_000, 3)])
@pytest.mark.parametrize("layout", ["plain", "turned", "row", "column", "sliced"])
def test_large_calls_run_in_chunks(shape: tuple[int, ...], layout: str) -> None:
    rng = np.random.default_rng(5)
    a, b = tensor(rng, dt.float32, shape), tensor(rng, dt.float32, shape, layout)
    assert check_same(Both("add2", [a, b]), exact=True)


def test_results_beyond_the_cache_are_streamed() -> None:
    rng = np.random.default_rng(6)
    count = 3_000_001
    a, b = tensor(rng, dt.float32, (count,)), tensor(rng, dt.float32, (count,), "shifted")
    assert check_same(Both("add2", [a, b]), exact=True)


def test_an_output_may_be_one_of_the_inputs() -> None:
    rng = np.random.default_rng(8)
    for layout in ("plain", "sliced", "turned"):
        a, b = tensor(rng, dt.float32, (40, 50), layout), tensor(rng, dt.float32, (40, 50))
        call = Both("add2", [a, b])
        if call.out_meta is not a._meta:
            continue
        wanted = a.bits + b.bits
        call.engine.compile(call.graph)([a, b], [a])
        np.testing.assert_array_equal(a.bits, wanted)
