"""Distributions in compiled functions: one graph, their checks of values made at each call."""

from __future__ import annotations

from typing import Any

import pytest

import lucerne as torch

D = torch.distributions
Row = tuple[Any, Any]

ROWS: dict[str, Row] = {
    "categorical": (lambda x: D.Categorical(logits=x), lambda d, x: d.entropy()),
    "of an action": (
        lambda x: D.Categorical(probs=x.softmax(-1)),
        lambda d, x: d.log_prob(torch.zeros(x.shape[0], dtype=torch.long)),
    ),
    "normal": (lambda x: D.Normal(x, x.exp()), lambda d, x: d.log_prob(x * 2) + d.entropy()),
    "bernoulli": (lambda x: D.Bernoulli(logits=x), lambda d, x: d.log_prob((x > 0).float())),
    "beta": (lambda x: D.Beta(x.exp(), x.exp()), lambda d, x: d.log_prob(x.sigmoid())),
    "dirichlet": (lambda x: D.Dirichlet(x.exp()), lambda d, x: d.log_prob(x.softmax(-1))),
    "gamma": (lambda x: D.Gamma(x.exp(), x.exp()), lambda d, x: d.log_prob(x.exp())),
    "with a matrix": (
        lambda x: D.MultivariateNormal(x, torch.eye(x.shape[-1]) * 2),
        lambda d, x: d.log_prob(x * 2),
    ),
    "divergence": (
        lambda x: D.Normal(x, x.exp()),
        lambda d, x: D.kl_divergence(d, D.Normal(torch.zeros_like(x), torch.ones_like(x))),
    ),
    "independent": (
        lambda x: D.Independent(D.Normal(x, x.exp()), 1),
        lambda d, x: d.log_prob(x),
    ),
    "squashed": (
        lambda x: D.TransformedDistribution(D.Normal(x, x.exp()), [D.TanhTransform()]),
        lambda d, x: d.log_prob(x.tanh()),
    ),
    "mixture": (
        lambda x: D.MixtureSameFamily(D.Categorical(logits=x), D.Normal(x, x.exp())),
        lambda d, x: d.log_prob(x[:, 0]),
    ),
}


@pytest.mark.parametrize("name", ROWS)
def test_one_graph(name: str) -> None:
    make, use = ROWS[name]

    def fn(x: Any) -> Any:
        return use(make(x), x)

    compiled = torch.compile(fn, fullgraph=True)
    for seed in range(2):
        torch.manual_seed(seed)
        ours = torch.randn(5, 4, requires_grad=True)
        theirs = ours.detach().clone().requires_grad_()
        found, wanted = compiled(ours), fn(theirs)
        assert torch.allclose(found, wanted, atol=1e-5)
        found.sum().backward()
        wanted.sum().backward()
        assert torch.allclose(ours.grad, theirs.grad, atol=1e-5)


@pytest.mark.parametrize(
    ("scale", "value", "text"),
    [
        (-1.0, 0.0, "Expected parameter scale .* to satisfy the constraint"),
        (1.0, float("nan"), "Expected value argument .* to be within the support"),
    ],
)
def test_refusals(scale: float, value: float, text: str) -> None:
    def fn(scale: Any, value: Any) -> Any:
        return D.Normal(torch.zeros(3), scale).log_prob(value)

    compiled = torch.compile(fn, fullgraph=True)
    compiled(torch.ones(3), torch.zeros(3))
    for one in (fn, compiled):
        with pytest.raises(ValueError, match=text):
            one(torch.full((3,), scale), torch.full((3,), value))
