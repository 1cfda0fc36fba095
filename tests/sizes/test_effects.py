"""Sizes in what a function leaves behind: attributes, containers, text, returned trees."""

from __future__ import annotations

import contextlib
import io
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import lucerne as torch
from tests.sizes.check import alike


class Scene:
    """Something outside that functions change."""

    def __init__(self) -> None:
        self.n, self.total, self.kept, self.table, self.t = 0, 0, [1.0], {0: 0.5}, torch.ones(1)

    def state(self) -> tuple[Any, ...]:
        return self.n, self.total, self.kept, list(self.table.items()), self.t


def attribute(s: Scene, x: Any) -> Any:
    s.n = x.shape[0]
    return x * 2


def counter(s: Scene, x: Any) -> Any:
    s.total += x.shape[0]
    return x * s.total


def appended(s: Scene, x: Any) -> Any:
    s.kept.append(x.shape[0] * 0.5)
    return x * len(s.kept)


def entered(s: Scene, x: Any) -> Any:
    s.table[x.shape[0]] = x.shape[0] / 3
    return x + sum(s.table.values())


def kept(s: Scene, x: Any) -> Any:
    s.t = x[: x.shape[0] // 2] * 2
    return s.t.sum()


def printed(s: Scene, x: Any) -> Any:
    n = x.shape[0]
    y = x * n
    print("n", n, n // 2, f"{n / 3:.3f}")
    return y[: n // 2] + n


def in_parts(s: Scene, x: Any) -> Any:
    y = x[: int(x.shape[0] * 0.7)]
    print("mid")
    z = y * y.shape[0]
    if z.shape[0] == 5:
        z = z + 100
    print("len", len(z))
    return z, z.shape, (z.shape[0],)


def tree(s: Scene, x: Any) -> Any:
    n = x.shape[0]
    return [x * 2, n, x.shape, n**0.5, n > 4, n == 7, (n * 2, [n / 3])]


def classes(s: Scene, x: Any) -> Any:
    n = x.shape[0]
    plain = isinstance(n, int) and type(n) is int and n.__class__ is int and type(n / 2) is float
    return x * 2 if plain and type(x.shape) is torch.Size else x


def refused(s: Scene, x: Any) -> Any:
    try:
        return x.view(2, -1) * 2
    except RuntimeError:
        return x * 3


def by_item(s: Scene, x: Any) -> Any:
    return x * int(x.sum().item() > 0) + x.shape[0]


def numpy_of_sizes(s: Scene, x: Any) -> Any:
    return x * float(np.sqrt(x.shape[0])) + float(np.arange(x.shape[0]).sum())


def text(s: Scene, x: Any) -> Any:
    return x * float("%.2f" % (x.shape[0] / 3))


def enumerated(s: Scene, x: Any) -> Any:
    return sum(a * i for i, a in enumerate(x))


ROWS: list[Callable[[Scene, Any], Any]] = [
    attribute, counter, appended, entered, kept, printed, in_parts, tree, classes, refused, by_item,
    numpy_of_sizes, text, enumerated,
]  # fmt: skip


def run(fn: Any, scene: Scene, n: int) -> Any:
    out = io.StringIO()
    with contextlib.redirect_stdout(out), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            found = fn(scene, torch.arange(float(n)))
        except Exception as error:
            found = type(error).__name__
    return found, out.getvalue(), scene.state()


@pytest.mark.parametrize("dynamic", [None, True])
@pytest.mark.parametrize("fn", ROWS, ids=lambda fn: fn.__name__)
def test_what_is_left_behind(fn: Any, dynamic: bool | None) -> None:
    ours, theirs = Scene(), Scene()
    compiled = torch.compile(fn, dynamic=dynamic)
    for n in (3, 4, 6, 7, 8, 5, 1, 7, 12, 2):
        want, have = run(fn, theirs, n), run(compiled, ours, n)
        assert alike(want, have), (n, want, have)
