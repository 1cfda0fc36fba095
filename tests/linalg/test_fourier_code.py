"""Fourier transforms in machine code: the error law, every factor, layouts, edges of memory."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import lucerne
from lucerne import backends
from lucerne._src.backends.cpu.fft import plan
from lucerne._src.base import dtype as dt
from lucerne._src.ir import op as ops
from lucerne._src.ir.graph import one_op_graph
from tests.cpu.guarded import Guest, guest

REALS = [dt.float32, pytest.param(dt.float64, marks=pytest.mark.nightly)]
LENGTHS = (
    *range(1, 33), 36, 49, 60, 64, 65, 77, 97, 100, 121, 128, 143, 169, 200, 243, 256, 257, 343,
    360, 512, 625, 720, 997, 1000, 1024, 1155, 2048, 2187,
)  # fmt: skip


def error_of(got: Any, truth: Any) -> float:
    """The root of the mean squared error, relative to that of the truth."""
    scale = np.sqrt((np.abs(truth) ** 2).mean())
    return float(np.sqrt((np.abs(got - truth) ** 2).mean()) / scale) if scale else 0.0


def law(n: int, dtype: Any) -> float:
    """What a good transform keeps to: errors grow with the root of the number of stages; they are
    twice as large where it takes a convolution. In float64 the truth is not exact either."""
    single = np.finfo(dtype).eps > 1e-10
    stages = (1 if plan.factors_of(n) else 2) * (0.6 + 0.3 * np.log2(max(n, 2)) ** 0.5)
    return float(np.finfo(dtype).eps) * (stages if single else stages + 1.2)


def obeys(got: Any, truth: Any, n: int) -> None:
    """Fail unless the result is of the right size and keeps to the law."""
    assert got.shape == truth.shape
    found, allowed = error_of(got, truth), law(n, got.dtype)
    assert found <= allowed, f"{n} points: error {found:.2e}, allowed {allowed:.2e}"


def drawn(rng: np.random.Generator, shape: Sequence[int], real: dt.dtype) -> Any:
    made = rng.standard_normal(shape) + 1j * rng.standard_normal(shape)
    return made.astype(real.to_complex().storage)


@pytest.mark.parametrize("real", REALS, ids=lambda d: d.name)
def test_the_error_law_at_every_kind_of_length(real: dt.dtype) -> None:
    rng = np.random.default_rng(0)
    for n in LENGTHS:
        for batch in ((), (19,)) if n < 300 else ((), (9,)):
            z = drawn(rng, (*batch, n), real)
            wide = z.astype(np.complex128)
            x = lucerne.from_numpy(z)
            obeys(lucerne.fft.fft(x).numpy(), np.fft.fft(wide), n)
            obeys(lucerne.fft.ifft(x, norm="ortho").numpy(), np.fft.ifft(wide, norm="ortho"), n)
            part = lucerne.from_numpy(z.real.copy())
            obeys(lucerne.fft.rfft(part).numpy(), np.fft.rfft(wide.real), n)
            half = lucerne.from_numpy(z[..., : n // 2 + 1].copy())
            want = np.fft.irfft(wide[..., : n // 2 + 1], n)
            obeys(lucerne.fft.irfft(half, n).numpy(), want, n)


def test_the_law_fails_for_a_worse_transform() -> None:
    rng = np.random.default_rng(1)
    truth = np.fft.fft(drawn(rng, (64,), dt.float64))
    obeys(truth.astype(np.complex64), truth, 64)
    with pytest.raises(AssertionError, match="error"):
        obeys((truth * (1 + 1e-6)).astype(np.complex64), truth, 64)
    with pytest.raises(AssertionError):
        obeys(truth[:-1].astype(np.complex64), truth, 64)


@settings(max_examples=40, deadline=None)
@given(st.data())
def test_any_dimensions_of_any_layout(data: st.DataObject) -> None:
    ndim = data.draw(st.integers(1, 4))
    shape = tuple(data.draw(st.integers(1, 9)) for _ in range(ndim))
    order = data.draw(st.permutations(range(ndim)))
    dims = data.draw(st.lists(st.sampled_from(range(ndim)), min_size=1, unique=True))
    step = data.draw(st.sampled_from([1, 2]))
    rng = np.random.default_rng(data.draw(st.integers(0, 9)))
    z = drawn(rng, (*shape[:-1], shape[-1] * step), dt.float32)[..., ::step].transpose(order)
    wide, x = z.astype(np.complex128), lucerne.from_numpy(z)
    count = max(1, z.size)
    obeys(lucerne.fft.fftn(x, dim=dims).numpy(), np.fft.fftn(wide, axes=dims), count)
    real = x.real
    obeys(lucerne.fft.rfftn(real, dim=dims).numpy(), np.fft.rfftn(wide.real, axes=dims), count)
    if z.shape[dims[-1]] > 1:
        obeys(lucerne.fft.irfftn(x, dim=dims).numpy(), np.fft.irfftn(wide, axes=dims), count)


@pytest.mark.parametrize("real", REALS, ids=lambda d: d.name)
@pytest.mark.parametrize("layout", ["planes", "gaps", "wide"])
def test_kernels_stay_inside_their_tensors(real: dt.dtype, layout: str) -> None:
    rng = np.random.default_rng(2)
    for shape, dims in (((3, 8), (1,)), ((17, 5), (0,)), ((35, 31), (1,)), ((2, 144), (1,)),
                        ((1, 1001), (1,)), ((4, 6, 10), (0, 2)), ((2, 3, 37), (1, 2))):  # fmt: skip
        z = guest(rng, shape, real.to_complex(), layout)
        x = guest(rng, shape, real, layout)
        count = int(np.prod([shape[d] for d in dims]))
        got = run_guarded("fft_c2c", z, dims, 0, True)
        obeys(got, np.fft.fftn(z.values.astype(np.complex128), axes=dims), count)
        got = run_guarded("fft_r2c", x, dims, 0)
        obeys(got, np.fft.rfftn(x.values.astype(np.float64), axes=dims), count)
        size = 2 * (shape[dims[-1]] - 1)
        sizes = [shape[d] for d in dims[:-1]] + [size]
        got = run_guarded("fft_c2r", z, dims, 2, size)
        obeys(got, np.fft.irfftn(z.values.astype(np.complex128), sizes, dims), count)


def run_guarded(name: str, x: Guest, *rest: Any) -> Any:
    """The result of an op's kernel on guarded memory; it must be machine code."""
    op = ops.get(name)
    assert op.meta is not None
    made = op.meta(x._meta, *rest)
    kernel = backends.get("cpu").compile(one_op_graph(op, (x._meta, *rest), (made,)))
    assert type(kernel).__name__ == "NativeKernel", f"{name} went to the reference"
    for at_end in (True, False):
        out = Guest(made, at_end)
        kernel([x], [out])
    return np.array(out.values)


