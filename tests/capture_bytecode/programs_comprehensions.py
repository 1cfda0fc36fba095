"""Comprehensions of all kinds (which Python 3.12 runs inside their function)."""

import lucerne as torch
from tests.capture_bytecode.cases import case


@case(lambda: (range(6),))
def all_kinds(xs):
    return (
        [x * 2 for x in xs if x % 2],
        {x % 3 for x in xs},
        {x: x * x for x in xs if x > 2},
        list(x + 1 for x in xs),
    )


@case(lambda: (3,))
def nested(n):
    return [[i * j for j in range(i)] for i in range(n + 1)], [
        (i, j) for i in range(n) for j in range(i, n) if i != j
    ]


@case(lambda: (3,))
def outer_variable_is_kept(n):
    x = "kept"
    found = [x for x in range(n)]
    return found, x


@case(lambda: (3,))
def unset_variable_stays_unset(n):
    found = [y for y in range(n)]
    try:
        return y
    except NameError as error:
        return found, type(error).__name__


@case(lambda: (3,))
def closures_inside(n):
    fs = [lambda a: a + k for k in range(n)]
    gs = {k: (lambda k=k: k * 2) for k in range(n)}
    return [f(1) for f in fs], [g() for g in gs.values()]


@case(lambda: (4,))
def walrus_inside(n):
    found = [last := k * k for k in range(n)]
    big = [y for k in range(n) if (y := k * 3) > 4]
    return found, last, big, y


@case(lambda: ([1, 0, 2],))
def error_inside(xs):
    x = "before"
    try:
        return [1 / x for x in xs]
    except ZeroDivisionError:
        return x


@case(lambda: ({"a": [1, 2], "b": []},))
def over_items(d):
    return (
        {k: [v + 1 for v in vs] for k, vs in d.items()},
        [v for vs in d.values() for v in vs],
        {v: k for k, vs in d.items() for v in vs},
    )


@case(lambda: ([[1, 2, 3], [4, 5, 6]],))
def transpose(m):
    return [[row[k] for row in m] for k in range(len(m[0]))], [
        x for row in m for x in row if x % 2 == 0
    ]


@case(lambda: (5,))
def conditions(n):
    return [k if k % 2 else -k for k in range(n) if k if k != 3], [
        a or b for a, b in [(0, 1), (2, 3)]
    ]


@case(lambda: (5,))
def cell_in_comprehension(n):
    total = 0

    def add(k):
        nonlocal total
        total += k
        return total

    return [add(k) for k in range(n)], {k: add(k) for k in range(2)}, total


@case(lambda: ("abc",))
def unpacking_inside(s):
    return (
        [a + b for a, b in zip(s, s[1:])],
        [first for first, *_ in ["xy", "z"]],
        {i: c for i, c in enumerate(s)},
    )


@case(lambda: (5,))
def in_arguments(n):
    return (
        sum(k for k in range(n)),
        max([k % 4 for k in range(n)]),
        ",".join(str(k) for k in range(n)),
        sorted({-k for k in range(n)}),
        dict([(k, k) for k in "ab"]),
    )


class Holder:
    base = 10
    values = [k for k in range(3)]

    def scaled(self):
        return [self.base * v for v in self.values], {v: self for v in self.values}.keys()


@case(lambda: (Holder(),))
def in_method(h):
    return h.scaled()[0], list(h.scaled()[1])


@case(lambda: (torch.arange(6.0).reshape(2, 3),))
def tensor_list(x):
    return torch.stack([row * k for k, row in enumerate(x)]), {k: x[:, k].sum() for k in range(3)}


@case(lambda: ([torch.ones(2), torch.zeros(2)], [torch.ones(2)] * 2))
def tensor_pairs(xs, ys):
    return [a + b for a, b in zip(xs, ys)], sum(a * b for a in xs for b in ys)


@case(lambda: (torch.ones(2),))
def tensor_keeps_outer_name(x):
    ys = [x * 2 for x in (x, x + 1)]
    return x, torch.cat(ys)


@case(lambda: ({"w": torch.ones(2), "b": torch.zeros(2)},))
def tensor_dict(params):
    return {name: p * 2 + 1 for name, p in params.items() if name != "b"}
