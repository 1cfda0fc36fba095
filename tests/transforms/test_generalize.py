"""One graph for all sizes: what it gives at a third size is what a trace at that size gives."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import lucerne as lu
from lucerne import nn
from lucerne._src.base import dtype as dt
from lucerne._src.base.device import device
from lucerne._src.ir.graph import verify
from lucerne._src.ir.meta import make_meta
from lucerne._src.ir.symbolic.expressions import defined, symbol
from lucerne._src.ir.symbolic.numbers import SymInt, guarding
from lucerne._src.transforms.generalize import (
    Instance,
    SizeRefusedError,
    first_difference,
    formula_of,
    generalize,
)
from lucerne.nn import functional as F
from tests.support.pace import fastest, slowness
from tests.transforms.sizes import learned, meta_of, traced

MLP = nn.Sequential(nn.Linear(8, 16), nn.GELU(), nn.LayerNorm(16), nn.Linear(16, 4))
PROJECT = nn.Linear(16, 48)
CONV = nn.Sequential(
    nn.Conv2d(3, 8, 3, padding=1, stride=2), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(2),
    nn.Conv2d(8, 4, 3),
)  # fmt: skip
TABLE = lu.ones(11, 8)


def mlp(x: Any) -> Any:
    return MLP(x).log_softmax(-1).mean()


def mlp_step(x: Any) -> Any:
    loss = MLP(x).square().mean()
    return (loss.detach(), *lu.autograd.grad(loss, list(MLP.parameters())))


def attention(x: Any) -> Any:
    b, t, c = x.shape
    q, k, v = (y.view(b, t, 4, 4).transpose(1, 2) for y in PROJECT(x).split(16, 2))
    scores = (q @ k.transpose(-2, -1)) * (1 / 4**0.5)
    scores = scores.masked_fill(lu.ones(t, t).tril() == 0, float("-inf"))
    y = (scores.softmax(-1) @ v).transpose(1, 2).reshape(b, t, c)
    z = F.scaled_dot_product_attention(q, k, v, is_causal=True)
    return y.sum() + z.mean() / t * t**-0.5


def conv(x: Any) -> Any:
    return CONV(x).flatten(1).mean(0).sum()


def conv_step(x: Any) -> Any:
    return lu.autograd.grad(CONV(x).mean(), list(CONV.parameters()))


def cat_of_slices(x: Any) -> Any:
    return lu.cat([x[:, :3], x[:, 3:], x[:, -2:]], 1) * x.shape[1] ** -0.5


def halves(x: Any) -> Any:
    n = x.shape[1] // 2
    return x[:, :n].sum(1) + x[:, n:].sum(1)


def embed(i: Any) -> Any:
    return F.embedding(i, TABLE).sum(1)


CASES: dict[str, tuple[Callable[..., Any], list[Any], list[Any], list[Any]]] = {
    "mlp": (mlp, [(8, 8)], [(12, 8)], [(31, 8)]),
    "mlp step": (mlp_step, [(8, 8)], [(12, 8)], [(31, 8)]),
    "attention, length": (attention, [(2, 8, 16)], [(2, 12, 16)], [(2, 31, 16)]),
    "attention, both": (attention, [(2, 8, 16)], [(3, 12, 16)], [(5, 31, 16)]),
    "conv, batch": (conv, [(2, 3, 16, 16)], [(4, 3, 16, 16)], [(7, 3, 16, 16)]),
    "conv, images": (conv, [(2, 3, 16, 16)], [(2, 3, 24, 24)], [(2, 3, 35, 35)]),
    "conv, all": (conv, [(2, 3, 16, 20)], [(3, 3, 24, 32)], [(5, 3, 35, 39)]),
    "conv step": (conv_step, [(2, 3, 16, 20)], [(3, 3, 24, 32)], [(5, 3, 35, 39)]),
    "cumsum": (lambda x: x.cumsum(1) / x.shape[1], [(4, 8)], [(4, 9)], [(4, 31)]),
    "cat of slices": (cat_of_slices, [(4, 8)], [(4, 10)], [(4, 31)]),
    "halves": (halves, [(4, 8)], [(4, 9)], [(4, 31)]),
    "embedding": (embed, [(4, 8)], [(4, 10)], [(4, 31)]),
    "one size twice": (lu.matmul, [(4, 8), (8, 5)], [(4, 9), (9, 5)], [(4, 6), (6, 5)]),
}  # fmt: skip


def metas_of(name: str, shapes: list[Any]) -> list[Any]:
    kind = dt.int64 if name == "embedding" else dt.float32
    return [meta_of(s, kind) for s in shapes]


@pytest.mark.parametrize("name", CASES)
def test_a_third_size_is_not_traced(name: str) -> None:
    fn, a, b, c = CASES[name]
    template = learned(fn, metas_of(name, a), metas_of(name, b))
    wanted = traced(fn, metas_of(name, c))
    sizes = template.bind([v.meta for v in wanted.inputs])
    assert sizes is not None, template
    made = template.instantiate(sizes)
    verify(made)
    assert first_difference(made, wanted) == ""
    assert made.outputs[0].meta is wanted.outputs[0].meta


def test_the_comparison_fails() -> None:
    fn = CASES["mlp"][0]
    assert first_difference(traced(fn, [meta_of((8, 8))]), traced(fn, [meta_of((9, 8))]))


GUARDS: dict[str, tuple[Callable[..., Any], list[Any], list[Any], list[str]]] = {
    "a loop over a size": (
        lambda x: sum(x[i] for i in range(x.shape[0])), [(4, 8)], [(5, 8)], ["s0 == 5"],
    ),
    "other ops": (
        lambda x: x.sin() if x.shape[0] > 4 else x.cos(), [(4, 8)], [(5, 8)], ["s0 > 4"],
    ),
    "a table": (
        lambda x: x * {4: 917, 6: 23}[x.shape[0]], [(4, 8)], [(6, 8)], ["s0 == 6"],
    ),
    "other connections": (
        lambda x, y: (x if x.shape[0] < 5 else y).sin(),
        [(4, 8), (4, 8)], [(6, 8), (6, 8)], ["not s0 < 5"],
    ),
    "sizes that agree": (
        lambda x, y: x + y, [(4, 8), (5, 8)], [(6, 8), (6, 8)], ["s1 == s0"],
    ),
    "rows of four": (
        lambda x: x.view(-1, 4).sum(1), [(4, 3)], [(8, 3)], ["((3*s0)%4) == 0"],
    ),
    "nothing": (lambda x: x.view(-1, 3, 8).softmax(1).sum(), [(6, 8)], [(9, 8)], []),
}  # fmt: skip


@pytest.mark.parametrize("name", GUARDS)
def test_what_is_decided_is_guarded(name: str) -> None:
    fn, a, b, wanted = GUARDS[name]
    template = learned(fn, [meta_of(s) for s in a], [meta_of(s) for s in b])
    found = [repr(g) for g in template.guards if g.relation is not defined]
    assert set(wanted) <= set(found), found
    assert template.bind([meta_of(s) for s in b]) is not None


def test_a_decision_by_size_is_a_guard() -> None:
    def fn(x: Any) -> Any:
        both = lu.cat([x, x])
        return both.relu() if both.shape[0] > 64 else both.sin() / x.numel()

    template = learned(fn, [meta_of((8, 8))], [meta_of((12, 8))])
    assert [repr(g) for g in template.guards] == ["not 2*s0 > 64"]
    assert template.bind([meta_of((32, 8))]) == {"s0": 32}
    assert template.bind([meta_of((33, 8))]) is None


def test_a_size_of_a_result_is_an_expression() -> None:
    def fn(x: Any) -> Any:
        y = F.conv2d(x, lu.ones(2, 1, 3, 3), stride=2)
        return y.relu() if y.shape[-1] > 30 else y.sin()

    template = learned(fn, [meta_of((1, 1, 16, 16))], [meta_of((1, 1, 24, 24))])
    rest = [v.meta for v in template.graph.inputs[1:]]
    assert template.bind([meta_of((1, 1, 61, 61)), *rest]) == {"s0": 61}
    assert template.bind([meta_of((1, 1, 99, 99)), *rest]) is None


def test_what_fits_is_bound() -> None:
    template = learned(lambda x, y: x + y, [meta_of((4, 8))] * 2, [meta_of((6, 8))] * 2)
    assert template.bind([meta_of((9, 8))] * 2) == {"s0": 9}
    assert template.bind([meta_of((9, 8)), meta_of((10, 8))]) is None  # one symbol, two sizes
    assert template.bind([meta_of((9, 7))] * 2) is None
    assert template.bind([meta_of((1, 8))] * 2) is None
    assert template.bind([meta_of((9, 8), dt.float64)] * 2) is None
    assert template.bind([meta_of((9, 8))]) is None


def test_an_op_may_refuse_a_size() -> None:
    template = learned(lambda x: x.view(-1, 4).sum(1), [meta_of((4, 3))], [meta_of((8, 3))])
    assert template.bind([meta_of((3, 3))]) is None
    with pytest.raises(SizeRefusedError, match="view"):
        template.instantiate({"s0": 3})


def test_an_op_that_tells_other_sizes_is_noticed() -> None:
    template = learned(lambda x: x[1:] * 2, [meta_of((4, 8))], [meta_of((6, 8))])
    assert template.results is not None
    template.results[1] = [(tuple(n + 1 for n in f[0]), f[1]) for f in template.results[1]]
    with pytest.raises(SizeRefusedError, match="other sizes than it told"):
        template.instantiate({"s0": 9})


def test_things_beside_the_graph_follow() -> None:
    template = learned(lambda x: x * 2, [meta_of((4, 8))], [meta_of((6, 8))])
    with guarding():
        n = SymInt(6, symbol("s0"))
        seen = (make_meta(dt.float32, (n, n * 8), None, device("cpu")), [n - 1, "same"], 1 / n)
        formula = formula_of(seen)
    found = Instance(template, {"s0": 9}).value_of(formula)
    assert found == (meta_of((9, 72)), [8, "same"], 1 / 9)


def test_writes_are_kept() -> None:
    graph = traced(lambda x: x * 2, [meta_of((4, 8))])
    graph.writes = [(graph.inputs[0], graph.outputs[0])]
    made = generalize(graph, {}).instantiate({})
    assert made.writes == [(made.inputs[0], made.outputs[0])]


def test_a_graph_is_made_quickly() -> None:
    """At most 20 microseconds per node (four times that here: machines are shared)."""
    fn, a, b, _ = CASES["attention, both"]
    template = learned(fn, metas_of("", a), metas_of("", b))
    sizes = iter(range(3, 40))

    def make() -> None:
        n = next(sizes)
        template.instantiate({"s0": n, "s1": n + 3})

    assert fastest(make, 37) / len(template.graph.nodes) < 80e-6 * slowness()


def test_sizes_are_plain_again_after_a_trace_with_symbols() -> None:
    learned(lambda x: x * 2, [meta_of((4, 8))], [meta_of((6, 8))])
    assert type(lu.ones(3).shape[0]) is int
    assert lu.ones(3, 2).numel() == 6
