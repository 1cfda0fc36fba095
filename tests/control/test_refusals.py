"""What control flow refuses, and that the message says what to do."""

from __future__ import annotations

from typing import Any

import pytest

import lucerne as lu
from lucerne.control_flow import cond, map, scan, while_loop


def _writes(x: Any) -> Any:
    def grow() -> Any:
        x.add_(1)
        return x * 2

    return cond(x.sum() > 0, grow, lambda: x * 3)


CAPTURED = [
    (
        "other shapes",
        lambda x: cond(x.sum() > 0, lambda: x, lambda: x[:1]),
        r"float32\[3\] in true_fn and float32\[1\] in false_fn; both must have the same shape",
    ),
    (
        "other dtypes",
        lambda x: cond(x.sum() > 0, lambda: x, lambda: x.double()),
        "same shape and dtype",
    ),
    (
        "other structure",
        lambda x: cond(x.sum() > 0, lambda: x, lambda: (x,)),
        "different structures",
    ),
    ("a number", lambda x: cond(x.sum() > 0, lambda: 1.0, lambda: 2.0), "only tensors"),
    ("writes outside", _writes, "Return the new value instead"),
    (
        "carry changes",
        lambda x: scan(lambda c, v: (c.sum(), v), lu.ones(3), x.reshape(3, 1)),
        "must stay what it is",
    ),
    ("no pair", lambda x: scan(lambda c, v: c, lu.ones(()), x), "a pair"),
    (
        "while with gradients",
        lambda x: while_loop(lambda c: c.sum() < 9, lambda c: (c + x,), (x,)),
        "max_iterations",
    ),
    (
        "while by a vector",
        lambda x: while_loop(lambda c: c > 0, lambda c: (c,), (x.detach(),)),
        "one element",
    ),
    (
        "while loses one",
        lambda x: while_loop(lambda a, b: a.sum() < 0, lambda a, b: a, (x.detach(), x.detach())),
        "are carried",
    ),
    (
        "item inside",
        lambda x: cond(x.sum() > 0, lambda: x * x.sum().item(), lambda: x),
        "values of a tensor",
    ),
]


@pytest.mark.parametrize(("fn", "text"), [c[1:] for c in CAPTURED], ids=[c[0] for c in CAPTURED])
def test_captured(fn: Any, text: str) -> None:
    x = lu.ones(3, requires_grad="max_iterations" in text)
    with pytest.raises(Exception, match=text):
        lu.compile(fn, fullgraph=True)(x)


EAGER = [
    ("pred of three", lambda x: cond(x > 0, lambda: x, lambda: x), "torch.where"),
    ("no function", lambda x: cond(x.sum() > 0, x, x), "callable"),
    ("operands", lambda x: cond(x.sum() > 0, lambda x: x, lambda x: x, x), "tuple or a list"),
    ("carried", lambda x: while_loop(lambda x: x.sum() < 1, lambda x: x, x), "tuple or list"),
    (
        "too many steps",
        lambda x: while_loop(lambda x: x.sum() > 0, lambda x: (x,), (x,), max_iterations=3),
        "max_iterations=3",
    ),
    ("nothing to scan", lambda x: scan(lambda c, v: (c, v), x, lu.ones(0, 3)), "size > 0"),
    ("other lengths", lambda x: scan(lambda c, v: (c, c), x, (x, lu.ones(2))), "different sizes"),
    (
        "carry changes",
        lambda x: scan(lambda c, v: (c.sum(), v), x, lu.ones(2, 3)),
        "structure, shape or dtype",
    ),
    ("map of numbers", lambda x: map(lambda v: v, [1, 2]), "must be tensors"),
]


@pytest.mark.parametrize(("fn", "text"), [c[1:] for c in EAGER], ids=[c[0] for c in EAGER])
def test_eager(fn: Any, text: str) -> None:
    with pytest.raises(RuntimeError, match=text):
        fn(lu.ones(3))


def test_bound_is_checked_in_programs_too() -> None:
    grow = lu.compile(
        lambda x: while_loop(lambda c: c.sum() < 9, lambda c: (c + 1,), (x,), max_iterations=4)[0],
        fullgraph=True,
    )
    assert grow(lu.tensor([6.0])).item() == 9.0
    with pytest.raises(RuntimeError, match="max_iterations=4"):
        grow(lu.tensor([1.0]))


def test_second_derivatives_are_refused_in_words() -> None:
    def slope(x: Any) -> Any:
        y = cond(x.sum() > 0, lambda x: x**3, lambda x: x, (x,))
        return lu.autograd.grad(y.sum(), x, create_graph=True)[0].sum()

    x = lu.ones(3, requires_grad=True)
    with pytest.raises(Exception, match="differentiated once"):
        lu.autograd.grad(lu.compile(slope, fullgraph=True)(x), x)


def test_names_of_torch() -> None:
    from lucerne._higher_order_ops.while_loop import while_loop as other

    assert other is while_loop
    assert lu.cond is cond
    assert lu.while_loop is while_loop
    assert lu.ops.higher_order.cond is cond
    assert lu.ops.higher_order.scan is scan
