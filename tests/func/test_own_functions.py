"""A user's autograd.Function in every composition of transforms, beside torch.

Its derivatives are ten times the true ones: where somebody differentiates its forward pass in place
of asking it, that is seen.
"""

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import lucerne

torch = pytest.importorskip("torch")
pytestmark = [
    pytest.mark.torch,
    # of torch itself, when it first differentiates forward
    pytest.mark.filterwarnings("ignore:.*torch.jit.script:DeprecationWarning"),
]


def function(
    lib: Any, *, setup: bool = True, rule: bool = False, own: bool = False, jvp: bool = True
) -> Any:
    """A Function with a `setup_context`, a generated rule, a `vmap` and a `jvp` or without."""

    class Base(lib.autograd.Function):  # type: ignore[misc]
        generate_vmap_rule = rule

        @staticmethod
        def backward(ctx: Any, g: Any, h: Any) -> Any:
            x, w = ctx.saved_tensors
            return 10 * (g * 2 * x * w + h * w), 10 * (g * x * x + h * x)

    def forward(x: Any, w: Any) -> Any:
        return x * x * w, (x * w).sum()

    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        ctx.save_for_backward(*inputs)
        ctx.save_for_forward(*inputs)

    def both(ctx: Any, x: Any, w: Any) -> Any:
        setup_context(ctx, (x, w), None)
        return forward(x, w)

    def direction(ctx: Any, xt: Any, wt: Any) -> Any:
        x, w = ctx.saved_tensors
        return 10 * (2 * x * w * xt + x * x * wt), 10 * (xt * w + x * wt).sum()

    def mapped(info: Any, in_dims: Any, x: Any, w: Any) -> Any:
        x, w = (t if d is None else t.movedim(d, 0) for t, d in zip((x, w), in_dims, strict=True))
        return (x * x * w, (x * w).sum(-1)), (0, 0)

    Base.forward = staticmethod(forward if setup else both)
    if setup:
        Base.setup_context = staticmethod(setup_context)
    if jvp:
        Base.jvp = staticmethod(direction)
    if own:
        Base.vmap = staticmethod(mapped)
    return Base


def compositions(lib: Any, made: Any) -> Iterator[tuple[str, Callable[[], Any]]]:
    f = lib.func
    x, w = lib.tensor([0.3, -0.5, 0.9]), lib.tensor([1.0, 2.0, 0.5])
    xs, ws = lib.stack([x, 2 * x]), lib.stack([w, w + 1])
    xss, wss = lib.stack([xs, 2 * xs]), lib.stack([ws, ws + 1])

    def one(x: Any, w: Any) -> Any:
        return made.apply(x, w)[0]

    def total(x: Any, w: Any) -> Any:
        first, second = made.apply(x, w)
        return (first**2).sum() + second

    def recorded() -> Any:
        a, b = xs.clone().requires_grad_(), ws.clone().requires_grad_()
        return lib.autograd.grad(f.vmap(one)(a, b).sum(), (a, b))

    yield "grad", lambda: f.grad(total, argnums=(0, 1))(x, w)
    yield "grad grad", lambda: f.grad(lambda x: f.grad(total)(x, w).sum())(x)
    yield "vmap", lambda: f.vmap(made.apply)(xs, ws)
    yield "vmap of one", lambda: f.vmap(made.apply, in_dims=(0, None))(xs, w)
    yield "vmap grad", lambda: f.vmap(f.grad(total, argnums=(0, 1)))(xs, ws)
    yield "grad vmap", lambda: f.grad(lambda x: (f.vmap(one)(x, ws) ** 2).sum())(xs)
    yield "vmap vmap", lambda: f.vmap(f.vmap(one))(xss, wss)
    yield "vmap grad grad", lambda: f.vmap(f.grad(lambda x, w: f.grad(total)(x, w).sum()))(xs, ws)
    yield "vmap grad vmap", lambda: f.vmap(f.grad(lambda a, b: f.vmap(one)(a, b).sum()))(xss, wss)
    yield "jvp", lambda: f.jvp(one, (x, w), (w, x))
    yield "vmap jvp", lambda: f.vmap(lambda x, w: f.jvp(one, (x, w), (w, x)))(xs, ws)
    yield "jvp vmap", lambda: f.jvp(f.vmap(one), (xs, ws), (ws, xs))
    yield "jvp of one vmap", lambda: f.jvp(lambda x: f.vmap(one)(x, ws), (xs,), (ws,))
    yield "jvp grad", lambda: f.jvp(lambda x: f.grad(total)(x, w), (x,), (w,))
    yield "grad jvp", lambda: f.grad(lambda x: f.jvp(one, (x, w), (w, x))[1].sum())(x)
    yield "jacrev", lambda: f.jacrev(one, argnums=1)(x, w)
    yield "jacfwd", lambda: f.jacfwd(one)(x, w)
    yield "hessian", lambda: f.hessian(total)(x, w)
    yield "vjp", lambda: f.vjp(one, x, w)[1](x)
    yield "autograd vmap", recorded
    yield (
        "jacobian, vectorized",
        lambda: lib.autograd.functional.jacobian(one, (x, w), vectorize=True),
    )


def flat(r: Any) -> list[Any]:
    if isinstance(r, (tuple, list)):
        return [v for part in r for v in flat(part)]
    return [r.detach().numpy()]


NAMES = [n for n, _ in compositions(lucerne, function(lucerne))]


@pytest.mark.parametrize("name", NAMES)
def test_as_torch(name: str) -> None:
    """What torch's generated rule gives, with every way to write the Function that has no rule of
    its own; and what a `vmap` of its own gives."""
    want = flat(dict(compositions(torch, function(torch, rule=True)))[name]())
    ways: list[dict[str, bool]] = [{}, {"rule": True}, {"setup": False}]
    for options in ways:
        got = flat(dict(compositions(lucerne, function(lucerne, **options)))[name]())
        assert len(got) == len(want)
        for a, b in zip(got, want, strict=True):
            assert np.allclose(a, b, rtol=1e-4), options
    theirs = flat(dict(compositions(torch, function(torch, own=True)))[name]())
    ours = flat(dict(compositions(lucerne, function(lucerne, own=True)))[name]())
    assert all(np.allclose(a, b, rtol=1e-4) for a, b in zip(ours, theirs, strict=True))


@pytest.mark.parametrize("name", ["jvp", "vmap jvp", "jvp vmap", "jacfwd", "hessian"])
def test_forward_mode_needs_a_jvp(name: str) -> None:
    for lib in (lucerne, torch):
        made = function(lib, rule=True, jvp=False)
        with pytest.raises(NotImplementedError, match="You must implement the jvp function"):
            dict(compositions(lib, made))[name]()


def test_two_rules_are_one_too_many() -> None:
    for lib in (lucerne, torch):
        with pytest.raises(RuntimeError, match="both generate_vmap_rule=True"):
            dict(compositions(lib, function(lib, rule=True, own=True)))["vmap"]()
