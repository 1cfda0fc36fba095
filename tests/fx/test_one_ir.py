"""The compiler's graphs as modules, and functions as the compiler's graphs."""

from __future__ import annotations

from typing import Any

import pytest

import lucerne
from lucerne._src.ir.graph import verify
from lucerne.fx import from_ir, to_ir
from lucerne.fx.experimental.proxy_tensor import make_fx


def close(a: Any, b: Any) -> bool:
    """Whether two results are the same structure of nearly the same numbers."""
    if isinstance(a, dict):
        return a.keys() == b.keys() and all(close(a[k], b[k]) for k in a)
    if isinstance(a, (tuple, list)):
        pairs = zip(a, b, strict=True)
        return type(a) is type(b) and all(close(x, y) for x, y in pairs)
    if not isinstance(a, lucerne.Tensor):
        return bool(a == b)
    return bool(a.shape == b.shape and lucerne.allclose(a, b, rtol=1e-5, atol=1e-6))


def test_close_sees_a_difference() -> None:
    one = lucerne.ones(1)
    assert close({"a": (one, 2)}, {"a": (one + 1e-9, 2)})
    assert not close({"a": one}, {"a": one * 2})
    assert not close((one,), [one])
    assert not close(one, lucerne.ones(2))


def with_grad(x: Any) -> Any:
    x = x.detach().requires_grad_()
    y = (x.sin() * x).sum()
    (g,) = lucerne.autograd.grad(y, [x])
    return {"y": y.detach(), "g": g}


FUNCTIONS: dict[str, Any] = {
    "softmax": lambda x: lucerne.softmax(x, dim=-1),
    "views": lambda x: (x.t(), x[:, 1:], x.reshape(-1), x.unsqueeze(0).expand(2, 2, 3)),
    "several": lambda x: [*x.unbind(1), *lucerne.topk(x, 2), x.split([1, 2], dim=1)[0]],
    "one of several": lambda x: x[:, :1].unbind(1),
    "numbers": lambda x: (x * 2 + 0.5, x**2, x > 1, 3),
    "dtypes": lambda x: x.to(lucerne.float64).sum(dim=0, dtype=lucerne.float32),
    "created": lambda x: x + lucerne.arange(3) + lucerne.zeros(2, 3) + lucerne.tensor([1.0, 2, 3]),
    "lists": lambda x: lucerne.cat([x, x * 2], dim=1),
    "layers": lambda x: lucerne.nn.functional.layer_norm(x, (3,)),
    "gradient": with_grad,
    "structure": lambda x: {"a": [x + 1], "b": (x, None)},
    "written copy": lambda x: x.clone().add_(1).mul_(2),
    "written view": lambda x: (lambda y: (y[0].fill_(7), y)[1])(x * 1),
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_make_fx_gives_the_same_results(name: str) -> None:
    f = FUNCTIONS[name]
    x = lucerne.randn(2, 3)
    traced = make_fx(f)(lucerne.ones(2, 3))
    assert close(traced(x), f(x))
    traced.graph.lint()
    assert [n.name for n in traced.graph.find_nodes(op="placeholder")] == ["x_1"]


def test_writes_to_arguments_happen() -> None:
    def f(x: Any, y: Any) -> Any:
        x.add_(y)
        x[0].mul_(2)
        return x.sum()

    x, y = lucerne.ones(2, 3), lucerne.full((3,), 2.0)
    traced = make_fx(f)(x, y)
    assert x.tolist() == [[1.0] * 3] * 2
    assert float(traced(x, y)) == 27.0
    assert x.tolist() == [[6.0] * 3, [3.0] * 3]
    assert not traced.graph.eliminate_dead_code() or "copy_" in traced.code


def test_modules_keep_their_parameters() -> None:
    layer = lucerne.nn.Linear(3, 2)
    traced = make_fx(layer)(lucerne.ones(4, 3))
    x = lucerne.randn(4, 3)
    assert close(traced(x), layer(x))
    with lucerne.no_grad():
        layer.weight.mul_(2)
    assert close(traced(x), layer(x))
    assert {id(p) for p in traced.parameters()} == {id(p) for p in layer.parameters()}


def test_metas_are_noted() -> None:
    traced = make_fx(lambda x: x.t().unbind(0))(lucerne.ones(2, 3))
    metas = {n.name: n.meta for n in traced.graph.nodes}
    assert tuple(metas["t"]["val"].shape) == (3, 2)
    assert metas["t"]["val"].stride() == (1, 3)
    assert metas["t"]["tensor_meta"].dtype is lucerne.float32
    assert [tuple(m.shape) for m in metas["unbind"]["tensor_meta"]] == [(2,)] * 3
    assert tuple(metas["getitem_1"]["val"].shape) == (2,)


def test_from_ir_takes_all_inputs_and_returns_a_tuple() -> None:
    layer = lucerne.nn.Linear(3, 2)
    graph, held = to_ir(lambda x: layer(x).relu(), lucerne.ones(4, 3))
    assert [h is p for h, p in zip(held, layer.parameters(), strict=True)] == [True, True]
    verify(graph, deep=True)
    module = from_ir(graph)
    x = lucerne.randn(4, 3)
    (got,) = module(x, *held)
    assert close(got, layer(x).relu())
    again, _ = to_ir(module, x, *held)
    assert [n.op for n in again.nodes] == [n.op for n in graph.nodes]
    assert [v.meta for v in again.inputs] == [v.meta for v in graph.inputs]


def test_a_pass_written_on_fx() -> None:
    """A user's backend: gets a module, changes it, runs it."""
    graph, held = to_ir(lambda x: lucerne.relu(x) + 1, lucerne.ones(3))
    module = from_ir(graph)
    for node in module.graph.find_nodes(op="call_function", target=lucerne.relu):
        node.target = lucerne.tanh
    module.recompile()
    x = lucerne.randn(3)
    assert close(module(x, *held)[0], lucerne.tanh(x) + 1)


def test_looking_at_values_is_refused() -> None:
    with pytest.raises(Exception, match="values"):
        make_fx(lambda x: x if x.sum() > 0 else -x)(lucerne.ones(2))
