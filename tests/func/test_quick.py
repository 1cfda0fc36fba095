"""Calls inside vmap that were seen before take a short way: the same results, and fewer steps."""

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import lucerne
from lucerne._src.ir.dispatch import Interpreter, state
from lucerne.func import grad, jvp, vmap
from lucerne.func.batching import quick
from lucerne.func.batching.level import BatchLevel
from lucerne.func.batching.quick import QuickLevel, forget_routes

F = lucerne.nn.functional


@pytest.fixture(autouse=True)
def _nothing_known() -> Iterator[None]:
    """No test sees what another one taught."""
    forget_routes()
    yield
    forget_routes()


def rows(*shape: int, seed: int = 0) -> Any:
    values = np.random.RandomState(seed).standard_normal(shape).astype(np.float32)
    return lucerne.tensor(values)


Row = tuple[str, Callable[..., Any], tuple[tuple[int, ...], ...]]
ROWS: list[Row] = [
    ("unary", lambda x: x.sin(), ((4, 3),)),
    ("pair", lambda x, y: x * y, ((4, 3), (4, 3))),
    ("ranks differ", lambda x, y: x + y, ((4, 2, 3), (4, 3))),
    ("number beside", lambda x: 2 * x + 1, ((4, 3),)),
    ("rows folded", lambda x: x.sum(0), ((4, 2, 3),)),
    ("all folded", lambda x: x.sum() + x.mean(), ((4, 2, 3),)),
    ("softmax", lambda x: x.softmax(-1), ((4, 2, 3),)),
    ("product", lambda x, y: x @ y, ((4, 2, 3), (4, 3, 2))),
    ("vector", lambda x, y: F.linear(x, y), ((4, 3), (4, 2, 3))),
    ("views", lambda x: x.t().unsqueeze(0).reshape(-1)[1:], ((4, 2, 3),)),
    ("several views", lambda x: x.unbind(0)[1] + x.chunk(3, 1)[0].sum(), ((4, 2, 3),)),
    ("same view twice", lambda x: x[0] * x[0], ((4, 2, 3),)),
    ("several results", lambda x: x.sort(0)[0] + x.max(0)[0], ((4, 2, 3),)),
    ("cat", lambda x, y: lucerne.cat([x, y]), ((4, 3), (4, 3))),
    ("index", lambda x: x[lucerne.tensor([1, 0])], ((4, 2, 3),)),
    ("kind of number", lambda x: (x > 0).sum() * 0.5, ((4, 3),)),
    ("written", lambda x: lucerne.zeros(3).add_(x).mul_(x), ((4, 3),)),
    ("layer norm", lambda x: F.layer_norm(x, (3,)), ((4, 2, 3),)),
]


def outcomes(f: Callable[..., Any], given: tuple[Any, ...]) -> list[Any]:
    """vmap, vmap of grad, grad of vmap, forward mode inside and outside, vmap of vmap."""
    total = lambda *a: f(*a).float().square().sum()  # noqa: E731
    twice = [lucerne.stack([g, g * 0.5]) for g in given]
    return [
        vmap(f)(*given),
        vmap(grad(total))(*given),
        grad(lambda x, *rest: vmap(f)(x, *rest).float().square().sum())(*given),
        vmap(lambda *a: jvp(f, a, a)[1])(*given),
        jvp(vmap(f), given, given)[1],
        vmap(vmap(f))(*twice),
        vmap(vmap(grad(total)), in_dims=1, out_dims=1)(*twice),
    ]


