"""Floats that change from call to call: given to one program where ops take them, else a version
for each value; always the result of eager."""

from __future__ import annotations

import math
import threading
from typing import Any

import pytest

import lucerne as torch
from lucerne.nn import functional as F

VALUES = (0.5, 1.5, -2.25, 3.0, 0.125, 7.5)
GIVEN, BY_VALUE = 2, len(VALUES)
"""Versions: the first value's own and one for all others; or one for each."""


def scaled(x: Any, k: float) -> Any:
    return x * k + k / 2


def formula(x: Any, k: float) -> Any:
    return (x + (1 - k) * 3).relu() - k**2 * x.sum()


def branch(x: Any, k: float) -> Any:
    return x * k if k > 2 else x - k


def clamped(x: Any, k: float) -> Any:
    return x.clamp(min=k) + torch.where(x > k, x, k)


def temperature(x: Any, k: float) -> Any:
    return F.softmax(x / (abs(k) + 1), 0)


def in_a_dict(x: Any, k: float) -> Any:
    return x * {"scale": k}["scale"]


def in_a_list(x: Any, k: float) -> Any:
    return sum([x * w for w in [k, k + 1]])


def root(x: Any, k: float) -> Any:
    return x * math.sqrt(abs(k))


def floor(x: Any, k: float) -> Any:
    return x * math.floor(k)


def as_integer(x: Any, k: float) -> Any:
    return x * int(k) + round(k)


def text(x: Any, k: float) -> Any:
    return x * len(f"{k}") + len("%s" % k)  # noqa: UP031


def returned(x: Any, k: float) -> Any:
    return x * 2, k * 2


def kind(x: Any, k: float) -> Any:
    return x * k if type(k) is float and isinstance(k, float) else x


def as_tensor(x: Any, k: float) -> Any:
    return x + torch.tensor(k) * torch.full((3,), k)


def dropout(x: Any, k: float) -> Any:
    return F.dropout(x, p=1 / (1 + abs(k)), training=False) + F.leaky_relu(x, k) + F.elu(x, k)


def losses(x: Any, k: float) -> Any:
    return F.huber_loss(x, x * 2, delta=abs(k) + 1) + F.smooth_l1_loss(x, -x, beta=abs(k))


def interpolated(x: Any, k: float) -> Any:
    return torch.lerp(x, x * 2, k) + x.add(x, alpha=k) + torch.addcmul(x, x, x, value=k)


ROWS = [
    (scaled, GIVEN), (formula, GIVEN), (branch, 2 * GIVEN), (clamped, None), (temperature, None),
    (in_a_dict, GIVEN), (in_a_list, GIVEN), (root, BY_VALUE), (floor, None), (as_integer, BY_VALUE),
    (text, None), (returned, BY_VALUE), (kind, GIVEN), (as_tensor, None), (dropout, None),
    (losses, None), (interpolated, None),
]  # fmt: skip
"""(function, versions for six values; None: whatever it takes)."""


@pytest.mark.parametrize(("fn", "versions"), ROWS, ids=lambda x: getattr(x, "__name__", ""))
def test_a_float_that_changes(fn: Any, versions: int | None) -> None:
    compiled = torch.compile(fn, mode="bitwise", fullgraph=True)
    x = torch.linspace(-1, 1, 3)
    for k in (*VALUES, *VALUES[::-1]):
        want, got = fn(x, k), compiled(x, k)
        torch.testing.assert_close(got, want, rtol=0, atol=0)
    if versions is not None:
        assert len(compiled.entries) == versions


def test_gradients_with_a_number_of_the_call() -> None:
    def fn(x: Any, w: Any, k: float) -> Any:
        return ((x * w * k).relu() + w * k).sum()

    compiled = torch.compile(fn)
    for k in VALUES:
        found = []
        for run in (fn, compiled):
            w = torch.linspace(-2, 2, 3, requires_grad=True)
            run(torch.ones(3), w, k).backward()
            found.append(w.grad)
        torch.testing.assert_close(*found)
    assert len(compiled.entries) == GIVEN


def test_backward_reads_the_number_of_its_own_call() -> None:
    compiled = torch.compile(lambda w, k: (w * k).sum())
    w = torch.ones(2, requires_grad=True)
    losses_of = [compiled(w, k) for k in VALUES]
    for k, loss in zip(VALUES, losses_of, strict=True):
        w.grad = None
        loss.backward()
        assert w.grad is not None
        assert w.grad.tolist() == [k, k]


def test_other_sizes_and_other_numbers() -> None:
    compiled = torch.compile(scaled)
    for n in (3, 3, 5, 7, 9, 3):
        for k in VALUES[:3]:
            torch.testing.assert_close(compiled(torch.ones(n), k), scaled(torch.ones(n), k))


def test_an_integer_is_no_float() -> None:
    compiled = torch.compile(scaled)
    for k in (0.5, 1.5, 2, True, 2.5, float("nan"), float("inf")):
        want = scaled(torch.ones(2), k)
        torch.testing.assert_close(compiled(torch.ones(2), k), want, equal_nan=True)


def test_threads_have_numbers_of_their_own() -> None:
    compiled = torch.compile(scaled)
    for k in VALUES[:3]:
        compiled(torch.ones(4), k)
    wrong = []

    def work(k: float) -> None:
        for _ in range(40):
            if not torch.equal(compiled(torch.ones(4), k), scaled(torch.ones(4), k)):
                wrong.append(k)

    threads = [threading.Thread(target=work, args=(k,)) for k in VALUES]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert wrong == []
