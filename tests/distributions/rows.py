"""The table of the distribution tests: constructors with their parameters, several shapes each."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch

CHOL = [[1.5, 0.0], [0.5, 0.8]]
COV = [[2.25, 0.75], [0.75, 0.89]]


@dataclass(frozen=True)
class Row:
    """One constructor call: parameters that are lists or floats become tensors."""

    name: str
    params: dict[str, Any]
    make: Callable[..., Any] | None = None
    fixed: dict[str, Any] = field(default_factory=dict)

    def build(self, lib: Any, dtype: str = "float32", grad: bool = False) -> tuple[Any, list[Any]]:
        """The distribution and the tensors it was made of."""
        kind = getattr(lib, dtype)
        tensors = {k: lib.tensor(v, dtype=kind, requires_grad=grad) for k, v in self.params.items()}
        dist = lib.distributions
        make = self.make or (lambda d, **kw: getattr(d, self.name)(**kw))
        return make(dist, **tensors, **self.fixed), list(tensors.values())

    def __str__(self) -> str:
        shapes = "-".join(
            k + "x".join(map(str, torch.tensor(v).shape)) for k, v in self.params.items()
        )
        return f"{self.name}-{shapes}"


PAIRS = [
    ("Normal", "loc", "scale"),
    ("Cauchy", "loc", "scale"),
    ("Laplace", "loc", "scale"),
    ("Gumbel", "loc", "scale"),
    ("LogNormal", "loc", "scale"),
    ("Beta", "concentration1", "concentration0"),
    ("Kumaraswamy", "concentration1", "concentration0"),
    ("Gamma", "concentration", "rate"),
    ("InverseGamma", "concentration", "rate"),
    ("FisherSnedecor", "df1", "df2"),
    ("Pareto", "scale", "alpha"),
    ("Weibull", "scale", "concentration"),
    ("VonMises", "loc", "concentration"),
]
ONES = ["Exponential", "Poisson", "Chi2", "HalfNormal", "HalfCauchy", "StudentT"]
ONE_NAMES = {"Chi2": "df", "HalfNormal": "scale", "HalfCauchy": "scale", "StudentT": "df"}


def _pairs(name: str, a: str, b: str) -> list[Row]:
    values = [
        (0.7, 1.3),
        ([0.4, 1.7, 2.9], [1.2, 0.6, 5.5]),
        ([[0.8], [2.4]], [0.5, 1.1, 3.0]),
    ]
    return [Row(name, {a: x, b: y}) for x, y in values]


def _ones(name: str) -> list[Row]:
    param = ONE_NAMES.get(name, "rate")
    return [Row(name, {param: v}) for v in (0.9, [0.3, 1.4, 12.5], [[2.5], [4.2]])]


def _binary(name: str, **more: Any) -> list[Row]:
    return [
        Row(name, {"probs": 0.3, **more}),
        Row(name, {"probs": [0.1, 0.5001, 0.9], **more}),
        Row(name, {"logits": [[-1.0], [2.0]], **more}),
    ]


def _category(name: str, fixed: dict[str, Any] | None = None, **more: Any) -> list[Row]:
    fixed = fixed or {}
    return [
        Row(name, {"probs": [0.2, 0.3, 0.5], **more}, fixed=fixed),
        Row(name, {"logits": [[0.1, -1.0, 0.5, 2.0], [1.0, 1.0, 0.0, -2.0]], **more}, fixed=fixed),
    ]


def _mixture(d: Any, weights: Any, loc: Any, scale: Any) -> Any:
    return d.MixtureSameFamily(d.Categorical(weights), d.Normal(loc, scale))


def _vector_mixture(d: Any, weights: Any, loc: Any, scale: Any) -> Any:
    parts = d.Independent(d.Normal(loc, scale), 1)
    return d.MixtureSameFamily(d.Categorical(weights), parts)


def _transformed(d: Any, loc: Any, scale: Any) -> Any:
    chain = [d.SigmoidTransform(), d.AffineTransform(1.0, -2.0), d.TanhTransform()]
    return d.TransformedDistribution(d.Normal(loc, scale), chain)


def _stick(d: Any, loc: Any, scale: Any) -> Any:
    return d.TransformedDistribution(
        d.Normal(loc, scale), [d.AffineTransform(0.5, 2.0), d.StickBreakingTransform(cache_size=1)]
    )


ROWS = [
    *[row for pair in PAIRS for row in _pairs(*pair)],
    *[row for name in ONES for row in _ones(name)],
    Row("StudentT", {"df": [3.0, 7.0], "loc": 1.0, "scale": [0.5, 2.0]}),
    Row("Uniform", {"low": -1.0, "high": 2.0}),
    Row("Uniform", {"low": [0.0, 1.0], "high": [[2.0], [3.0]]}),
    *[Row("GeneralizedPareto", {"loc": 0.5, "scale": [1.0, 2.0, 0.3], "concentration": c})
      for c in ([0.1, 0.2, 0.3], [-0.3, -0.1, 0.0], 0.0)],
    *_binary("Bernoulli"),
    *_binary("ContinuousBernoulli"),
    *_binary("Geometric"),
    *_binary("RelaxedBernoulli", temperature=0.6),
    Row("Binomial", {"probs": [0.2, 0.7]}, fixed={"total_count": 5}),
    Row("Binomial", {"probs": [0.2, 0.9], "total_count": [4.0, 60.0]}),
    Row("Binomial", {"logits": [[0.4], [-2.0]]}, fixed={"total_count": 30}),
    Row("NegativeBinomial", {"probs": [0.2, 0.7], "total_count": 3.0}),
    Row("NegativeBinomial", {"logits": [[0.4], [-2.0]], "total_count": [2.0, 8.5]}),
    *_category("Categorical"),
    *_category("OneHotCategorical"),
    *_category("OneHotCategoricalStraightThrough"),
    *_category("Multinomial", {"total_count": 6}),
    *_category("RelaxedOneHotCategorical", temperature=0.7),
    Row("Dirichlet", {"concentration": [0.4, 1.5, 3.0]}),
    Row("Dirichlet", {"concentration": [[0.4, 0.5], [2.0, 8.0]]}),
    Row("LogisticNormal", {"loc": [0.0, 0.5, -1.0], "scale": [1.0, 0.5, 2.0]}),
    Row("MultivariateNormal", {"loc": [0.5, -1.0], "covariance_matrix": COV}),
    Row("MultivariateNormal", {"loc": [0.5, -1.0], "precision_matrix": COV}),
    Row("MultivariateNormal", {"loc": [[0.5, -1.0], [0.0, 1.0]], "scale_tril": CHOL}),
    Row("MultivariateNormal", {"loc": [0.5, -1.0], "scale_tril": [CHOL, CHOL, CHOL]}),
    Row("LowRankMultivariateNormal",
        {"loc": [0.1, 0.2, 0.3], "cov_factor": [[1.0, 0.0], [0.5, 2.0], [-1.0, 1.0]],
         "cov_diag": [0.5, 1.0, 2.0]}),
    Row("LowRankMultivariateNormal",
        {"loc": [[0.1, 0.2], [0.0, 1.0]], "cov_factor": [[1.0], [0.5]], "cov_diag": [0.5, 1.0]}),
    Row("Wishart", {"df": 4.5, "covariance_matrix": COV}),
    Row("Wishart", {"df": [4.5, 7.0], "scale_tril": CHOL}),
    Row("Wishart", {"df": 5.0, "precision_matrix": COV}),
    Row("LKJCholesky", {"concentration": 0.7}, fixed={"dim": 3}),
    Row("LKJCholesky", {"concentration": [1.0, 3.0]}, fixed={"dim": 4}),
    Row("Independent", {"loc": [[0.1, 0.2], [1.0, 2.0], [3.0, 4.0]], "scale": [0.5, 1.5]},
        lambda d, loc, scale: d.Independent(d.Normal(loc, scale), 1)),
    Row("MixtureSameFamily",
        {"weights": [0.2, 0.8], "loc": [-1.0, 3.0], "scale": [1.0, 0.5]}, _mixture),
    Row("MixtureSameFamily",
        {"weights": [[0.2, 0.8], [0.5, 0.5]], "loc": [[-1.0, 3.0], [0.0, 1.0]], "scale": 1.0},
        _mixture),
    Row("MixtureSameFamily",
        {"weights": [0.2, 0.8], "loc": [[-1.0, 3.0, 1.0], [0.0, 1.0, 2.0]], "scale": 1.5},
        _vector_mixture),
    Row("TransformedDistribution", {"loc": [0.1, 0.4], "scale": 0.7}, _transformed),
    Row("TransformedDistribution", {"loc": [[0.1, 0.4]], "scale": 0.7}, _stick),
]  # fmt: skip
