"""Jacobians, Hessians and gradients of many cotangents in one pass, beside torch's."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import lucerne
from lucerne._src.ir.dispatch import Interpreter

torch = pytest.importorskip("torch")
pytestmark = [
    pytest.mark.torch,
    # of torch itself, when it first differentiates forward
    pytest.mark.filterwarnings("ignore:.*torch.jit.script:DeprecationWarning"),
]

POINT = ([0.5, 1.0, -0.5], [[1.0, 2.0, 3.0], [0.1, 0.2, 0.3]])
FUNCTIONS: list[tuple[str, Callable[..., Any]]] = [
    ("one", lambda x, y: (x * y).sin()),
    ("several", lambda x, y: ((x * y).sin(), x.sum() * y.sum(), y.exp()[0])),
    ("number", lambda x, y: (x.exp() @ y.t()).sum()),
    ("independent", lambda x, y: (x.cos(), y.new_zeros(2))),
    ("mixed", lambda x, y: y.softmax(-1).cumsum(0) * x.abs()),
]
SCALARS: list[tuple[str, Callable[..., Any]]] = [
    ("cubes", lambda x, y: (x**3).sum() * y.sum()),
    ("product", lambda x, y: (y @ x).tanh().prod()),
    ("linear", lambda x, y: x.sum() + y.sum()),
]
MODES = [("reverse-mode", False), ("reverse-mode", True), ("forward-mode", False)]


def point(lib: Any) -> tuple[Any, ...]:
    return tuple(lib.tensor(p) for p in POINT)


def leaves(x: Any) -> list[Any]:
    if isinstance(x, (tuple, list)):
        return [leaf for part in x for leaf in leaves(part)]
    return [x.detach().numpy()]


def structure(x: Any) -> Any:
    return tuple(map(structure, x)) if isinstance(x, (tuple, list)) else tuple(x.shape)


def assert_alike(ours: Any, theirs: Any) -> None:
    assert structure(ours) == structure(theirs)
    for a, b in zip(leaves(ours), leaves(theirs), strict=True):
        assert np.allclose(a, b, rtol=1e-4, atol=1e-5)


def test_assert_alike_fails() -> None:
    with pytest.raises(AssertionError):
        assert_alike(lucerne.ones(2), torch.zeros(2))
    with pytest.raises(AssertionError):
        assert_alike(lucerne.ones(2), (torch.ones(2),))


@pytest.mark.parametrize(("strategy", "create"), MODES)
@pytest.mark.parametrize("f", [f for _, f in FUNCTIONS], ids=[n for n, _ in FUNCTIONS])
def test_jacobian(f: Callable[..., Any], strategy: str, create: bool) -> None:
    found = [
        lib.autograd.functional.jacobian(
            f, point(lib), vectorize=True, strategy=strategy, create_graph=create
        )
        for lib in (lucerne, torch)
    ]
    assert_alike(*found)
    assert_alike(found[0], lucerne.autograd.functional.jacobian(f, point(lucerne)))


@pytest.mark.parametrize("strategy", ["reverse-mode", "forward-mode"])
@pytest.mark.parametrize("f", [f for _, f in SCALARS], ids=[n for n, _ in SCALARS])
def test_hessian(f: Callable[..., Any], strategy: str) -> None:
    found = [
        lib.autograd.functional.hessian(
            f, point(lib), vectorize=True, outer_jacobian_strategy=strategy
        )
        for lib in (lucerne, torch)
    ]
    assert_alike(*found)


def test_a_jacobian_can_be_differentiated() -> None:
    found = []
    for lib in (lucerne, torch):
        x = lib.tensor(POINT[0], requires_grad=True)
        made = lib.autograd.functional.jacobian(
            lambda x: x**3 * x[0], x, vectorize=True, create_graph=True
        )
        assert made.requires_grad
        found.append(lib.autograd.grad((made**2).sum(), x))
    assert_alike(*found)


class Count(Interpreter):
    """How many kernels of each op run."""

    level = "kernel"

    def __init__(self) -> None:
        self.names: list[str] = []

    def run(self, op: Any, args: Any, out: Any, proceed: Any) -> Any:
        self.names.append(op.name)
        return proceed(op, args, out)


def _kernels(rows: int) -> int:
    x = lucerne.ones(rows, requires_grad=True)
    y = x.sin() * x
    with Count() as seen:
        lucerne.autograd.grad(y, x, lucerne.eye(rows), is_grads_batched=True)
    return seen.names.count("mul")


def test_there_is_one_pass_for_all_rows() -> None:
    assert _kernels(3) == _kernels(30) > 0


def test_jacobian_functions_run_once() -> None:
    calls = []

    def f(x: Any) -> Any:
        calls.append(1)
        return x.exp() * 2

    for strategy in ("reverse-mode", "forward-mode"):
        lucerne.autograd.functional.jacobian(f, lucerne.ones(4), vectorize=True, strategy=strategy)
    assert len(calls) == 2


@pytest.mark.parametrize("create", [False, True])
def test_batched_gradients(create: bool) -> None:
    found = []
    for lib in (lucerne, torch):
        x, y = (t.requires_grad_() for t in point(lib))
        outs = ((x * y).sin(), x.sum())
        cotangents = (lib.ones(4, 2, 3).cumsum(0), lib.ones(4))
        made = lib.autograd.grad(
            outs, (x, y), cotangents, is_grads_batched=True, create_graph=create
        )
        assert all(g.requires_grad is create for g in made)
        found.append(made)
    assert_alike(*found)


def test_gradients_nothing_leads_to() -> None:
    for lib in (lucerne, torch):
        x, y = (t.requires_grad_() for t in point(lib))
        units = lib.eye(3)
        a, b = lib.autograd.grad(x * 2, (x, y), units, is_grads_batched=True, allow_unused=True)
        assert a.shape == (3, 3)
        assert b is None
        a, b = lib.autograd.grad(
            x * 2, (x, y), units, is_grads_batched=True, materialize_grads=True
        )
        assert b.shape == (2, 3)  # as torch has it: one for all
        with pytest.raises(RuntimeError, match="appears to not have been used in the graph"):
            lib.autograd.grad(x * 2, (x, y), units, is_grads_batched=True)


REFUSED: list[tuple[str, Callable[[Any, Any], Any], str]] = [
    ("shape", lambda lib, x: (x * 2, x, lib.ones(2, 4)), "If `is_grads_batched=True`, we"),
    ("sizes", lambda lib, x: ((x, x * 2), x, (lib.ones(2, 3), lib.ones(3, 3))), "same size"),
    ("no batch", lambda lib, x: (x.sum(), x), "dimensionality 0"),
]  # fmt: skip


@pytest.mark.parametrize(("make", "text"), [r[1:] for r in REFUSED], ids=[r[0] for r in REFUSED])
def test_what_torch_refuses(make: Callable[..., Any], text: str) -> None:
    for lib in (lucerne, torch):
        x = lib.ones(3, requires_grad=True)
        with pytest.raises((RuntimeError, ValueError), match=text):
            lib.autograd.grad(*make(lib, x), is_grads_batched=True)


def test_strict_and_vectorized_exclude_each_other() -> None:
    for lib in (lucerne, torch):
        with pytest.raises(RuntimeError, match="`strict=True` and `vectorized=True` are not"):
            lib.autograd.functional.jacobian(
                lambda x: x * 2, lib.ones(3), vectorize=True, strict=True
            )


def looking(lib: Any) -> Any:
    class Looking(lib.autograd.Function):  # type: ignore[misc]
        """A backward that looks at values."""

        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            return x * 2

        @staticmethod
        def backward(ctx: Any, g: Any) -> Any:
            return g * 2 if g.sum().item() < 1e9 else g

    return Looking


def test_gradcheck_of_batches() -> None:
    for lib in (lucerne, torch):
        x = lib.tensor([0.3, 0.7], dtype=lib.float64, requires_grad=True)
        check = lib.autograd.gradcheck
        assert check(
            lambda x: x.sin() * x,
            (x,),
            check_batched_grad=True,
            check_forward_ad=True,
            check_batched_forward_grad=True,
        )
        with pytest.raises(RuntimeError, match="While computing batched gradients, got"):
            check(looking(lib).apply, (x,), check_batched_grad=True)
        assert check(looking(lib).apply, (x,), check_batched_grad=True, raise_exception=False) is (
            False
        )
        with pytest.raises(AssertionError, match="requires check_forward_ad to be True"):
            check(lib.sin, (x,), check_batched_forward_grad=True)
        with pytest.raises(AssertionError, match="requires check_backward_ad to be True"):
            check(
                lib.sin, (x,), check_batched_grad=True, check_backward_ad=False,
                check_forward_ad=True,
            )  # fmt: skip
        with pytest.raises(AssertionError, match="Expected at least one of"):
            check(lib.sin, (x,), check_backward_ad=False)


def test_inside_of_transforms() -> None:
    """A batched gradient under vmap and under compile."""

    def rows(x: Any) -> Any:
        x = x.detach().requires_grad_()
        (made,) = lucerne.autograd.grad(x.sin() * x[0], x, lucerne.eye(3), is_grads_batched=True)
        return made

    x = lucerne.tensor([POINT[0], POINT[1][0]])
    want = np.stack([rows(t).numpy() for t in x])
    assert np.allclose(lucerne.func.vmap(rows)(x).numpy(), want, atol=1e-6)
    assert np.allclose(lucerne.compile(rows)(x[0]).numpy(), want[0], atol=1e-6)


class Largest(Interpreter):
    """The largest result of any kernel but of those that put results together."""

    level = "kernel"
    elements = 0

    def run(self, op: Any, args: Any, out: Any, proceed: Any) -> Any:
        result = proceed(op, args, out)
        if op.name not in ("cat", "copy", "empty_strided") and isinstance(result, lucerne.Tensor):
            self.elements = max(self.elements, result.untyped_storage().nbytes() // 4)
        return result


@pytest.mark.parametrize("in_place", [False, True])
def test_chunks_bound_the_memory_of_jacrev(in_place: bool) -> None:
    """64 outputs, 32 inputs: between, a chunk of 4 rows needs 4 rows of each layer."""
    weight = lucerne.tensor(np.random.RandomState(0).standard_normal((64, 32)).astype(np.float32))

    def f(x: Any) -> Any:
        return (weight @ x).sin().exp()

    x = lucerne.ones(32)
    seen = {}
    results = []
    for chunk in (None, 4):
        with Largest() as largest:
            results.append(
                lucerne.func.jacrev(f, chunk_size=chunk, _preallocate_and_copy=in_place)(x)
            )
        seen[chunk] = largest.elements
    assert np.allclose(results[0].numpy(), results[1].numpy())
    assert seen[None] >= 64 * 64
    assert seen[4] <= 64 * 32  # the weight itself; 4 rows of 64 are less
