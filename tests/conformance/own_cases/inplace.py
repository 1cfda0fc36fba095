"""Changing tensors in place: through views, with casts, into `out=`, and what is refused."""

import warnings
from typing import Any

from tests.conformance.own_cases.tools import Rows, after, attempt, counted, facts, numbers, raises


def seen_by_views(t: Any) -> Any:
    base = t.zeros(4, 4)
    row, column, block = base[1], base[:, 2], base[2:, 2:]
    row.add_(1)
    column.mul_(3).sub_(1)
    block.copy_(t.eye(2))
    base.t()[0].fill_(9)
    return base, row, column, block


def versions(t: Any) -> Any:
    x = t.zeros(3)
    seen = [x._version]
    x.add_(1)
    seen.append(x._version)
    x[0] = 2
    view = x[1:]
    view.mul_(2)
    seen += [x._version, view._version]
    x.detach().add_(1)
    seen.append(x._version)
    x.data.add_(1)
    seen.append(x._version)
    return seen, x


def overlapping(t: Any) -> Any:
    x = counted(t, 6)
    x[1:].copy_(x[:-1].clone())
    y = counted(t, 3, 3)
    y.copy_(y.t().clone())
    return x, y, raises(lambda: t.ones(1).expand(3).add_(1), "single memory location")


def out_resizes(t: Any) -> Any:
    empty = t.empty(0)
    t.add(t.ones(2, 3), 1, out=empty)
    right = t.empty(2, 3).t()
    t.add(t.ones(3, 2), 1, out=right)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        wrong = t.zeros(5)
        t.add(t.ones(2, 3), 1, out=wrong)
    texts = ["was resized since it had shape [5]" in str(w.message) for w in caught]
    return empty, right, wrong, texts


def out_of_view(t: Any) -> Any:
    base = t.zeros(3, 4)
    t.mul(t.ones(3), 5, out=base[:, 1])
    t.sum(t.ones(2, 4), 0, out=base[2])
    return base


def out_refusals(t: Any) -> Any:
    grad = numbers(t, 2, grad=True)
    return (
        raises(lambda: t.add(t.ones(2), 1, out=t.ones(2, dtype=t.int64)), "can't be cast"),
        raises(lambda: t.add(grad, 1, out=t.ones(2)), "don't support automatic differentiation"),
        raises(lambda: t.matmul(t.ones(2, 2), t.ones(2, 2), out=t.ones(2, 2).long())),
        raises(lambda: t.add(t.ones(2), 1, out=3)),
        raises(lambda: t.max(t.ones(2, 2), 0, out=t.ones(2))),
    )


def out_of_several(t: Any) -> Any:
    values, indices = t.empty(0), t.empty(0, dtype=t.int64)
    result = t.max(counted(t, 2, 3), 1, out=(values, indices))
    return values, indices, result[0] is values, result.indices is indices


def cast_refusals(t: Any) -> Any:
    ints, bools = t.ones(2, dtype=t.int64), t.ones(2, dtype=t.bool)
    return (
        raises(lambda: ints.add_(0.5), "can't be cast"),
        raises(lambda: ints.div_(2), "can't be cast"),
        raises(lambda: bools.add_(1), "can't be cast"),
        raises(lambda: ints.mul_(1j), "can't be cast"),
        attempt(lambda: ints.add_(True)),
        attempt(lambda: t.ones(2).add_(ints)),
        attempt(lambda: t.ones(2, dtype=t.int8).add_(ints)),
        attempt(lambda: t.ones(2, dtype=t.float16).mul_(t.ones(2, dtype=t.float64))),
    )


def shape_refusals(t: Any) -> Any:
    return (
        raises(lambda: t.ones(2).add_(t.ones(3, 2)), "doesn't match the broadcast shape"),
        raises(lambda: t.ones(2).copy_(t.ones(3)), "must match"),
        raises(lambda: t.ones(1, 2).unsqueeze_(5), "out of range"),
        attempt(lambda: t.ones(3, 2).add_(t.ones(2))),
        attempt(lambda: t.ones(3, 2).copy_(t.ones(2))),
    )


