"""Laws that tie forward and reverse mode together, for functions made up by hypothesis."""

from collections.abc import Callable
from typing import Any

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

import lucerne
from lucerne.func import grad, hessian, jacfwd, jacrev, jvp, linearize, vjp, vmap

SIZE = 3
MIX = lucerne.tensor(np.arange(9.0).reshape(3, 3) / 5 - 0.7)

STEPS: dict[str, Callable[[Any], Any]] = {
    "sin": lambda x: x.sin(),
    "tanh": lambda x: x.tanh(),
    "softmax": lambda x: x.softmax(0),
    "mix": lambda x: MIX @ x,
    "times itself": lambda x: x * x.flip(0),
    "divided": lambda x: x / (1 + x * x),
    "running sum": lambda x: x.cumsum(0),
    "sorted": lambda x: x.sort()[0] * 2,
    "outer": lambda x: lucerne.outer(x, x.cos()).sum(1),
    "norm": lambda x: x * (x.norm() + 1),
    "written": lambda x: _written(x),
    "where": lambda x: lucerne.where(x > 0, x * x, x),
    "gathered": lambda x: x[lucerne.tensor([2, 0, 1])] * x,
    "normalised": lambda x: lucerne.nn.functional.layer_norm(x, (SIZE,)),
    "convolved": lambda x: lucerne.nn.functional.conv1d(
        x.reshape(1, 1, SIZE), MIX[:1, None, :], padding=1
    ).reshape(SIZE),
}


def _written(x: Any) -> Any:
    y = x.clone()
    y[1:].mul_(x[:-1])
    return y


functions = st.lists(st.sampled_from(sorted(STEPS)), min_size=1, max_size=4)
vectors = st.lists(
    st.floats(-2, 2, width=32).filter(lambda v: abs(v) > 1e-3), min_size=SIZE, max_size=SIZE
).map(lambda v: lucerne.tensor(np.array(v) + 0.01 * np.arange(SIZE)))
few = settings(max_examples=25, deadline=None)


def composed(names: list[str]) -> Callable[[Any], Any]:
    def f(x: Any) -> Any:
        for name in names:
            x = STEPS[name](x)
        return x

    return f


def close(a: Any, b: Any, tolerance: float = 1e-8) -> None:
    np.testing.assert_allclose(a.numpy(), b.numpy(), rtol=tolerance, atol=tolerance)


@few
@given(functions, vectors, vectors, vectors)
def test_jvp_and_vjp_are_transposes(names: list[str], x: Any, u: Any, v: Any) -> None:
    f = composed(names)
    forward = jvp(f, (x,), (v,))[1]
    (back,) = vjp(f, x)[1](u)
    close((u * forward).sum(), (back * v).sum())


@few
@given(functions, vectors)
def test_both_jacobians_agree(names: list[str], x: Any) -> None:
    f = composed(names)
    close(jacfwd(f)(x), jacrev(f)(x))


@few
@given(functions, vectors)
def test_a_hessian_is_symmetric(names: list[str], x: Any) -> None:
    f = composed(names)
    found = hessian(lambda y: f(y).sum())(x)
    close(found, found.T, 1e-6)


@few
@given(functions, vectors, vectors)
def test_linearize_is_jvp(names: list[str], x: Any, v: Any) -> None:
    f = composed(names)
    value, push_forward = linearize(f, x)
    close(value, f(x))
    close(push_forward(v), jvp(f, (x,), (v,))[1])


@few
@given(functions, vectors, vectors)
def test_forward_over_reverse_is_reverse_over_forward(names: list[str], x: Any, v: Any) -> None:
    f = composed(names)
    number = lambda y: f(y).sum()  # noqa: E731
    close(jvp(grad(number), (x,), (v,))[1], grad(lambda y: jvp(number, (y,), (v,))[1])(x), 1e-6)


@few
@given(functions, vectors, vectors)
def test_vmap_of_jvp_is_a_loop(names: list[str], x: Any, v: Any) -> None:
    f = composed(names)
    rows = lucerne.stack([v, x])
    loop = lucerne.stack([jvp(f, (x,), (r,))[1] for r in rows])
    close(vmap(lambda t: jvp(f, (x,), (t,))[1])(rows), loop)


@few
@given(functions, vectors)
def test_the_derivative_is_the_limit_of_differences(names: list[str], x: Any) -> None:
    smooth = [n for n in names if n not in ("sorted", "where")]
    f, step = composed(smooth), 1e-6
    v = lucerne.ones(SIZE, dtype=lucerne.float64)
    difference = (f(x + step * v) - f(x - step * v)) / (2 * step)
    got = jvp(f, (x,), (v,))[1]
    np.testing.assert_allclose(got.numpy(), difference.numpy(), rtol=1e-4, atol=1e-4)
