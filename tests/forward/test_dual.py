"""`autograd.forward_ad`: dual tensors by hand; own Functions; what builds on them."""

import importlib
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")

import lucerne  # noqa: E402
import lucerne.autograd.forward_ad as forward_ad  # noqa: E402

pytestmark = [
    pytest.mark.torch,
    pytest.mark.filterwarnings("ignore:.torch.jit.script. is deprecated:DeprecationWarning"),
]


def module_of(t: Any) -> Any:
    return importlib.import_module(f"{t.__name__}.autograd.forward_ad")


# ---- the same program on both sides, by what it prints or raises ---------------------------------


def _shown(call: Any) -> str:
    try:
        return repr(call())
    except Exception as error:
        return f"{type(error).__name__}: {error}"


def session(t: Any) -> list[str]:
    """What a user sees of dual tensors."""
    ad = module_of(t)
    x = t.tensor([1.0, 2.0])
    seen = [
        _shown(lambda: ad.make_dual(x, x)),
        _shown(lambda: ad.unpack_dual(x)),
        _shown(lambda: ad.exit_dual_level()),
    ]
    with ad.dual_level():
        d = ad.make_dual(x, x)
        seen += [
            _shown(lambda: ad.enter_dual_level()),
            _shown(lambda: ad.make_dual(x, x[:1])),
            _shown(lambda: ad.make_dual(x.long(), x)),
            _shown(lambda: ad.make_dual(x, x.long())),
            _shown(lambda: ad.make_dual(d, x)),
            _shown(lambda: d),
            _shown(lambda: ad.unpack_dual(d)),
            _shown(lambda: ad.unpack_dual(d).tangent is x),
            _shown(lambda: ad.unpack_dual(x)),
            _shown(lambda: (d * 3 + x).sum()),
            _shown(lambda: d > 1),
            _shown(lambda: d.detach()),
            _shown(lambda: t.exp(d, out=t.empty(2))),
            _shown(lambda: t.func.vmap(lambda y: y * 2)(d)),
            _shown(lambda: ad.exit_dual_level(level=7)),
        ]
        with ad._set_fwd_grad_enabled(False):
            seen.append(_shown(lambda: d * 2))
        left = d * 2
    return [*seen, _shown(lambda: left), _shown(lambda: ad.unpack_dual(left))]


def test_session() -> None:
    assert session(lucerne) == session(torch)


def writing(t: Any) -> list[Any]:
    """Values and tangents after writes, to bases and to views."""
    ad = module_of(t)
    x, v = t.tensor([1.0, 2.0, 3.0]), t.tensor([1.0, 10.0, 100.0])
    found = []
    with ad.dual_level():
        d = ad.make_dual(x.clone(), v)
        base = t.zeros(4)
        view = base[1:]
        view.copy_(d)
        found += [base, view]
        view.mul_(d)
        found += [base, view]
        base.add_(1)
        found += [base, view]
        base[0] = d[2]
        base[1:3].zero_()
        found += [base, view, d]
        e = d + 0
        e.sub_(e * 2)
        found += [e, d]
        d[:2].fill_(5)
        found += [d, d.relu_(), d.exp_()]
        return [part for f in found for part in (f.detach().clone(), _tangent(ad, f))]


def _tangent(ad: Any, x: Any) -> Any:
    found = ad.unpack_dual(x).tangent
    return None if found is None else found.clone()


def test_writing() -> None:
    for mine, theirs in zip(writing(lucerne), writing(torch), strict=True):
        if mine is None or theirs is None:
            whole = theirs if mine is None else mine
            assert whole is None or not whole.numpy().any()
        else:
            np.testing.assert_allclose(mine.numpy(), theirs.numpy(), rtol=1e-6)


def test_a_level_is_left_when_the_function_fails() -> None:
    with pytest.raises(ZeroDivisionError), forward_ad.dual_level():
        raise ZeroDivisionError
    assert forward_ad._current_level == -1
    assert lucerne.ones(1).add(1).tolist() == [2]


