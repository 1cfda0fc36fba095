"""Each rule: where it applies, where it must not, and that it keeps the numbers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import lucerne
from lucerne._src.base import layout as lo
from lucerne._src.ir import op as op_
from lucerne._src.ir.graph import Graph, Value
from lucerne._src.transforms import cse, dead, fold, simplify
from lucerne._src.transforms.rewrite import result_metas
from lucerne._src.transforms.rules.moves import holds
from tests.transforms.programs import program
from tests.transforms.tracing import (
    CPU,
    arrays,
    assert_close,
    assert_same_bits,
    assert_sound,
    meta,
    names,
    results,
)

F32, F64, BF16, F16 = lucerne.float32, lucerne.float64, lucerne.bfloat16, lucerne.float16
I64, I32, BOOL, C64 = lucerne.int64, lucerne.int32, lucerne.bool, lucerne.complex64


class Make:
    """Writes a graph: `make.neg(x)`, `make("ops.aten.slice", x, ...)`; ends in one `exp` or so."""

    def __init__(self) -> None:
        self.graph = Graph()

    def input(self, *shape: int, dtype: Any = F32) -> Value:
        return self.graph.input(meta(*shape, dtype=dtype))

    def filled(self, value: Any, *shape: int, dtype: Any = F32) -> Value:
        return self("filled", shape, value, dtype, CPU, None)

    def __call__(self, name: str, *args: Any) -> Any:
        op = op_.get(name)
        made = self.graph.call(op, args, result_metas(op, args))
        return made[0] if len(made) == 1 else made

    def __getattr__(self, name: str) -> Callable[..., Any]:
        return lambda *args: self(name, *args)


class Row(NamedTuple):
    """`left`: the ops that remain, besides the last one, which reads what `build` gives."""

    rule: str
    build: Callable[[Make], Value]
    left: list[str]
    bitwise: bool = True


def built(build: Callable[[Make], Any], shown: bool = False) -> Graph:
    """The graph; unless `shown`, its output is another op of what `build` gives."""
    make = Make()
    value = build(make)
    make.graph.outputs = (value if shown else make("isnan", value),)
    return make.graph


def after(graph: Graph, bitwise: bool = True) -> Graph:
    new = dead.run(simplify.run(graph, bitwise=bitwise))
    assert_sound(new, graph)
    return new


ROWS = [
    Row("mul_one", lambda m: m.mul(m.input(3), 1), []),
    Row("mul_one", lambda m: m.mul(1.0, m.input(3, dtype=BF16)), []),
    Row("mul_one", lambda m: m.mul(m.input(2, 3), m.filled(1.0, 3)), []),
    Row("mul_one", lambda m: m.mul(m.input(3, dtype=BOOL), m.filled(True, 3, dtype=BOOL)), []),
    Row("mul_one", lambda m: m.mul(m.input(3, dtype=I64), 1), []),
    Row("div_one", lambda m: m.true_divide(m.input(3), 1), []),
    Row("sub_zero", lambda m: m.sub2(m.input(3), 0.0), []),
    Row("sub_zero", lambda m: m.sub2(m.input(3, dtype=I32), 0), []),
    Row("add_minus_zero", lambda m: m.add2(m.input(3), -0.0), []),
    Row("add_minus_zero", lambda m: m.add2(0, m.input(3, dtype=I64)), []),
    Row("alpha_one", lambda m: m.add_scaled(m.input(3), m.input(3), 1.0), ["add2"]),
    Row("alpha_one", lambda m: m.add_scaled(m.input(3), m.input(3), -1), ["sub2"]),
    Row("neg_neg", lambda m: m.neg(m.neg(m.input(3))), []),
    Row("neg_neg", lambda m: m.bitwise_not(m.bitwise_not(m.input(3, dtype=I64))), []),
    Row("again", lambda m: m.relu(m.relu(m.input(3))), ["relu"]),
    Row("again", lambda m: m.floor(m.floor(m.input(3))), ["floor"]),
    Row("same_operands", lambda m: m.maximum(x := m.input(3), x), []),
    Row("choose_known",
        lambda m: m.choose(m.filled(True, 3, dtype=BOOL), m.input(3), m.input(3)), []),
    Row("choose_known",
        lambda m: m.choose(m.filled(False, dtype=BOOL), m.input(3), m.input(3)), []),
    Row("choose_known", lambda m: m.choose(m.input(3, dtype=BOOL), x := m.input(3), x), []),
    Row("exact_sum_expanded",
        lambda m: m.sum(m.expand(m.input(2, 1, dtype=I64), (2, 5)), (1,), True, None), ["mul"]),
    Row("sum_expanded", lambda m: m.sum(m.expand(m.input(2, 1), (2, 5)), (1,), True, None),
        ["mul"], bitwise=False),
    Row("sum_expanded", lambda m: m.sum(m.expand(m.input(3), (4, 3)), (0,), False, None),
        ["mul"], bitwise=False),
    Row("fold_ones", lambda m: m.amax(m.input(3, 1), (1,), False), ["view"]),
    Row("sum_one", lambda m: m.sum(m.input(3, 1, dtype=I64), (1,), False, None), ["view"]),
    Row("product_one", lambda m: m.prod_dim(m.input(3, 1), 1, False, None), ["view"]),
    Row("number_operand", lambda m: m.mul(m.input(2, 3), m.filled(0.1, 3)), ["mul"]),
    Row("number_operand",
        lambda m: m.add2(m.input(2, 3), m.expand(m.filled(0.1, 1, dtype=F32), (2, 3))), ["add2"]),
    Row("cast_same", lambda m: m.cast(m.input(3), F32), []),
    Row("cast_back", lambda m: m.cast(m.cast(m.input(3, dtype=BF16), F32), BF16), []),
    Row("cast_back", lambda m: m.cast(m.cast(m.input(3, dtype=I32), I64), I32), []),
    Row("cast_twice", lambda m: m.cast(m.cast(m.input(3, dtype=BF16), F32), F64), ["cast"]),
    Row("cast_twice", lambda m: m.cast(m.cast(m.input(3), F64), F16), ["cast"]),
    Row("clone_same", lambda m: m.clone_as(m.input(3), lo.preserve_format), []),
    Row("clone_of_constant", lambda m: m.clone_as(m.expand(m.filled(0.5, 1), (3,)),
                                                  lo.contiguous_format), ["filled"]),
    Row("clone_clone", lambda m: m.clone_as(m.clone_as(m.t(m.input(2, 3)), lo.contiguous_format),
                                            lo.contiguous_format), ["t", "clone_as"]),
    Row("copy_same", lambda m: m.copy(m.input(3), m.input(3)), []),
    Row("copy_number", lambda m: m.copy(m.input(3), 0), ["filled"]),
    Row("copy_number", lambda m: m.copy(m.input(3), m.filled(2.0)), ["filled"]),
    Row("copy_as_clone", lambda m: m.copy(m.input(3), m.input(3, dtype=I64)), ["cast"]),
    Row("put_all", lambda m: m.put_region(m.input(2, 3), m.input(2, 3), (2, 3), (3, 1), 0), []),
    Row("cat_one", lambda m: m.cat((m.input(3),), 0), []),
    Row("cat_empty", lambda m: m.cat((m.input(3), m.input(0), m.input(3)), 0), ["cat"]),
    Row("pad_nothing", lambda m: m.padded(m.input(3), 0, (0,), (0,), (0,)), []),
    Row("view_same", lambda m: m.view(m.input(2, 3), (2, 3)), []),
    Row("view_same", lambda m: m.alias(m.input(2, 3)), []),
    Row("view_same", lambda m: m("ops.aten.slice", m.input(2, 3), 0, 0, 2, 1), []),
    Row("view_same", lambda m: m.split_with_sizes(m.input(2, 3), (2,), 0), []),
    Row("plain_view", lambda m: m.as_strided(m.input(2, 3), (3, 2), (1, 3), 0), ["permute"]),
    Row("plain_view", lambda m: m.as_strided(m.input(2, 3), (3, 2), (2, 1), 0), ["view"]),
    Row("view_view", lambda m: m.view(m.view(m.input(2, 3), (6,)), (3, 2)), ["view"]),
    Row("view_view", lambda m: m.squeeze(m.unsqueeze(m.input(2, 3), 0), (0,)), []),
    Row("permute_permute", lambda m: m.transpose(m.transpose(m.input(2, 3), 0, 1), 0, 1), []),
    Row("permute_permute",
        lambda m: m.permute(m.transpose(m.input(2, 3, 4), 0, 1), (2, 0, 1)), ["permute"]),
    Row("expand_expand", lambda m: m.expand(m.expand(m.input(3), (2, 3)), (4, 2, 3)), ["expand"]),
]  # fmt: skip


@pytest.mark.parametrize("row", ROWS, ids=lambda r: r.rule)
def test_rule_applies(row: Row) -> None:
    graph = built(row.build)
    new = after(graph, row.bitwise)
    assert names(new)[:-1] == row.left, f"\n{graph}\n{new}"
    given = arrays(graph, special=row.bitwise)
    assert_same_bits(results(new, given), results(graph, given))
    if not row.bitwise:
        strict = [r.name for r in simplify.RULES if r.exact]
        assert row.rule not in strict
        assert names(after(graph))[:-1] != row.left


def test_every_rule_has_a_row_and_a_reason() -> None:
    assert {r.rule for r in ROWS} == {r.name for r in simplify.RULES}
    assert len({r.name for r in simplify.RULES}) == len(simplify.RULES)
    assert all(len(r.reason) >= 10 for r in simplify.RULES)


KEPT: list[tuple[str, Callable[[Make], Any], bool]] = [
    ("-0.0 + 0.0 is 0.0", lambda m: m.add2(m.input(3), 0.0), False),
    ("-0.0 - -0.0 is 0.0", lambda m: m.sub2(m.input(3), -0.0), False),
    ("inf * (1 + 0j) has a nan", lambda m: m.mul(m.input(3, dtype=C64), 1), False),
    ("the result is float", lambda m: m.mul(m.input(3, dtype=I64), 1.0), False),
    ("the result is larger", lambda m: m.mul(m.input(3), m.filled(1.0, 2, 3)), False),
    ("bfloat16 rounds", lambda m: m.cast(m.cast(m.input(3), BF16), F32), False),
    ("int8 wraps", lambda m: m.cast(m.cast(m.input(3, dtype=I64), lucerne.int8), I64), False),
    ("float32 has 24 digits", lambda m: m.cast(m.cast(m.input(3, dtype=I64), F32), I64), False),
    ("sums round", lambda m: m.sum(m.expand(m.input(2, 1), (2, 5)), (1,), True, None), False),
    ("another layout", lambda m: m.clone_as(m.t(m.input(2, 3)), lo.contiguous_format), False),
    ("one dimension is summed really",
     lambda m: m.sum(m.expand(m.input(2, 1, 3), (2, 5, 3)), (1, 2), True, None), False),
    ("no such view", lambda m: m.view(m.clone_as(m.t(m.input(2, 3)), lo.contiguous_format), (6,)),
     False),
    ("returned clone", lambda m: m.clone_as(m.input(3), lo.preserve_format), True),
    ("returned product", lambda m: m.mul(m.input(3), 1), True),
    ("returned fold", lambda m: m.amax(m.input(3, 1), (1,), False), True),
    ("returned view", lambda m: m.view(m.input(3), (3,)), True),
    ("returned join", lambda m: m.cat((m.input(3),), 0), True),
    ("alpha at run time counts as any", lambda m: m.add_scaled(m.input(3), m.input(3), 2), False),
    ("a square put in turned around",
     lambda m: m.put_region(m.input(3, 3), m.input(3, 3), (3, 3), (1, 3), 0), False),
    ("a part of what is there",
     lambda m: m.put_region(m.input(3), m.input(2), (2,), (1,), 0), False),
    ("an offset", lambda m: m.as_strided(m.input(2, 3), (3,), (1,), 3), False),
]  # fmt: skip


@pytest.mark.parametrize("row", KEPT, ids=lambda r: r[0])
def test_rule_does_not_apply(row: Any) -> None:
    _, build, shown = row
    graph = built(build, shown)
    new = after(graph)
    assert names(new) == names(dead.run(graph))
    assert_same_bits(results(new, arrays(graph)), results(graph, arrays(graph)))


def test_memory_that_leaves_is_its_own() -> None:
    """A product by one may be another result's memory only if nobody sees both."""
    make = Make()
    x = make.input(3)
    y = make.relu(x)
    once, twice = make.mul(y, 1), make.mul(y, 1)
    make.graph.outputs = (once, twice)
    new = after(make.graph)
    assert names(new) == ["relu", "mul"]
    assert new.outputs[0] is not new.outputs[1]


