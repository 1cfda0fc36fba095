"""Factorisations, systems and transforms in machine code: values, edges of memory, failures."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

import lucerne
from lucerne import backends
from lucerne._src.backends.cpu.linalg import lapack
from lucerne._src.backends.reference.rules import linalg as rules
from lucerne._src.base import dtype as dt
from lucerne._src.ir import op as ops
from lucerne._src.ir.graph import one_op_graph
from lucerne._src.tensor.eager import plans
from tests.cpu.guarded import Guest, guest

DTYPES = [
    dt.float32, dt.complex128,
    *(pytest.param(d, marks=pytest.mark.nightly) for d in (dt.float64, dt.complex64)),
]  # fmt: skip
"""Each has machine code of its own, which takes a second to compile: two are for the night."""
SIZES = (1, 6, 7, 17, 33)
"""On both sides of where one way of computing ends and the next begins."""
LAYOUTS = ("planes", "gaps", "wide")


def tolerance(dtype: dt.dtype) -> float:
    return 2e-3 if dtype.to_real() is dt.float32 else 1e-9


def run_guarded(name: str, args: Sequence[Any]) -> list[Any]:
    """An op's kernel on guarded tensors: its results as arrays; it must be machine code."""
    op = ops.get(name)
    metas = tuple(a._meta if isinstance(a, Guest) else a for a in args)
    assert op.meta is not None
    made = op.meta(*metas)
    outs = list(made) if isinstance(made, tuple) else [made]
    kernel = backends.get("cpu").fuse(one_op_graph(op, metas, outs))
    assert kernel is not None, f"{name} went to the reference"
    for at_end in (True, False):
        targets = [Guest(m, at_end) for m in outs]
        kernel([a for a in args if isinstance(a, Guest)], targets)
    return [np.array(t.values) for t in targets]


def system(rng: np.random.Generator, dtype: dt.dtype, n: int, layout: str) -> tuple[Guest, Any]:
    """Matrices far from singular ones, and their numbers."""
    a = guest(rng, (3, n, n), dtype, layout)
    a.fill(a.values / n + 2 * np.eye(n))
    return a, a.values.astype(np.complex128 if dtype.is_complex else np.float64)


def adjoint(a: Any) -> Any:
    return np.swapaxes(a.conj(), -1, -2)


def agree(got: Any, want: Any, dtype: dt.dtype) -> None:
    np.testing.assert_allclose(got, want, tolerance(dtype), tolerance(dtype))


@pytest.mark.parametrize("dtype", DTYPES, ids=lambda d: d.name)
def test_solutions_are_numpys(dtype: dt.dtype) -> None:
    rng = np.random.default_rng(0)
    for k, n in enumerate(SIZES):
        layout = LAYOUTS[k % 3]
        a, values = system(rng, dtype, n, layout)
        right = guest(rng, (3, n, 2), dtype, layout)
        left = guest(rng, (3, 2, n), dtype, layout)
        (got,) = run_guarded("inverse_checked", [a])
        agree(got, np.linalg.inv(values), dtype)
        for turned in (False, True):
            matrix = adjoint(values) if turned else values
            (got,) = run_guarded("solve_checked", [a, right, True, turned])
            agree(got, np.linalg.solve(matrix, right.values), dtype)
            (got,) = run_guarded("solve_checked", [a, left, False, turned])
            agree(got @ matrix, left.values, dtype)
        (got,) = run_guarded("linalg.det", [a])
        agree(got / np.linalg.det(values), 1, dtype)
        factor = guest(rng, (3,), dtype, "planes")
        (got,) = run_guarded("scaled_adjoint_inverse", [a, factor])
        agree(got, factor.values[:, None, None] * adjoint(np.linalg.inv(values)), dtype)


@pytest.mark.parametrize("dtype", DTYPES, ids=lambda d: d.name)
def test_factors_multiply_to_the_matrix(dtype: dt.dtype) -> None:
    rng = np.random.default_rng(1)
    for k, n in enumerate(SIZES):
        a, values = system(rng, dtype, n, LAYOUTS[k % 3])
        packed, pivots, info = run_guarded("lu_packed", [a])
        assert not info.any()
        lower, upper = np.tril(packed, -1) + np.eye(n), np.triu(packed)
        order = [list(range(n)) for _ in range(3)]
        for rows, exchanges in zip(order, pivots - 1, strict=True):
            for i, j in enumerate(exchanges):
                rows[i], rows[j] = rows[j], rows[i]
        agree(lower @ upper, np.take_along_axis(values, np.array(order)[..., None], 1), dtype)
        square = Guest(a._meta)
        square.fill(values @ adjoint(values) / n + np.eye(n))
        (low,) = run_guarded("cholesky_checked", [square, False])
        agree(low @ adjoint(low), square.values, dtype)
        assert not np.triu(low, 1).any()
        q, r = run_guarded("qr_factors", [a, False])
        agree(q @ r, values, dtype)
        w, v = run_guarded("eigh_factors", [square, k % 2 == 0, True])
        agree(v * w[:, None, :] @ adjoint(v), square.values, dtype)
        w, v = run_guarded("eig_factors", [a, True])
        agree(values @ v, v * w[:, None, :], dtype)


