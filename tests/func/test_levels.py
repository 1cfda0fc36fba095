"""Levels without vmap: a transform of a dozen lines, and what the base class promises."""

from typing import Any

import pytest

import lucerne
from lucerne._src.ir.dispatch import entry, state
from lucerne._src.tensor.layers.layer import Level, level_of, lift, open_levels

ROW = lucerne.tensor([1.0, 2.0, 3.0])
ONE = lucerne.tensor([1.0])


class Negated(Level):
    """Tensors stand for their negatives: a transform that is easy to check."""

    name = "negated"

    def wrapped(self, t: Any) -> Any:
        with self.aside():
            return self.wrap(-t, t._meta)

    def plain(self, x: Any) -> Any:
        payload = self.payload_of(x) if isinstance(x, lucerne.Tensor) else None
        return x if payload is None else -payload

    def compute(self, op: Any, args: tuple[Any, ...]) -> Any:
        found = entry.run(op, tuple(self.plain(a) for a in args))
        return self.wrapped(found)

    def view(self, op: Any, args: tuple[Any, ...], results: tuple[Any, ...]) -> list[Any]:
        found = entry.run(op, (self.payload_of(args[0]), *args[1:]))
        return list(found) if isinstance(found, tuple) else [found]

    def write(self, target: Any, source: Any) -> None:
        self.payload_of(target).copy_(-self.plain(source))

    def lift(self, t: Any) -> Any:
        return self.wrapped(t)

    def detach(self, payload: Any) -> Any:
        return payload

    def read(self, t: Any) -> Any:
        return self.plain(t)


def test_ops_views_writes_and_values() -> None:
    with Negated() as level:
        x = level.wrapped(ROW)
        assert level.owns(x)
        y = x * 2 + 1
        assert level.payload_of(y).tolist() == [-3, -5, -7]
        assert y.tolist() == [3, 5, 7]
        x[1:].add_(10)
        assert x.tolist() == [1, 12, 13]
        assert x.view(3, 1).t().shape == (1, 3)


def test_autograd_stands_above() -> None:
    with Negated() as level:
        x = level.wrapped(ROW).requires_grad_()
        (g,) = lucerne.autograd.grad((x * x).sum(), x)
        assert level_of(g) is level
        assert g.tolist() == [2, 4, 6]


def test_levels_nest() -> None:
    with Negated() as outer, Negated() as inner:
        assert open_levels() == [outer, inner]
        assert (outer.depth, inner.depth) == (1, 2)
        x = inner.wrapped(outer.wrapped(ONE))
        y = x + 1
        assert inner.owns(y)
        assert outer.owns(inner.payload_of(y))
        assert y.tolist() == [2]
        assert level_of(lift(ONE)) is inner
    assert lift(x) is x
    assert open_levels() == []
    assert not state.active


def test_after_it_closed() -> None:
    with Negated() as level:
        x = level.wrapped(ONE)
        y = x.detach()
    for t in (x, y):
        with pytest.raises(RuntimeError, match="has returned"):
            t + 1


def test_an_open_level_refuses_tensors_of_a_closed_one() -> None:
    with Negated() as level:
        closed = level.wrapped(ONE)
        storage, meta = closed._storage, closed._meta
    with Negated() as other:
        t = other.wrapped(ONE)
        t._storage, t._meta = storage, meta
        with pytest.raises(RuntimeError, match="Return it from the function"):
            t + 1


def test_errors_leave_nothing_behind() -> None:
    with pytest.raises(RuntimeError, match="must match"), Negated() as level:
        level.wrapped(ROW) + lucerne.ones(2)
    assert not state.active
    assert (lucerne.ones(2) + 1).tolist() == [2, 2]