def test_as_a_decorator() -> None:
    @forward_ad.dual_level()
    def derivative(x: Any) -> Any:
        return forward_ad.unpack_dual(forward_ad.make_dual(x, lucerne.ones(1)) ** 3).tangent

    assert derivative(lucerne.tensor([2.0])).tolist() == [12]


def test_gradients_of_dual_tensors() -> None:
    x = lucerne.tensor([1.0, 2.0], requires_grad=True)
    v = lucerne.tensor([1.0, 10.0])
    with forward_ad.dual_level():
        d = forward_ad.make_dual(x, v)
        (g,) = lucerne.autograd.grad((d**3).sum(), x)
        assert forward_ad.unpack_dual(g).tangent.tolist() == (6 * x * v).tolist()
        tangent = forward_ad.unpack_dual((d**3).sum()).tangent
    (mixed,) = lucerne.autograd.grad(tangent, x)
    assert mixed.tolist() == (6 * x * v).tolist()


def test_mixed_precision() -> None:
    x = lucerne.tensor([[0.5, -1.0], [2.0, 0.25]])
    with forward_ad.dual_level(), lucerne.autocast("cpu", dtype=lucerne.bfloat16):
        d = forward_ad.make_dual(x, lucerne.ones(2, 2))
        y = d @ x
        tangent = forward_ad.unpack_dual(y).tangent
    assert y.dtype is tangent.dtype is lucerne.bfloat16
    assert tangent.tolist() == (lucerne.ones(2, 2) @ x).tolist()


# ---- own Functions -----------------------------------------------------------------------------


def own_functions(t: Any) -> dict[str, Any]:
    class Product(t.autograd.Function):  # type: ignore[name-defined,misc]
        @staticmethod
        def forward(ctx: Any, x: Any, y: Any) -> Any:
            ctx.save_for_backward(x, y)
            ctx.save_for_forward(x, y)
            return x * y

        @staticmethod
        def backward(ctx: Any, g: Any) -> Any:
            x, y = ctx.saved_tensors
            return g * y, g * x

        @staticmethod
        def jvp(ctx: Any, x_t: Any, y_t: Any) -> Any:
            x, y = ctx.saved_tensors
            return x_t * y + x * y_t

    class Apart(t.autograd.Function):  # type: ignore[name-defined,misc]
        @staticmethod
        def forward(x: Any) -> Any:
            return x * 2, x.argmax(), x * 3

        @staticmethod
        def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
            ctx.mark_non_differentiable(output[1])

        @staticmethod
        def jvp(ctx: Any, x_t: Any) -> Any:
            return x_t * 2, None, x_t * 3

    class Plain(t.autograd.Function):  # type: ignore[name-defined,misc]
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            return x * 2

    class Fewer(t.autograd.Function):  # type: ignore[name-defined,misc]
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            return x * 2, x * 3

        @staticmethod
        def jvp(ctx: Any, x_t: Any) -> Any:
            return x_t

    return {"product": Product, "apart": Apart, "plain": Plain, "fewer": Fewer}


def with_own_functions(t: Any) -> list[str]:
    ad, own = module_of(t), own_functions(t)
    x = t.tensor([1.0, 2.0])
    with ad.dual_level():
        d = ad.make_dual(x, t.tensor([1.0, 10.0]))
        return [
            _shown(lambda: own["product"].apply(d, x)),
            _shown(lambda: own["product"].apply(x, d)),
            _shown(lambda: own["product"].apply(d, d)),
            _shown(lambda: own["product"].apply(x, x)),
            _shown(lambda: own["apart"].apply(d)),
            _shown(lambda: own["plain"].apply(x)),
            _shown(lambda: own["plain"].apply(d)),
        ]


def test_own_functions() -> None:
    assert with_own_functions(lucerne) == with_own_functions(torch)


def test_an_own_function_must_give_all_tangents() -> None:
    x = lucerne.ones(2)
    with pytest.raises(RuntimeError, match="incorrect number of forward gradients"):
        lucerne.func.jvp(own_functions(lucerne)["fewer"].apply, (x,), (x,))


