"""Small programs with the transforms of `func`, written for torch and for Lucerne alike.

Each takes the module (`torch` or `lucerne`) and gives tensors.
"""

from collections.abc import Callable
from typing import Any

Program = Callable[[Any], Any]


def _x(t: Any) -> Any:
    return t.tensor([1.0, 2.0], dtype=t.float64)


def _y(t: Any) -> Any:
    return t.tensor([0.5, -1.0], dtype=t.float64)


def _a(t: Any) -> Any:
    return t.tensor([[1.0, 2.0], [3.0, 4.0]], dtype=t.float64)


def _one(t: Any) -> Any:
    return t.tensor(1.0, dtype=t.float64)


def _wave(t: Any, x: Any) -> Any:
    return x.sin() * (_a(t) @ x)


def _number(t: Any, x: Any) -> Any:
    return _wave(t, x).sum()


def _cube(x: Any) -> Any:
    return (x**3).sum()


def confusion(t: Any) -> Any:
    """d/da a * d/db (a + b) is 1: the inner derivative must not see the outer variable."""
    f = t.func
    return f.grad(lambda a: a * f.grad(lambda b: a + b)(_one(t)))(2 * _one(t))


def confusion_forward(t: Any) -> Any:
    one, jvp = _one(t), t.func.jvp
    return jvp(lambda a: a * jvp(lambda b: a + b, (one,), (one,))[1], (2 * one,), (one,))


def confusion_mixed(t: Any) -> Any:
    one, f = _one(t), t.func
    inner = lambda a: f.jvp(lambda b: a * b * b, (one,), (one,))[1]  # noqa: E731
    return f.grad(lambda a: a * inner(a))(2 * one)


def no_grad_inside(t: Any) -> Any:
    def f(x: Any) -> Any:
        with t.no_grad():
            constant = x**2
        return (x**2 - constant).sum()

    return t.func.grad(f)(_x(t)), t.func.jvp(f, (_x(t),), (_y(t),))


def no_grad_outside(t: Any) -> Any:
    x = _x(t).requires_grad_()
    with t.no_grad():
        return t.func.grad(_cube)(x)


def differentiated_again(t: Any) -> Any:
    x = _x(t).requires_grad_()
    return t.autograd.grad(t.func.grad(_cube)(x).sum(), x)


def closure_that_requires_grad(t: Any) -> Any:
    w = _y(t).requires_grad_()
    gradient = t.func.grad(lambda x: (w * x**2).sum())(_x(t))
    return gradient, t.autograd.grad(gradient.sum(), w)


def writes(t: Any) -> Any:
    def f(x: Any) -> Any:
        y = x * 2
        y[0].mul_(x[1])
        z = t.zeros(3, dtype=t.float64)
        z[1:] = y
        return z.sum() * x[0]

    return t.func.grad(f)(_x(t)), t.func.jvp(f, (_x(t),), (_y(t),))


def network(t: Any) -> Any:
    net = t.nn.Sequential(t.nn.Linear(2, 3), t.nn.Tanh(), t.nn.LayerNorm(3), t.nn.Linear(3, 1))
    weights = {
        name: (t.arange(p.numel(), dtype=t.float64).reshape(p.shape) / 7).cos()
        for name, p in net.named_parameters()
    }

    def loss(p: Any, x: Any) -> Any:
        return (t.func.functional_call(net, p, (x,)) ** 2).mean()

    return t.func.grad_and_value(loss)(weights, _a(t))


