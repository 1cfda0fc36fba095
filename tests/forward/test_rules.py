"""Every op with a gradient formula has a derivative in a direction, and both agree."""

from functools import partial
from typing import Any

import numpy as np
import pytest

import lucerne
from lucerne._src.base import dtype as dt
from lucerne._src.conformance import oracle
from lucerne._src.ir import op as op_
from lucerne._src.ir.dispatch import Interpreter
from lucerne._src.ir.op import Op
from lucerne._src.tensor.forward import rules
from lucerne._src.tensor.forward.rules import (
    PRODUCTS,
    RULES,
    tangents_of,
    transposed,
)

WITHOUT_ORACLE = (
    "add_scaled", "as_strided", "cat", "diagonal", "embedding", "flip", "gather", "index",
    "linalg.matrix_exp", "ops.aten.slice", "padded", "p_norm", "permute", "prelu_kernel", "select",
    "split_with_sizes", "svd_factors", "Tensor.unfold", "transpose", "unbind",
)  # fmt: skip
"""Ops that made-up arguments fit although nothing outside checks their values. What is in neither
list is compared with torch (`python -m tests.forward`)."""
NAMES = sorted(
    name
    for name, op in op_.table().items()
    if op.derivatives
    and (op.oracle is not None or name in WITHOUT_ORACLE)
    and not oracle.unknown_parameter(op)
)


class Caught(Interpreter):
    """Keeps the arguments and the results of the first call of one op."""

    level = "call"

    def __init__(self, op: Op) -> None:
        self.op = op
        self.args: Any = None
        self.results: Any = None

    def run(self, op: Op, args: Any, out: Any, proceed: Any) -> Any:
        result = proceed(op, args, out)
        if op is self.op and self.args is None:
            self.args = args
            self.results = result if isinstance(result, tuple) else (result,)
        return result


def call_of(op: Op, call: Any) -> Caught:
    """One call of an op, as the conformance command makes it, in float64."""
    given = {
        p.name: placed(p, oracle._argument(p, a, dt.float64, 3 * i))
        for i, (p, a) in enumerate(zip(op.params, call, strict=True))
    }
    caught = Caught(op)
    with caught:
        op.public(**given)
    return caught


def placed(p: Any, given: Any) -> Any:
    if p.kind == op_.TENSOR_LIST:
        return tuple(tensor_of(x) for x in given)
    return tensor_of(given)


def tensor_of(x: Any) -> Any:
    return lucerne.tensor(x) if isinstance(x, np.ndarray) else x


def tangents_for(op: Op, args: Any, rng: np.random.RandomState) -> Any:
    """A random direction for each argument that has a formula."""

    def one(x: Any) -> Any:
        if not isinstance(x, lucerne.Tensor) or not x.is_floating_point():
            return None
        return lucerne.tensor(rng.standard_normal(tuple(x.shape)))

    found = []
    for name, a in zip(op.args, args, strict=True):
        t = tuple(one(x) for x in a) if type(a) is tuple and name in op.derivatives else one(a)
        found.append(t if name in op.derivatives else None)
    return tuple(found)


def assert_same(op: Op, caught: Caught, tangents: Any) -> None:
    """The rule gives what the transposed formula gives."""
    got = tangents_of(op, caught.args, caught.results, tangents)
    want = transposed(op, caught.args, caught.results, tangents)
    for g, w, r in zip(got, want, caught.results, strict=True):
        have = np.zeros(tuple(r.shape)) if g is None else g.numpy()
        need = np.zeros(tuple(r.shape)) if w is None else w.expand(r.shape).numpy()
        np.testing.assert_allclose(have, need, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("name", NAMES)
def test_rule_agrees_with_the_gradient_formula(name: str) -> None:
    op = op_.get(name)
    rng = np.random.RandomState(0)
    caught = [call_of(op, call) for call in oracle.calls(op)[:2]]
    for call in caught:
        tangents = tangents_for(op, call.args, rng)
        if any(t is not None for t in tangents):
            assert_same(op, call, tangents)


def test_a_wrong_rule_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    op = op_.get("exp")
    caught = call_of(op, oracle.calls(op)[0])
    monkeypatch.setitem(RULES, "exp", lambda op, args, results, tangents: (tangents[0],))
    with pytest.raises(AssertionError):
        assert_same(op, caught, tangents_for(op, caught.args, np.random.RandomState(0)))


@pytest.mark.parametrize("names", [PRODUCTS, RULES], ids=["product", "own"])
def test_tables_name_ops_that_exist(names: Any) -> None:
    assert set(names) <= set(op_.table())


def test_ops_without_a_derivative_say_so() -> None:
    op = op_.get("special.airy_ai")
    x = lucerne.ones(2)
    with pytest.raises(NotImplementedError, match=r"forward AD with special\.airy_ai"):
        tangents_of(op, (x,), (x,), (x,))


def test_comparisons_have_no_tangent() -> None:
    op = op_.get("gt")
    x = lucerne.ones(2)
    assert tangents_of(op, (x, x), (x > x,), (x, None)) == (None,)


def test_the_derivative_of_a_number_is_the_gradient_times_the_direction(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """An op that gives one number needs no graph: its gradient is computed, and that is all."""

    def refuse(*_: Any) -> Any:
        raise AssertionError("a formula was transposed")

    scores, labels = lucerne.tensor([[1.0, 2.0, 0.5], [0.1, 0.2, 0.3]]), lucerne.tensor([0, 2])
    loss = partial(lucerne.nn.functional.cross_entropy, target=labels)
    direction = scores.cos()
    want = (lucerne.func.grad(loss)(scores) * direction).sum()
    monkeypatch.setattr(rules, "transposed", refuse)
    found = lucerne.func.jvp(loss, (scores,), (direction,))[1]
    assert found.shape == ()
    assert abs(float(found) - float(want)) < 1e-6
