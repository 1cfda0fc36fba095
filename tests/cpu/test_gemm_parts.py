"""float32 products on tiles, each number in three parts: as exact as products of whole numbers.

Errors are measured against float64 and compared with those of vector instructions, which multiply
and add float32 numbers as they are (`float32_parts` switches between the two).
"""

from __future__ import annotations

import ctypes
import itertools
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from lucerne._src.backends.cpu.emit.builder import LLVMFunction, LLVMValue
from lucerne._src.backends.cpu.gemm.amx.products import parts_take, parts_work
from lucerne._src.backends.cpu.gemm.choose import choose, duration
from lucerne._src.backends.cpu.gemm.epilogue import ACROSS, FULL, PLAIN, Combine, Epilogue
from lucerne._src.backends.cpu.gemm.kinds import KINDS
from lucerne._src.backends.cpu.gemm.plan import GemmProduct
from lucerne._src.backends.cpu.gemm.prepack import prepack
from lucerne._src.backends.cpu.gemm.shape import describe, expanded_strides
from lucerne._src.backends.cpu.runtime import pool
from lucerne._src.backends.cpu.runtime.kernel import NativeKernel
from lucerne._src.base import dtype as dt
from lucerne._src.base.config import config
from lucerne._src.base.device import device
from lucerne._src.ir.meta import TensorMeta, make_meta
from tests.cpu.guarded import Guest

pytestmark = pytest.mark.skipif(
    not parts_work(), reason="this machine has no AMX tiles for bfloat16"
)

Array = np.ndarray[Any, Any]
HOST = device("cpu")
FLOAT32 = KINDS["float32"]
PLAIN_ROWS, TURNED, PADDED = "plain", "turned", "padded"
LAYOUTS = (PLAIN_ROWS, TURNED, PADDED)
SLACK = 1.2
"""Errors may be this much larger than those of whole numbers; in fact they are smaller."""


@contextmanager
def parts(on: bool) -> Iterator[None]:
    before, config.float32_parts = config.float32_parts, on
    try:
        yield
    finally:
        config.float32_parts = before