def metadata_in_place(t: Any) -> Any:
    x = counted(t, 2, 3)
    first = facts(x.t_())
    second = facts(x.unsqueeze_(0))
    third = facts(x.squeeze_().transpose_(0, 1))
    return first, second, third, x, x.resize_(3, 2), x.resize_(1)


def set_and_data(t: Any) -> Any:
    x, y = t.ones(2), t.zeros(3)
    x.data = y
    x[0] = 5
    z = t.empty(0).set_(y)
    z[1] = 6
    return x, y, z


def operators(t: Any) -> Any:
    x = counted(t, 3)
    same = x
    x += 1
    x *= 2
    x -= t.ones(3)
    x /= 2
    x **= 2
    x //= 1
    x %= 3
    m = t.tensor([True, False])
    m |= t.tensor([False, True])
    m &= t.tensor([True, False])
    m ^= t.tensor([True, True])
    return x, same is x, m


def foreach(t: Any) -> Any:
    xs = [counted(t, 2), counted(t, 2, 2)]
    t._foreach_add_(xs, 1)
    t._foreach_mul_(xs, [2.0, 3.0])
    return xs, t._foreach_sqrt(xs), t._foreach_norm(xs)


ROWS: Rows = {
    "seen by views": seen_by_views,
    "version counter": versions,
    "overlapping memory": overlapping,
    "out resizes": out_resizes,
    "out of a view": out_of_view,
    "out refusals": out_refusals,
    "out of several": out_of_several,
    "cast refusals": cast_refusals,
    "shape refusals": shape_refusals,
    "metadata in place": metadata_in_place,
    "set_ and data": set_and_data,
    "operators": operators,
    "foreach": foreach,
    "copy_": lambda t: (
        t.zeros(2, 3).copy_(t.ones(3, 2).t()),
        t.zeros(2, dtype=t.int64).copy_(t.tensor([1.9, -1.9])),
        t.zeros(2, 2).copy_(t.tensor(5)),
        t.zeros(2).copy_(t.tensor([1, 2]), non_blocking=True),
    ),
    "fill_ and zero_": lambda t: (
        t.empty(2, 2).t().fill_(3),
        t.ones(3)[1:].zero_(),
        t.empty(2).fill_(t.tensor(7)),
        raises(lambda: t.empty(2).fill_(t.ones(2)), "0-dimension"),
        t.empty(2, dtype=t.bool).fill_(0.5),
    ),
    "clamp_ and friends": lambda t: (
        counted(t, 4).clamp_(1, 2),
        counted(t, 4).sub_(2).abs_().sqrt_(),
        counted(t, 4).masked_fill_(t.tensor([True, False, True, False]), -1),
        counted(t, 4).index_add_(0, t.tensor([0, 0]), t.ones(2), alpha=2),
        counted(t, 4).index_fill_(0, t.tensor([1]), 9),
        counted(t, 4).index_copy_(0, t.tensor([3]), t.tensor([8.0])),
        counted(t, 4).scatter_(0, t.tensor([2]), t.tensor([5.0])),
        counted(t, 4).scatter_add_(0, t.tensor([2, 2]), t.ones(2)),
        counted(t, 2, 2).addmm_(t.ones(2, 2), t.ones(2, 2)),
        counted(t, 4).addcmul_(t.ones(4), t.ones(4), value=2),
        counted(t, 4).lerp_(t.zeros(4), 0.5),
        counted(t, 3, 3).tril_().fill_diagonal_(7),
    ),
    "swap by slices": lambda t: after(counted(t, 2, 3), lambda x: x.__setitem__([0, 1], x[[1, 0]])),
    "clone is apart": lambda t: (lambda x: (x.clone().add_(1), x))(t.ones(2)),
    "detach shares": lambda t: (lambda x: (x.detach().add_(1), x))(t.ones(2)),
    "expand then write": lambda t: raises(
        lambda: after(t.zeros(1).expand(3), lambda x: x.__setitem__(0, 1)), ""
    ),
}
