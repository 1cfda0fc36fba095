"""Functions with control flow as ops, and the same functions written out in Python.

Each row: a name, the function, the same unrolled, arguments (several, so that all ways are taken).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import lucerne as lu
from lucerne.control_flow import associative_scan, cond, map, scan, while_loop
from lucerne.nn import functional as F


@dataclass
class Row:
    name: str
    fn: Callable[..., Any]
    plain: Callable[..., Any]
    args: list[Any]
    """Tuples of shapes: floats get random numbers, a minus makes them negative."""
    gradients: bool = True


def _floats(seed: int, *shapes: Any, sign: float = 1.0) -> tuple[Any, ...]:
    lu.manual_seed(seed)
    return tuple((lu.rand(s) + 0.1) * sign for s in shapes)


def both(*shapes: Any) -> list[Any]:
    """Arguments that are positive, and arguments that are not."""
    return [_floats(0, *shapes), _floats(1, *shapes, sign=-1.0)]


W = lu.tensor([[0.5, -0.2, 0.1], [0.3, 0.4, -0.6], [-0.1, 0.2, 0.7]])


def _if(x: Any, yes: Any, no: Any) -> Any:
    return yes if bool(x) else no


def _loop(fn: Any, carry: Any, rows: Any, reverse: bool = False) -> Any:
    ys = []
    steps = range(rows.shape[0])
    for t in reversed(steps) if reverse else steps:
        carry, y = fn(carry, rows[t])
        ys.append(y)
    return carry, lu.stack(ys[::-1] if reverse else ys)


def _rnn(w: Any) -> Any:
    return lambda h, x: ((h @ w + x).tanh(), (h * x).sum())


def _halve(x: Any) -> Any:
    n = 0
    while x.sum() > 1:
        x, n = x / 2, n + 1
    return x, lu.tensor(n)


def _nested_plain(x: Any) -> Any:
    if x.sum() > 0:
        return x.sin() if x.max() > 0.5 else x.cos()
    return x.exp()


def _nested(x: Any) -> Any:
    inner = lambda x: cond(x.max() > 0.5, lambda x: x.sin(), lambda x: x.cos(), (x,))  # noqa: E731
    return cond(x.sum() > 0, inner, lambda x: x.exp(), (x,))


def _in_loop(x: Any) -> Any:
    def step(c: Any, v: Any) -> Any:
        after = cond(v.sum() > 0.8, lambda c, v: c + v, lambda c, v: c * v, (c, v))
        return after, after.sum()

    return scan(step, lu.ones(3), x)


def _in_loop_plain(x: Any) -> Any:
    return _loop(
        lambda c, v: (lambda a: (a, a.sum()))(c + v if v.sum() > 0.8 else c * v), lu.ones(3), x
    )


def _newton(a: Any) -> Any:
    def goes_on(x: Any, n: Any) -> Any:
        return ((x * x - a).abs().max() > 1e-5) & (n < 50)

    return while_loop(goes_on, lambda x, n: ((x + a / x) / 2, n + 1), (a, lu.tensor(0)))


def _newton_plain(a: Any) -> Any:
    x, n = a, lu.tensor(0)
    while bool(((x * x - a).abs().max() > 1e-5) & (n < 50)):
        x, n = (x + a / x) / 2, n + 1
    return x, n


def _tree(x: Any) -> Any:
    def step(c: Any, v: Any) -> Any:
        after = {"sum": c["sum"] + v[0], "n": c["n"] + 1}
        return after, (after["sum"] * v[1], [v[0]])

    first = {"sum": lu.zeros(3), "n": lu.tensor(0)}
    carry, (a, [b]) = scan(step, first, (x, x * 2))
    return carry["sum"], carry["n"], a, b


def _tree_plain(x: Any) -> Any:
    total, ys = lu.zeros(3), []
    for v in x:
        total = total + v
        ys.append(total * v * 2)
    return total, lu.tensor(x.shape[0]), lu.stack(ys), x.clone()


def _bounded(x: Any) -> Any:
    return while_loop(lambda x: x.sum() > 1, lambda x: (x * 0.7,), (x,), max_iterations=12)


def _bounded_plain(x: Any) -> Any:
    while x.sum() > 1:
        x = x * 0.7
    return (x,)


ROWS = [
    Row(
        "cond",
        lambda x: cond(x.sum() > 0, lambda x: x.sin(), lambda x: x * 3, (x,)),
        lambda x: _if(x.sum() > 0, x.sin(), x * 3),
        both((3,)),
    ),
    Row(
        "cond, two results",
        lambda x: cond(x[0] > 0, lambda x: (x + 1, x.sum()), lambda x: (x * x, x.max()), (x,)),
        lambda x: _if(x[0] > 0, (x + 1, x.sum()), (x * x, x.max())),
        both((3,)),
    ),
    Row(
        "cond, two operands",
        lambda x, y: cond(x.sum() > y.sum(), lambda x, y: x - y, lambda x, y: x * y, (x, y)),
        lambda x, y: _if(x.sum() > y.sum(), x - y, x * y),
        [_floats(0, 3, 3), _floats(5, 3, 3)],
    ),
    Row(
        "cond, closure",
        lambda x: cond(x.sum() > 0, lambda: x @ W, lambda: x + 1),
        lambda x: _if(x.sum() > 0, x @ W, x + 1),
        both((2, 3)),
    ),
    Row(
        "cond, one side has no gradient",
        lambda x: cond(x.sum() > 0, lambda x: x * 2, lambda x: lu.ones(3), (x,)),
        lambda x: _if(x.sum() > 0, x * 2, lu.ones(3) + 0 * x),
        both((3,)),
    ),
    Row(
        "cond, result is an operand",
        lambda x: cond(x.sum() > 0, lambda x: x, lambda x: -x, (x,)) * 2,
        lambda x: _if(x.sum() > 0, x, -x) * 2,
        both((3,)),
    ),
    Row(
        "cond, views",
        lambda x: cond(x.sum() > 0, lambda x: x.t(), lambda x: x.t() * 2, (x[:, 1:],)),
        lambda x: _if(x[:, 1:].sum() > 0, x[:, 1:].t(), x[:, 1:].t() * 2),
        both((2, 3)),
    ),
    Row(
        "cond, writes inside",
        lambda x: cond(x.sum() > 0, lambda x: x.clone().mul_(2), lambda x: (x + 1).relu_(), (x,)),
        lambda x: _if(x.sum() > 0, x * 2, (x + 1).relu()),
        both((3,)),
    ),
    Row(
        "cond, a region inside",
        lambda x: cond(x.sum() > 0, _region, lambda x: -x, (x,)),
        lambda x: _if(x.sum() > 0, _region(x), -x),
        both((4,)),
    ),
    Row(
        "cond, constants",
        lambda x: cond(
            x.sum() > 0, lambda x: x + lu.tensor([1.0, 2.0, 3.0]), lambda x: x - lu.arange(3), (x,)
        ),
        lambda x: _if(x.sum() > 0, x + lu.tensor([1.0, 2.0, 3.0]), x - lu.arange(3)),
        both((3,)),
    ),
    Row(
        "cond, integers",
        lambda x: cond(x.sum() > 0, lambda x: (x > 0.5, x), lambda x: (x < -2, x * 2), (x,))[1],
        lambda x: _if(x.sum() > 0, x, x * 2),
        both((3,)),
    ),
    Row("cond of cond", _nested, _nested_plain, [*both((3,)), _floats(9, (3,))]),
    Row(
        "cond twice",
        lambda x: cond(
            x.sum() > 0,
            lambda y: y * 2,
            lambda y: y + 1,
            (cond(x[0] > 0.3, lambda x: x, lambda x: -x, (x,)),),
        ),
        lambda x: (lambda y: _if(x.sum() > 0, y * 2, y + 1))(_if(x[0] > 0.3, x, -x)),
        both((3,)),
    ),
    Row(
        "cond, matmul and softmax",
        lambda x: cond(
            x.sum() > 0, lambda x: (x @ W).softmax(-1), lambda x: F.layer_norm(x, (3,)), (x,)
        ),
        lambda x: _if(x.sum() > 0, (x @ W).softmax(-1), F.layer_norm(x, (3,))),
        both((4, 3)),
    ),
    Row(
        "cond by a bool",
        lambda x: cond(x.shape[0] > 2, lambda x: x * 2, lambda x: x, (x,)),
        lambda x: x * 2,
        both((3,)),
    ),
    Row(
        "scan, sums",
        lambda x: scan(lambda c, v: (c + v, c + v), lu.zeros(3), x),
        lambda x: _loop(lambda c, v: (c + v, c + v), lu.zeros(3), x),
        both((5, 3)),
    ),
    Row(
        "scan, recurrent",
        lambda x, h: scan(_rnn(W), h, x),
        lambda x, h: _loop(_rnn(W), h, x),
        both((6, 3), (3,)),
    ),
    Row(
        "scan, weights",
        lambda x, w: scan(_rnn(w), lu.zeros(3), x),
        lambda x, w: _loop(_rnn(w), lu.zeros(3), x),
        both((6, 3), (3, 3)),
    ),
    Row(
        "scan, reverse",
        lambda x, w: scan(_rnn(w), lu.ones(3), x, reverse=True),
        lambda x, w: _loop(_rnn(w), lu.ones(3), x, reverse=True),
        both((6, 3), (3, 3)),
    ),
    Row(
        "scan, another dim",
        lambda x: scan(lambda c, v: (c * v, c + v), lu.ones(2), x, dim=1),
        lambda x: (lambda c, y: (c, y.t()))(*_loop(lambda c, v: (c * v, c + v), lu.ones(2), x.t())),
        both((2, 5)),
    ),
    Row("scan, trees", _tree, _tree_plain, both((4, 3))),
    Row(
        "scan, an integer carried",
        lambda x: scan(
            lambda c, v: ((c[0] + 1, c[1] * v), c[0] * v), (lu.tensor(1), lu.ones(3)), x
        )[1],
        lambda x: lu.stack([v * (k + 1) for k, v in enumerate(x)]),
        both((4, 3)),
    ),
    Row(
        "scan, only the last carry",
        lambda x: scan(lambda c, v: (c.sin() + v, c), lu.zeros(3), x)[0],
        lambda x: _loop(lambda c, v: (c.sin() + v, c), lu.zeros(3), x)[0],
        both((4, 3)),
    ),
    Row(
        "scan of one row",
        lambda x: scan(lambda c, v: (c + v, c * v), lu.ones(3), x),
        lambda x: _loop(lambda c, v: (c + v, c * v), lu.ones(3), x),
        both((1, 3)),
    ),
    Row("scan with cond inside", _in_loop, _in_loop_plain, both((5, 3))),
    Row(
        "scan in scan",
        lambda x: scan(lambda c, v: (scan(lambda a, b: (a * b, a), c, v)[0], c), lu.ones(2), x),
        lambda x: _loop(lambda c, v: (_loop(lambda a, b: (a * b, a), c, v)[0], c), lu.ones(2), x),
        both((3, 4, 2)),
    ),
    Row(
        "map",
        lambda x: map(lambda v: (v * 2).sin(), x),
        lambda x: lu.stack([(v * 2).sin() for v in x]),
        both((4, 3)),
    ),
    Row(
        "map, arguments",
        lambda x, w: map(lambda v, w: v @ w, x, w),
        lambda x, w: lu.stack([v @ w for v in x]),
        both((4, 3), (3, 3)),
    ),
    Row(
        "map, a tree",
        lambda x: map(lambda v: (v[0].sum(), {"p": v[1] * 2}), (x, x + 1))[1]["p"],
        lambda x: (x + 1) * 2,
        both((4, 3)),
    ),
    Row(
        "associative scan",
        lambda x: associative_scan(lambda a, b: a * b, x, 0),
        lambda x: x.cumprod(0),
        both((4, 3)),
    ),
    Row(
        "associative scan, reverse",
        lambda x: associative_scan(lambda a, b: a + b, x, 1, reverse=True),
        lambda x: x.flip(1).cumsum(1).flip(1),
        both((4, 3)),
    ),
    Row(
        "while",
        lambda x: while_loop(
            lambda x, n: x.sum() > 1, lambda x, n: (x / 2, n + 1), (x, lu.tensor(0))
        ),
        _halve,
        [_floats(0, (30,)), _floats(0, (1,)), _floats(1, (3,), sign=-1.0)],
        gradients=False,
    ),
    Row(
        "while, Newton",
        _newton,
        _newton_plain,
        [_floats(0, (4,)), _floats(3, (4,))],
        gradients=False,
    ),
    Row(
        "while, closure",
        lambda x: while_loop(lambda c: c.max() < 3, lambda c: (c + x.abs(),), (x,)),
        lambda x: _grown(x),
        both((3,)),
        gradients=False,
    ),
    Row(
        "while, one carried",
        lambda x: while_loop(lambda c: c.max() < 3, lambda c: c * 2 + 1, (x,)),
        lambda x: _doubled(x),
        [_floats(0, (3,))],
        gradients=False,
    ),
    Row(
        "while with a bound",
        _bounded,
        _bounded_plain,
        [_floats(0, (9,)), _floats(0, (1,)), _floats(1, (3,), sign=-1.0)],
    ),
    Row(
        "while with cond inside",
        lambda x: while_loop(
            lambda c: c.sum() > 1,
            lambda c: (cond(c[0] > 0.2, lambda c: c / 3, lambda c: c / 2, (c,)),),
            (x,),
        ),
        lambda x: _thirds(x),
        [_floats(0, (5,))],
        gradients=False,
    ),
]


def _region(x: Any) -> Any:
    y = x.clone()
    y[1:3] = x[:2] * 5
    return y


def _grown(x: Any) -> Any:
    c = x
    while c.max() < 3:
        c = c + x.abs()
    return (c,)


def _doubled(c: Any) -> Any:
    while c.max() < 3:
        c = c * 2 + 1
    return (c,)


def _thirds(c: Any) -> Any:
    while c.sum() > 1:
        c = c / 3 if c[0] > 0.2 else c / 2
    return (c,)
