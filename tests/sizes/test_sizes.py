"""Sizes are expressions: what is decided by them, or computed of them, holds at every size."""

from __future__ import annotations

import math
import random
import time
import warnings
from collections.abc import Callable
from typing import Any

import pytest

import lucerne as torch
from lucerne._src.ir.symbolic import numbers
from lucerne._src.ir.symbolic.expressions import FLOATS
from lucerne.nn import functional as F
from tests.sizes.check import alike, differences, result
from tests.sizes.programs import Program
from tests.support.pace import slowness

TABLE = {8: 2.0}
W = torch.arange(64.0).view(16, 4) / 64

# name -> (function, how many captures at most for all sizes; None: one per size)
ROWS: dict[str, tuple[Callable[..., Any], int | None]] = {
    "==": (lambda x, y: x * 2 if x.shape[0] == 7 else x, 3),
    "shape ==": (lambda x, y: x * 2 if x.shape == (7,) else x, 3),
    "len ==": (lambda x, y: x * 2 if len(x) == 7 else x, 3),
    "in": (lambda x, y: x * 2 if x.size(0) in (7, 11) else x, 4),
    "%": (lambda x, y: x * 2 if x.size(0) % 8 == 0 else x, 3),
    "two sizes": (lambda x, y: x * 2 if x.shape[0] == y.shape[0] else x, 5),
    "dict": (lambda x, y: x * TABLE.get(x.size(0), 1.0), None),
    "divmod": (lambda x, y: x * divmod(x.size(0), 5)[1], 2),
    "truth": (lambda x, y: x * 2 if x.size(0) - 7 else x, 3),
    "root": (lambda x, y: x * int(x.size(0) ** 0.5), 2),
    "three quarters": (lambda x, y: x[: x.size(0) - int(0.75 * x.size(0))], 3),
    "tenths": (lambda x, y: x[: int(x.size(0) * 0.3)], 4),
    "rounded": (lambda x, y: x[: round(x.size(0) * 0.3)], 4),
    "isqrt": (lambda x, y: x[: math.isqrt(x.size(0))], 3),
    "topk": (lambda x, y: x.topk(max(1, int(0.1 * x.size(0))))[0], 4),
    "quantile": (lambda x, y: x.sort()[0][int(0.9 * (x.size(0) - 1))], 3),
    "log2": (lambda x, y: x * int(math.log2(x.size(0))), 2),
    "text": (lambda x, y: x * len(str(x.size(0))), None),
    "linspace": (lambda x, y: x * torch.linspace(0, 1, x.size(0)), 3),
    "scaled": (lambda x, y: x / math.sqrt(x.size(0)) * x.numel() ** -0.5, 2),
    "ceil": (lambda x, y: F.pad(x, (0, 3 * math.ceil(len(x) / 3) - len(x))).view(-1, 3).sum(1), 3),
    "min": (lambda x, y: x[: min(x.size(0), 10)], 2),
    "min with a bool": (lambda x, y: (x * 2, min(len(x), len(x) == 4), max(0, len(x) < 9)), 6),
    "bits": (lambda x, y: x * (x.size(0) & 3) + (x.size(0) >> 1), 2),
    "last": (lambda x, y: x[-1] * x[len(x) // 2 :], 3),
    "a loop": (lambda x, y: sum(x[i] for i in range(x.size(0))), None),
    "arange": (lambda x, y: x + torch.arange(x.size(0)), 2),
    "of a result": (lambda x, y: torch.cat([x, y])[: int((len(x) + len(y)) * 0.5)], 3),
    "interpolated": (lambda x, y: F.interpolate(x[None, None], scale_factor=1.5), 3),
    "convolved": (lambda x, y: F.conv1d(x[None, None], W[None, :1, :3], stride=2, padding=1), 3),
    "tensors of sizes": (lambda x, y: x * torch.tensor(len(x)) + torch.full((), len(y) / 3), 2),
    "a closure": (lambda x, y: (lambda k: x * k)(len(x) * 0.5), 2),
    "shape returned": (lambda x, y: (x * 2, x.shape, len(x) / 3), 2),
}  # fmt: skip


ASKED: list[tuple[str, dict[str, Any]]] = [
    *((name, {}) for name in ROWS),
    *((name, {"dynamic": True}) for name in list(ROWS)[:12]),
    *((name, {"mode": "bitwise"}) for name in ("==", "in", "root", "linspace")),
]


@pytest.mark.parametrize(("name", "options"), ASKED, ids=str)
def test_rows(name: str, options: dict[str, Any]) -> None:
    fn, most = ROWS[name]
    compiled = torch.compile(fn, fullgraph=True, **options)
    sizes = (3, 4, 5, 7, 8, 11)
    for n in sizes:
        for m in {n, 9}:
            have = result(lambda x, y: compiled(x, y), n, m, grad=False)
            assert alike(result(fn, n, m, grad=False), have), (n, m, have)
    # (the second argument changes too, which is a size more)
    assert compiled.traces <= (most + 1 if most else 2 * len(sizes))


def test_traces() -> None:
    """One for a function with one size, two once a size changes, and none for all the others."""
    compiled = torch.compile(lambda x: (x @ W).relu().sum(0) / len(x))
    counts = []
    for n in (4, 4, 5, 6, 4, 100, 7):
        compiled(torch.ones(n, 16))
        counts.append(compiled.traces)
    assert counts == [1, 1, 2, 2, 2, 2, 2]


def test_all_sizes_in_random_order() -> None:
    fn = lambda x: torch.softmax(x @ W, 1).cumsum(0)[-1] * x.shape[0] ** -0.5  # noqa: E731
    compiled = torch.compile(fn, fullgraph=True)
    for n in random.Random(3).sample(range(1, 65), 64):
        x = torch.randn(n, 16)
        assert torch.allclose(fn(x), compiled(x), atol=1e-5), n
    assert compiled.traces <= 3


@pytest.mark.parametrize("dynamic", [None, True])
def test_a_batch_of_one_that_grows(dynamic: bool | None) -> None:
    compiled = torch.compile(lambda h: h @ W, dynamic=dynamic)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for n in [*range(4, 40), 64, 255, 511]:
            h = torch.randn(1, n, 16)
            assert torch.allclose(h @ W, compiled(h), atol=1e-5), n
    assert compiled.traces <= 3


def test_an_error_costs_the_generality_never_the_call(monkeypatch: Any) -> None:
    def broken(*_: Any) -> Any:
        raise ZeroDivisionError("planted")

    monkeypatch.setattr(numbers.SymInt, "__sub__", broken)
    compiled = torch.compile(lambda x: x[: x.shape[0] - 1] * 2, fullgraph=True)
    for n in (3, 4, 5):
        assert compiled(torch.ones(n)).shape == (n - 1,)
    assert "planted" in compiled.families.members[0].refused


# ---- the net ------------------------------------------------------------------------------------


@pytest.mark.parametrize("first", range(0, 24, 4))
def test_random_programs(first: int) -> None:
    for seed in range(first, first + 4):
        assert list(differences(seed, {"backend": "reference"} if seed % 4 else {})) == []


def test_programs_differ_from_each_other_and_mostly_run() -> None:
    """A net of programs that all raise would catch nothing."""
    raised = 0
    for seed in range(60):
        program = Program(seed)
        n, m = program.sizes()[0]
        raised += isinstance(result(program.function(), n, m, grad=False), str)
    assert len({Program(seed).source for seed in range(60)}) == 60
    assert raised < 20


def test_the_comparison_fails() -> None:
    x = torch.ones(3)
    assert alike((x, 1, [1.5]), (x + 0, 1, [1.5]))
    assert not alike((x, 1), (x, True))
    assert not alike(x, x + 1e-2)
    assert not alike(x, torch.ones(4))
    assert not alike(x, x.double())
    assert not alike(0.0, -0.0)
    assert not alike("ValueError", x)


def _forgets_equality(relation: Any, a: Any, b: Any) -> bool:
    """As it was: `==` and `!=` were kept only if the right frame asked."""
    if relation in (numbers.operator.eq, numbers.operator.ne):
        return bool(relation(numbers.plain(a), numbers.plain(b)))
    return KEPT(relation, a, b)


KEPT = numbers._decided


def _forgets_floats(op: str, *args: Any) -> Any:
    """As it was: a float of a size was a plain one."""
    return FLOATS[op](*map(numbers.plain, args))


@pytest.mark.parametrize(
    ("name", "fault"), [("_decided", _forgets_equality), ("floating", _forgets_floats)]
)
def test_the_net_finds_old_faults(name: str, fault: Any, monkeypatch: Any) -> None:
    monkeypatch.setattr(numbers, name, fault)
    began = time.thread_time()
    found = next(
        (line for seed in range(400) for line in differences(seed, {"backend": "reference"})), ""
    )
    assert found
    assert time.thread_time() - began < 60 * slowness()
