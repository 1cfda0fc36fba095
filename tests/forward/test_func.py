"""The transforms of `lucerne.func` that differentiate: values, refusals, compiled."""

from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")

import lucerne  # noqa: E402
from tests.conformance import tree  # noqa: E402
from tests.forward.programs import PROGRAMS, Program  # noqa: E402

pytestmark = [
    pytest.mark.torch,
    pytest.mark.filterwarnings("ignore:.torch.jit.script. is deprecated:DeprecationWarning"),
    pytest.mark.filterwarnings("ignore:Attempted to insert a get_attr:UserWarning"),
]  # what torch's own forward mode and linearize warn of


def assert_same(got: Any, want: Any) -> None:
    """The same nesting with the same numbers."""
    assert tree.outline(got) == tree.outline(want)
    for g, w in zip(tree.leaves(got), tree.leaves(want), strict=True):
        assert tuple(g.shape) == tuple(w.shape)
        np.testing.assert_allclose(g.detach().numpy(), w.detach().numpy(), rtol=1e-10, atol=1e-12)
        assert g.requires_grad == w.requires_grad


@pytest.mark.parametrize("name", PROGRAMS)
def test_program(name: str) -> None:
    program = PROGRAMS[name]
    assert_same(program(lucerne), program(torch))


def test_assert_same_notices_a_difference() -> None:
    with pytest.raises(AssertionError):
        assert_same({"a": lucerne.ones(2)}, {"a": torch.zeros(2)})
    with pytest.raises(AssertionError):
        assert_same([lucerne.ones(2)], (torch.ones(2),))


def _compiled(name: str) -> Program:
    """A program with the point it is taken at as an argument, to be captured whole."""
    f = lucerne.func
    a = lucerne.tensor([[1.0, 2.0], [3.0, 4.0]])
    wave = lambda x: x.sin() * (a @ x)  # noqa: E731
    number = lambda x: wave(x).sum()  # noqa: E731
    return {
        "grad": f.grad(number),
        "grad of grad": f.grad(lambda x: f.grad(number)(x).sum()),
        "jvp": lambda x: f.jvp(wave, (x,), (x.cos(),)),
        "jacrev": f.jacrev(wave),
        "jacfwd": f.jacfwd(wave),
        "hessian": f.hessian(number),
        "vjp": lambda x: f.vjp(wave, x)[1](x),
        "linearize": lambda x: f.linearize(wave, x)[1](x),
        "vmap of grad": lambda x: f.vmap(f.grad(number))(lucerne.stack([x, x * 2])),
    }[name]


@pytest.mark.parametrize("name", ["grad", "grad of grad", "jvp", "jacrev", "jacfwd", "hessian"])
def test_compiled(name: str) -> None:
    function = _compiled(name)
    x = lucerne.tensor([0.3, 0.7])
    compiled = lucerne.compile(function, fullgraph=True)
    for _ in range(2):
        for got, want in zip(tree.leaves(compiled(x)), tree.leaves(function(x)), strict=True):
            np.testing.assert_allclose(got.numpy(), want.numpy(), rtol=1e-5, atol=1e-6)


def _refused(t: Any, x: Any) -> dict[str, Any]:
    """Calls that torch refuses."""
    f = t.func
    total = lambda y: y.sum()  # noqa: E731
    return {
        "not a number": lambda: f.grad(lambda y: y)(x),
        "not a tensor": lambda: f.grad(lambda y: 3)(x),
        "integers": lambda: f.grad(total)(t.tensor([1])),
        "a float": lambda: f.grad(total)(3.0),
        "no aux": lambda: f.grad(total, has_aux=True)(x),
        "argnums too large": lambda: f.grad(total, argnums=1)(x),
        "argnums twice": lambda: f.grad(total, argnums=(0, 0))(x),
        "no argnums": lambda: f.jacrev(total, argnums=())(x),
        "argnums in words": lambda: f.jacrev(total, argnums="a")(x),
        "leaf in place": lambda: f.grad(lambda y: y.mul_(2).sum())(x),
        "tangent of another size": lambda: f.jvp(total, (x,), (x[:1],)),
        "integer primal": lambda: f.jvp(total, (t.tensor([1]),), (x,)),
        "primals no tuple": lambda: f.jvp(total, x, x),
        "jvp gives a number": lambda: f.jvp(lambda y: 3, (x,), (x,)),
        "jvp strict": lambda: f.jvp(lambda y: x.clone(), (x,), (x,), strict=True),
        "vjp of integers": lambda: f.vjp(lambda y: y.argmax(), x),
        "cotangent of another size": lambda: f.vjp(lambda y: y * 2, x)[1](x[:1]),
        "cotangents in another tree": lambda: f.vjp(lambda y: (y, y), x)[1](x),
        "jacrev gives a number": lambda: f.jacrev(lambda y: 3)(x),
        "jacrev of complex": lambda: f.jacrev(total)(x.to(t.complex64)),
        "chunk of nothing": lambda: f.jacrev(total, chunk_size=0),
        "linearize, size": lambda: f.linearize(lambda y: y * y, x)[1](x[:1]),
        "linearize, dtype": lambda: f.linearize(lambda y: y * y, x)[1](x.double()),
        "functionalize": lambda: f.functionalize(total, remove="x")(x),
    }