@pytest.mark.parametrize(("f", "shapes"), [r[1:] for r in ROWS], ids=[r[0] for r in ROWS])
def test_the_short_way_gives_what_the_complete_way_gives(
    f: Callable[..., Any], shapes: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    given = tuple(rows(*s, seed=i) for i, s in enumerate(shapes))
    with monkeypatch.context() as patched:
        patched.setattr(QuickLevel, "quick", None)
        want = outcomes(f, given)
    for attempt in ("learning", "known"):
        for k, (a, b) in enumerate(zip(outcomes(f, given), want, strict=True)):
            assert np.array_equal(a.numpy(), b.numpy()), (attempt, k)
            assert a.stride() == b.stride(), (attempt, k)


def _count(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The ops that go the complete way from now on."""
    seen: list[str] = []
    compute = BatchLevel.compute

    def counted(self: BatchLevel, op: Any, args: tuple[Any, ...]) -> Any:
        seen.append(op.name)
        return compute(self, op, args)

    monkeypatch.setattr(BatchLevel, "compute", counted)
    return seen


def test_a_known_call_is_not_worked_out_again(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = _count(monkeypatch)

    def f(x: Any, y: Any) -> Any:
        return (x.sin() * y + x.sum()).softmax(0) @ y.unsqueeze(1)

    x, y = rows(4, 3), rows(4, 3, seed=1)
    vmap(f)(x, y)
    assert seen
    seen.clear()
    vmap(f)(x, y)
    vmap(f)(y, x)
    assert seen == []
    vmap(f)(rows(5, 3), rows(5, 3))  # other shapes: another kind of call
    assert seen


def test_numbers_are_not_remembered() -> None:
    x = rows(4, 3)
    for number in (2.0, 3.0, -1.5):
        assert np.array_equal(vmap(lambda x: x * number)(x).numpy(), x.numpy() * number)  # noqa: B023
        found = vmap(lambda x: x.clamp(-number, number))(x).numpy()  # noqa: B023
        assert np.array_equal(found, np.clip(x.numpy(), -number, number))


def test_which_argument_has_the_batch_is_part_of_the_kind() -> None:
    """(3, 3) may be a batch of vectors, or a matrix that has none."""
    matrix, vector = rows(3, 3), rows(3, seed=1)
    for in_dims in ((0, None), (None, 0), (0, 0), (1, None), (1, 0)):
        got = vmap(lambda a, b: a - 2 * b, in_dims=in_dims)(matrix, vector).numpy()
        parts = []
        for k in range(3):
            a = matrix if in_dims[0] is None else matrix.select(in_dims[0], k)
            b = vector if in_dims[1] is None else vector.select(in_dims[1], k)
            parts.append((a - 2 * b).numpy())
        assert np.array_equal(got, np.stack(parts)), in_dims


def test_what_does_not_depend_on_the_batch_is_done_once() -> None:
    seen = []

    class Below(Interpreter):
        """Sees what is really executed."""

        level = "kernel"

        def run(self, op: Any, args: Any, out: Any, proceed: Any) -> Any:
            seen.append((op.name, tuple(args[0].shape)))
            return proceed(op, args, out)

    w = rows(3)
    for _ in range(2):
        seen.clear()
        with Below():
            vmap(lambda x: x * w.exp())(rows(4, 3))
        assert seen == [("exp", (3,)), ("mul", (4, 3))]


def test_the_table_of_routes_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(quick, "_MOST", 8)
    for n in range(1, 30):
        vmap(lambda x: x.sin())(rows(2, n))
    assert len(quick._routes) <= 9


def test_an_error_inside_leaves_things_as_they_were() -> None:
    def bad(x: Any) -> Any:
        return x @ lucerne.ones(7, 7)

    for _ in range(2):
        with pytest.raises(RuntimeError):
            vmap(bad)(rows(4, 3))
    assert state.kernel_level == []
    assert state.call_level == []
    assert not state.active
    assert state.grad_enabled


def test_modes_are_respected() -> None:
    x = rows(4, 3)
    with lucerne.no_grad():
        assert not vmap(lambda x: x.sin() * 2)(x.clone().requires_grad_()).requires_grad
    leaf = x.clone().requires_grad_()
    assert vmap(lambda x: x.sin() * 2)(leaf).requires_grad
    with lucerne.inference_mode():
        assert vmap(lambda x: x.sin() * 2)(x).is_inference()
    with lucerne.autocast("cpu", dtype=lucerne.bfloat16):
        assert vmap(lambda x: x @ x)(rows(2, 3, 3)).dtype is lucerne.bfloat16