@pytest.mark.parametrize("dtype", DTYPES, ids=lambda d: d.name)
@pytest.mark.parametrize("shape", [(3, 5, 2), (2, 2, 7), (20, 34)], ids=str)
def test_rectangles(dtype: dt.dtype, shape: tuple[int, ...]) -> None:
    rng = np.random.default_rng(2)
    a = guest(rng, shape, dtype, "gaps")
    k = min(shape[-2:])
    for full in (False, True):
        u, s, vh = run_guarded("svd_factors", [a, full, True])
        agree(u[..., :k] * s[..., None, :] @ vh[..., :k, :], a.values, dtype)
        agree(adjoint(u) @ u - np.eye(u.shape[-1]), 0, dtype)
        q, r = run_guarded("qr_factors", [a, full])
        agree(q @ r, a.values, dtype)
    _, alone, _ = run_guarded("svd_factors", [a, False, False])
    agree(alone, s, dtype)
    right = guest(rng, (*shape[:-1], 3), dtype, "wide")
    x, rank = run_guarded("least_squares", [a, right, None])
    agree(x, np.linalg.pinv(a.values) @ right.values, dtype)
    assert (rank == k).all()


@pytest.mark.parametrize("dtype", DTYPES, ids=lambda d: d.name)
@pytest.mark.parametrize("n", [3, 20, 40])
def test_triangular_systems(dtype: dt.dtype, n: int) -> None:
    rng = np.random.default_rng(3)
    for number in range(16) if n == 40 else (0, 3, 5, 6, 9, 10, 12, 15):
        upper, left, unit, turned = (bool(number >> k & 1) for k in range(4))
        a = guest(rng, (2, n, n), dtype, "wide")
        a.fill(a.values / n + 3 * np.eye(n))
        strides = list(a._meta.strides)
        if turned:
            strides[-1], strides[-2] = strides[-2], strides[-1]
        reading = Guest(a._meta.like(strides=tuple(strides)))
        reading.fill(a.values)
        b = guest(rng, (2, n, 3) if left else (2, 3, n), dtype, "gaps")
        (x,) = run_guarded("tri_solve", [reading, b, upper, left, unit])
        part = np.triu(a.values) if upper else np.tril(a.values)
        if unit:
            part = part - part * np.eye(n) + np.eye(n)
        agree(part @ x if left else x @ part, b.values, dtype)


# ---- triangles and diagonals ---------------------------------------------------------------------


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("diagonal", [-9, -1, 0, 2, 9])
def test_triangles_are_copies_with_zeros(layout: str, diagonal: int) -> None:
    rng = np.random.default_rng(4)
    for dtype in (dt.float32, dt.int8, dt.complex128, dt.bool_, dt.int16):
        for shape in ((3, 5, 4), (1, 1), (4, 70)):
            a = guest(rng, shape, dtype, layout)
            for name, truth in (("tril", np.tril), ("triu", np.triu)):
                (got,) = run_guarded(name, [a, diagonal])
                np.testing.assert_array_equal(got, truth(a.values, diagonal))
            if abs(diagonal) < 3:
                (got,) = run_guarded("diag_embed", [a, diagonal, -2, -1])
                want = np.array([np.diag(row, diagonal) for row in a.values.reshape(-1, shape[-1])])
                np.testing.assert_array_equal(got, want.reshape(got.shape))


# ---- failures ------------------------------------------------------------------------------------


@pytest.mark.parametrize("n", [2, 20, 40])
@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("inv", r"linalg.inv: \(Batch element 1\): The diagonal element 1 is zero"),
        ("cholesky", r"linalg.cholesky: \(Batch element 1\): .* \(the leading minor of order 1"),
        ("lu_factor", r"torch.linalg.lu_factor: \(Batch element 1\): U\[1,1\] is zero"),
    ],
)
def test_the_first_failure_is_told(name: str, words: str, n: int) -> None:
    batch = lucerne.eye(n).repeat(4, 1, 1)
    batch[1], batch[3] = 0.0, 0.0
    for _ in range(2):  # the second call is machine code alone
        with pytest.raises(lucerne.linalg.LinAlgError, match=words):
            getattr(lucerne.linalg, name)(batch)
    with pytest.raises(lucerne.linalg.LinAlgError, match="singular"):
        lucerne.linalg.solve(batch, batch)
    made = getattr(lucerne.linalg, f"{name}_ex")(batch)
    assert made[-1].tolist() == [0, 1, 0, 1]


