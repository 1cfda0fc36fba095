"""Stored and computed forms of every dtype against the reference codec, and casts between them."""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np
import pytest

from lucerne._src.backends.cpu.emit.builder import I64, PTR, Module
from lucerne._src.backends.cpu.machine import STORED, LlvmScalar
from lucerne._src.backends.cpu.runtime.code import build, load
from lucerne._src.backends.reference import codec
from lucerne._src.base import dtype as dt
from lucerne._src.ir.scalar.protocol import s
from tests.cpu.lanes import over_lanes

Array = np.ndarray[Any, Any]
NARROW = [d for d in STORED if not d.native or d is dt.float16]
NUMBERS = [
    dt.bool_, dt.uint8, dt.int8, dt.int16, dt.int32, dt.int64, dt.uint16, dt.uint32, dt.uint64,
    dt.float32, dt.float64, dt.complex64,
]  # fmt: skip


def all_codes(dtype: dt.dtype) -> Array:
    bits = 8 * dtype.itemsize
    if bits > 16:
        return np.random.default_rng(0).integers(0, 1 << 32, 4096).astype(dtype.storage)
    return np.arange(1 << bits, dtype=np.uint32).astype(f"u{dtype.itemsize}").view(dtype.storage)


def floats() -> Array:
    """float32 numbers of all sizes, and the ones halfway between numbers of narrow types."""
    bits = np.arange(0, 1 << 32, 65521, dtype=np.uint64).astype(np.uint32)
    halves = (bits & np.uint32(0xFFFF0000)) | np.uint32(0x8000)
    coarse = (bits & np.uint32(0xFFF00000)) | np.uint32(0x00080000)
    return np.concatenate([bits, halves, halves + np.uint32(1), coarse]).view(np.float32)


@pytest.mark.parametrize("dtype", NARROW, ids=lambda d: d.name)
@pytest.mark.parametrize("lanes", [1, 16])
def test_widening_reads_every_code(dtype: dt.dtype, lanes: int) -> None:
    codes = all_codes(dtype)
    compute = dtype.compute
    got = over_lanes(lambda x: x, [dtype], compute, lanes)(codes)
    want = codec.cast(codec.widen(codes, dtype), compute.storage)
    np.testing.assert_array_equal(got, want)
    part = want.real.dtype
    signs = np.signbit(got.view(part)) == np.signbit(want.view(part))
    assert (signs | np.isnan(want.view(part))).all()


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("dtype", NARROW, ids=lambda d: d.name)
@pytest.mark.parametrize("lanes", [1, 16])
def test_narrowing_rounds_as_the_reference(dtype: dt.dtype, lanes: int) -> None:
    values = floats().astype(dtype.compute.storage)
    got = over_lanes(lambda x: x, [dtype.compute], dtype, lanes)(values)
    want = codec.narrow(values, dtype)
    np.testing.assert_array_equal(codec.widen(got, dtype), codec.widen(want, dtype))
    plain = ~np.isnan(codec.widen(want, dtype))
    np.testing.assert_array_equal(
        got[plain].view(f"u{dtype.itemsize}"), want[plain].view(f"u{dtype.itemsize}")
    )


def numbers(dtype: dt.dtype) -> Array:
    rng = np.random.default_rng(1)
    if dtype.category >= dt.FLOAT:
        sizes = [0.0, -0.0, 0.9, -0.9, 255.5, -1.5, 3e9, -3e9, 1e19, 2.0**63, 2.0**64, -1e19]
        values = np.array([*sizes, np.inf, -np.inf, np.nan, *rng.standard_normal(50) * 1e5])
        return values.astype(dtype.storage)
    if dtype is dt.bool_:
        return rng.integers(0, 2, 65).astype(bool)
    info = np.iinfo(dtype.storage)
    return rng.integers(info.min, info.max, 65, dtype=dtype.storage, endpoint=True)


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("source", NUMBERS, ids=lambda d: d.name)
@pytest.mark.parametrize("lanes", [1, 16])
def test_casts_agree_with_the_reference(source: dt.dtype, lanes: int) -> None:
    values = numbers(source)
    for target in NUMBERS:
        got = over_lanes(lambda x, t=target: s.cast(x, t), [source], target, lanes)(values)
        want = codec.cast(values, target.storage)
        np.testing.assert_array_equal(got, want, err_msg=f"to {target.name}")


# ---- strides and masks --------------------------------------------------------------------------


def moved(dtype: dt.dtype, lanes: int, count: int | None) -> Any:
    """A function (source, target, strides in bytes) that copies `lanes` elements, or `count`."""

    def write(m: Module) -> None:
        params = [("source", PTR), ("target", PTR), ("read", I64), ("write", I64)]
        with m.function("entry", params) as f:
            source, target, read, written = f.args
            machine = LlvmScalar(f, lanes)
            mask = None if count is None else f.low_mask(count, lanes)
            x = machine.load_strided(dtype, source, read, mask)
            machine.store_strided(x, dtype, target, written, mask)

    address = load(build(write))["entry"]
    words = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64]
    return ctypes.CFUNCTYPE(None, *words)(address)


@pytest.mark.parametrize("count", [None, 0, 5])
@pytest.mark.parametrize(
    "dtype", [dt.bool_, dt.int8, dt.bfloat16, dt.float32, dt.int64, dt.complex64], ids=str
)
def test_strided_elements_are_moved_and_others_left(dtype: dt.dtype, count: int | None) -> None:
    lanes = 8
    source = np.arange(1, 1 + 3 * lanes).astype(dtype.storage)
    target = np.zeros(2 * lanes, dtype.storage)
    moved(dtype, lanes, count)(
        source.ctypes.data, target.ctypes.data, 3 * dtype.itemsize, 2 * dtype.itemsize
    )
    want = np.zeros_like(target)
    upto = lanes if count is None else count
    want[: 2 * upto : 2] = source[: 3 * upto : 3]
    np.testing.assert_array_equal(target, want)