def guest(values: Array, layout: str = PLAIN_ROWS, *, at_end: bool = True) -> Guest:
    """A matrix (or a batch of them) between pages that nobody may touch."""
    shape = values.shape
    strides = list(np.empty(shape[:-2] + shape[:-3:-1] if layout == TURNED else shape).strides)
    if layout == TURNED:
        strides[-2:] = strides[:-3:-1]
    strides = [s // 8 for s in strides]
    if layout == PADDED:
        strides[:-1] = [s // shape[-1] * (shape[-1] + 5) for s in strides[:-1]]
    made = Guest(make_meta(dt.float32, shape, tuple(strides), HOST), at_end)
    made.fill(values)
    return made


def plain(shape: tuple[int, ...]) -> TensorMeta:
    return make_meta(dt.float32, shape, None, HOST)


def run(kernel: NativeKernel, inputs: list[Any], out: Guest) -> Array:
    """The result, computed over scratch full of nan."""
    words, space = kernel.block(inputs, [out])
    if kernel.workspace:
        ctypes.memset(words[1 + len(inputs)], 0xFF, kernel.workspace)
    assert kernel.call(ctypes.addressof(words)) == 0
    del space
    return out.values.copy()


def multiply(
    a: Guest,
    b: Guest,
    added: Guest | None = None,
    epilogue: Epilogue = PLAIN,
    *,
    in_parts: bool = True,
) -> Array:
    """a @ b by tiles, or by vectors; asserts that the way that was asked for is taken."""
    shape = (*np.broadcast_shapes(a._meta.shape[:-2], b._meta.shape[:-2]), a._meta.shape[-2])
    out = Guest(plain((*shape, b._meta.shape[-1])), at_end=a._meta.shape[-1] % 2 == 0)
    strides = None if added is None else expanded_strides(added._meta, out._meta.shape)
    p = describe(a._meta, b._meta, out._meta, strides)
    assert p is not None
    with parts(in_parts):
        assert parts_take(p) == in_parts, "another way to multiply than the test is about"
        code, planned = choose(FLOAT32, p, epilogue)
    given = [a, b] if added is None else [a, b, added]
    entry = "product" if added is None else "linear"
    kernel = NativeKernel(
        code[entry], 1, len(given), extra=planned.words, workspace=planned.workspace,
        work=duration(FLOAT32, p),
    )  # fmt: skip
    return run(kernel, given, out)


def exact(a: Guest, b: Guest) -> Array:
    return a.values.astype(np.float64) @ b.values.astype(np.float64)


def assert_as_exact(a: Guest, b: Guest, in_parts: Array, whole: Array) -> None:
    """Errors over what is added up, in the mean and at worst, against those of whole numbers.

    What the format cannot hold (results below 2^-126) is left out of the comparison.
    """
    wanted = exact(a, b)
    size = np.abs(a.values).astype(np.float64) @ np.abs(b.values).astype(np.float64)
    size = np.maximum(size, 1e-36)
    errors = [np.abs(found.astype(np.float64) - wanted) / size for found in (in_parts, whole)]
    mean = [float(np.sqrt((e**2).mean())) for e in errors]
    worst = [float(e.max()) for e in errors]
    assert mean[0] <= SLACK * mean[1], ("mean", mean)
    assert worst[0] <= SLACK * worst[1], ("worst", worst)


def compare(a: Guest, b: Guest) -> None:
    assert_as_exact(a, b, multiply(a, b), multiply(a, b, in_parts=False))


def test_the_comparison_notices_bfloat16() -> None:
    rng = np.random.default_rng(0)
    a, b = guest(rng.standard_normal((256, 256))), guest(rng.standard_normal((256, 256)))
    whole = multiply(a, b, in_parts=False)
    rounded = a.values.view(np.uint32) & np.uint32(
        0xFFFF8000
    )  # nine bits of a number are not enough
    found = (rounded.view(np.float32).astype(np.float64) @ b.values).astype(np.float32)
    with pytest.raises(AssertionError, match="mean"):
        assert_as_exact(a, b, found, whole)
    one_off = whole.copy()
    one_off[3, 5] += 1e-4
    with pytest.raises(AssertionError, match="worst"):
        assert_as_exact(a, b, one_off, whole)


# ---- errors -----------------------------------------------------------------------------------

SHAPES = [
    (256, 384, 384), (200, 333, 401), (321, 353, 130), (193, 1000, 65), (700, 193, 1537),
    (160, 150, 8192), (150, 420, 900),
]  # fmt: skip


@pytest.mark.parametrize("sizes", SHAPES, ids=str)
def test_errors_of_every_layout(sizes: tuple[int, int, int]) -> None:
    m, n, k = sizes
    rng = np.random.default_rng(1)
    left, right = rng.standard_normal((m, k)), rng.standard_normal((k, n))
    for first, second in ((PLAIN_ROWS, TURNED), (TURNED, PADDED), (PADDED, PLAIN_ROWS)):
        compare(guest(left, first), guest(right, second, at_end=k % 2 == 0))


def _mixed(rng: np.random.Generator, m: int, n: int, k: int) -> tuple[Array, Array]:
    """Rows of A and columns of B of very different sizes."""
    powers = [10.0 ** rng.integers(-15, 16, shape) for shape in ((m, 1), (1, n))]
    return rng.standard_normal((m, k)) * powers[0], rng.standard_normal((k, n)) * powers[1]


def _mixed_along(rng: np.random.Generator, m: int, n: int, k: int) -> tuple[Array, Array]:
    """Numbers of one sum of very different sizes."""
    powers = 10.0 ** rng.integers(-9, 10, (1, k))
    return rng.standard_normal((m, k)) * powers, rng.standard_normal((k, n)) / powers.T


def _cancelling(rng: np.random.Generator, m: int, n: int, k: int) -> tuple[Array, Array]:
    """Sums much smaller than their terms: the second half takes the first one back, almost."""
    a, b = rng.standard_normal((m, k // 2)), rng.standard_normal((k // 2, n))
    near = a * (1 + 1e-5 * rng.standard_normal(a.shape))
    return np.concatenate([a, near], 1), np.concatenate([b, -b], 0)


def _positive(rng: np.random.Generator, m: int, n: int, k: int) -> tuple[Array, Array]:
    return rng.random((m, k)), rng.random((k, n))


def _scaled(a: float, b: float) -> Any:
    def make(rng: np.random.Generator, m: int, n: int, k: int) -> tuple[Array, Array]:
        return a * rng.standard_normal((m, k)), b * rng.standard_normal((k, n))

    return make


NUMBERS = {
    "tiny": _scaled(1e-30, 1), "tiny and huge": _scaled(1e-30, 1e30), "huge": _scaled(1, 1e30),
    "huge and tiny": _scaled(1e36, 1e-30), "mixed rows": _mixed, "mixed terms": _mixed_along,
    "cancelling": _cancelling, "positive": _positive,
}  # fmt: skip


@pytest.mark.parametrize("sizes", [(200, 256, 512), (150, 160, 3000)], ids=str)
@pytest.mark.parametrize("numbers", NUMBERS)
def test_errors_of_numbers_of_any_size(numbers: str, sizes: tuple[int, int, int]) -> None:
    left, right = NUMBERS[numbers](np.random.default_rng(2), *sizes)
    compare(guest(left), guest(right, TURNED))


def test_integers_are_exact() -> None:
    """Sums of whole numbers below 2^24, and numbers times one."""
    rng = np.random.default_rng(3)
    left, right = rng.integers(-2000, 2001, (256, 320)), rng.integers(-20, 21, (320, 256))
    a, b = guest(left.astype(np.float64)), guest(right.astype(np.float64))
    np.testing.assert_array_equal(multiply(a, b), left @ right)
    eye = np.eye(256, dtype=np.float64)
    any_numbers = rng.standard_normal((256, 256)) * 10.0 ** rng.integers(-24, 30, (256, 256))
    x = guest(any_numbers)
    np.testing.assert_array_equal(multiply(x, guest(eye)), x.values)
    np.testing.assert_array_equal(multiply(guest(eye), x), x.values)


@settings(max_examples=25, deadline=None)
@given(
    st.tuples(st.integers(100, 300), st.integers(100, 500), st.integers(64, 500)),
    st.sampled_from(LAYOUTS),
    st.sampled_from(LAYOUTS),
    st.booleans(),
    st.integers(0, 1000),
)
def test_any_shape(
    sizes: tuple[int, int, int], first: str, second: str, at_end: bool, seed: int
) -> None:
    m, n, k = sizes
    assume(parts_take(GemmProduct(m, n, k, k, 1, n, 1, n)))
    rng = np.random.default_rng(seed)
    a = guest(rng.standard_normal((m, k)), first, at_end=at_end)
    b = guest(rng.standard_normal((k, n)), second, at_end=not at_end)
    size = np.abs(a.values) @ np.abs(b.values)
    assert np.max(np.abs(multiply(a, b) - exact(a, b)) / size) < 6e-7


# ---- numbers that parts cannot hold -----------------------------------------------------------

LARGEST = 3.4e38
"""Finite, and rounded to infinity as a bfloat16."""


def _with_specials(a: Array, b: Array, where: str) -> None:
    if "A" in where:
        a[3, 5], a[40, 1], a[50, 2], a[-1, -1] = np.inf, np.nan, LARGEST, -np.inf
        a[60, :], a[60, 7] = 0.0, LARGEST
    if "B" in where:
        b[7, 9], b[8, 70], b[9, 100], b[-1, -1] = -np.inf, np.nan, -LARGEST, np.inf
        b[:, 33], b[11, 33] = 0.0, LARGEST


def assert_same_specials(found: Array, wanted: Array) -> None:
    for kind in (np.isnan, np.isposinf, np.isneginf):
        np.testing.assert_array_equal(kind(found), kind(wanted), kind.__name__)
    finite = np.isfinite(wanted)
    np.testing.assert_allclose(found[finite], wanted[finite], 1e-4, 1e-6)


def test_the_check_of_specials_can_fail() -> None:
    wanted = np.array([1.0, np.inf, np.nan])
    assert_same_specials(wanted.copy(), wanted)
    for at, value in ((0, 1.1), (0, np.nan), (1, -np.inf), (2, 0.0)):
        found = wanted.copy()
        found[at] = value
        with pytest.raises(AssertionError):
            assert_same_specials(found, wanted)


@pytest.mark.parametrize("packed", [False, True], ids=["as it lies", "prepacked"])
@pytest.mark.parametrize("where", ["A", "B", "AB"])
@pytest.mark.parametrize("sizes", [(256, 390, 130), (130, 2100, 450)], ids=str)
def test_infinities_nans_and_the_largest(
    sizes: tuple[int, int, int], where: str, packed: bool
) -> None:
    m, n, k = sizes
    rng = np.random.default_rng(4)
    left, right = 0.01 * rng.standard_normal((m, k)), 0.01 * rng.standard_normal((k, n))
    _with_specials(left, right, where)
    for first, second in (PLAIN_ROWS, PLAIN_ROWS), (TURNED, TURNED):
        a, b = guest(left, first), guest(right, second)
        with np.errstate(all="ignore"):
            wanted = exact(a, b).astype(np.float32)
        found = multiply_packed(a, b) if packed else multiply(a, b)
        assert_same_specials(found, wanted)


def test_sums_that_overflow_are_infinite() -> None:
    a, b = guest(np.full((256, 256), 1e20)), guest(np.full((256, 256), 1e19))
    assert np.isposinf(multiply(a, b)).all()
    np.testing.assert_allclose(multiply(a, guest(np.full((256, 256), 1e16))), 2.56e38, 1e-6)


def test_what_denormals_lose() -> None:
    """Parts below 2^-126 count as zero: a number changes by less than that, one from 2^-103 on not
    at all. Whole products keep denormal numbers."""
    rng = np.random.default_rng(5)
    b = guest(rng.standard_normal((256, 256)) * 2.0**20)
    lost = 2.0**-126 * np.abs(b.values.astype(np.float64)).sum(0)
    for power in (-103, -106, -110, -118, -126):
        a = guest(rng.uniform(1, 2, (256, 256)) * 2.0**power)
        size = np.abs(a.values.astype(np.float64)) @ np.abs(b.values)
        rounded = 3e-7 * size + (lost if power < -103 else 0.0)
        assert (np.abs(multiply(a, b) - exact(a, b)) < rounded).all(), power
    a = guest(np.full((256, 256), 2.0**-130))
    assert not multiply(a, guest(np.ones((256, 256)))).any()
    assert multiply(a, guest(np.ones((256, 256))), in_parts=False).all()


# ---- everything around a product --------------------------------------------------------------


def multiply_packed(a: Guest, b: Guest) -> Array:
    packed = prepack(b)
    out = Guest(plain((a._meta.shape[0], b._meta.shape[1])))
    return run(packed.product(a._meta, out._meta), [a, packed], out)


@pytest.mark.parametrize("sizes", [(256, 390, 130), (130, 2100, 450)], ids=str)
def test_a_packed_operand_changes_nothing(sizes: tuple[int, int, int]) -> None:
    m, n, k = sizes
    rng = np.random.default_rng(6)
    for first, second in itertools.product(LAYOUTS[:2], LAYOUTS[:2]):
        a = guest(rng.standard_normal((m, k)), first)
        b = guest(rng.standard_normal((k, n)), second)
        np.testing.assert_array_equal(multiply_packed(a, b), multiply(a, b))


@pytest.mark.parametrize(
    "batches",
    [((5,), (5,)), ((2, 3), (1, 3)), ((4,), ()), ((3,), (1,))],
    ids=str,
)
@pytest.mark.parametrize("sizes", [(160, 384, 130), (150, 200, 800)], ids=str)
def test_batches(batches: tuple[Any, Any], sizes: tuple[int, int, int]) -> None:
    m, n, k = sizes
    rng = np.random.default_rng(7)
    for first, second in ((PLAIN_ROWS, TURNED), (TURNED, PLAIN_ROWS)):
        a = guest(rng.standard_normal((*batches[0], m, k)), first)
        b = guest(rng.standard_normal((*batches[1], k, n)), second)
        np.testing.assert_allclose(multiply(a, b), exact(a, b), 0, 6e-7 * k)


def _relu(f: LLVMFunction, v: LLVMValue) -> LLVMValue:
    return f.select(f.compare("lt", v, 0.0), 0.0, v)


@pytest.mark.parametrize("spread", [ACROSS, FULL])
@pytest.mark.parametrize("active", [False, True])
@pytest.mark.parametrize("sizes", [(256, 384, 384), (321, 353, 130), (300, 200, 900)], ids=str)
def test_epilogues(sizes: tuple[int, int, int], active: bool, spread: str) -> None:
    """The bits of the product, with what is added to it."""
    m, n, k = sizes
    rng = np.random.default_rng(8)
    a, b = guest(rng.standard_normal((m, k))), guest(rng.standard_normal((k, n)), TURNED)
    e = guest(rng.standard_normal((1 if spread == ACROSS else m, n)))
    activation = {"activation": _relu, "name": "relu"} if active else {}
    found = multiply(a, b, e, Combine(spread, **activation))  # type: ignore[arg-type]
    wanted = multiply(a, b) + e.values
    np.testing.assert_array_equal(found, np.maximum(wanted, 0) if active else wanted)


@pytest.mark.parametrize(
    "sizes", [(256, 384, 384), (321, 353, 130), (150, 2200, 900), (1100, 384, 800)], ids=str
)
def test_results_do_not_depend_on_the_number_of_threads(sizes: tuple[int, int, int]) -> None:
    m, n, k = sizes
    rng = np.random.default_rng(9)
    before = pool.threads()
    try:
        for first, second in itertools.product(LAYOUTS[:2], LAYOUTS[:2]):
            a = guest(rng.standard_normal((m, k)), first)
            b = guest(rng.standard_normal((k, n)), second)
            found = []
            for threads in (1, 2, 3):
                pool.set_threads(threads)
                found.append(multiply(a, b))
            assert all(np.array_equal(f, found[0]) for f in found)
    finally:
        pool.set_threads(before)


def test_a_row_does_not_depend_on_the_other_rows() -> None:
    """As long as products are large enough for tiles; a column neither."""
    rng = np.random.default_rng(10)
    left, right = rng.standard_normal((700, 420)), rng.standard_normal((420, 900))
    whole = multiply(guest(left), guest(right))
    for rows in (200, 256, 257, 651):
        np.testing.assert_array_equal(multiply(guest(left[:rows]), guest(right)), whole[:rows])
    for columns in (200, 352, 771):
        found = multiply(guest(left), guest(right[:, :columns]))
        np.testing.assert_array_equal(found, whole[:, :columns])


# ---- the switch -------------------------------------------------------------------------------

_SWITCHED = """
import lucerne
from lucerne._src.backends.cpu.gemm.amx.products import parts_take
from lucerne._src.backends.cpu.gemm.plan import GemmProduct
print(parts_take(GemmProduct(512, 512, 512, 512, 1, 512, 1, 512)))
"""


@pytest.mark.parametrize("value", ["0", "1"])
def test_the_environment_switches_parts(value: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", _SWITCHED],
        env={**os.environ, "LUCERNE_FLOAT32_PARTS": value},
        capture_output=True,
        text=True,
        timeout=100,
        check=True,
    )
    assert done.stdout.strip() == str(value == "1")
