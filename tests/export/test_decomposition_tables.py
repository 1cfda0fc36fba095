"""A user's decomposition table: what it names is replaced, what it does not name stays."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import pytest

import lucerne as lu
from lucerne import nn
from lucerne._src.ir import op as op_
from lucerne._src.ops import aten as calls
from lucerne.export import default_decompositions, export
from lucerne.fx.experimental.proxy_tensor import make_fx

aten: Any = lu.ops.aten


def silu(x: Any) -> Any:
    return x * lu.sigmoid(x)


def linear(x: Any, weight: Any, bias: Any = None) -> Any:
    made = (x.unsqueeze(-2) * weight).sum(-1)
    return made if bias is None else made + bias


def softmax(x: Any, dim: int, half_to_float: bool) -> Any:
    assert half_to_float is False
    made = lu.exp(x)
    return made / made.sum(dim, keepdim=True)


def minus(a: Any, b: Any) -> Any:
    return a + b * -1


def again(x: Any) -> Any:
    return nn.functional.silu(x) * 1


def no(*args: Any) -> Any:
    return NotImplemented


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(3, 3)

    def forward(self, x: Any) -> Any:
        return lu.softmax(nn.functional.silu(self.inner(x)) - 1, -1)


WHOLE = ["linear", "silu_op", "sub2", "softmax"]
TABLES: list[tuple[str, dict[Any, Any], list[str]]] = [
    ("nothing", {}, WHOLE),
    ("silu", {aten.silu.default: silu}, ["linear", "sigmoid", "mul", "sub2", "softmax"]),
    ("a packet", {aten.silu: silu}, ["linear", "sigmoid", "mul", "sub2", "softmax"]),
    ("linear", {aten.linear.default: linear},
     ["unsqueeze", "mul", "sum", "add2", "silu_op", "sub2", "softmax"]),
    ("softmax", {aten._softmax.default: softmax},
     ["linear", "silu_op", "sub2", "exp", "sum", "true_divide"]),
    ("one inside of another",
     {aten.silu.default: lambda x: x - x * (1 - lu.sigmoid(x)), aten.sub.Tensor: minus},
     ["linear", "sigmoid", "mul", "add2", "mul", "mul", "add2", "add2", "softmax"]),
    ("the op itself", {aten.silu.default: again}, ["linear", "silu_op", "mul", "sub2", "softmax"]),
    ("not this time", {aten.silu.default: no}, WHOLE),
    ("the body", {aten.linear.default: default_decompositions()[aten.linear.default]},
     ["transpose", "expand", "add_product", "silu_op", "sub2", "softmax"]),
]  # fmt: skip


@pytest.mark.parametrize(("table", "want"), [r[1:] for r in TABLES], ids=[r[0] for r in TABLES])
def test_exported_program(table: dict[Any, Any], want: list[str]) -> None:
    lu.manual_seed(0)
    program = export(Net(), (lu.ones(2, 3),))
    made = program.run_decompositions(table)
    names = [n.op.name for n in made.plan.graph.nodes]
    assert sorted(names) == sorted(want)
    x = lu.randn(2, 3)
    assert lu.allclose(made.module()(x), program.module()(x), atol=1e-6)


def test_the_first_result_of_an_op_in_an_exported_program() -> None:
    program = export(nn.LayerNorm(3), (lu.ones(2, 3),))
    made = program.run_decompositions({aten.native_layer_norm.default: norm})
    names = [n.op.name for n in made.plan.graph.nodes]
    assert "tanh" in names
    assert "layer_norm_rows" not in names
    x = lu.randn(2, 3)
    assert lu.allclose(made.module()(x), program.module()(x).tanh(), atol=1e-6)


def test_default_table_is_what_none_means() -> None:
    program = export(Net(), (lu.ones(2, 3),))
    plain, told = program.run_decompositions(), program.run_decompositions(default_decompositions())
    assert str(plain.graph) == str(told.graph)


def test_every_whole_composite_has_an_entry() -> None:
    table = default_decompositions()
    for op in op_.table().values():
        if op.kind == op_.COMPOSITE and op.explicit:
            assert all(table[o].op is op for o in calls.overloads_of(op))  # type: ignore[attr-defined]


def norm(x: Any, shape: Any, weight: Any, bias: Any, eps: float) -> tuple[Any, Any, Any]:
    mean = x.mean(-1, True)
    away = x - mean
    scale = (away.square().mean(-1, True) + eps).rsqrt()
    assert list(shape) == [3]
    found = lu.tanh(away * scale) * weight
    return found if bias is None else found + bias, mean, scale


MADE: list[tuple[str, Callable[..., Any], dict[Any, Any], str]] = [
    ("silu", nn.functional.silu, {aten.silu.default: silu}, "sigmoid"),
    ("a composite", lu.diag_embed, {aten.diag_embed.default: lambda x, *rest: lu.tanh(x)}, "tanh"),
    ("the first result", lambda x: nn.functional.layer_norm(x, (3,), lu.ones(3), lu.zeros(3)),
     {aten.native_layer_norm.default: norm}, "tanh"),
    ("the first result without a weight", lambda x: nn.functional.layer_norm(x, (3,)),
     {aten.native_layer_norm: norm}, "tanh"),
    ("in a backward pass", lambda x: lu.autograd.grad(x.exp().sum(), x)[0] if x.requires_grad
     else lu.exp(x), {aten.exp.default: lambda x: lu.pow(2.718281828, x)}, "pow"),
]  # fmt: skip


@pytest.mark.parametrize(("f", "table", "name"), [r[1:] for r in MADE], ids=[r[0] for r in MADE])
def test_make_fx(f: Any, table: Any, name: str) -> None:
    x = lu.randn(2, 3, requires_grad=name == "pow")
    traced = make_fx(f, decomposition_table=table)(x)
    assert any(name in str(n.target) for n in traced.graph.nodes), traced.code
    assert not any(name in str(n.target) for n in make_fx(f)(x).graph.nodes)


WRONG: list[tuple[Any, str]] = [
    ([1], "is a dict of operators and functions, not list"),
    ({"silu": silu}, "are operators such as torch.ops.aten.silu.default, not 'silu'"),
    ({aten.silu.default: 3}, r"decomposition of aten.silu.default must be a function .* not 3"),
]


@pytest.mark.parametrize(("table", "text"), WRONG)
def test_wrong_tables_are_refused(table: Any, text: str) -> None:
    program = export(Net(), (lu.ones(2, 3),))
    with pytest.raises(TypeError, match=text):
        program.run_decompositions(table)
    with pytest.raises(TypeError, match=text):
        make_fx(silu, table)


def test_an_entry_that_cannot_be_used_is_named() -> None:
    program = export(Net(), (lu.ones(2, 3),))
    with pytest.warns(UserWarning, match=r"aten.layer_norm.default never is an op of an ex"):
        program.run_decompositions({aten.layer_norm.default: silu, aten.silu.default: silu})
    with pytest.warns(UserWarning, match=r"aten.layer_norm.default never is an op of what make_fx"):
        make_fx(silu, {aten.layer_norm.default: silu})
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        program.run_decompositions({aten.mm.default: silu})
