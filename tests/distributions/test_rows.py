"""Every distribution of the table against torch: the same samples, densities, moments, shapes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

import lucerne
import lucerne.distributions
from tests.distributions.agree import array, assert_close, assert_same
from tests.distributions.rows import ROWS, Row

pytestmark = pytest.mark.torch
rows = pytest.mark.parametrize("row", ROWS, ids=str)
# torch's own value is wrong or refused there (docs/guide/distributions.md).
MODE_DIFFERS = ("Kumaraswamy",)
TORCH_IN_FLOAT32_ONLY = ("GeneralizedPareto",)
TORCH_DRAWS_AGAIN = ("Wishart",)
TORCH_APPROXIMATES = ("VonMises",)


def both(row: Row, dtype: str = "float32", grad: bool = False) -> tuple[Any, ...]:
    ours, our_params = row.build(lucerne, dtype, grad)
    theirs, their_params = row.build(torch, dtype, grad)
    return ours, theirs, our_params, their_params


def seeded() -> None:
    torch.manual_seed(11)
    lucerne.manual_seed(11)


def drawn(row: Row, theirs: Any, shape: tuple[int, ...]) -> Any:
    """A sample of torch's, without its mistake about singular matrices."""
    if row.name in TORCH_DRAWS_AGAIN:
        return theirs._bartlett_sampling(torch.Size(shape)).detach()
    return theirs.sample(torch.Size(shape))


def sample_pair(row: Row, theirs: Any, shape: tuple[int, ...] = (2, 3)) -> tuple[Any, Any]:
    value = drawn(row, theirs, shape)
    return lucerne.from_numpy(value.numpy().copy()), value


def gradients(lib: Any, result: Any, params: list[Any]) -> list[Any]:
    weights = lib.from_numpy(np.linspace(0.3, 1, result.numel(), dtype=array(result).dtype))
    total = (result.reshape(-1) * weights).sum()
    return list(lib.autograd.grad(total, params, allow_unused=True))


def assert_gradients(ours: list[Any], theirs: list[Any], rtol: float) -> None:
    for a, b in zip(ours, theirs, strict=True):
        assert (a is None) == (b is None)
        if a is not None:
            assert_close(a, b, rtol)


@rows
def test_description(row: Row) -> None:
    ours, theirs, *_ = both(row)
    assert repr(ours) == repr(theirs)
    assert repr((ours.batch_shape, ours.event_shape)) == repr(
        (theirs.batch_shape, theirs.event_shape)
    )
    assert repr(ours.support) == repr(theirs.support)
    assert repr(ours.arg_constraints) == repr(theirs.arg_constraints)
    assert ours.has_rsample == theirs.has_rsample
    assert ours.has_enumerate_support == theirs.has_enumerate_support


@pytest.mark.parametrize("shape", [(), (5,), (2, 3)], ids=str)
@rows
def test_samples_are_torchs(row: Row, shape: tuple[int, ...]) -> None:
    ours, theirs, *_ = both(row)
    seeded()
    assert_close(ours.sample(shape), drawn(row, theirs, shape), 1e-6)


@rows
def test_log_prob_and_gradient(row: Row) -> None:
    dtype = "float32" if row.name in TORCH_IN_FLOAT32_ONLY else "float64"
    rtol = 1e-7 if dtype == "float64" else 2e-4
    rtol = 1e-6 if row.name in TORCH_APPROXIMATES else rtol
    ours, theirs, our_params, their_params = both(row, dtype, grad=True)
    mine, value = sample_pair(row, theirs)
    found, expected = ours.log_prob(mine), theirs.log_prob(value)
    assert_close(found, expected, rtol)
    if row.name != "Wishart":  # torch gives the ignored upper triangle a gradient
        assert_gradients(
            gradients(lucerne, found, our_params), gradients(torch, expected, their_params), rtol
        )


@rows
def test_cdf_and_icdf(row: Row) -> None:
    ours, theirs, *_ = both(row)
    mine, value = sample_pair(row, theirs)
    assert_same(lambda: ours.cdf(mine), lambda: theirs.cdf(value), 1e-4)
    if not theirs.event_shape:
        u = np.random.default_rng(0).uniform(0.02, 0.98, (4, *theirs.batch_shape)).astype("f4")
        mine, value = lucerne.from_numpy(u), torch.from_numpy(u)
        assert_same(lambda: ours.icdf(mine), lambda: theirs.icdf(value), 1e-4)


@pytest.mark.parametrize("name", ["mean", "mode", "variance", "stddev"])
@rows
def test_moments(row: Row, name: str) -> None:
    ours, theirs, *_ = both(row, "float64")
    if name == "mode" and row.name in MODE_DIFFERS:
        return
    rtol = 1e-6 if row.name in TORCH_APPROXIMATES else 1e-9
    assert_same(lambda: getattr(ours, name), lambda: getattr(theirs, name), rtol)


@pytest.mark.parametrize("name", ["entropy", "perplexity", "enumerate_support"])
@rows
def test_entropy_and_support(row: Row, name: str) -> None:
    ours, theirs, *_ = both(row, "float64")
    assert_same(lambda: getattr(ours, name)(), lambda: getattr(theirs, name)(), 1e-9)


@rows
def test_rsample_gradient(row: Row) -> None:
    """Within 0.2 %: torch approximates the gradients of gamma and Dirichlet samples."""
    ours, theirs, our_params, their_params = both(row, grad=True)
    if not theirs.has_rsample:
        with pytest.raises(NotImplementedError):
            ours.rsample()
        return
    seeded()
    found = ours.rsample((3,))
    seeded()
    if row.name in TORCH_DRAWS_AGAIN:
        expected = theirs._bartlett_sampling(torch.Size((3,)))
    else:
        expected = theirs.rsample(torch.Size((3,)))
    assert_close(found, expected, 2e-6)
    assert_gradients(
        gradients(lucerne, found, our_params), gradients(torch, expected, their_params), 2e-3
    )


@rows
def test_expand(row: Row) -> None:
    ours, theirs, *_ = both(row)
    ours = ours.expand((2, *ours.batch_shape))
    theirs = theirs.expand((2, *theirs.batch_shape))
    assert repr(ours) == repr(theirs)
    assert repr((ours.batch_shape, ours.event_shape)) == repr(
        (theirs.batch_shape, theirs.event_shape)
    )
    seeded()
    value = drawn(row, theirs, ())
    lucerne.manual_seed(11)
    mine = ours.sample()
    assert_close(mine, value, 1e-6)
    assert_close(ours.log_prob(mine), theirs.log_prob(value), 2e-4)
    again = ours.expand((3, *ours.batch_shape))
    assert tuple(again.sample().shape) == (3, *value.shape)


def test_the_table_has_every_distribution() -> None:
    names = {
        n
        for n in torch.distributions.__all__
        if isinstance(getattr(torch.distributions, n), type)
        and issubclass(getattr(torch.distributions, n), torch.distributions.Distribution)
    }
    assert names - {row.name for row in ROWS} == {"Distribution", "ExponentialFamily"}