def test_own_functions_inside_transforms() -> None:
    product = own_functions(lucerne)["product"].apply
    x = lucerne.tensor([1.0, 2.0])
    f = lucerne.func
    assert f.jacfwd(lambda a: product(a, a))(x).tolist() == [[2, 0], [0, 4]]
    assert f.grad(lambda a: f.jvp(lambda b: product(b, b), (a,), (x,))[1].sum())(x).tolist() == [
        2,
        4,
    ]
    both = f.jvp(lambda a: f.jvp(lambda b: product(b, b), (a,), (x,))[1], (x,), (x,))
    assert both[1].tolist() == [2, 8]


# ---- checks and functional -----------------------------------------------------------------------


SMOOTH = {
    "exp": lambda x: x.exp(),
    "softmax": lambda x: x.softmax(0),
    "cumprod": lambda x: x.cumprod(0),
    "complex": lambda x: lucerne.complex(x, x * 2).abs(),
    "sort": lambda x: x.sort()[0] * x,
}


@pytest.mark.parametrize("name", SMOOTH)
def test_gradcheck(name: str) -> None:
    x = lucerne.tensor([0.5, 1.5, 0.2], dtype=lucerne.float64, requires_grad=True)
    check = lucerne.autograd.gradcheck
    assert check(SMOOTH[name], (x,), check_forward_ad=True, check_batched_grad=True)
    assert lucerne.autograd.gradgradcheck(SMOOTH[name], (x,), check_fwd_over_rev=True)


def test_gradcheck_notices_a_wrong_jvp() -> None:
    class Wrong(lucerne.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            return x * 2

        @staticmethod
        def backward(ctx: Any, g: Any) -> Any:
            return g * 2

        @staticmethod
        def jvp(ctx: Any, x_t: Any) -> Any:
            return x_t * 3

    x = lucerne.ones(2, dtype=lucerne.float64, requires_grad=True)
    assert lucerne.autograd.gradcheck(Wrong.apply, (x,))
    with pytest.raises(RuntimeError, match="forward mode mismatch"):
        lucerne.autograd.gradcheck(Wrong.apply, (x,), check_forward_ad=True)


def strategies(t: Any) -> list[Any]:
    x = t.tensor([1.0, 2.0])
    jacobian, hessian = t.autograd.functional.jacobian, t.autograd.functional.hessian
    f = lambda y: y.sin() * y[0]  # noqa: E731
    forward = {"vectorize": True, "strategy": "forward-mode"}
    outer = {"vectorize": True, "outer_jacobian_strategy": "forward-mode"}
    return [
        jacobian(f, x, **forward),
        jacobian(lambda a, b: (a * b, b.sum()), (x, x), **forward)[0][1],
        hessian(lambda y: f(y).sum(), x, **outer),
    ]


def test_strategies() -> None:
    for mine, theirs in zip(strategies(lucerne), strategies(torch), strict=True):
        np.testing.assert_allclose(mine.detach().numpy(), theirs.detach().numpy(), rtol=1e-6)


STRATEGY_ERRORS: list[dict[str, Any]] = [
    {"strategy": "sideways"},
    {"strategy": "forward-mode", "vectorize": True, "create_graph": True},
    {"strict": True, "vectorize": True},
]


@pytest.mark.parametrize("options", STRATEGY_ERRORS, ids=["name", "graph", "strict"])
def test_strategies_that_are_refused(options: dict[str, Any]) -> None:
    mine, theirs = (
        _shown(lambda t=t: t.autograd.functional.jacobian(t.sin, t.ones(2), **options))
        for t in (lucerne, torch)
    )
    assert mine == theirs


def test_another_reading_of_part_of_a_memory() -> None:
    whole = lucerne.arange(6.0)
    with forward_ad.dual_level():
        part = forward_ad.make_dual(whole[2:4], lucerne.tensor([1.0, 10.0]))
        found = part.as_strided((4,), (1,), 1)
        assert found.tolist() == [1, 2, 3, 4]
        assert forward_ad.unpack_dual(found).tangent.tolist() == [0, 1, 10, 0]