def test_writes_follow_replacements() -> None:
    make = Make()
    x = make.input(3)
    make.graph.writes = [(x, make.mul(make.neg(x), 1))]
    make.graph.outputs = (make.neg(make.neg(make.relu(x))),)
    new = after(make.graph)
    assert names(new) == ["neg", "relu"]
    assert [v.index for _, v in new.writes] == [new.nodes[0].outputs[0].index]


@pytest.mark.parametrize(
    ("wide", "narrow", "answer"),
    [
        (F64, F32, True), (F32, F64, False), (F32, BF16, True), (F16, BF16, False),
        (BF16, F16, False), (I64, I32, True), (I32, lucerne.uint8, True),
        (lucerne.uint8, lucerne.int8, False), (F32, lucerne.int16, True), (F32, I32, False),
        (F64, I32, True), (F16, BOOL, True), (C64, F32, False), (F32, F32, True),
    ],
)  # fmt: skip
def test_holds(wide: Any, narrow: Any, answer: bool) -> None:
    assert holds(wide, narrow) is answer


PASSES: dict[str, Callable[[Graph, bool], Graph]] = {
    "fold": lambda g, bitwise: fold.run(g, bitwise=bitwise),
    "simplify": lambda g, bitwise: simplify.run(g, bitwise=bitwise),
    "cse": lambda g, bitwise: cse.run(g),
    "dead": lambda g, bitwise: dead.run(g),
}


