"""Transforms in any order give what loops give: laws over random programs and shapes."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import lucerne
from lucerne.func import grad, jvp, vmap

Step = tuple[str, Callable[[Any], Any]]
STEPS: list[Step] = [
    ("sin", lambda x: x.sin()),
    ("scale", lambda x: x * 0.5 + 1),
    ("softmax", lambda x: x.softmax(-1)),
    ("centre", lambda x: x - x.mean(0, keepdim=True)),
    ("transpose", lambda x: x.transpose(0, 1)),
    ("square", lambda x: x @ x.transpose(0, 1)),
    ("cumsum", lambda x: x.cumsum(0)),
    ("roll", lambda x: lucerne.cat([x[1:], x[:1]])),
    ("norm", lambda x: lucerne.nn.functional.layer_norm(x, x.shape[-1:])),
    ("write", lambda x: _written(x)),
    ("select", lambda x: lucerne.where(x > 0, x, x.exp())),
    ("pad", lambda x: lucerne.nn.functional.pad(x, (1, 0))),
    ("max", lambda x: x + x.max(1, keepdim=True).values),
    ("gather", lambda x: x.index_select(0, lucerne.arange(x.shape[0]).flip(0))),
]


def _written(x: Any) -> Any:
    y = x.clone()
    y[0] = y[-1] * 2
    return y


programs = st.lists(st.sampled_from(STEPS), min_size=1, max_size=4)
sizes = st.tuples(st.integers(1, 3), st.integers(1, 3), st.integers(1, 3))
LAW = settings(max_examples=12, deadline=None, derandomize=True)


def program(steps: list[Step]) -> Callable[[Any], Any]:
    def f(x: Any) -> Any:
        for _, step in steps:
            x = step(x)
        return x

    return f


def numbers(*shape: int) -> Any:
    values = np.random.default_rng(sum(shape)).standard_normal(shape)
    return lucerne.from_numpy(values)


def each(f: Callable[[Any], Any], x: Any) -> Any:
    return lucerne.stack([f(row) for row in x])


def agree(got: Any, want: Any) -> None:
    assert got.shape == want.shape
    assert np.allclose(got.detach().numpy(), want.detach().numpy(), rtol=1e-8, atol=1e-8)


def test_agree_fails_when_it_should() -> None:
    with pytest.raises(AssertionError):
        agree(numbers(2), numbers(2) + 1)


@LAW
@given(programs, sizes)
def test_vmap_is_a_loop(steps: list[Step], size: tuple[int, ...]) -> None:
    f, x = program(steps), numbers(*size)
    agree(vmap(f)(x), each(f, x))
    agree(vmap(f, in_dims=2)(x.movedim(0, 2)), each(f, x))


@LAW
@given(programs, sizes)
def test_vmap_of_vmap(steps: list[Step], size: tuple[int, ...]) -> None:
    f, x = program(steps), numbers(2, *size)
    agree(vmap(vmap(f))(x), each(lambda y: each(f, y), x))
    agree(vmap(vmap(f, in_dims=1), in_dims=1)(x), each(lambda y: each(f, y), x.permute(1, 2, 0, 3)))


@LAW
@given(programs, sizes)
def test_vmap_and_grad(steps: list[Step], size: tuple[int, ...]) -> None:
    f, x = program(steps), numbers(*size)

    def loss(x: Any) -> Any:
        return f(x).sin().sum()

    want = each(grad(loss), x)
    agree(vmap(grad(loss))(x), want)
    agree(grad(lambda x: vmap(loss)(x).sum())(x), want)
    twice = each(grad(lambda x: grad(loss)(x).square().sum()), x)
    agree(vmap(grad(lambda x: grad(loss)(x).square().sum()))(x), twice)
    agree(grad(lambda x: vmap(grad(loss))(x).square().sum())(x), twice)


@LAW
@given(programs, sizes)
def test_vmap_and_jvp(steps: list[Step], size: tuple[int, ...]) -> None:
    f, x = program(steps), numbers(*size)
    v = numbers(*size) * 0.5
    want = lucerne.stack([jvp(f, (a,), (b,))[1] for a, b in zip(x, v, strict=True)])
    agree(vmap(lambda a, b: jvp(f, (a,), (b,))[1])(x, v), want)
    agree(jvp(vmap(f), (x,), (v,))[1], want)


@settings(max_examples=4, deadline=None, derandomize=True)
@given(programs)
def test_vmap_and_compile(steps: list[Step]) -> None:
    f, x = program(steps), numbers(2, 3, 3)
    agree(lucerne.compile(vmap(f))(x), each(f, x))
    agree(vmap(lucerne.compile(f))(x), each(f, x))
    loss: Callable[[Any], Any] = lambda x: f(x).sin().sum()  # noqa: E731
    agree(lucerne.compile(vmap(grad(loss)))(x), each(grad(loss), x))
