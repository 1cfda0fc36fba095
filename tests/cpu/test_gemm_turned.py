"""float32 products whose right operand is taken for the left one: the same bits, no byte beyond."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lucerne._src.backends.cpu.gemm.amx.pack import IN_PARTS, IN_PARTS_TURNED, Wide
from lucerne._src.backends.cpu.gemm.amx.products import (
    amx_driver,
    amx_plan,
    parts_work,
    turned_takes,
)
from lucerne._src.backends.cpu.gemm.choose import choose
from lucerne._src.backends.cpu.gemm.epilogue import ACROSS, FULL, PLAIN, Combine, Epilogue
from lucerne._src.backends.cpu.gemm.prepack import suits_packed
from lucerne._src.backends.cpu.gemm.shape import describe, expanded_strides
from lucerne._src.backends.cpu.runtime import pool
from lucerne._src.backends.cpu.runtime.kernel import NativeKernel
from tests.cpu.guarded import Guest
from tests.cpu.test_gemm_parts import FLOAT32, PADDED, PLAIN_ROWS, TURNED, Array, guest, plain, run

pytestmark = pytest.mark.skipif(
    not parts_work(), reason="this machine has no AMX tiles for bfloat16"
)


@contextmanager
def threads(count: int) -> Iterator[None]:
    before = pool.threads()
    pool.set_threads(count)
    try:
        yield
    finally:
        pool.set_threads(before)


def multiply(
    a: Guest, b: Guest, how: Wide, added: Guest | None = None, epilogue: Epilogue = PLAIN
) -> Array:
    """a @ b the one way or the other."""
    out = Guest(plain((a._meta.shape[0], b._meta.shape[1])), at_end=a._meta.shape[1] % 2 == 0)
    strides = None if added is None else expanded_strides(added._meta, out._meta.shape)
    p = describe(a._meta, b._meta, out._meta, strides)
    assert p is not None
    planned = amx_plan(FLOAT32, p, epilogue, wide=how)
    given = [a, b] if added is None else [a, b, added]
    entry = amx_driver(FLOAT32, how)["product" if added is None else "linear"]
    return run(
        NativeKernel(entry, 1, len(given), extra=planned.words, workspace=planned.workspace),
        given,
        out,
    )


def assert_same(a: Guest, b: Guest, added: Guest | None = None, e: Epilogue = PLAIN) -> None:
    found, wanted = (multiply(a, b, how, added, e) for how in (IN_PARTS_TURNED, IN_PARTS))
    np.testing.assert_array_equal(found, wanted)


SIZES = [
    (64, 256, 784), (64, 256, 256), (48, 100, 600), (65, 131, 777), (33, 70, 64), (100, 257, 97),
    (384, 800, 65), (50, 1000, 3001),
]  # fmt: skip


@pytest.mark.parametrize("sizes", SIZES, ids=str)
def test_the_bits_are_those_of_the_other_order(sizes: tuple[int, int, int]) -> None:
    m, n, k = sizes
    rng = np.random.default_rng(0)
    left, right = rng.standard_normal((m, k)), rng.standard_normal((k, n))
    for rows in (PLAIN_ROWS, PADDED):
        assert_same(guest(left, rows), guest(right, TURNED, at_end=n % 2 == 0))


@settings(max_examples=20, deadline=None)
@given(
    st.tuples(st.integers(16, 200), st.integers(16, 300), st.integers(32, 500)),
    st.sampled_from((1, 2, 3)),
)
def test_any_size_on_any_number_of_threads(sizes: tuple[int, int, int], count: int) -> None:
    m, n, k = sizes
    rng = np.random.default_rng(m + n + k)
    with threads(count):
        assert_same(guest(rng.standard_normal((m, k))), guest(rng.standard_normal((k, n)), TURNED))


@pytest.mark.parametrize("shape", ["row", "all"])
def test_what_is_added_lies_under_the_result(shape: str) -> None:
    rng = np.random.default_rng(1)
    m, n, k = 70, 200, 300
    bias = guest(rng.standard_normal((1, n) if shape == "row" else (m, n)))
    epilogue = Combine(ACROSS if shape == "row" else FULL)
    assert_same(
        guest(rng.standard_normal((m, k))),
        guest(rng.standard_normal((k, n)), TURNED),
        bias,
        epilogue,
    )


def test_numbers_that_are_not_finite() -> None:
    rng = np.random.default_rng(2)
    for odd, spot in itertools.product((np.inf, -np.inf, np.nan), ("left", "right")):
        left, right = rng.standard_normal((64, 784)), rng.standard_normal((784, 256))
        (left if spot == "left" else right)[37, 61] = odd
        a, b = guest(left), guest(right, TURNED)
        found = multiply(a, b, IN_PARTS_TURNED)
        with np.errstate(invalid="ignore"):
            wanted = a.values.astype(np.float64) @ b.values.astype(np.float64)
        np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-3)


def test_weights_that_meet_few_rows_are_multiplied_so() -> None:
    """`choose` takes that way for a batch of 64, and its results are those of a kept weight."""
    rng = np.random.default_rng(3)
    a, b = guest(rng.standard_normal((64, 784))), guest(rng.standard_normal((784, 256)), TURNED)
    out = Guest(plain((64, 256)))
    p = describe(a._meta, b._meta, out._meta)
    assert p is not None
    assert turned_takes(p)
    assert suits_packed(FLOAT32, p)
    code, planned = choose(FLOAT32, p)
    kernel = NativeKernel(code["product"], 1, 2, extra=planned.words, workspace=planned.workspace)
    np.testing.assert_array_equal(run(kernel, [a, b], out), multiply(a, b, IN_PARTS))


def test_the_comparison_notices_another_order() -> None:
    """Sums over other blocks of k have other last bits."""
    rng = np.random.default_rng(4)
    a, b = guest(rng.standard_normal((64, 784))), guest(rng.standard_normal((784, 256)), TURNED)
    swapped = guest(a.values[:, ::-1].copy()), guest(b.values[::-1].copy(), TURNED)
    assert not np.array_equal(multiply(a, b, IN_PARTS_TURNED), multiply(*swapped, IN_PARTS_TURNED))
