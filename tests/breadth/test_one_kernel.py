"""Formulas that are one kernel: which they are, and what they compute at the edges."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import lucerne
from lucerne._src.ir import op as op_
from lucerne._src.ops.linalg.einsum import _pair, einsum_list
from lucerne._src.tensor.base import Plans
from lucerne.nn import functional as F
from tests.cpu.calls import guest, run


def _t(*shape: int, whole: int = 0) -> Any:
    drawn = np.random.default_rng(len(shape)).standard_normal(shape)
    kind = lucerne.int64 if whole else lucerne.float32
    return lucerne.tensor((drawn * whole if whole else drawn).tolist(), dtype=kind)


PLANE = (4, 6)
ROWS = (2, 3, 4, 5)
ONE_KERNEL: dict[str, tuple[Any, ...]] = {
    "leaky_relu_gradient": (_t(*PLANE), _t(*PLANE), 0.01),
    "hardtanh_gradient": (_t(*PLANE), _t(*PLANE), -1.0, 1.0),
    "elu_gradient": (_t(*PLANE), _t(*PLANE), 1.0, 1.0, 1.0),
    "mish_gradient": (_t(*PLANE), _t(*PLANE)),
    "softplus_gradient": (_t(*PLANE), _t(*PLANE), 1.0, 20.0),
    "logsigmoid_gradient": (_t(*PLANE), _t(*PLANE)),
    "hardsigmoid_gradient": (_t(*PLANE), _t(*PLANE)),
    "hardswish_gradient": (_t(*PLANE), _t(*PLANE)),
    "nn.functional.glu": (_t(*PLANE), -1),
    "glu_first_gradient": (_t(*PLANE), _t(*PLANE)),
    "glu_gate_gradient": (_t(*PLANE), _t(*PLANE), _t(*PLANE)),
    "smooth_error": (_t(*PLANE), _t(*PLANE), "mean", 0.5),
    "huber_error": (_t(*PLANE), _t(*PLANE), "mean", 0.5),
    "bounded_slope": (_t(), _t(*PLANE), _t(*PLANE), 0.5, 1.0),
    "power_gradient": (_t(*PLANE), _t(*PLANE), 2),
    "group_norm_rows": (_t(*ROWS), _t(3, 4, 1), _t(3, 4, 1), 1e-5),
    "channel_sums": (_t(*ROWS), _t(*ROWS), _t(2, 3, 1, 1)),
    "group_slope": (
        _t(*ROWS), _t(*ROWS), *[_t(2, 3, 1, 1)] * 2, _t(3, 4, 1), *[_t(2, 3, 1, 1)] * 2,
    ),
    "distance_of": (_t(*PLANE),),
    "distance_slope": (_t(*PLANE), _t(*PLANE)),
    "linear_taps": (_t(2, 1, 5), lucerne.tensor([[0.0], [1.0]]), lucerne.tensor(3.0), True),
    "linear_slope": (_t(2, 2, 5), _t(2, 2, 5, whole=2), lucerne.tensor([[0.0], [1.0]])),
    "crossed_taps": (
        _t(2, 2, 1, 5, whole=2), _t(2, 1, 2, 5, whole=2), _t(2, 2, 1, 5), _t(2, 1, 2, 5),
        lucerne.tensor(4),
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", ONE_KERNEL)
def test_is_one_kernel_and_means_what_its_body_does(name: str) -> None:
    op, args = op_.get(name), ONE_KERNEL[name]
    plan = Plans.fused(op, args)
    assert plan is not None, f"{name} runs op by op"
    found, wanted = plan.run(args), op.body(*args)
    for a, b in zip(_listed(found), _listed(wanted), strict=True):
        np.testing.assert_allclose(a.tolist(), b.tolist(), 1e-5, 1e-6)


def _listed(x: Any) -> tuple[Any, ...]:
    return x if isinstance(x, tuple) else (x,)


# ---- einsum: the plan of a pair -----------------------------------------------------------------


@st.composite
def equations(draw: st.DrawFn) -> tuple[str, list[int], list[int]]:
    labels = draw(st.permutations("abcdXY"))[: draw(st.integers(1, 5))]
    a, b = (draw(st.permutations(labels))[: draw(st.integers(1, len(labels)))] for _ in "ab")
    used = sorted(set(a) | set(b))
    out = draw(st.permutations(used))[: draw(st.integers(0, len(used)))]
    size = {c: draw(st.integers(1, 4)) for c in labels}
    return f"{''.join(a)},{''.join(b)}->{''.join(out)}", [size[c] for c in a], [size[c] for c in b]


@given(equations())
@settings(max_examples=150, deadline=None)
def test_einsum_of_two(case: tuple[str, list[int], list[int]]) -> None:
    equation, left, right = case
    rng = np.random.default_rng(0)
    x, y = rng.integers(-4, 5, left), rng.integers(-4, 5, right)
    found = lucerne.einsum(equation, *(lucerne.tensor(t.astype(np.float32)) for t in (x, y)))
    assert found.tolist() == np.einsum(equation, x, y).astype(np.float32).tolist()


@pytest.mark.parametrize(
    ("equation", "left", "right", "planned"),
    [
        ("bij,bjk->bik", (2, 3, 4), (2, 4, 5), True),
        ("bqhd,bkhd->bhqk", (1, 3, 2, 4), (1, 5, 2, 4), True),
        ("ij , jk -> ki", (3, 4), (4, 5), True),
        ("ij,jk", (3, 4), (4, 5), False),  # no arrow
        ("...ij,jk->...ik", (2, 3, 4), (4, 5), False),
        ("iij,jk->ik", (3, 3, 4), (4, 5), False),
        ("ij,jk->ik", (3, 1), (4, 5), False),  # a size that broadcasts
        ("ij,jk->k", (3, 4), (4, 5), False),  # a sum over one operand alone
        ("ij,ij->ij", (3, 4), (3, 4), False),  # nothing to sum
        ("ij,jk->iz", (3, 4), (4, 5), False),
    ],
)
def test_plain_equations_have_a_plan(
    equation: str, left: tuple[int, ...], right: tuple[int, ...], planned: bool
) -> None:
    assert (_pair(equation, left, right) is not None) is planned


def test_a_planned_pair_refuses_what_the_general_way_refuses() -> None:
    with pytest.raises(RuntimeError, match="expected scalar type Float but found Double"):
        einsum_list("ij,jk->ik", (lucerne.ones(2, 3), lucerne.ones(3, 2).double()))
    with pytest.raises(RuntimeError, match="does not broadcast"):
        einsum_list("ij,jk->ik", (lucerne.ones(2, 3), lucerne.ones(4, 2)))


# ---- taps, over memory that ends at forbidden pages ----------------------------------------------


@pytest.mark.parametrize("dtype", [lucerne.float32, lucerne.float64], ids=["float32", "float64"])
@pytest.mark.parametrize("taps", [1, 4, 16, 17])
@pytest.mark.parametrize("points", [1, 15, 16, 300])
def test_taps_stay_inside(dtype: Any, taps: int, points: int) -> None:
    rng = np.random.default_rng(taps)
    planes, index = rng.standard_normal((2, 3, 5)), rng.integers(-1, 5, (2, taps, points))
    weight, given_ = rng.standard_normal((2, taps, points)), rng.standard_normal((2, 3, points))
    stored = [guest(planes, dtype), guest(index, lucerne.int64), guest(weight, dtype)]
    op = op_.get("tap_gather")
    (found,) = run("tap_gather", stored, engine=True)
    np.testing.assert_allclose(found.values, op.oracle(planes, index, weight), 1e-4, 1e-4)
    sides = [guest(given_, dtype), guest(planes, dtype), guest(index, lucerne.int64)]
    (found,) = run("tap_products", sides, engine=True)
    wanted = op_.get("tap_products").oracle(given_, planes, index)
    np.testing.assert_allclose(found.values, wanted, 1e-4, 1e-4)


# ---- histories of views -------------------------------------------------------------------------


def test_a_view_that_nobody_wrote_to_has_a_record() -> None:
    """Naming the result of a composite that ends in a view must not make nodes."""
    x = lucerne.ones(3, requires_grad=True)
    product = x @ x
    assert product._record is not None
    assert type(product.grad_fn).__name__ == "DotBackward0" or "Dot" in product.grad_fn.name()
    base = x * 2
    view = base.view(3)
    assert view._record is not None
    base.mul_(3)
    assert view._record is None
    view.sum().backward()
    assert x.grad is not None
    assert x.grad.tolist() == [6.0, 6.0, 6.0]


# ---- arrangements -------------------------------------------------------------------------------


def test_combinations_of_every_length() -> None:
    x = lucerne.arange(5.0)
    assert lucerne.combinations(x, 3).tolist()[:2] == [[0.0, 1.0, 2.0], [0.0, 1.0, 3.0]]
    assert tuple(lucerne.combinations(x, 3, with_replacement=True).shape) == (35, 3)
    assert lucerne.combinations(x[:2], 2, with_replacement=True).tolist() == [
        [0.0, 0.0], [0.0, 1.0], [1.0, 1.0],
    ]  # fmt: skip
    assert tuple(lucerne.combinations(x[:1], 2).shape) == (0, 2)


def test_a_roll_goes_back_by_a_roll() -> None:
    x = lucerne.arange(6.0).reshape(2, 3).requires_grad_()
    y = x.roll((1, -1), (0, 1))
    (y * lucerne.arange(6.0).reshape(2, 3)).sum().backward()
    assert x.grad is not None
    assert x.grad.tolist() == [[5.0, 3.0, 4.0], [2.0, 0.0, 1.0]]


@given(st.lists(st.integers(1, 5), min_size=1, max_size=3), st.booleans())
@settings(max_examples=20, deadline=None)
def test_unravel_index(shape: list[int], narrow: bool) -> None:
    flat = np.arange(int(np.prod(shape)))
    kind = lucerne.int32 if narrow else lucerne.uint8
    found = lucerne.unravel_index(lucerne.tensor(flat.tolist(), dtype=kind), tuple(shape))
    assert [x.tolist() for x in found] == [x.tolist() for x in np.unravel_index(flat, shape)]


def test_distances_of_equal_points_have_no_slope() -> None:
    x = lucerne.tensor([[1000.0, 1.0], [1000.0, 1.0], [1001.0, 1.0]], requires_grad=True)
    y = F.pdist(x)
    assert y.tolist() == [0.0, 1.0, 1.0]
    y.sum().backward()
    assert x.grad is not None
    assert x.grad.tolist() == [[-1.0, 0.0], [-1.0, 0.0], [2.0, 0.0]]
    z = x.detach().requires_grad_()
    lucerne.cdist(z, z, compute_mode="use_mm_for_euclid_dist").sum().backward()
    assert z.grad is not None
    assert lucerne.isfinite(z.grad).all()


@pytest.mark.parametrize("dtype", [lucerne.float32, lucerne.float64], ids=["float32", "float64"])
@pytest.mark.parametrize("rows", [2, 9, 17, 70, 140])
def test_distances_of_pairs_stay_inside(dtype: Any, rows: int) -> None:
    x = np.random.default_rng(rows).standard_normal((rows, 3))
    (found,) = run("upper_norms", [guest(x, dtype), guest(x.T.copy(), dtype)], engine=True)
    away = x[:, None] - x[None]
    wanted = np.sqrt((away * away).sum(-1))[np.triu_indices(rows, 1)]
    np.testing.assert_allclose(found.values, wanted, 1e-5, 1e-6)


def test_running_extremes_along_rows_and_columns() -> None:
    """Ties go to the last, a nan wins for good; one way of walking for each direction."""
    rows = np.random.default_rng(0).integers(-3, 4, (5, 40)).astype(np.float32)
    rows[2, 17], rows[3, 0] = np.nan, -np.inf
    for x, dim in ((rows, 1), (rows.T.copy(), 0)):
        for name, better in (("cummax", np.greater_equal), ("cummin", np.less_equal)):
            values, at = getattr(lucerne.tensor(x), name)(dim)
            for line, given_, places in zip(
                np.moveaxis(x, dim, 1), np.moveaxis(values.numpy(), dim, 1),
                np.moveaxis(at.numpy(), dim, 1), strict=True,
            ):  # fmt: skip
                best = 0
                for k, v in enumerate(line):
                    if np.isnan(v) or (better(v, line[best]) and not np.isnan(line[best])):
                        best = k
                    assert places[k] == best
                    assert given_[k] == line[best] or np.isnan(line[best])
