"""Sizes that depend on the data: one graph, as eager and as torch, whatever is found."""

import warnings
from typing import Any

import numpy as np
import pytest

import lucerne
from lucerne._src.capture.breaks.reasons import BreakError
from lucerne._src.capture.staged.entry import StagedEntry
from tests.capture.rows_data_sizes import ROWS, moe_topk

CALLS = 8


def _converted(t: Any, module: Any) -> Any:
    kind = getattr(module, str(t.dtype).rpartition(".")[2])
    return module.tensor(t.detach().tolist(), dtype=kind).reshape(tuple(t.shape))


def _leaves(x: Any) -> list[Any]:
    if isinstance(x, tuple | list):
        return [leaf for part in x for leaf in _leaves(part)]
    return [x]


def _outcome(module: Any, f: Any, modules: Any, args: Any, grads: bool) -> list[Any]:
    """What a call gives, the gradients it leaves and what became of its arguments."""
    args = [a.clone().requires_grad_(grads and a.is_floating_point()) for a in args]
    try:
        found = _leaves(f(*args))
    except (RuntimeError, IndexError, ValueError) as error:
        if isinstance(error, BreakError):
            raise
        return ["raises"]
    smooth = [t for t in found if isinstance(t, module.Tensor) and t.requires_grad]
    params = [p for m in modules for p in m.parameters()]
    for p in params:
        p.grad = None
    if smooth:
        sum((t * 1.5).sum() for t in smooth).backward()
    beside = [t.grad for t in (*params, *args)]
    return [
        (tuple(t.shape), np.array(t.detach().tolist())) if isinstance(t, module.Tensor) else t
        for t in (*found, *beside, *args)
    ]


def _same(a: list[Any], b: list[Any]) -> None:
    assert len(a) == len(b)
    for x, y in zip(a, b, strict=True):
        if isinstance(x, tuple) and isinstance(y, tuple):
            assert x[0] == y[0]
            np.testing.assert_allclose(x[1], y[1], rtol=1e-4, atol=1e-5)
        else:
            assert x == y


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.__name__)
def test_one_graph_as_eager_and_as_torch(row: Any) -> None:
    torch = pytest.importorskip("torch")
    torch.manual_seed(0)
    (theirs, their_modules, arguments), (ours, modules, _) = row(torch), row(lucerne)
    for a, b in zip(their_modules, modules, strict=True):
        for p, q in zip(a.parameters(), b.parameters(), strict=True):
            with lucerne.no_grad():
                q.copy_(_converted(p, lucerne))
    compiled = lucerne.compile(ours, fullgraph=True)
    for k in range(CALLS):
        torch.manual_seed(k)
        args, grads = arguments(k), k % 2 == 0
        expected = _outcome(torch, theirs, their_modules, args, grads)
        given = [_converted(a, lucerne) for a in args]
        _same(_outcome(lucerne, ours, modules, given, grads), expected)
        _same(_outcome(lucerne, compiled, modules, given, grads), expected)


def _compiled(f: Any) -> Any:
    made = lucerne.compile(f, fullgraph=True)
    return getattr(made, "_compiled", made)


def test_versions_do_not_grow_with_the_sizes() -> None:
    f, _, arguments = moe_topk(lucerne)
    compiled = _compiled(f)
    for k in range(12):
        compiled(*arguments(k))
    assert len(compiled.entries) == 1
    assert type(compiled.entries[0]) is StagedEntry
    assert compiled.given_up is None


def test_as_many_versions_as_ways_to_decide() -> None:
    def f(x: Any) -> Any:
        return x * 2 if (x > 0).nonzero().shape[0] > 3 else x * 3

    compiled = _compiled(f)
    for count in (0, 1, 2, 3, 4, 5, 6, 2, 5):
        x = lucerne.tensor([1.0] * count + [-1.0] * (6 - count))
        assert lucerne.equal(compiled(x), f(x))
    assert len(compiled.entries) == 2


def test_more_ways_to_decide_than_versions() -> None:
    def f(x: Any) -> Any:
        n = (x > 0).nonzero().shape[0]
        for k in range(20):
            if n == k:
                return x + k
        return x

    compiled = _compiled(f)
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        for count in range(20):
            x = lucerne.tensor([1.0] * count + [-1.0] * (20 - count))
            assert lucerne.equal(compiled(x), f(x))
    (said,) = [w for w in told if "runs uncompiled" in str(w.message)]
    assert "sizes that depend on the data" in str(said.message)


def _loop(x: Any) -> Any:
    total = 0
    for k in range((x > 0).nonzero().shape[0]):
        total += k
    return x * total


def _text(x: Any) -> Any:
    return x * len(str((x > 0).nonzero().shape[0]))


def _key(x: Any) -> Any:
    return x * {n: n for n in range(8)}[int((x > 0).sum())]


def _in_a_list(x: Any) -> Any:
    return x * [0, 1, 2, 3, 4, 5][(x > 0).nonzero().shape[0]]


@pytest.mark.parametrize("f", [_loop, _text, _key, _in_a_list])
def test_a_plain_number_is_a_break(f: Any) -> None:
    x = lucerne.tensor([1.0, -1.0, 2.0, 3.0])
    with pytest.raises(BreakError, match=r"\(size\) at .*test_data_sizes.py:\d+ in .*Fix: "):
        lucerne.compile(f, fullgraph=True)(x)
    assert lucerne.equal(lucerne.compile(f)(x), f(x))


def test_an_error_of_the_function_is_its_own() -> None:
    def f(x: Any, i: Any) -> Any:
        return lucerne.zeros(int(i.max()), 2).index_add_(0, i, x)

    compiled = lucerne.compile(f)
    x = lucerne.ones(3, 2)
    for i in ([0, 1, 1], [0, 0, 2]):
        with pytest.raises((IndexError, RuntimeError)):
            compiled(x, lucerne.tensor(i))


def test_a_second_derivative() -> None:
    def f(x: Any) -> Any:
        return (x[x > 0] ** 3).sum()

    compiled = lucerne.compile(f, fullgraph=True)
    for values in ([1.0, -2.0, 3.0], [-1.0, -1.0, -1.0]):
        x = lucerne.tensor(values, requires_grad=True)
        (g,) = lucerne.autograd.grad(compiled(x), x, create_graph=True)
        (h,) = lucerne.autograd.grad(g.sum(), x)
        expected = [6 * v if v > 0 else 0.0 for v in values]
        assert h.tolist() == expected


def test_what_is_returned_is_memory_of_its_own() -> None:
    def f(x: Any) -> Any:
        rows = (x > 0).nonzero()
        out = lucerne.empty(3)
        out.copy_(x[:3])
        return out, rows, x.view(2, 3)

    compiled = lucerne.compile(f, fullgraph=True)
    x = lucerne.tensor([1.0, -1.0, 2.0, 3.0, -4.0, 5.0])
    out, _, view = compiled(x)
    out.zero_()
    assert x[0] == 1
    view.zero_()
    assert x.sum() == 0


def test_draws_come_in_the_order_of_eager() -> None:
    def f(x: Any) -> Any:
        noise = lucerne.rand(x.shape[0])
        rows = (x > 0).nonzero().squeeze(1)
        return noise[rows] + lucerne.rand(rows.shape[0])

    compiled = lucerne.compile(f, fullgraph=True)
    for count in (3, 0, 5):
        x = lucerne.tensor([1.0] * count + [-1.0] * (6 - count))
        lucerne.manual_seed(3)
        expected = f(x)
        lucerne.manual_seed(3)
        assert lucerne.equal(compiled(x), expected)