def test_threads_change_no_bit() -> None:
    x = lucerne.from_numpy(drawn(np.random.default_rng(3), (300, 96), dt.float32))
    before = lucerne.get_num_threads()
    try:
        found = []
        for threads in (1, 2):
            lucerne.set_num_threads(threads)
            found.append(lucerne.fft.fft2(x).numpy())
    finally:
        lucerne.set_num_threads(before)
    np.testing.assert_array_equal(*found)


def test_a_few_long_transforms_of_an_awkward_length_go_to_the_reference() -> None:
    engine = backends.get("cpu")
    before = engine.fallbacks.get("fft_c2c", 0)
    x = drawn(np.random.default_rng(4), (1021,), dt.float64)
    obeys(lucerne.fft.fft(lucerne.from_numpy(x)).numpy(), np.fft.fft(x), 1 << 16)
    assert engine.fallbacks.get("fft_c2c", 0) >= before


def test_tables() -> None:
    for n in range(1, 400):
        radices = plan.factors_of(n)
        largest = max((p for p in range(2, n + 1) if n % p == 0 and _is_prime(p)), default=1)
        assert (radices is None) == (largest > 13)
        if radices is not None:
            assert int(np.prod(radices)) == n
        assert plan.smooth_from(n) >= n
        assert plan.factors_of(plan.smooth_from(n)) is not None
        k = np.arange(-2 * n, 2 * n)
        angle = (k % n).astype(np.longdouble) * 8 / n * np.arctan(np.longdouble(1))
        exact = np.cos(angle) - 1j * np.sin(angle)
        assert np.abs(plan.roots(n, k) - exact).max() < 4e-16
    assert plan.halves_of(1024) == (32, 32)
    assert plan.halves_of(997) is None


def _is_prime(n: int) -> bool:
    return all(n % p for p in range(2, int(n**0.5) + 1))


SCALES = st.sampled_from([0.0, 1e-30, 1e-6, 1.0, 3.0, 1e6, 1e30, float("inf"), float("nan")])


@given(st.lists(SCALES, min_size=1, max_size=40), st.sampled_from([2, 5, 8, 12, 17]), st.booleans())
@settings(max_examples=60, deadline=None)
def test_real_transforms_do_not_see_each_other(scales: list[float], n: int, last: bool) -> None:
    """Two are computed as one: the larger must not hide the smaller, nor a nan reach it."""
    rng = np.random.default_rng(0)
    rows = rng.standard_normal((len(scales), n)) * np.array(scales)[:, None]
    rows[~np.isfinite(rows)] = np.nan
    rows = rows.astype(np.float32)
    given_ = lucerne.tensor(rows if last else rows.T.copy())
    dim, turned = (1, np.asarray) if last else (0, np.transpose)
    there = turned(lucerne.fft.rfft(given_, dim=dim).numpy())
    half = rows[:, : n // 2 + 1]
    back = turned(lucerne.fft.hfft(given_.narrow(dim, 0, n // 2 + 1), n, dim=dim).numpy())
    for k, row in enumerate(rows):
        if np.isnan(row).any():
            assert np.isnan(there[k].real).all()
        else:
            obeys(there[k], np.fft.rfft(row.astype(np.float64)), 4 * n)
            obeys(back[k], np.fft.hfft(half[k].astype(np.float64), n), 4 * n)