def _error(call: Any) -> Exception:
    try:
        call()
    except Exception as error:
        return error
    raise AssertionError("nothing was raised")


@pytest.mark.parametrize("name", _refused(lucerne, lucerne.ones(2)))
def test_refusal(name: str) -> None:
    mine = _error(_refused(lucerne, lucerne.ones(2))[name])
    theirs = _error(_refused(torch, torch.ones(2))[name])
    assert type(mine) is type(theirs)
    assert str(mine) == str(theirs)


def test_trees_of_another_shape_are_named() -> None:
    x = lucerne.ones(2)
    with pytest.raises(RuntimeError, match=r"same python structure.*primals with structure"):
        lucerne.func.jvp(lambda a: a, (x,), (x, x))
    with pytest.raises(RuntimeError, match="same argspec as the primals"):
        lucerne.func.linearize(lambda a: a * a, x)[1](x, x)


# ---- the other names -----------------------------------------------------------------------------


REARRANGED = [
    ("a b c -> c (b a)", {}), ("a ... -> ... a", {}), ("a ... -> a (...)", {}),
    ("a b (c d) -> (a d) 1 b c", {"c": 2}), ("a b c -> (a b c) ()", {}), ("... -> (...)", {}),
]  # fmt: skip


@pytest.mark.parametrize(("pattern", "sizes"), REARRANGED)
def test_rearrange(pattern: str, sizes: dict[str, int]) -> None:
    values = np.arange(24.0).reshape(2, 3, 4)
    got = lucerne.func.rearrange(lucerne.tensor(values), pattern, **sizes)
    want = torch.func.rearrange(torch.tensor(values), pattern, **sizes)
    np.testing.assert_array_equal(got.numpy(), want.numpy())


@pytest.mark.parametrize(
    "pattern",
    ["a b -> a b", "a b c", "a b c -> a b", "a a c -> a c", "a (b (c)) -> a b c", "a ? -> a"],
)
def test_rearrange_refuses(pattern: str) -> None:
    theirs = _error(lambda: torch.func.rearrange(torch.zeros(2, 3, 4), pattern))
    mine = _error(lambda: lucerne.func.rearrange(lucerne.zeros(2, 3, 4), pattern))
    assert type(mine) is type(theirs) is ValueError


def _with_writes(x: Any) -> Any:
    y = x.clone()
    y[0].add_(10)
    flat = y.view(-1)
    flat.mul_(2)
    y.t().sub_(1)
    z = lucerne.zeros(2, 2)
    z.copy_(y)
    z[1] = flat[:2]
    return y, flat, z.relu_(), z + float(y[0, 0])


@pytest.mark.parametrize("remove", ["mutations", "mutations_and_views"])
def test_functionalize_changes_nothing_outside(remove: str) -> None:
    x = lucerne.arange(4.0).reshape(2, 2)
    got = lucerne.func.functionalize(_with_writes, remove=remove)(x)
    for g, w in zip(got, _with_writes(x), strict=True):
        assert g.tolist() == w.tolist()


def test_functionalize_writes_to_arguments() -> None:
    x = lucerne.ones(2)
    assert lucerne.func.functionalize(lambda y: y.mul_(3) + 1)(x).tolist() == [4, 4]
    assert x.tolist() == [3, 3]


def test_functionalized_code_has_no_writes() -> None:
    seen: list[Any] = []

    class Seen(lucerne._src.ir.dispatch.Interpreter):  # type: ignore[name-defined,misc]
        level = "kernel"

        def run(self, op: Any, args: Any, out: Any, proceed: Any) -> Any:
            seen.append(out)
            return proceed(op, args, out)

    with Seen():
        lucerne.func.functionalize(lambda x: x.clone().add_(1).mul_(2))(lucerne.ones(2))
    assert seen
    assert all(out is None for out in seen)


def test_batch_norm_without_state() -> None:
    net = lucerne.nn.Sequential(lucerne.nn.BatchNorm1d(2), lucerne.nn.Linear(2, 2))
    assert lucerne.func.replace_all_batch_norm_modules_(net) is net
    assert net[0].running_mean is None
    assert not net[0].track_running_stats
    x = lucerne.randn(3, 4, 2)
    assert lucerne.vmap(net)(x).shape == (3, 4, 2)


def test_every_name_of_torch_func() -> None:
    missing = [n for n in dir(torch.func) if n[0] != "_" and not hasattr(lucerne.func, n)]
    assert missing == []
