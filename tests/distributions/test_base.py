"""The base class: validation and its messages, lazy parameters, subclasses, implicit gradients."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

import numpy as np
import pytest
import torch

import lucerne
from lucerne import distributions as dist
from lucerne.distributions import constraints
from lucerne.distributions.utils import lazy_property
from tests.distributions.agree import assert_close, assert_same_error

pytestmark = pytest.mark.torch

ERRORS: list[Callable[[Any, Any], Any]] = [
    lambda t, d: d.Normal(t.zeros(2), -1),
    lambda t, d: d.Normal(0, "a"),
    lambda t, d: d.Normal(0.0, 1.0).log_prob(1.0),
    lambda t, d: d.Normal(t.zeros(2), 1.0).log_prob(t.ones(3)),
    lambda t, d: d.Normal(t.zeros(2), 1.0).log_prob(t.tensor(float("nan"))),
    lambda t, d: d.Bernoulli(),
    lambda t, d: d.Bernoulli(0.3, 0.2),
    lambda t, d: d.Bernoulli(probs=2.0),
    lambda t, d: d.Bernoulli(0.5).log_prob(t.tensor(0.5)),
    lambda t, d: d.Binomial(-1, 0.5),
    lambda t, d: d.Binomial(3),
    lambda t, d: d.Binomial(t.tensor([2.0, 3.0]), t.tensor([0.2, 0.3])).enumerate_support(),
    lambda t, d: d.Binomial(t.tensor([2.0, 3.0]), t.tensor([0.2, 0.3])).entropy(),
    lambda t, d: d.Categorical(t.tensor(1.0)),
    lambda t, d: d.Categorical(logits=t.tensor(1.0)),
    lambda t, d: d.Categorical(t.tensor([-1.0, 2.0])),
    lambda t, d: d.Categorical(t.ones(3)).log_prob(t.tensor(3)),
    lambda t, d: d.ContinuousBernoulli(probs=2.0, validate_args=True),
    lambda t, d: d.Dirichlet(t.tensor(1.0)),
    lambda t, d: d.Dirichlet(t.ones(2)).log_prob(t.ones(2)),
    lambda t, d: d.Dirichlet(t.ones(2)).log_prob(t.ones(3) / 3),
    lambda t, d: d.Distribution.set_default_validate_args(3),
    lambda t, d: d.Geometric(0.0),
    lambda t, d: d.HalfNormal(-1.0),
    lambda t, d: d.HalfCauchy(1.0).log_prob(t.tensor(-1.0)),
    lambda t, d: d.Independent(d.Normal(t.zeros(2), 1.0), 2),
    lambda t, d: d.Independent(d.Bernoulli(t.ones(2)), 1).enumerate_support(),
    lambda t, d: d.LKJCholesky(1),
    lambda t, d: d.LKJCholesky(3, -1.0),
    lambda t, d: d.LowRankMultivariateNormal(t.tensor(0.0), t.ones(2, 2), t.ones(2)),
    lambda t, d: d.LowRankMultivariateNormal(t.zeros(2), t.ones(2), t.ones(2)),
    lambda t, d: d.LowRankMultivariateNormal(t.zeros(2), t.ones(3, 2), t.ones(2)),
    lambda t, d: d.LowRankMultivariateNormal(t.zeros(2), t.ones(2, 1), t.ones(3)),
    lambda t, d: d.LowRankMultivariateNormal(t.zeros(3, 2), t.ones(2, 2, 1), t.ones(2)),
    lambda t, d: d.MixtureSameFamily(d.Normal(0.0, 1.0), d.Normal(0.0, 1.0)),
    lambda t, d: d.MixtureSameFamily(d.Categorical(t.ones(3)), 3),
    lambda t, d: d.MixtureSameFamily(d.Categorical(t.ones(3)), d.Normal(t.zeros(2), 1)),
    lambda t, d: d.MixtureSameFamily(d.Categorical(t.ones(5, 2)), d.Normal(t.zeros(3, 2), 1)),
    lambda t, d: d.Multinomial(t.tensor([2, 3]), t.ones(3)),
    lambda t, d: d.MultivariateNormal(t.tensor(1.0)),
    lambda t, d: d.MultivariateNormal(t.zeros(2)),
    lambda t, d: d.MultivariateNormal(t.zeros(2), t.ones(2)),
    lambda t, d: d.MultivariateNormal(t.zeros(2), t.ones(2, 2)),
    lambda t, d: d.MultivariateNormal(t.zeros(2), precision_matrix=t.ones(2)),
    lambda t, d: d.MultivariateNormal(t.zeros(2), scale_tril=t.ones(2)),
    lambda t, d: d.NegativeBinomial(3.0),
    lambda t, d: d.OneHotCategorical(t.ones(3)).log_prob(t.tensor([1.0, 1.0, 0])),
    lambda t, d: d.Poisson(-1.0),
    lambda t, d: d.RelaxedBernoulli(t.tensor(1.0)),
    lambda t, d: d.TransformedDistribution(d.Normal(0.0, 1.0), 3),
    lambda t, d: d.TransformedDistribution(d.Normal(0.0, 1.0), [3]),
    lambda t, d: d.TransformedDistribution(d.Normal(0.0, 1.0), d.StickBreakingTransform()),
    lambda t, d: d.TransformedDistribution(d.Normal(0.0, 1.0), d.AbsTransform()).log_prob(
        t.tensor(1.0)),
    lambda t, d: d.Uniform(1.0, 0.0),
    lambda t, d: d.Uniform(0.0, 1.0).log_prob(t.tensor(2.0)),
    lambda t, d: d.Wishart(t.tensor(3.0), t.ones(2)),
    lambda t, d: d.Wishart(t.tensor(3.0)),
    lambda t, d: d.Wishart(t.tensor(1.0), t.eye(2)),
    lambda t, d: d.StudentT(2.0).cdf(t.tensor(0.0)),
    lambda t, d: d.Multinomial(2, t.ones(2)).mode,
]  # fmt: skip


@pytest.mark.parametrize("call", ERRORS, ids=range(len(ERRORS)))
def test_errors(call: Callable[[Any, Any], Any]) -> None:
    def theirs() -> Any:
        try:
            return call(torch, torch.distributions)
        except NotImplementedError as error:
            text = str(error).replace("torch.distributions", "lucerne.distributions")
            raise NotImplementedError(text) from error

    assert_same_error(lambda: call(lucerne, dist), theirs)


def test_validation_can_be_turned_off() -> None:
    assert_close(
        dist.HalfCauchy(1.0, validate_args=False).log_prob(lucerne.tensor(-1.0)),
        torch.tensor(-torch.inf),
    )
    dist.Distribution.set_default_validate_args(False)
    try:
        dist.Normal(0.0, -1.0)
    finally:
        dist.Distribution.set_default_validate_args(__debug__)


class Named(dist.Normal):
    def __init__(self, name: str) -> None:
        self.called = name
        super().__init__(0.0, 1.0)


class Blank(dist.Distribution):
    arg_constraints: ClassVar[Any] = {}


class Unsaid(dist.Distribution):
    """Without constraints."""


def test_subclasses() -> None:
    with pytest.raises(NotImplementedError, match="Subclass Named of Normal that defines a custom"):
        Named("x").expand([2])
    with pytest.warns(UserWarning, match="does not define `arg_constraints`"):
        Unsaid()
    blank = Blank(lucerne.Size([2]), lucerne.Size([3]))
    with pytest.warns(UserWarning, match="does not define `support`"):
        blank._validate_sample(lucerne.ones(2, 3))
    for call in (blank.rsample, blank.entropy, blank.enumerate_support, lambda: blank.expand([1])):
        with pytest.raises(NotImplementedError):
            call()
    with pytest.warns(FutureWarning, match="sample_n"):
        assert tuple(dist.Normal(0.0, 1.0).sample_n(3).shape) == (3,)


def test_lazy_properties() -> None:
    logits = lucerne.zeros(2, requires_grad=True)
    bernoulli = dist.Bernoulli(logits=logits)
    assert "probs" not in vars(bernoulli)
    with lucerne.no_grad():
        probs = bernoulli.probs
    assert probs.requires_grad
    assert bernoulli.probs is probs
    assert isinstance(dist.Bernoulli.probs, property)
    assert isinstance(dist.Bernoulli.probs, lazy_property)


def test_dependent_constraints_on_the_class() -> None:
    assert constraints.is_dependent(dist.Uniform.support)
    assert dist.Uniform.support.event_dim == 0
    assert not constraints.is_dependent(dist.Normal.support)
    assert constraints.dependent(event_dim=2).event_dim == 2


def test_modules_are_where_torch_has_them() -> None:
    for name in torch.distributions.__all__:
        theirs = getattr(torch.distributions, name)
        if isinstance(theirs, type):
            module = theirs.__module__.replace("torch.", "lucerne.")
            assert getattr(__import__(module, fromlist=[name]), name) is getattr(dist, name)


@pytest.mark.parametrize("name", ["", "constraints", "transforms", "kl", "utils"])
def test_all_names(name: str) -> None:
    theirs = getattr(torch.distributions, name) if name else torch.distributions
    ours = getattr(dist, name) if name else dist
    assert [n for n in theirs.__all__ if not hasattr(ours, n)] == []


def test_kumaraswamy_mode_is_the_maximum() -> None:
    """torch says nan everywhere."""
    law = dist.Kumaraswamy(2.5, 3.0)
    grid = lucerne.linspace(0.001, 0.999, 5000)
    best = grid[law.log_prob(grid).argmax()]
    assert_close(law.mode, best, 1e-3)


def test_von_mises_density_integrates_to_one() -> None:
    angles = lucerne.linspace(-np.pi, np.pi, 2001, dtype=lucerne.float64)
    for k in (0.01, 1.0, 50.0):
        law = dist.VonMises(lucerne.tensor(0.3).double(), lucerne.tensor(k).double())
        total = law.log_prob(angles)[:-1].exp().mean() * 2 * np.pi
        assert abs(total.item() - 1) < 1e-9


SHAPES = [0.05, 0.4, 1.0, 3.5, 20.0, 400.0]
LEVELS = [0.02, 0.3, 0.5, 0.9, 0.999]


def test_gamma_gradient_is_the_moving_quantile() -> None:
    """Against differences of SciPy's inverse cdf: torch is 1e-4 off."""
    special = pytest.importorskip("scipy.special", reason="SciPy gives the quantiles")
    a, u = (x.ravel() for x in np.meshgrid(SHAPES, LEVELS))
    x = special.gammaincinv(a, u)
    step = 1e-5 * a
    expected = (special.gammaincinv(a + step, u) - special.gammaincinv(a - step, u)) / (2 * step)
    keep = x > 1e-200
    found = lucerne._standard_gamma_grad(lucerne.from_numpy(a), lucerne.from_numpy(x))
    np.testing.assert_allclose(found.numpy()[keep], expected[keep], rtol=3e-7)


def test_beta_gradient_is_the_moving_quantile() -> None:
    special = pytest.importorskip("scipy.special", reason="SciPy gives the quantiles")
    a, b, u = (x.ravel() for x in np.meshgrid(SHAPES[1:], SHAPES[1:], LEVELS))
    x = special.betaincinv(a, b, u)
    step = 1e-5 * a
    moved = special.betaincinv(a + step, b, u) - special.betaincinv(a - step, b, u)
    keep = (x > 1e-12) & (x < 1 - 1e-6)
    found = lucerne._dirichlet_grad(*(lucerne.from_numpy(v) for v in (x, a, a + b)))
    expected = moved / (2 * step) / (1 - x)
    np.testing.assert_allclose(found.numpy()[keep], expected[keep], rtol=2e-6)


def test_gradients_of_gradients_are_refused() -> None:
    x = lucerne.tensor([1.5], requires_grad=True)
    (slope,) = lucerne.autograd.grad(lucerne._standard_gamma(x).sum(), x, create_graph=True)
    with pytest.raises(RuntimeError, match="_standard_gamma_grad"):
        lucerne.autograd.grad(slope.sum(), x)
