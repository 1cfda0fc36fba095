"""Factorisations: in the precision of the matrix, without what is not asked for, by any route."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import lucerne
from lucerne._src.backends.reference import lapack
from lucerne._src.backends.reference.rules import linalg as rules

DTYPES = {
    "single": np.float32,
    "double": np.float64,
    "complex": np.complex64,
    "complex double": np.complex128,
}


def matrix(n: int, m: int, dtype: Any, seed: int = 0) -> Any:
    draw = np.random.RandomState(seed)
    a = draw.standard_normal((n, m))
    return (a + 1j * draw.standard_normal((n, m)) if np.dtype(dtype).kind == "c" else a).astype(
        dtype
    )


def tolerance(dtype: Any) -> float:
    return 2e-4 if np.dtype(dtype).char in "fF" else 1e-10


def adjoint(a: Any) -> Any:
    return np.swapaxes(a, -1, -2).conj()


@pytest.mark.parametrize("dtype", DTYPES.values(), ids=DTYPES)
def test_products_of_factors_are_the_matrix(dtype: Any) -> None:
    """svd, eigh, qr, cholesky and lu, put together again."""
    a = matrix(6, 4, dtype)
    square = a @ adjoint(a) + 4 * np.eye(6, dtype=dtype)
    x, s = lucerne.from_numpy(a), lucerne.from_numpy(square)
    u, values, vh = (t.numpy() for t in lucerne.linalg.svd(x, full_matrices=False))
    q, r = (t.numpy() for t in lucerne.linalg.qr(x))
    e, v = (t.numpy() for t in lucerne.linalg.eigh(s))
    low = lucerne.linalg.cholesky(s).numpy()
    p, lower, upper = (t.numpy() for t in lucerne.linalg.lu(s))
    made = [(u * values @ vh, a), (q @ r, a), (v * e @ adjoint(v), square)]
    made += [(low @ adjoint(low), square), (p @ lower @ upper, square)]
    for got, want in made:
        assert got.dtype == dtype
        np.testing.assert_allclose(got, want, atol=tolerance(dtype) * 10)


@pytest.mark.parametrize("dtype", DTYPES.values(), ids=DTYPES)
def test_values_alone_are_those_of_the_whole(dtype: Any) -> None:
    a = matrix(5, 5, dtype)
    x = lucerne.from_numpy(a + adjoint(a))
    near = {"rtol": tolerance(dtype), "atol": tolerance(dtype)}
    values = lucerne.linalg.svdvals(x).numpy()
    np.testing.assert_allclose(values, lucerne.linalg.svd(x).S.numpy(), **near)
    for side in "LU":
        alone = lucerne.linalg.eigvalsh(x, side).numpy()
        np.testing.assert_allclose(alone, lucerne.linalg.eigh(x, side).eigenvalues.numpy(), **near)


@pytest.mark.parametrize("name", ["svdvals", "eigvalsh"])
def test_values_alone_have_first_and_second_derivatives(name: str) -> None:
    a = lucerne.from_numpy(matrix(4, 4, np.float64)).requires_grad_()

    def values(x: Any) -> Any:
        return getattr(lucerne.linalg, name)(x + x.mT)

    assert lucerne.autograd.gradcheck(values, (a,))
    assert lucerne.autograd.gradgradcheck(values, (a,))


@pytest.mark.parametrize("complete", [False, True], ids=["reduced", "complete"])
@pytest.mark.parametrize("size", [(5, 3), (3, 5), (4, 4), (1, 1)], ids=str)
def test_qr_by_either_route_is_one(size: tuple[int, int], complete: bool) -> None:
    """In single precision by LAPACK's own routines, in double by NumPy's."""
    a = matrix(*size, np.float32)
    q, r = rules.qr_factors(a, complete)
    wide_q, wide_r = rules.qr_factors(a.astype(np.float64), complete)
    np.testing.assert_allclose(q @ r, a, atol=1e-5)
    np.testing.assert_allclose(r, wide_r, atol=1e-4)
    assert q.shape == wide_q.shape


@given(st.integers(1, 12), st.integers(1, 5), st.booleans(), st.booleans(), st.booleans())
@settings(max_examples=40, deadline=None)
def test_triangular_systems(n: int, m: int, upper: bool, unit: bool, by_rows: bool) -> None:
    """By BLAS and by substitution, whatever the order of the matrix in memory."""
    a = matrix(n, n, np.float64, n) + 3 * np.eye(n)
    b = matrix(n, m, np.float64, m)
    a = a if by_rows else np.asfortranarray(a)
    whole = np.triu(a) if upper else np.tril(a)
    if unit:
        np.fill_diagonal(whole, 1)
    found = rules.tri_solve(a, b, upper, True, unit)
    np.testing.assert_allclose(whole @ found, b, atol=1e-6)
    again = rules._substitute(a[None], b[None], upper, unit)[0]
    np.testing.assert_allclose(found, again, atol=1e-6)


@given(st.lists(st.integers(0, 100), min_size=1, max_size=20), st.integers(0, 5))
def test_exchanges_make_a_permutation(numbers: list[int], extra: int) -> None:
    n = len(numbers) + extra
    pivots = np.array([j + 1 + k % (n - j) for j, k in enumerate(numbers)])
    one = rules.pivots_to_permutation(pivots, n)
    many = rules.pivots_to_permutation(np.tile(pivots, (n + 1, 1)), n)  # by arrays
    assert sorted(one) == list(range(n))
    assert (many == one).all()


def test_a_numpy_without_the_inner_functions_still_works(monkeypatch: pytest.MonkeyPatch) -> None:
    a = matrix(4, 4, np.float32)
    monkeypatch.setattr(lapack, "_INNER", None)
    found = lapack.run("svd", lambda x: np.linalg.svd(x, compute_uv=False), a)
    np.testing.assert_allclose(found, np.linalg.svd(a, compute_uv=False), rtol=1e-5)


def test_a_failed_iteration_raises_by_either_route() -> None:
    bad = np.full((2, 2), np.nan)
    for dtype in (np.float32, np.float64):
        with pytest.raises(np.linalg.LinAlgError):
            lapack.run("svd", lambda x: np.linalg.svd(x, compute_uv=False), bad.astype(dtype))


@pytest.mark.parametrize("driver", ["gels", "gelsy", "gelsd"])
@pytest.mark.parametrize("size", [(6, 3), (3, 6)], ids=["tall", "wide"])
def test_least_squares_by_every_driver(driver: str, size: tuple[int, int]) -> None:
    a, b = matrix(*size, np.float64), matrix(size[0], 2, np.float64, 1)
    found = lucerne.linalg.lstsq(lucerne.from_numpy(a), lucerne.from_numpy(b), driver=driver)
    np.testing.assert_allclose(found.solution.numpy(), np.linalg.pinv(a) @ b, atol=1e-8)


OUT = {
    "matrix_power": lambda out: lucerne.linalg.matrix_power(lucerne.eye(2), 3, out=out),
    "multi_dot": lambda out: lucerne.linalg.multi_dot([lucerne.eye(2)] * 3, out=out),
    "vecdot": lambda out: lucerne.linalg.vecdot(lucerne.eye(2), lucerne.eye(2), out=out),
    "ihfft": lambda out: lucerne.fft.ihfft(lucerne.ones(4), out=out),
}


@pytest.mark.parametrize("name", OUT)
def test_results_are_not_widened_into_out(name: str) -> None:
    wide = lucerne.complex128 if name == "ihfft" else lucerne.float64
    with pytest.raises(RuntimeError, match="Expected out tensor to have dtype"):
        OUT[name](lucerne.zeros(2, 2, dtype=wide))


def test_a_power_that_is_copied_may_be_widened() -> None:
    out = lucerne.linalg.matrix_power(2 * lucerne.eye(2), 4, out=lucerne.zeros(2, 2).double())
    assert out.dtype is lucerne.float64
    assert out[0, 0] == 16


def test_fft_names_the_tensor_class_as_torch_does() -> None:
    assert lucerne.fft.Tensor is lucerne.Tensor