@pytest.mark.parametrize("value", [float("nan"), float("inf"), float("-inf")])
@pytest.mark.parametrize("shape", [(3, 3), (5, 4), (2, 4, 5), (30, 20)])
def test_matrices_that_are_not_finite(value: float, shape: tuple[int, ...]) -> None:
    """LAPACK's loop for vectors does not end at inf (nor in NumPy): it must not be asked."""
    bad = lucerne.arange(float(np.prod(shape))).reshape(shape)
    bad[..., 1, ::2] = value
    told = r"linalg.svd: (\(Batch element 0\): )?The algorithm.*contained non-finite values"
    for asked in (
        lucerne.linalg.svd,
        lambda a: lucerne.linalg.svd(a, full_matrices=False),
        lambda a: rules.svd_factors(a.numpy(), True, True),
    ):
        with pytest.raises(lucerne.linalg.LinAlgError, match=told):
            asked(bad)


def test_eigenvalues_of_what_is_not_finite() -> None:
    bad = lucerne.full((3, 3), float("inf"))
    with pytest.raises(RuntimeError, match="should not contain infs or NaNs"):
        lucerne.linalg.eigvals(bad)


def test_without_lapack_the_reference_does_it(monkeypatch: pytest.MonkeyPatch) -> None:
    a = lucerne.eye(40, dtype=lucerne.float64) * 2 + 0.01
    names = ("inv", "qr", "svd", "eigh", "eigvals", "cholesky", "det")
    want = [getattr(lucerne.linalg, name)(a) for name in names]
    monkeypatch.setattr(lapack, "_numpy_library", lambda: None)
    monkeypatch.setattr(lapack, "_scipy_routine", lambda name: None)
    lapack.routine.cache_clear()
    plans.clear_plans()
    engine = backends.get("cpu")
    engine._fused.clear()
    before = dict(engine.fallbacks)
    try:
        assert lapack.routine("dgetrf") is None
        for name, known in zip(names, want, strict=True):
            found = getattr(lucerne.linalg, name)(a)
            for x, y in zip(_all(found), _all(known), strict=True):
                np.testing.assert_allclose(np.abs(x.numpy()), np.abs(y.numpy()), 1e-8, 1e-8)
        assert engine.fallbacks != before
    finally:
        lapack.routine.cache_clear()
        plans.clear_plans()
        engine._fused.clear()


def _all(found: Any) -> Any:
    return found if isinstance(found, tuple) else (found,)


def test_scipys_table_has_the_same_routines() -> None:
    pytest.importorskip("scipy")
    found = lapack._scipy_routine("dgetrf")
    assert found is not None
    assert not found.wide


def test_numpys_threads_are_left_as_they_were() -> None:
    setting = lapack.thread_setting()
    if setting is None:
        pytest.skip("NumPy's library here has no number of threads")
    get = lapack.ctypes.CFUNCTYPE(lapack.ctypes.c_int)(setting[0])
    before = get()
    lucerne.linalg.svd(lucerne.rand(64, 64))
    assert get() == before


def test_results_do_not_depend_on_threads() -> None:
    a = lucerne.rand(300, 5, 5, dtype=lucerne.float64) + 5 * lucerne.eye(5, dtype=lucerne.float64)
    before = lucerne.get_num_threads()
    try:
        found = []
        for threads in (1, 2):
            lucerne.set_num_threads(threads)
            found.append(lucerne.linalg.inv(a).numpy())
    finally:
        lucerne.set_num_threads(before)
    np.testing.assert_array_equal(*found)


# ---- derivatives of what is one kernel -----------------------------------------------------------

_EYE = 3 * lucerne.eye(3, dtype=lucerne.float64)


@pytest.mark.parametrize(
    "function",
    [
        lambda x: lucerne.linalg.inv(x + _EYE), lambda x: lucerne.linalg.det(x + _EYE),
        lambda x: lucerne.linalg.solve(x + _EYE, x), lambda x: lucerne.linalg.eigvals(x).abs(),
        lambda x: lucerne.linalg.solve(x + _EYE, x, left=False),
        lambda x: lucerne.linalg.solve(x + _EYE, x[0]),
        lambda x: lucerne.linalg.cholesky(x @ x.mT + _EYE),
        lambda x: lucerne.linalg.lu_factor(x + _EYE)[0],
        lambda x: lucerne.linalg.solve_triangular(x + _EYE, x, upper=True),
        lambda x: lucerne.linalg.slogdet(x + _EYE)[1], lambda x: x.diag_embed(),
        lambda x: lucerne.linalg.lstsq(x + _EYE, x)[0],
    ],
    ids=["inv", "det", "solve", "eigvals", "right", "vector", "cholesky", "lu", "triangle",
         "slogdet", "diagonal", "lstsq"],
)  # fmt: skip
def test_first_and_second_derivatives(function: Any) -> None:
    draw = np.random.RandomState(5)
    x = lucerne.tensor(draw.standard_normal((3, 3)), requires_grad=True)
    assert lucerne.autograd.gradcheck(function, (x,))
    assert lucerne.autograd.gradgradcheck(function, (x,))
