"""Divergences: every pair that torch registers, and how a pair is found."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

import lucerne
from lucerne import distributions as dist
from lucerne.distributions import kl
from tests.distributions.agree import array, assert_close, assert_same, outcome

pytestmark = pytest.mark.torch

COV = [[2.25, 0.75], [0.75, 0.89]]
FACTOR = [[1.0], [0.5]]
A, B = [0.6, 2.5, 3.1], [1.4, 0.8, 4.2]


def _made(lib: Any, name: str, shift: float) -> Any:
    """A distribution of a type, its parameters moved by `shift`."""
    d = lib.distributions

    def t(v: Any) -> Any:
        return lib.tensor(v, dtype=lib.float64)

    a, b = t(A) + shift, t(B) + shift
    p = t([0.2, 0.5, 0.7]) + shift / 10
    simplex = t([0.2, 0.3, 0.5]) + shift / 2
    makers = {
        "Bernoulli": lambda: d.Bernoulli(p),
        "Binomial": lambda: d.Binomial(4, p),
        "Categorical": lambda: d.Categorical(simplex),
        "OneHotCategorical": lambda: d.OneHotCategorical(simplex),
        "ContinuousBernoulli": lambda: d.ContinuousBernoulli(p),
        "Dirichlet": lambda: d.Dirichlet(a),
        "Exponential": lambda: d.Exponential(a),
        "Geometric": lambda: d.Geometric(p),
        "HalfNormal": lambda: d.HalfNormal(a),
        "Poisson": lambda: d.Poisson(a),
        "Uniform": lambda: d.Uniform(t([0.1, 0.0, 0.3]) - shift, t([0.5, 1.0, 0.9]) + shift),
        "MultivariateNormal": lambda: d.MultivariateNormal(t([0.1, 1.0]) + shift, t(COV)),
        "LowRankMultivariateNormal": lambda: d.LowRankMultivariateNormal(
            t([0.1, 1.0]) + shift, t(FACTOR), t([0.5, 1.5]) + shift
        ),
        "Independent": lambda: d.Independent(d.Normal(a, b), 1),
        "TransformedDistribution": lambda: d.LogNormal(a, b),
        "ExponentialFamily": lambda: d.Chi2(a),
    }
    made = makers.get(name) or (lambda: getattr(d, name)(a, b))
    return made()


PAIRS = sorted((p.__name__, q.__name__) for p, q in torch.distributions.kl._KL_REGISTRY)


@pytest.mark.parametrize(("p", "q"), PAIRS, ids=lambda n: n)
@pytest.mark.parametrize("shifts", [(0.0, 0.3), (0.3, 0.0)], ids=str)
def test_every_pair(p: str, q: str, shifts: tuple[float, float]) -> None:
    ours = [_made(lucerne, name, s) for name, s in zip((p, q), shifts, strict=True)]
    theirs = [_made(torch, name, s) for name, s in zip((p, q), shifts, strict=True)]
    assert_same(
        lambda: dist.kl_divergence(*ours), lambda: torch.distributions.kl_divergence(*theirs), 1e-8
    )


def test_the_registry_is_torchs() -> None:
    assert sorted((p.__name__, q.__name__) for p, q in kl._KL_REGISTRY) == PAIRS


def test_bregman_divergence_is_the_closed_form() -> None:
    p, q = dist.Gamma(2.0, 3.0), dist.Gamma(1.0, 0.5)
    assert_close(kl._kl_expfamily_expfamily(p, q), dist.kl_divergence(p, q))
    with pytest.raises(NotImplementedError, match="cross KL-divergence between different"):
        kl._kl_expfamily_expfamily(p, dist.Normal(0.0, 1.0))


def test_edges() -> None:
    for lib in (lucerne, torch):
        d = lib.distributions
        sure = d.Bernoulli(lib.tensor([0.0, 1.0]))
        found = d.kl_divergence(sure, d.Bernoulli(lib.tensor([0.5, 0.0])))
        np.testing.assert_allclose(array(found), [np.log(2), np.inf], rtol=1e-6)
        assert outcome(lambda d=d: d.kl_divergence(d.Binomial(2, 0.5), d.Binomial(3, 0.5))) is (
            NotImplementedError
        )


class Left(dist.Normal):
    """A subclass with a divergence of its own."""


def test_dispatch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kl, "_KL_REGISTRY", dict(kl._KL_REGISTRY))
    monkeypatch.setattr(kl, "_KL_MEMOIZE", {})
    p, q = Left(0.0, 1.0), Left(1.0, 2.0)
    assert_close(dist.kl_divergence(p, q), dist.kl_divergence(dist.Normal(0.0, 1.0), q))
    dist.register_kl(Left, Left)(lambda p, q: "own")
    assert dist.kl_divergence(p, q) == "own"
    dist.register_kl(Left, dist.Normal)(lambda p, q: "left")
    dist.register_kl(dist.Normal, Left)(lambda p, q: "right")
    assert dist.kl_divergence(p, q) == "own"
    del kl._KL_REGISTRY[Left, Left]
    kl._KL_MEMOIZE.clear()
    with pytest.warns(RuntimeWarning, match=r"Ambiguous kl_divergence\(Left, Left\)"):
        assert dist.kl_divergence(p, q) == "left"


def test_a_class_that_distributions_inherit_counts() -> None:
    """As Pyro's base class, which is no subclass of ours."""

    class Base:
        pass

    class Both(dist.StudentT, Base):
        pass

    dist.register_kl(Base, dist.Gamma)(lambda p, q: "base")
    assert dist.kl_divergence(Both(1.0), dist.Gamma(1.0, 1.0)) == "base"
    del kl._KL_REGISTRY[Base, dist.Gamma]
    kl._KL_MEMOIZE.clear()


def test_refusals() -> None:
    with pytest.raises(NotImplementedError, match="p type Normal and q type StudentT"):
        dist.kl_divergence(dist.Normal(0.0, 1.0), dist.StudentT(1.0))
    with pytest.raises(TypeError, match="must be a class"):
        dist.register_kl(dist.Normal, 4)  # type: ignore[arg-type]