@given(st.integers(0, 1 << 30), st.permutations(list(PASSES)))
@settings(max_examples=120, deadline=None)
def test_passes_keep_every_bit(seed: int, order: list[str]) -> None:
    graph = program(seed)
    given = arrays(graph, seed)
    want = results(graph, given)
    for name in [*order, "simplify"]:
        new = PASSES[name](graph, True)
        assert_sound(new, graph)
        assert_same_bits(results(new, given), want)
        graph = new


@given(st.integers(0, 1 << 30))
@settings(max_examples=60, deadline=None)
def test_passes_keep_the_numbers(seed: int) -> None:
    graph = program(seed, 10)
    given = arrays(graph, seed, special=False)
    new = graph
    for name in ("simplify", "fold", "cse", "dead"):
        new = PASSES[name](new, False)
        assert_sound(new, graph)
    want = results(graph, given)
    shown = (*graph.outputs, *(v for _, v in graph.writes))
    for a, b, v in zip(results(new, given), want, shown, strict=True):
        if v.meta.dtype is F32:
            assert_close([a], [b])


def test_checks_can_fail() -> None:
    make = Make()
    x = make.input(3)
    make.graph.outputs = (make.neg(x), make.neg(x))
    other = Make()
    y = other.input(3)
    other.graph.outputs = (z := other.relu(y), z)
    given = arrays(make.graph)
    with pytest.raises(AssertionError):
        assert_same_bits(results(make.graph, given), results(other.graph, given))
    with pytest.raises(AssertionError):
        assert_close(results(make.graph, given), results(other.graph, given))
    with pytest.raises(AssertionError, match="share memory"):
        assert_sound(other.graph, make.graph)
