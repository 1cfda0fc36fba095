"""Kullback-Leibler divergences: the registry, its dispatch, and the formulas.

A pair of types is looked up by subclass; of several matches the most specific one wins.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import total_ordering
from typing import Any

from lucerne import linalg
from lucerne._src.base.process import notices
from lucerne._src.tensor import api as lu
from lucerne._src.tensor.autograd.api import grad
from lucerne.distributions.bernoulli import Bernoulli
from lucerne.distributions.beta import Beta
from lucerne.distributions.binomial import Binomial
from lucerne.distributions.categorical import Categorical
from lucerne.distributions.cauchy import Cauchy
from lucerne.distributions.continuous_bernoulli import ContinuousBernoulli
from lucerne.distributions.dirichlet import Dirichlet
from lucerne.distributions.exp_family import ExponentialFamily
from lucerne.distributions.exponential import Exponential
from lucerne.distributions.gamma import Gamma
from lucerne.distributions.geometric import Geometric
from lucerne.distributions.gumbel import Gumbel
from lucerne.distributions.half_normal import HalfNormal
from lucerne.distributions.independent import Independent
from lucerne.distributions.laplace import Laplace
from lucerne.distributions.lowrank_multivariate_normal import (
    LowRankMultivariateNormal,
    _batch_lowrank_mahalanobis,
)
from lucerne.distributions.multivariate_normal import MultivariateNormal, _batch_mahalanobis
from lucerne.distributions.normal import Normal
from lucerne.distributions.one_hot_categorical import OneHotCategorical
from lucerne.distributions.pareto import Pareto
from lucerne.distributions.poisson import Poisson
from lucerne.distributions.transformed_distribution import TransformedDistribution
from lucerne.distributions.uniform import Uniform
from lucerne.distributions.utils import _sum_rightmost
from lucerne.distributions.utils import euler_constant as _euler_gamma

__all__ = ["kl_divergence", "register_kl"]

Formula = Callable[[Any, Any], Any]
_KL_REGISTRY: dict[tuple[type, type], Formula] = {}
_KL_MEMOIZE: dict[tuple[type, type], Any] = {}


def register_kl(type_p: type, type_q: type) -> Callable[[Formula], Formula]:
    """Decorate a function of `(p, q)` as the divergence of two types (and their subclasses)."""
    for kind in (type_p, type_q):  # any class: Pyro's base of distributions is none of ours
        if not isinstance(kind, type):
            raise TypeError("issubclass() arg 1 must be a class")

    def decorator(formula: Formula) -> Formula:
        _KL_REGISTRY[type_p, type_q] = formula
        _KL_MEMOIZE.clear()  # a new entry may be the better match
        return formula

    return decorator


@total_ordering
class _Match:
    """Types ordered by how special they are."""

    def __init__(self, *types: type) -> None:
        self.types = types

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Match) and self.types == other.types

    __hash__ = None  # type: ignore[assignment]

    def __le__(self, other: _Match) -> bool:
        for mine, theirs in zip(self.types, other.types, strict=True):
            if not issubclass(mine, theirs):
                return False
            if mine is not theirs:
                break
        return True


def _dispatch_kl(type_p: type, type_q: type) -> Any:
    """The most specific formula, judged from the left and from the right."""
    matches = [(p, q) for p, q in _KL_REGISTRY if issubclass(type_p, p) and issubclass(type_q, q)]
    if not matches:
        return NotImplemented
    left = min(_Match(*m) for m in matches).types
    right = min(_Match(*reversed(m)) for m in matches).types
    by_left, by_right = _KL_REGISTRY[left], _KL_REGISTRY[tuple(reversed(right))]  # type: ignore[index]
    if by_left is not by_right:
        notices.warn(
            f"Ambiguous kl_divergence({type_p.__name__}, {type_q.__name__}). "
            f"Please register_kl({left[0].__name__}, {right[0].__name__})",
            RuntimeWarning,
        )
    return by_left


def kl_divergence(p: Any, q: Any) -> Any:
    """The mean, over samples of `p`, of how much likelier `p` finds them than `q` does.

    >>> from lucerne.distributions import Bernoulli
    >>> kl_divergence(Bernoulli(0.5), Bernoulli(0.5))
    tensor(0.)
    """
    key = type(p), type(q)
    if key not in _KL_MEMOIZE:
        _KL_MEMOIZE[key] = _dispatch_kl(*key)
    formula = _KL_MEMOIZE[key]
    if formula is NotImplemented:
        raise NotImplementedError(
            f"No KL(p || q) is implemented for p type {p.__class__.__name__} "
            f"and q type {q.__class__.__name__}"
        )
    return formula(p, q)


def _infinite_like(tensor: Any) -> Any:
    return lu.full_like(tensor, lu.inf)


# Where q gives no room to all of p, the divergence is infinite: p's type to a parameter of p,
# and the types of q.
_INFINITE: dict[type, tuple[str, tuple[type, ...]]] = {
    Beta: ("concentration1", (Pareto,)),
    ContinuousBernoulli: ("probs", (Pareto,)),
    Exponential: ("rate", (Beta, ContinuousBernoulli, Pareto, Uniform)),
    Gamma: ("concentration", (Beta, ContinuousBernoulli, Pareto, Uniform)),
    Gumbel: ("loc", (Beta, ContinuousBernoulli, Exponential, Gamma, Pareto, Uniform)),
    Laplace: ("loc", (Beta, ContinuousBernoulli, Exponential, Gamma, Pareto, Uniform)),
    Normal: ("loc", (Beta, ContinuousBernoulli, Exponential, Gamma, Pareto, Uniform)),
    Pareto: ("scale", (Beta, ContinuousBernoulli, Uniform)),
    Poisson: ("rate", (Bernoulli, Binomial)),
}


def _infinite(parameter: str) -> Formula:
    def formula(p: Any, q: Any) -> Any:
        return _infinite_like(getattr(p, parameter))

    return formula


for _p, (_parameter, _qs) in _INFINITE.items():
    for _q in _qs:
        register_kl(_p, _q)(_infinite(_parameter))


# ---- a distribution and another of its own type --------------------------------------------------


def _times_log_ratio(p: Any, q: Any) -> Any:
    """`p log(p / q)`, zero where p is, infinite where only q is."""
    term = p * (p / q).log()
    term = lu.where(q == 0, lu.inf, term)
    return lu.where(p == 0, 0.0, term)


@register_kl(Bernoulli, Bernoulli)
def _kl_bernoulli_bernoulli(p: Any, q: Any) -> Any:
    return _times_log_ratio(p.probs, q.probs) + _times_log_ratio(1 - p.probs, 1 - q.probs)


@register_kl(Beta, Beta)
def _kl_beta_beta(p: Any, q: Any) -> Any:
    p_total, q_total = p.concentration1 + p.concentration0, q.concentration1 + q.concentration0
    normalizers = (
        q.concentration1.lgamma()
        + q.concentration0.lgamma()
        + p_total.lgamma()
        - p.concentration1.lgamma()
        - p.concentration0.lgamma()
        - q_total.lgamma()
    )
    return (
        normalizers
        + (p.concentration1 - q.concentration1) * lu.digamma(p.concentration1)
        + (p.concentration0 - q.concentration0) * lu.digamma(p.concentration0)
        + (q_total - p_total) * lu.digamma(p_total)
    )


@register_kl(Binomial, Binomial)
def _kl_binomial_binomial(p: Any, q: Any) -> Any:
    if bool((p.total_count < q.total_count).any()):
        raise NotImplementedError(
            "KL between Binomials where q.total_count > p.total_count is not implemented"
        )
    kl = p.total_count * (p.probs * (p.logits - q.logits) + (-p.probs).log1p() - (-q.probs).log1p())
    return lu.where(p.total_count > q.total_count, lu.inf, kl)


@register_kl(Categorical, Categorical)
def _kl_categorical_categorical(p: Any, q: Any) -> Any:
    term = p.probs * (p.logits - q.logits)
    term = lu.where((q.probs == 0).expand_as(term), lu.inf, term)
    return lu.where((p.probs == 0).expand_as(term), 0.0, term).sum(-1)


@register_kl(OneHotCategorical, OneHotCategorical)
def _kl_onehotcategorical_onehotcategorical(p: Any, q: Any) -> Any:
    return _kl_categorical_categorical(p._categorical, q._categorical)


@register_kl(Cauchy, Cauchy)
def _kl_cauchy_cauchy(p: Any, q: Any) -> Any:
    """Chyzak and Nielsen, 2019."""
    apart = (p.scale + q.scale).pow(2) + (p.loc - q.loc).pow(2)
    return apart.log() - (4 * p.scale * q.scale).log()


@register_kl(ContinuousBernoulli, ContinuousBernoulli)
def _kl_continuous_bernoulli_continuous_bernoulli(p: Any, q: Any) -> Any:
    return (
        p.mean * (p.logits - q.logits)
        + p._cont_bern_log_norm()
        + lu.log1p(-p.probs)
        - q._cont_bern_log_norm()
        - lu.log1p(-q.probs)
    )


@register_kl(Dirichlet, Dirichlet)
def _kl_dirichlet_dirichlet(p: Any, q: Any) -> Any:
    p_total, q_total = p.concentration.sum(-1), q.concentration.sum(-1)
    normalizers = (
        p_total.lgamma()
        - q_total.lgamma()
        - (p.concentration.lgamma() - q.concentration.lgamma()).sum(-1)
    )
    means = p.concentration.digamma() - p_total.digamma().unsqueeze(-1)
    return normalizers + ((p.concentration - q.concentration) * means).sum(-1)


@register_kl(Exponential, Exponential)
def _kl_exponential_exponential(p: Any, q: Any) -> Any:
    ratio = q.rate / p.rate
    return -ratio.log() + ratio - 1


@register_kl(ExponentialFamily, ExponentialFamily)
def _kl_expfamily_expfamily(p: Any, q: Any) -> Any:
    """The Bregman divergence of the log-normaliser, for two of one family."""
    if type(p) is not type(q):
        raise NotImplementedError(
            "The cross KL-divergence between different exponential families cannot be "
            "computed using Bregman divergences"
        )
    p_params = [np.detach().requires_grad_() for np in p._natural_params]
    p_normalizer = p._log_normalizer(*p_params)
    slopes = grad(p_normalizer.sum(), p_params, create_graph=True)
    result = q._log_normalizer(*q._natural_params) - p_normalizer
    for mine, theirs, slope in zip(p_params, q._natural_params, slopes, strict=True):
        result = result - _sum_rightmost((theirs - mine) * slope, len(q.event_shape))
    return result


@register_kl(Gamma, Gamma)
def _kl_gamma_gamma(p: Any, q: Any) -> Any:
    return (
        q.concentration * (p.rate / q.rate).log()
        + lu.lgamma(q.concentration)
        - lu.lgamma(p.concentration)
        + (p.concentration - q.concentration) * lu.digamma(p.concentration)
        + (q.rate - p.rate) * (p.concentration / p.rate)
    )


@register_kl(Gumbel, Gumbel)
def _kl_gumbel_gumbel(p: Any, q: Any) -> Any:
    ratio, q_place, p_place = p.scale / q.scale, q.loc / q.scale, p.loc / q.scale
    ends = lu.exp(q_place + (1 + ratio).lgamma() - p_place)
    return -ratio.log() - q_place + p_place + ratio * _euler_gamma + ends - (1 + _euler_gamma)


@register_kl(Geometric, Geometric)
def _kl_geometric_geometric(p: Any, q: Any) -> Any:
    return -p.entropy() - lu.log1p(-q.probs) / p.probs - q.logits


@register_kl(HalfNormal, HalfNormal)
def _kl_halfnormal_halfnormal(p: Any, q: Any) -> Any:
    return _kl_normal_normal(p.base_dist, q.base_dist)


@register_kl(Laplace, Laplace)
def _kl_laplace_laplace(p: Any, q: Any) -> Any:
    ratio, apart = p.scale / q.scale, (p.loc - q.loc).abs()
    return -ratio.log() + apart / q.scale + ratio * lu.exp(-apart / p.scale) - 1


@register_kl(LowRankMultivariateNormal, LowRankMultivariateNormal)
def _kl_lowrank_lowrank(p: Any, q: Any) -> Any:
    _same_events(p, q, "Low Rank Multivariate Normals")
    distance = _batch_lowrank_mahalanobis(
        q._unbroadcasted_cov_factor, q._unbroadcasted_cov_diag, q.loc - p.loc, q._capacitance_tril
    )
    wanted = p._unbroadcasted_cov_diag.sqrt().diag_embed()
    trace = _lowrank_trace(q, p._unbroadcasted_cov_factor) + _lowrank_trace(q, wanted)
    return 0.5 * (q._log_det() - p._log_det() + trace + distance - p.event_shape[0])


@register_kl(MultivariateNormal, LowRankMultivariateNormal)
def _kl_multivariate_lowrank(p: Any, q: Any) -> Any:
    _same_events(p, q, "(Low Rank) Multivariate Normals")
    log_dets = q._log_det() - 2 * p._half_log_det()
    distance = _batch_lowrank_mahalanobis(
        q._unbroadcasted_cov_factor, q._unbroadcasted_cov_diag, q.loc - p.loc, q._capacitance_tril
    )
    trace = _lowrank_trace(q, p._unbroadcasted_scale_tril)
    return 0.5 * (log_dets + trace + distance - p.event_shape[0])


@register_kl(LowRankMultivariateNormal, MultivariateNormal)
def _kl_lowrank_multivariate(p: Any, q: Any) -> Any:
    _same_events(p, q, "(Low Rank) Multivariate Normals")
    log_dets = 2 * q._half_log_det() - p._log_det()
    distance = _batch_mahalanobis(q._unbroadcasted_scale_tril, q.loc - p.loc)
    factor = q._unbroadcasted_scale_tril
    trace = _solved_trace(factor, p._unbroadcasted_cov_factor) + _solved_trace(
        factor, p._unbroadcasted_cov_diag.sqrt().diag_embed()
    )
    return 0.5 * (log_dets + trace + distance - p.event_shape[0])


@register_kl(MultivariateNormal, MultivariateNormal)
def _kl_multivariate_multivariate(p: Any, q: Any) -> Any:
    _same_events(p, q, "Multivariate Normals")
    trace = _solved_trace(q._unbroadcasted_scale_tril, p._unbroadcasted_scale_tril)
    distance = _batch_mahalanobis(q._unbroadcasted_scale_tril, q.loc - p.loc)
    log_dets = q._half_log_det() - p._half_log_det()
    return log_dets + 0.5 * (trace + distance - p.event_shape[0])


def _same_events(p: Any, q: Any, what: str) -> None:
    if p.event_shape != q.event_shape:
        raise ValueError(
            f"KL-divergence between two {what} with different event shapes cannot be computed"
        )


def _columns(factor: Any, half: Any) -> tuple[Any, Any]:
    """Two matrices of one batch shape."""
    shape = lu.broadcast_shapes(factor.shape[:-2], half.shape[:-2])
    return factor.expand(shape + factor.shape[-2:]), half.expand(shape + half.shape[-2:])


def _solved_trace(factor: Any, half: Any) -> Any:
    """`trace((F F')^-1 H H')`."""
    factor, half = _columns(factor, half)
    return linalg.solve_triangular(factor, half, upper=False).pow(2).sum([-2, -1])


def _lowrank_trace(q: Any, half: Any) -> Any:
    """`trace(cov_q^-1 H H')`, by the Woodbury identity."""
    diagonal = q._unbroadcasted_cov_diag.unsqueeze(-1)
    inner = (q._unbroadcasted_cov_factor / diagonal).mT @ half
    whole = (half.pow(2) / diagonal).sum([-2, -1])
    return whole - _solved_trace(q._capacitance_tril, inner)


@register_kl(Normal, Normal)
def _kl_normal_normal(p: Any, q: Any) -> Any:
    ratio = (p.scale / q.scale).pow(2)
    return 0.5 * (ratio + ((p.loc - q.loc) / q.scale).pow(2) - 1 - ratio.log())


@register_kl(Pareto, Pareto)
def _kl_pareto_pareto(p: Any, q: Any) -> Any:
    scale_ratio, alpha_ratio = p.scale / q.scale, q.alpha / p.alpha
    kl = q.alpha * scale_ratio.log() - alpha_ratio.log() + alpha_ratio - 1
    return lu.where(p.support.lower_bound < q.support.lower_bound, lu.inf, kl)


@register_kl(Poisson, Poisson)
def _kl_poisson_poisson(p: Any, q: Any) -> Any:
    return p.rate * (p.rate.log() - q.rate.log()) - (p.rate - q.rate)


@register_kl(TransformedDistribution, TransformedDistribution)
def _kl_transformed_transformed(p: Any, q: Any) -> Any:
    """One-to-one maps that are alike change nothing."""
    if p.transforms != q.transforms or p.event_shape != q.event_shape:
        raise NotImplementedError
    return kl_divergence(p.base_dist, q.base_dist)


@register_kl(Uniform, Uniform)
def _kl_uniform_uniform(p: Any, q: Any) -> Any:
    kl = ((q.high - q.low) / (p.high - p.low)).log()
    return lu.where((q.low > p.low) | (q.high < p.high), lu.inf, kl)


@register_kl(Independent, Independent)
def _kl_independent_independent(p: Any, q: Any) -> Any:
    if p.reinterpreted_batch_ndims != q.reinterpreted_batch_ndims:
        raise NotImplementedError
    return _sum_rightmost(kl_divergence(p.base_dist, q.base_dist), p.reinterpreted_batch_ndims)


# ---- two different types: minus entropy of p, minus the mean under p of log q --------------------


@register_kl(Bernoulli, Poisson)
def _kl_bernoulli_poisson(p: Any, q: Any) -> Any:
    return -p.entropy() - (p.probs * q.rate.log() - q.rate)


@register_kl(Beta, ContinuousBernoulli)
def _kl_beta_continuous_bernoulli(p: Any, q: Any) -> Any:
    return -p.entropy() - p.mean * q.logits - lu.log1p(-q.probs) - q._cont_bern_log_norm()


@register_kl(Beta, Exponential)
def _kl_beta_exponential(p: Any, q: Any) -> Any:
    return -p.entropy() - q.rate.log() + q.rate * p.mean


@register_kl(Beta, Gamma)
def _kl_beta_gamma(p: Any, q: Any) -> Any:
    log_mean = p.concentration1.digamma() - (p.concentration1 + p.concentration0).digamma()
    return (
        -p.entropy()
        + q.concentration.lgamma()
        - q.concentration * q.rate.log()
        - (q.concentration - 1) * log_mean
        + q.rate * p.mean
    )


def _normal_cross(q: Any, square: Any, mean: Any) -> Any:
    """Minus the mean of log q, for a normal q and the first two moments of p."""
    variance = q.scale.pow(2)
    apart = square / 2 - mean * q.loc + q.loc.pow(2) / 2
    return 0.5 * (variance * 2 * math.pi).log() + apart / variance


@register_kl(Beta, Normal)
@register_kl(ContinuousBernoulli, Normal)
def _kl_bounded_normal(p: Any, q: Any) -> Any:
    return -p.entropy() + _normal_cross(q, p.variance + p.mean.pow(2), p.mean)


@register_kl(Beta, Uniform)
def _kl_beta_uniform(p: Any, q: Any) -> Any:
    kl = -p.entropy() + (q.high - q.low).log()
    return lu.where((q.low > p.support.lower_bound) | (q.high < p.support.upper_bound), lu.inf, kl)


@register_kl(ContinuousBernoulli, Exponential)
def _kl_continuous_bernoulli_exponential(p: Any, q: Any) -> Any:
    return -p.entropy() - lu.log(q.rate) + q.rate * p.mean


@register_kl(ContinuousBernoulli, Uniform)
def _kl_continuous_bernoulli_uniform(p: Any, q: Any) -> Any:
    kl = -p.entropy() + (q.high - q.low).log()
    outside = lu.max(lu.ge(q.low, p.support.lower_bound), lu.le(q.high, p.support.upper_bound))
    return lu.where(outside, lu.inf, kl)


@register_kl(Exponential, Gamma)
def _kl_exponential_gamma(p: Any, q: Any) -> Any:
    ratio = q.rate / p.rate
    return (
        -q.concentration * lu.log(ratio)
        + ratio
        + q.concentration.lgamma()
        + q.concentration * _euler_gamma
        - (1 + _euler_gamma)
    )


@register_kl(Exponential, Gumbel)
def _kl_exponential_gumbel(p: Any, q: Any) -> Any:
    product, place = p.rate * q.scale, q.loc / q.scale
    return product.log() - 1 + product.reciprocal() - place + place.exp() * product / (product + 1)


@register_kl(Exponential, Normal)
def _kl_exponential_normal(p: Any, q: Any) -> Any:
    return -p.entropy() + _normal_cross(q, 2 * p.rate.pow(-2), p.mean)


@register_kl(Gamma, Exponential)
def _kl_gamma_exponential(p: Any, q: Any) -> Any:
    return -p.entropy() - q.rate.log() + q.rate * p.concentration / p.rate


@register_kl(Gamma, Gumbel)
def _kl_gamma_gumbel(p: Any, q: Any) -> Any:
    product, place = p.rate * q.scale, q.loc / q.scale
    ends = lu.exp(place) * (1 + product.reciprocal()).pow(-p.concentration) - place
    return (
        (p.concentration - 1) * p.concentration.digamma()
        - p.concentration.lgamma()
        - p.concentration
        + product.log()
        + p.concentration / product
        + ends
    )


@register_kl(Gamma, Normal)
def _kl_gamma_normal(p: Any, q: Any) -> Any:
    return -p.entropy() + _normal_cross(q, p.variance + p.mean.pow(2), p.mean)


@register_kl(Gumbel, Normal)
def _kl_gumbel_normal(p: Any, q: Any) -> Any:
    return -p.entropy() + _normal_cross(q, p.variance + p.mean.pow(2), p.mean)


@register_kl(Laplace, Normal)
def _kl_laplace_normal(p: Any, q: Any) -> Any:
    return -p.entropy() + _normal_cross(q, p.variance + p.mean.pow(2), p.mean)


@register_kl(Normal, Gumbel)
def _kl_normal_gumbel(p: Any, q: Any) -> Any:
    mean, half = (p.loc - q.loc) / q.scale, 0.5 * (p.scale / q.scale).pow(2)
    return -p.entropy() + mean + lu.exp(half - mean) + q.scale.log()


@register_kl(Normal, Laplace)
def _kl_normal_laplace(p: Any, q: Any) -> Any:
    """Through the mean of a folded normal."""
    apart = p.loc - q.loc
    steps = apart / p.scale
    folded = math.sqrt(2 / math.pi) * p.scale * lu.exp(-0.5 * steps.pow(2))
    folded = folded + apart * lu.erf(math.sqrt(0.5) * steps)
    return -p.entropy() + (2 * q.scale).log() + folded / q.scale


@register_kl(Pareto, Exponential)
def _kl_pareto_exponential(p: Any, q: Any) -> Any:
    product = p.scale * q.rate
    mean = p.alpha * product / (p.alpha - 1)
    kl = (p.alpha / product).log() - p.alpha.reciprocal() + mean - 1
    return lu.where(p.alpha <= 1, lu.inf, kl)


@register_kl(Pareto, Gamma)
def _kl_pareto_gamma(p: Any, q: Any) -> Any:
    log_mean = p.scale.log() + p.alpha.reciprocal()
    kl = (
        p.alpha.log()
        - log_mean
        - 1
        + q.concentration.lgamma()
        - q.concentration * q.rate.log()
        + (1 - q.concentration) * log_mean
        + q.rate * p.alpha * p.scale / (p.alpha - 1)
    )
    return lu.where(p.alpha <= 1, lu.inf, kl)


@register_kl(Pareto, Normal)
def _kl_pareto_normal(p: Any, q: Any) -> Any:
    mean = p.alpha * p.scale / (p.alpha - 1)
    square = p.alpha * p.scale.pow(2) / (p.alpha - 2)
    kl = -p.entropy() + _normal_cross(q, square, mean)
    return lu.where(p.alpha <= 2, lu.inf, kl)


def _mean_x_log_x(p: Any) -> Any:
    """The mean of `log x` under a uniform p, times its width."""
    return p.high.xlogy(p.high) - p.low.xlogy(p.low) - (p.high - p.low)


@register_kl(Uniform, Beta)
def _kl_uniform_beta(p: Any, q: Any) -> Any:
    width = p.high - p.low
    rest_high, rest_low = 1 - p.high, 1 - p.low
    log_rest = rest_high.xlogy(rest_high) - rest_low.xlogy(rest_low) + width
    normalizer = (
        q.concentration1.lgamma()
        + q.concentration0.lgamma()
        - (q.concentration1 + q.concentration0).lgamma()
    )
    kl = (
        normalizer
        - width.log()
        - (q.concentration1 - 1) * _mean_x_log_x(p) / width
        + (q.concentration0 - 1) * log_rest / width
    )
    outside = (p.high > q.support.upper_bound) | (p.low < q.support.lower_bound)
    return lu.where(outside, lu.inf, kl)


@register_kl(Uniform, ContinuousBernoulli)
def _kl_uniform_continuous_bernoulli(p: Any, q: Any) -> Any:
    kl = -p.entropy() - p.mean * q.logits - lu.log1p(-q.probs) - q._cont_bern_log_norm()
    outside = lu.max(lu.ge(p.high, q.support.upper_bound), lu.le(p.low, q.support.lower_bound))
    return lu.where(outside, lu.inf, kl)


@register_kl(Uniform, Exponential)
def _kl_uniform_exponential(p: Any, q: Any) -> Any:
    kl = q.rate * (p.high + p.low) / 2 - ((p.high - p.low) * q.rate).log()
    return lu.where(p.low < q.support.lower_bound, lu.inf, kl)


@register_kl(Uniform, Gamma)
def _kl_uniform_gamma(p: Any, q: Any) -> Any:
    width = p.high - p.low
    kl = (
        -width.log()
        + q.concentration.lgamma()
        - q.concentration * q.rate.log()
        + (1 - q.concentration) * _mean_x_log_x(p) / width
        + q.rate * (p.high + p.low) / 2
    )
    return lu.where(p.low < q.support.lower_bound, lu.inf, kl)


@register_kl(Uniform, Gumbel)
def _kl_uniform_gumbel(p: Any, q: Any) -> Any:
    ratio = q.scale / (p.high - p.low)
    high, low = (p.high - q.loc) / q.scale, (p.low - q.loc) / q.scale
    return ratio.log() + 0.5 * (high + low) - ratio * (lu.exp(-high) - lu.exp(-low))


@register_kl(Uniform, Normal)
def _kl_uniform_normal(p: Any, q: Any) -> Any:
    return -p.entropy() + _normal_cross(q, p.variance + p.mean.pow(2), p.mean)


@register_kl(Uniform, Pareto)
def _kl_uniform_pareto(p: Any, q: Any) -> Any:
    width = p.high - p.low
    constant = q.alpha * q.scale.log() + q.alpha.log()
    kl = (q.alpha + 1) * _mean_x_log_x(p) / width - width.log() - constant
    return lu.where(p.low < q.support.lower_bound, lu.inf, kl)
