"""Transforms, constraints and the registry between them, against torch."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

import lucerne
import lucerne.distributions
from tests.distributions.agree import assert_close, assert_same, assert_same_error

pytestmark = pytest.mark.torch

Maker = Callable[[Any], Any]
VECTOR = [[-1.2, 0.3, 0.8], [0.1, 2.0, -0.4]]
POSITIVE = [[1.2, 0.3, 0.8], [0.1, 2.0, 0.4]]
MATRIX = [[0.5, 0.1], [-0.3, 0.2]]

TRANSFORMS: dict[str, tuple[Maker, Any]] = {
    "exp": (lambda t: t.distributions.ExpTransform(), VECTOR),
    "abs": (lambda t: t.distributions.AbsTransform(), VECTOR),
    "sigmoid": (lambda t: t.distributions.SigmoidTransform(), VECTOR),
    "softplus": (lambda t: t.distributions.SoftplusTransform(), VECTOR),
    "tanh": (lambda t: t.distributions.TanhTransform(), VECTOR),
    "power": (lambda t: t.distributions.PowerTransform(t.tensor(2.5)), POSITIVE),
    "powers": (lambda t: t.distributions.PowerTransform(t.tensor([2.0, -1.0, 0.5])), POSITIVE),
    "affine": (lambda t: t.distributions.AffineTransform(1.0, -2.0), VECTOR),
    "affine_tensor": (
        lambda t: t.distributions.AffineTransform(t.tensor([1.0, 2, 3]), t.tensor(2.0)), VECTOR),
    "affine_event": (lambda t: t.distributions.AffineTransform(1.0, 3.0, event_dim=1), VECTOR),
    "cdf": (lambda t: t.distributions.CumulativeDistributionTransform(
        t.distributions.Normal(0.0, 1.0)), VECTOR),
    "softmax": (lambda t: t.distributions.SoftmaxTransform(), VECTOR),
    "stick": (lambda t: t.distributions.StickBreakingTransform(), VECTOR),
    "corr": (lambda t: t.distributions.CorrCholeskyTransform(), VECTOR),
    "corr_1": (lambda t: t.distributions.CorrCholeskyTransform(), [[0.4]]),
    "cholesky": (lambda t: t.distributions.LowerCholeskyTransform(), MATRIX),
    "definite": (lambda t: t.distributions.PositiveDefiniteTransform(), MATRIX),
    "reshape": (lambda t: t.distributions.ReshapeTransform((2, 3), (6,)), VECTOR),
    "compose": (lambda t: t.distributions.ComposeTransform(
        [t.distributions.AffineTransform(0.5, 2.0), t.distributions.StickBreakingTransform()]),
        VECTOR),
    "compose_down": (lambda t: t.distributions.ComposeTransform(
        [t.distributions.ExpTransform(), t.distributions.PowerTransform(t.tensor(3.0))]), VECTOR),
    "identity": (lambda t: t.distributions.identity_transform, VECTOR),
    "independent": (lambda t: t.distributions.IndependentTransform(
        t.distributions.ExpTransform(), 1), VECTOR),
    "cat": (lambda t: t.distributions.CatTransform(
        [t.distributions.ExpTransform(), t.distributions.AffineTransform(1.0, 2.0)], 1, [1, 2]),
        VECTOR),
    "cat_vectors": (lambda t: t.distributions.CatTransform(
        [t.distributions.StickBreakingTransform(), t.distributions.StickBreakingTransform()], 0),
        VECTOR),
    "stack": (lambda t: t.distributions.StackTransform(
        [t.distributions.ExpTransform(), t.distributions.TanhTransform()], 0), VECTOR),
}  # fmt: skip
each = pytest.mark.parametrize("name", TRANSFORMS)


def both(name: str, inverse: bool = False) -> tuple[Any, Any, Any, Any]:
    make, x = TRANSFORMS[name]
    ours, theirs = make(lucerne), make(torch)
    mine, value = lucerne.tensor(x, dtype=lucerne.float64), torch.tensor(x, dtype=torch.float64)
    if inverse:
        return ours.inv, theirs.inv, ours(mine), theirs(value)
    return ours, theirs, mine, value


@pytest.mark.parametrize("inverse", [False, True], ids=["forward", "inverse"])
@each
def test_values(name: str, inverse: bool) -> None:
    ours, theirs, x, value = both(name, inverse)
    y, expected = ours(x), theirs(value)
    assert_close(y, expected, 1e-7)
    assert_same(
        lambda: ours.log_abs_det_jacobian(x, y),
        lambda: theirs.log_abs_det_jacobian(value, expected),
        1e-7,
    )
    assert_same(lambda: ours.inv(y), lambda: theirs.inv(expected), 1e-6)


@pytest.mark.parametrize("inverse", [False, True], ids=["forward", "inverse"])
@each
def test_description(name: str, inverse: bool) -> None:
    ours, theirs, x, value = both(name, inverse)
    assert repr(ours) == repr(theirs)
    assert repr(ours.domain) == repr(theirs.domain)
    assert repr(ours.codomain) == repr(theirs.codomain)
    assert ours.bijective == theirs.bijective
    assert_same(lambda: ours.sign, lambda: theirs.sign)
    assert_same(lambda: ours.event_dim, lambda: theirs.event_dim)
    assert tuple(ours.forward_shape(x.shape)) == tuple(theirs.forward_shape(value.shape))
    y = theirs(value).shape
    assert tuple(ours.inverse_shape(lucerne.Size(y))) == tuple(theirs.inverse_shape(y))
    assert (ours == TRANSFORMS[name][0](lucerne)) == (theirs == TRANSFORMS[name][0](torch))
    assert ours.inv.inv is ours


@each
def test_cache_returns_the_very_tensor(name: str) -> None:
    ours, _, x, _ = both(name)
    if name == "identity":
        return
    cached = ours.with_cache(1)
    assert cached.with_cache(1) is cached
    y = cached(x)
    if not isinstance(cached, lucerne.distributions.ComposeTransform):
        assert cached(x) is y
        assert cached.inv(y) is x
    assert_close(pickle.loads(pickle.dumps(cached))(x), y)


def test_gradient_through_stick_breaking() -> None:
    found = []
    for lib in (lucerne, torch):
        x = lib.tensor(VECTOR, requires_grad=True)
        transform = lib.distributions.StickBreakingTransform()
        (transform.log_abs_det_jacobian(x, transform(x)).sum()).backward()
        found.append(x.grad)
    assert_close(found[0], found[1], 1e-5)


def _constraints(t: Any) -> dict[str, Any]:
    c = t.distributions.constraints
    return {
        "boolean": c.boolean,
        "real": c.real,
        "positive": c.positive,
        "nonnegative": c.nonnegative,
        "nonnegative_integer": c.nonnegative_integer,
        "positive_integer": c.positive_integer,
        "unit_interval": c.unit_interval,
        "interval": c.interval(-1.0, t.tensor([1.0, 0.5, 0.2])),
        "half_open": c.half_open_interval(0.0, 1.0),
        "integers": c.integer_interval(0, 2),
        "greater": c.greater_than(0.5),
        "greater_eq": c.greater_than_eq(1.0),
        "less": c.less_than(1.0),
        "simplex": c.simplex,
        "one_hot": c.one_hot,
        "multinomial": c.multinomial(2),
        "real_vector": c.real_vector,
        "independent": c.independent(c.positive, 1),
        "cat": c.cat([c.positive, c.real], -1, [1, 2]),
        "stack": c.stack([c.positive, c.unit_interval, c.real], -1),
    }


def _matrix_constraints(t: Any) -> dict[str, Any]:
    c = t.distributions.constraints
    names = [
        "lower_triangular", "lower_cholesky", "corr_cholesky", "square", "symmetric",
        "positive_semidefinite", "positive_definite",
    ]  # fmt: skip
    return {name: getattr(c, name) for name in names}


VALUES = [
    [[0.0, 1.0, 0.0], [0.2, 0.3, 0.5], [1.0, 1.0, 0.0]],
    [[-1.0, 2.0, float("nan")], [0.5, 0.5, 0.0], [3.0, -0.5, 1.0]],
]
MATRICES = [
    [[1.0, 0.0], [0.0, 1.0]],
    [[1.0, 0.0], [0.6, 0.8]],
    [[2.0, 0.5], [0.5, 1.0]],
    [[1.0, 2.0], [2.0, 1.0]],
    [[0.0, 0.0], [0.0, 0.0]],
    [[-1.0, 0.0], [3.0, 1.0]],
]


@pytest.mark.parametrize("name", _constraints(torch))
@pytest.mark.parametrize("value", VALUES)
def test_checks(name: str, value: Any) -> None:
    ours, theirs = _constraints(lucerne)[name], _constraints(torch)[name]
    assert_close(ours.check(lucerne.tensor(value)), theirs.check(torch.tensor(value)))
    assert repr(ours) == repr(theirs)
    assert (ours.is_discrete, ours.event_dim) == (theirs.is_discrete, theirs.event_dim)


@pytest.mark.parametrize("name", _matrix_constraints(torch))
@pytest.mark.parametrize("value", [*MATRICES, [[1.0, 0.0, 0.0], [0.0, 1.0, 0.0]]], ids=str)
def test_matrix_checks(name: str, value: Any) -> None:
    ours, theirs = _matrix_constraints(lucerne)[name], _matrix_constraints(torch)[name]
    assert_same(
        lambda: ours.check(lucerne.tensor(value)), lambda: theirs.check(torch.tensor(value))
    )
    assert (ours.is_discrete, ours.event_dim) == (theirs.is_discrete, theirs.event_dim)


REGISTERED = [
    "real", "positive", "nonnegative", "greater", "greater_eq", "less", "unit_interval", "interval",
    "half_open", "simplex", "real_vector", "independent", "cat", "stack", "boolean",
    "lower_cholesky", "corr_cholesky", "positive_definite", "positive_semidefinite", "square",
]  # fmt: skip


@pytest.mark.parametrize("registry", ["biject_to", "transform_to"])
@pytest.mark.parametrize("name", REGISTERED)
def test_registry(registry: str, name: str) -> None:
    def make(t: Any) -> Any:
        known = _constraints(t) | _matrix_constraints(t)
        return getattr(t.distributions, registry)(known[name])

    try:
        theirs = make(torch)
    except NotImplementedError:
        assert_same_error(lambda: make(lucerne), lambda: make(torch))
        return
    ours = make(lucerne)
    assert repr(ours) == repr(theirs)
    shape = (3,) if name == "corr_cholesky" else (3, 3)
    x = np.random.default_rng(1).normal(size=shape)
    y = ours(lucerne.from_numpy(x))
    assert_close(y, theirs(torch.from_numpy(x)), 1e-7)
    constraint = (_constraints(lucerne) | _matrix_constraints(lucerne))[name]
    assert bool(constraint.check(y).all())
    assert_close(ours.inv(y), theirs.inv(torch.from_numpy(y.numpy())), 1e-5)


ERRORS: list[Callable[[Any], Any]] = [
    lambda t: t.distributions.Transform(2),
    lambda t: t.distributions.Transform()(1),
    lambda t: t.distributions.ReshapeTransform((2, 3), (5,)),
    lambda t: t.distributions.ReshapeTransform((2, 3), (6,)).forward_shape((3,)),
    lambda t: t.distributions.ReshapeTransform((2, 3), (6,)).forward_shape((3, 2)),
    lambda t: t.distributions.ReshapeTransform((2, 3), (6,)).event_dim,
    lambda t: t.distributions.IndependentTransform(
        t.distributions.ExpTransform(), 1)(t.tensor(1.0)),
    lambda t: t.distributions.CorrCholeskyTransform().forward_shape((4,)),
    lambda t: t.distributions.CorrCholeskyTransform().forward_shape(()),
    lambda t: t.distributions.CorrCholeskyTransform().inverse_shape((3, 2)),
    lambda t: t.distributions.StickBreakingTransform().forward_shape(()),
    lambda t: t.distributions.CatTransform([1]),
    lambda t: t.distributions.CatTransform([t.distributions.ExpTransform()])(t.ones(2)),
    lambda t: t.distributions.StackTransform([t.distributions.ExpTransform()])(t.ones(2)),
    lambda t: t.distributions.biject_to(3),
    lambda t: t.distributions.biject_to.register(3, 4),
    lambda t: t.distributions.constraints.dependent.check(t.ones(1)),
    lambda t: t.distributions.constraints.dependent.event_dim,
    lambda t: t.distributions.constraints.dependent.is_discrete,
    lambda t: t.distributions.constraints.independent(t.distributions.constraints.real, -1),
    lambda t: t.distributions.constraints.cat([1]),
    lambda t: t.distributions.constraints.independent(
        t.distributions.constraints.real, 2).check(t.ones(2)),
    lambda t: t.distributions.utils.vec_to_tril_matrix(t.ones(5)),
    lambda t: t.distributions.utils.tril_matrix_to_vec(t.ones(2, 2), 3),
]  # fmt: skip


@pytest.mark.parametrize("call", ERRORS, ids=range(len(ERRORS)))
def test_errors(call: Callable[[Any], Any]) -> None:
    assert_same_error(lambda: call(lucerne), lambda: call(torch))


@pytest.mark.parametrize("diag", [-2, -1, 0, 1])
@pytest.mark.parametrize("n", [2, 3, 5])
def test_triangles_round_trip(n: int, diag: int) -> None:
    if diag >= n:
        return
    matrix = np.arange(1.0, n * n + 1).reshape(2 * 0 + 1, n, n)
    for lib in (lucerne, torch):
        utils = lib.distributions.utils
        vec = utils.tril_matrix_to_vec(lib.from_numpy(matrix), diag)
        np.testing.assert_array_equal(vec.numpy()[0], matrix[0][np.tril_indices(n, diag)])
        back = utils.vec_to_tril_matrix(vec, diag)
        np.testing.assert_array_equal(back.numpy()[0], np.tril(matrix[0], diag))
