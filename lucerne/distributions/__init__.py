"""`lucerne.distributions`: distributions to sample from and to differentiate through.

>>> import lucerne
>>> from lucerne.distributions import Normal, kl_divergence
>>> kl_divergence(Normal(0.0, 1.0), Normal(1.0, 1.0))
tensor(0.5000)
"""

from __future__ import annotations

from lucerne.distributions import constraints as constraints
from lucerne.distributions import transforms as transforms
from lucerne.distributions.bernoulli import Bernoulli as Bernoulli
from lucerne.distributions.beta import Beta as Beta
from lucerne.distributions.binomial import Binomial as Binomial
from lucerne.distributions.categorical import Categorical as Categorical
from lucerne.distributions.cauchy import Cauchy as Cauchy
from lucerne.distributions.chi2 import Chi2 as Chi2
from lucerne.distributions.constraint_registry import biject_to as biject_to
from lucerne.distributions.constraint_registry import transform_to as transform_to
from lucerne.distributions.continuous_bernoulli import ContinuousBernoulli as ContinuousBernoulli
from lucerne.distributions.dirichlet import Dirichlet as Dirichlet
from lucerne.distributions.distribution import Distribution as Distribution
from lucerne.distributions.exp_family import ExponentialFamily as ExponentialFamily
from lucerne.distributions.exponential import Exponential as Exponential
from lucerne.distributions.fishersnedecor import FisherSnedecor as FisherSnedecor
from lucerne.distributions.gamma import Gamma as Gamma
from lucerne.distributions.generalized_pareto import GeneralizedPareto as GeneralizedPareto
from lucerne.distributions.geometric import Geometric as Geometric
from lucerne.distributions.gumbel import Gumbel as Gumbel
from lucerne.distributions.half_cauchy import HalfCauchy as HalfCauchy
from lucerne.distributions.half_normal import HalfNormal as HalfNormal
from lucerne.distributions.independent import Independent as Independent
from lucerne.distributions.inverse_gamma import InverseGamma as InverseGamma
from lucerne.distributions.kl import kl_divergence as kl_divergence
from lucerne.distributions.kl import register_kl as register_kl
from lucerne.distributions.kumaraswamy import Kumaraswamy as Kumaraswamy
from lucerne.distributions.laplace import Laplace as Laplace
from lucerne.distributions.lkj_cholesky import LKJCholesky as LKJCholesky
from lucerne.distributions.log_normal import LogNormal as LogNormal
from lucerne.distributions.logistic_normal import LogisticNormal as LogisticNormal
from lucerne.distributions.lowrank_multivariate_normal import (
    LowRankMultivariateNormal as LowRankMultivariateNormal,
)
from lucerne.distributions.mixture_same_family import MixtureSameFamily as MixtureSameFamily
from lucerne.distributions.multinomial import Multinomial as Multinomial
from lucerne.distributions.multivariate_normal import MultivariateNormal as MultivariateNormal
from lucerne.distributions.negative_binomial import NegativeBinomial as NegativeBinomial
from lucerne.distributions.normal import Normal as Normal
from lucerne.distributions.one_hot_categorical import OneHotCategorical as OneHotCategorical
from lucerne.distributions.one_hot_categorical import (
    OneHotCategoricalStraightThrough as OneHotCategoricalStraightThrough,
)
from lucerne.distributions.pareto import Pareto as Pareto
from lucerne.distributions.poisson import Poisson as Poisson
from lucerne.distributions.relaxed_bernoulli import RelaxedBernoulli as RelaxedBernoulli
from lucerne.distributions.relaxed_categorical import (
    RelaxedOneHotCategorical as RelaxedOneHotCategorical,
)
from lucerne.distributions.studentT import StudentT as StudentT
from lucerne.distributions.transformed_distribution import (
    TransformedDistribution as TransformedDistribution,
)
from lucerne.distributions.transforms import AbsTransform as AbsTransform
from lucerne.distributions.transforms import AffineTransform as AffineTransform
from lucerne.distributions.transforms import CatTransform as CatTransform
from lucerne.distributions.transforms import ComposeTransform as ComposeTransform
from lucerne.distributions.transforms import CorrCholeskyTransform as CorrCholeskyTransform
from lucerne.distributions.transforms import (
    CumulativeDistributionTransform as CumulativeDistributionTransform,
)
from lucerne.distributions.transforms import ExpTransform as ExpTransform
from lucerne.distributions.transforms import IndependentTransform as IndependentTransform
from lucerne.distributions.transforms import LowerCholeskyTransform as LowerCholeskyTransform
from lucerne.distributions.transforms import PositiveDefiniteTransform as PositiveDefiniteTransform
from lucerne.distributions.transforms import PowerTransform as PowerTransform
from lucerne.distributions.transforms import ReshapeTransform as ReshapeTransform
from lucerne.distributions.transforms import SigmoidTransform as SigmoidTransform
from lucerne.distributions.transforms import SoftmaxTransform as SoftmaxTransform
from lucerne.distributions.transforms import SoftplusTransform as SoftplusTransform
from lucerne.distributions.transforms import StackTransform as StackTransform
from lucerne.distributions.transforms import StickBreakingTransform as StickBreakingTransform
from lucerne.distributions.transforms import TanhTransform as TanhTransform
from lucerne.distributions.transforms import Transform as Transform
from lucerne.distributions.transforms import identity_transform as identity_transform
from lucerne.distributions.uniform import Uniform as Uniform
from lucerne.distributions.von_mises import VonMises as VonMises
from lucerne.distributions.weibull import Weibull as Weibull
from lucerne.distributions.wishart import Wishart as Wishart

__all__ = [
    "AbsTransform",
    "AffineTransform",
    "Bernoulli",
    "Beta",
    "Binomial",
    "CatTransform",
    "Categorical",
    "Cauchy",
    "Chi2",
    "ComposeTransform",
    "ContinuousBernoulli",
    "CorrCholeskyTransform",
    "CumulativeDistributionTransform",
    "Dirichlet",
    "Distribution",
    "ExpTransform",
    "Exponential",
    "ExponentialFamily",
    "FisherSnedecor",
    "Gamma",
    "GeneralizedPareto",
    "Geometric",
    "Gumbel",
    "HalfCauchy",
    "HalfNormal",
    "Independent",
    "IndependentTransform",
    "InverseGamma",
    "Kumaraswamy",
    "LKJCholesky",
    "Laplace",
    "LogNormal",
    "LogisticNormal",
    "LowRankMultivariateNormal",
    "LowerCholeskyTransform",
    "MixtureSameFamily",
    "Multinomial",
    "MultivariateNormal",
    "NegativeBinomial",
    "Normal",
    "OneHotCategorical",
    "OneHotCategoricalStraightThrough",
    "Pareto",
    "Poisson",
    "PositiveDefiniteTransform",
    "PowerTransform",
    "RelaxedBernoulli",
    "RelaxedOneHotCategorical",
    "ReshapeTransform",
    "SigmoidTransform",
    "SoftmaxTransform",
    "SoftplusTransform",
    "StackTransform",
    "StickBreakingTransform",
    "StudentT",
    "TanhTransform",
    "Transform",
    "TransformedDistribution",
    "Uniform",
    "VonMises",
    "Weibull",
    "Wishart",
    "biject_to",
    "identity_transform",
    "kl_divergence",
    "register_kl",
    "transform_to",
]