PROGRAMS: dict[str, Program] = {
    "grad": lambda t: t.func.grad(_cube)(_x(t)),
    "grad of grad": lambda t: t.func.grad(lambda x: t.func.grad(_cube)(x).sum())(_x(t)),
    "grad argnums": lambda t: t.func.grad(lambda a, b: (a * b.exp()).sum(), (1, 0))(_x(t), _y(t)),
    "grad aux": lambda t: t.func.grad(lambda a: (_cube(a), {"twice": a * 2}), has_aux=True)(_x(t)),
    "grad of a tree": lambda t: t.func.grad(lambda d: _cube(d["a"]) * d["b"][0].sum())(
        {"a": _x(t), "b": [_y(t)]}
    ),
    "grad unused": lambda t: t.func.grad(lambda a, b: _cube(a), (0, 1))(_x(t), _y(t)),
    "value too": lambda t: t.func.grad_and_value(_cube)(_x(t)),
    "vjp": lambda t: t.func.vjp(lambda a: (a * 2, {"z": a.sum()}), _x(t))[1](
        (_y(t), {"z": _one(t)})
    ),
    "vjp value": lambda t: t.func.vjp(lambda a: _wave(t, a), _x(t))[0],
    "vjp twice": lambda t: (lambda pull: (pull(_x(t)), pull(_y(t))))(
        t.func.vjp(lambda a: _wave(t, a), _x(t))[1]
    ),
    "jvp": lambda t: t.func.jvp(lambda a: _wave(t, a), (_x(t),), (_y(t),)),
    "jvp aux": lambda t: t.func.jvp(lambda a: (a**2, a + 1), (_x(t),), (_y(t),), has_aux=True),
    "jvp of a constant": lambda t: t.func.jvp(lambda a: _y(t) * 2, (_x(t),), (_y(t),)),
    "jvp of two": lambda t: t.func.jvp(lambda a, b: a * b.exp(), (_x(t), _y(t)), (_y(t), _x(t))),
    "jvp of detach": lambda t: t.func.jvp(lambda a: a * a.detach(), (_x(t),), (_y(t),)),
    "jacrev": lambda t: t.func.jacrev(lambda a: _wave(t, a))(_x(t)),
    "jacrev in rows": lambda t: t.func.jacrev(lambda a: _wave(t, a), chunk_size=1)(_x(t)),
    "jacrev of a tree": lambda t: t.func.jacrev(lambda d: {"r": d["a"] * d["b"]}, argnums=(0,))(
        {"a": _x(t), "b": _y(t)}
    ),
    "jacrev aux": lambda t: t.func.jacrev(lambda a: (_wave(t, a), a * 2), has_aux=True)(_x(t)),
    "jacfwd": lambda t: t.func.jacfwd(lambda a: _wave(t, a))(_x(t)),
    "jacfwd argnums": lambda t: t.func.jacfwd(lambda a, b: (a * b, a.sum()), (0, 1))(_x(t), _y(t)),
    "jacfwd aux": lambda t: t.func.jacfwd(lambda a: (_wave(t, a), a * 2), has_aux=True)(_x(t)),
    "hessian": lambda t: t.func.hessian(lambda a: _number(t, a))(_x(t)),
    "hessian argnums": lambda t: t.func.hessian(lambda a, b: (a**2 * b).sum(), (0, 1))(
        _x(t), _y(t)
    ),
    "jacrev of jacrev": lambda t: t.func.jacrev(t.func.jacrev(lambda a: _number(t, a)))(_x(t)),
    "jacfwd of jacfwd": lambda t: t.func.jacfwd(t.func.jacfwd(lambda a: _number(t, a)))(_x(t)),
    "jacrev of jacfwd": lambda t: t.func.jacrev(t.func.jacfwd(lambda a: _number(t, a)))(_x(t)),
    "grad of jvp": lambda t: t.func.grad(
        lambda a: t.func.jvp(_cube, (a,), (_y(t),))[1]
    )(_x(t)),
    "jvp of grad": lambda t: t.func.jvp(t.func.grad(_cube), (_x(t),), (_y(t),)),
    "jvp of jvp": lambda t: t.func.jvp(
        lambda a: t.func.jvp(lambda b: b**4, (a,), (a,))[1], (_x(t),), (_y(t),)
    ),
    "grad of jvp of grad": lambda t: t.func.grad(
        lambda w: (
            w * t.func.jvp(t.func.grad(lambda a: (w * a**3).sum()), (_x(t),), (_y(t),))[1]
        ).sum()
    )(_x(t)),
    "vmap of grad": lambda t: t.func.vmap(t.func.grad(_cube))(_a(t)),
    "grad of vmap": lambda t: t.func.grad(lambda a: t.func.vmap(_cube)(a).sum())(_a(t)),
    "grad of vmap of grad": lambda t: t.func.grad(
        lambda a: t.func.vmap(t.func.grad(_cube))(a).sum()
    )(_a(t)),
    "vmap of grad, shared": lambda t: t.func.vmap(
        t.func.grad(lambda w, a: (w * a).sin().sum()), in_dims=(None, 0)
    )(_x(t), _a(t)),
    "vmap of jvp": lambda t: t.func.vmap(lambda a: t.func.jvp(_cube, (a,), (_y(t),)))(_a(t)),
    "vmap over tangents": lambda t: t.func.vmap(
        lambda v: t.func.jvp(lambda a: a.softmax(0).cumsum(0), (_x(t),), (v,))
    )(_a(t)),
    "jvp of vmap": lambda t: t.func.jvp(
        t.func.vmap(lambda a: (a**2).softmax(0)), (_a(t),), (_a(t).cos(),)
    ),
    "vmap of hessian": lambda t: t.func.vmap(t.func.hessian(lambda a: (a**3).prod()))(_a(t)),
    "vmap of jacrev of jvp": lambda t: t.func.vmap(
        t.func.jacrev(lambda a: t.func.jvp(lambda b: b.exp() * b[0], (a,), (_y(t),))[1])
    )(_a(t)),
    "linearize": lambda t: t.func.linearize(lambda a: _wave(t, a), _x(t))[1](_y(t)),
    "linearize, mapped": lambda t: t.func.vmap(t.func.linearize(lambda a: _wave(t, a), _x(t))[1])(
        t.eye(2, dtype=t.float64)
    ),
    "autograd inside": lambda t: t.func.grad(
        lambda a: t.autograd.grad(_cube(a), a, create_graph=True)[0].sum()
    )(_x(t)),
    "matrix functions": lambda t: t.func.jvp(
        lambda a: t.linalg.inv(a) @ t.linalg.eigh(a + a.T)[0], (_a(t),), (_a(t).cos(),)
    ),
    "convolution": lambda t: t.func.jvp(
        lambda w: t.nn.functional.conv2d(_a(t).reshape(1, 1, 2, 2), w, padding=1),
        (_a(t).reshape(1, 1, 2, 2),),
        (_a(t).cos().reshape(1, 1, 2, 2),),
    ),
    "complex": lambda t: t.func.jvp(
        lambda a: t.view_as_real(t.exp(t.complex(a, a**2)) / t.complex(a, -a).abs()),
        (_x(t),),
        (_y(t),),
    ),
    "confusion": confusion,
    "confusion, forward": confusion_forward,
    "confusion, mixed": confusion_mixed,
    "no_grad inside": no_grad_inside,
    "no_grad outside": no_grad_outside,
    "differentiated again": differentiated_again,
    "closure that requires grad": closure_that_requires_grad,
    "writes": writes,
    "network": network,
}  # fmt: skip
